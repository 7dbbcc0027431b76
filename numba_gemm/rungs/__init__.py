"""The ladder: one kernel a file, each one idea above the one before."""

from numba_gemm.rung import Rung

from . import coalesced, column, naive, square, tiled2d

__all__ = ["LADDER", "coalesced", "column", "naive", "square", "tiled2d"]

LADDER: tuple[Rung, ...] = (
    naive.RUNG,
    coalesced.RUNG,
    tiled2d.RUNG,
    column.RUNG,
    square.RUNG,
)
"""Every rung, slowest first."""
