"""The GEMM ladder in Numba CUDA: every rung of a fast matrix multiply, from one thread per entry.

>>> import numpy as np, numba_gemm
>>> A, B = np.random.rand(2, 64, 64).astype(np.float32)
>>> C = numba_gemm.gemm(A, B)

The names below are imported when they are first used, so that ``import numba_gemm`` alone neither
looks for a GPU nor imports :mod:`numba.cuda`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dispatch import gemm
    from .errors import TargetError
    from .harness import DeviceError, VerificationError
    from .problem import Problem
    from .rung import Rung
    from .rungs import LADDER
    from .tile import Tile, TileError

__version__ = "0.1.0"

__all__ = [
    "LADDER",
    "DeviceError",
    "Problem",
    "Rung",
    "TargetError",
    "Tile",
    "TileError",
    "VerificationError",
    "gemm",
]

_MODULES = {
    "LADDER": "rungs",
    "DeviceError": "harness",
    "Problem": "problem",
    "Rung": "rung",
    "TargetError": "errors",
    "Tile": "tile",
    "TileError": "tile",
    "VerificationError": "harness",
    "gemm": "dispatch",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
