"""The space of a search: every combination of tile parameters, and why most of them make no kernel.

What is legal the rung says itself (:meth:`numba_gemm.Rung.why_illegal`); what the device holds is
:mod:`numba_gemm.model.occupancy`'s to say.  This module only goes through the combinations.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

from ..rung import Rung
from ..tile import Tile

__all__ = ["RANGES", "Candidate", "Space", "enumerate_space", "tiles"]

RANGES: Mapping[str, tuple[int, ...]] = {
    "BM": (16, 32, 64, 128, 256),
    "BN": (16, 32, 64, 128, 256),
    "BK": (4, 8, 16, 32),
    "TM": (2, 4, 8, 16),
    "TN": (2, 4, 8, 16),
    "WM": (16, 32, 64, 128),
    "WN": (16, 32, 64, 128),
    "stages": (2, 3, 4),
}
"""The values tried for each parameter of :class:`numba_gemm.Tile`: powers of two, and few stages."""


@dataclass(frozen=True)
class Candidate:
    """What competes: a rung by its name and the tile to build it with, None for a rung without one.

    *order* is that of a thread's columns (:mod:`numba_gemm.search.orders`), () for the rung's own.
    """

    rung: str
    tile: Tile | None
    order: tuple[int, ...] = ()

    def __str__(self) -> str:
        words = [self.rung]
        if self.tile:
            words.append(short(self.tile))
        if self.order:
            words.append(",".join(map(str, self.order)))
        return " ".join(words)

    def as_dict(self) -> dict[str, Any]:
        """The candidate ready for JSON."""
        return asdict(self)


def short(tile: Tile) -> str:
    """A tile in few characters: block x depth, thread, warp, stages (``128x256x8 8x16 w64x64 s2``)."""
    parts = [f"{tile.BM}x{tile.BN}x{tile.BK}", f"{tile.TM}x{tile.TN}"]
    if tile.WM:
        parts.append(f"w{tile.WM}x{tile.WN}")
    if tile.stages > 1:
        parts.append(f"s{tile.stages}")
    return " ".join(parts)


@dataclass(frozen=True)
class Space:
    """Every combination of a rung's parameters: those that make a kernel, and why others do not."""

    rung: str
    legal: tuple[Tile, ...]
    refused: Mapping[Tile, tuple[str, ...]]

    @property
    def candidates(self) -> list[Candidate]:
        """The legal tiles, ready to compete."""
        return [Candidate(self.rung, tile) for tile in self.legal]

    def reasons(self) -> list[tuple[str, int, str]]:
        """Kinds of reasons, how many tiles each refuses and one in full, the most frequent first.

        Reasons that differ only in their numbers are of one kind.  A tile may have several.
        """
        counts: Counter[str] = Counter()
        examples: dict[str, str] = {}
        for reasons in self.refused.values():
            kinds = {re.sub(r"\b(?<!\.)\d+\b", "#", reason): reason for reason in reasons}
            counts.update(kinds.keys())
            examples = kinds | examples
        return [(kind, count, examples[kind]) for kind, count in counts.most_common()]


def tiles(rung: Rung, ranges: Mapping[str, tuple[int, ...]] = RANGES) -> Iterator[Tile]:
    """Every combination of the parameters that *rung* has, legal or not, over *ranges*.

    A parameter that its own tile leaves at 1, or at None, is none of the rung's.  Its own tile is among
    them even where the ranges miss it.  Raises ValueError for a rung without tile parameters.
    """
    if rung.tile is None:
        raise ValueError(f"the rung {rung.name} has no tile parameters to search")
    own = dict(zip((field.name for field in fields(Tile)), astuple(rung.tile), strict=True))
    values = [ranges[name] if value not in (1, None) else (value,) for name, value in own.items()]
    seen = False
    for combination in itertools.product(*values):
        tile = Tile(*combination)
        seen = seen or tile == rung.tile
        yield tile
    if not seen:
        yield rung.tile


def enumerate_space(
    rung: Rung,
    refuse: Callable[[Tile], list[str]] = lambda tile: [],
    ranges: Mapping[str, tuple[int, ...]] = RANGES,
) -> Space:
    """The space of *rung*: its tiles over *ranges*, refused by the rung itself or else by *refuse*.

    *refuse* says why a device cannot run a tile, and is empty where it can: see
    :func:`numba_gemm.search.predict.limits`.  Nothing is compiled.
    """
    legal, refused = [], {}
    for tile in tiles(rung, ranges):
        reasons = rung.why_illegal(tile) or refuse(tile)
        if reasons:
            refused[tile] = tuple(reasons)
        else:
            legal.append(tile)
    return Space(rung.name, tuple(legal), refused)
