"""The ladder: one kernel a file, each one idea above the one before."""

from numba_gemm.rung import Rung

from . import (
    async_copy,
    autotuned,
    coalesced,
    column,
    double_buffered,
    naive,
    padded,
    split_k,
    square,
    tiled2d,
    vectorized,
    warptiled,
)

__all__ = [
    "LADDER",
    "async_copy",
    "autotuned",
    "coalesced",
    "column",
    "double_buffered",
    "naive",
    "padded",
    "split_k",
    "square",
    "tiled2d",
    "vectorized",
    "warptiled",
]

LADDER: tuple[Rung, ...] = (
    naive.RUNG,
    coalesced.RUNG,
    tiled2d.RUNG,
    column.RUNG,
    square.RUNG,
    vectorized.RUNG,
    autotuned.RUNG,
    warptiled.RUNG,
    padded.RUNG,
    double_buffered.RUNG,
    async_copy.RUNG,
    split_k.RUNG,
)
"""Every rung, slowest first."""


def named(name: str) -> Rung:
    """The rung of that name; ValueError where there is none."""
    for rung in LADDER:
        if rung.name == name:
            return rung
    known = ", ".join(rung.name for rung in LADDER)
    raise ValueError(f"there is no rung {name!r}; the ladder has {known}")
