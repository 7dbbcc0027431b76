"""JSON that is read back: its types say what it should be, and all of it is checked before any is used.

A type is a dataclass, or anything else that msgspec (https://jcristharif.com/msgspec) knows.  A key that
it does not name is passed over; whatever else does not fit is one ValueError that names the place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

__all__ = ["Count", "Fraction", "Positive", "Seconds", "Size", "convert", "parse", "read"]

Seconds = Annotated[float, msgspec.Meta(ge=1e-12, le=1e9)]
"""A measured time."""

Size = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
"""M, N or K."""

Count = Annotated[int, msgspec.Meta(ge=1, le=2**20)]
"""How many there are of something that there is at least one of."""

Positive = Annotated[float, msgspec.Meta(ge=1e-12, le=1e30)]
"""Any other figure: watts, joules, FLOP/s."""

Fraction = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
"""A difference as a fraction of a figure."""

T = TypeVar("T")


def convert(data: Any, kind: type[T]) -> T:
    """*data*, as JSON has it, as a *kind*.  Raises ValueError where it does not fit, in one line."""
    return msgspec.convert(data, kind)


def parse(text: bytes, kind: type[T]) -> T:
    """The *kind* that *text* has in JSON.  Raises ValueError where it does not, in one line."""
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def read(path: Path, kind: type[T]) -> T:
    """As :func:`parse`, of a file.  Raises OSError where it cannot be read."""
    return parse(path.read_bytes(), kind)
