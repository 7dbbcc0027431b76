"""What searches found: which rung and tile was fastest, by device, shape class and versions.

The user's results lie in the user's cache directory, one file a device; those in this package's folder
``found`` come with it.  A file is replaced whole or not at all, under a lock, so that two processes may
write at once; a damaged one is renamed with a warning and begun anew.

A *shape class* says which shapes may share a result.  Each of M, N and K counts as the power of two next
to it, and rows as ``whole`` (M, N multiples of 128, K of 32: no tile hangs over an edge), ``aligned``
(N and K multiples of 4: every row of A, B and C begins at a multiple of 16 bytes, where its matrix does)
or ``odd``.  4092 x 4092 x 4092 is of the class ``4096x4096x4096 aligned``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import platformdirs
from filelock import FileLock

from .. import __version__, files, records
from ..model import devices
from ..records import Seconds, Size
from .journal import set_aside
from .space import Candidate

__all__ = [
    "Found",
    "add",
    "best",
    "cache_folder",
    "check",
    "classes",
    "keep",
    "load",
    "shape_class",
    "versions",
    "write",
]

FORMAT = 1
SHIPPED = Path(__file__).with_name("found")
PACKAGE = Path(__file__).parents[1]

WHOLE = 128
WHOLE_K = 32
ALIGNED = 4


@dataclass(frozen=True)
class Found:
    """One result: the fastest tile of one rung for a class of shapes on a device.

    *shape* is the M x N x K it was measured at, *seconds* the median device time there and
    *cublas_seconds* that of cuBLAS in the same run, None where it was not measured.  *versions* are what
    :func:`versions` was then, *aligned* whether the matrices began at multiples of 16 bytes.
    """

    device: str
    candidate: Candidate
    shape: tuple[Size, Size, Size]
    seconds: Seconds
    cublas_seconds: Seconds | None
    versions: Mapping[str, str]
    aligned: bool = True

    @property
    def shape_class(self) -> str:
        """The class of shapes that it stands for."""
        return shape_class(*self.shape, self.aligned)

    @property
    def flops_per_second(self) -> float:
        """2*M*N*K by the time: what results of one class, measured at different shapes, compare by."""
        return 2 * math.prod(self.shape) / self.seconds

    @property
    def key(self) -> tuple[str, str]:
        """What it is filed under in its device's file: rung and shape class."""
        return self.candidate.rung, self.shape_class


@dataclass(frozen=True)
class _File:
    """A file of results; FORMAT is the only one there has been."""

    format: Literal[1]
    results: tuple[Found, ...]


def shape_class(M: int, N: int, K: int, aligned: bool = True) -> str:
    """The class of a shape, for example ``4096x4096x4096 whole``; see the module.

    *aligned* says that the matrices themselves begin at multiples of 16 bytes.  Sizes are 1 or more.
    """
    return classes(M, N, K, aligned)[0]


def classes(M: int, N: int, K: int, aligned: bool = True) -> tuple[str, ...]:
    """The class of a shape, and those of the same sizes with other rows, more similar ones first."""
    if not aligned or N % ALIGNED or K % ALIGNED:
        rows = ("odd", "aligned", "whole")
    elif M % WHOLE or N % WHOLE or K % WHOLE_K:
        rows = ("aligned", "whole", "odd")
    else:
        rows = ("whole", "aligned", "odd")
    sizes = f"{_bucket(M)}x{_bucket(N)}x{_bucket(K)}"
    return tuple(f"{sizes} {kind}" for kind in rows)


def _bucket(size: int) -> int:
    """The power of two next to *size*, by ratio."""
    return 1 << round(math.log2(size))


@functools.cache
def versions() -> dict[str, str]:
    """What a result depends on: this package, Numba's compiler and the source of the kernels."""
    found = {"numba-gemm": __version__}
    for name in ("numba", "numba-cuda"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    digest = hashlib.sha256()
    for folder in ("rungs", "primitives"):
        for path in sorted(PACKAGE.joinpath(folder).glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found | {"kernels": digest.hexdigest()[:16]}


def cache_folder() -> Path:
    """Where the user's results and journals lie: ``NUMBA_GEMM_CACHE``, or the user's cache directory."""
    return Path(os.environ.get("NUMBA_GEMM_CACHE") or platformdirs.user_cache_dir("numba-gemm"))


def _key(device: str) -> str:
    """A GPU's name without what may differ: as the driver spells it, and as the models' table does."""
    with contextlib.suppress(ValueError):
        device = devices.named(device).name
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-").removeprefix("nvidia-")


def _user_file(device: str) -> Path:
    return cache_folder() / "found" / f"{_key(device)}.json"


def _read(path: Path) -> list[Found]:
    """The results in a file, if there is one; ValueError where it is damaged."""
    try:
        return list(records.read(path, _File).results)
    except FileNotFoundError:
        return []


def _read_or_set_aside(path: Path) -> list[Found]:
    try:
        return _read(path)
    except ValueError as error:
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            set_aside(path, str(error))
        return []


def load(device: str) -> list[Found]:
    """Every result for the device of that name, the user's own before those that come with the package.

    "H200" and "NVIDIA H200" are one device.  The user's are left out where they were measured with
    other versions.  Nothing is raised for damaged or unreadable files: they are set aside, or passed
    over, with a warning.
    """
    results = []
    path = _user_file(device)
    try:
        results += [found for found in _read_or_set_aside(path) if found.versions == versions()]
    except OSError as error:
        warnings.warn(f"{path} is passed over: {error.strerror}", stacklevel=2)
    for path in sorted(SHIPPED.glob("*.json")):
        try:
            results += _read(path)
        except (OSError, ValueError) as error:
            warnings.warn(f"{path} is passed over: {error}", stacklevel=2)
    return [found for found in results if _key(found.device) == _key(device)]


def best(results: Iterable[Found], wanted: str) -> list[Found]:
    """The results for the shape class *wanted*, fastest first, one for each rung.

    Where two name the same rung the earlier one counts, so that the user's own goes before what came
    with the package.
    """
    by_rung: dict[str, Found] = {}
    for found in results:
        if found.shape_class == wanted:
            by_rung.setdefault(found.candidate.rung, found)
    return sorted(by_rung.values(), key=lambda found: -found.flops_per_second)


def keep(results: Iterable[Found]) -> list[Path]:
    """Add results to the user's files, one a device, and drop what other versions found; the paths.

    Raises OSError where one cannot be read or written.
    """
    by_device: dict[str, list[Found]] = {}
    for found in results:
        by_device.setdefault(found.device, []).append(found)
    paths = []
    for device, fresh in by_device.items():
        path = _user_file(device)
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            current = [found for found in _read_or_set_aside(path) if found.versions == versions()]
            write(path, _merged(current, fresh))
        paths.append(path)
    return paths


def add(path: Path, results: Iterable[Found]) -> None:
    """Add results to a file of any name, such as one that is to come with the package.

    Raises OSError where it cannot be read or written, ValueError where it is damaged, or of another
    kind; it is left as it is then.
    """
    with _locked(path):
        write(path, _merged(_read(path), results))


def check(path: Path) -> None:
    """Raise what :func:`add` would, and OSError for a device or a pipe, which cannot be added to."""
    if path.exists() and not path.is_file():
        raise OSError("it is a device or a pipe")
    _read(path)


def _locked(path: Path) -> FileLock:
    """The lock under which *path* is read, changed and replaced."""
    return FileLock(path.with_name(path.name + ".lock"))


def _merged(current: Iterable[Found], fresh: Iterable[Found]) -> list[Found]:
    """All of them, a fresh one in place of what its device, rung and shape class had."""
    return list({(found.device, *found.key): found for found in [*current, *fresh]}.values())


def write(path: Path, results: Iterable[Found]) -> None:
    """Write results to *path*, whole or not at all, in an order that does not depend on theirs."""
    entries = sorted((asdict(found) for found in results), key=lambda entry: json.dumps(entry))
    lines = ",\n".join(json.dumps(entry, allow_nan=False) for entry in entries)
    text = f'{{"format": {FORMAT}, "results": [\n{lines}\n]}}\n'
    files.replace(path, text)
