"""The kernels among which a multiply is chosen where no search was made: few, for every kind of shape.

Large tiles need few bytes for a FLOP and few instructions for a multiply-add; small ones leave no
multiprocessor idle where C is small, and waste little of a tile that hangs over an edge.  Each was
compiled for compute capability 9.0 without a spilled register.
"""

from __future__ import annotations

from ..tile import Tile
from .space import Candidate

__all__ = ["PORTFOLIO"]

PORTFOLIO: tuple[Candidate, ...] = (
    # C fills the device: the larger the better.
    Candidate("split_k", Tile(128, 256, 8, 8, 16, 64, 64, 2)),
    Candidate("split_k", Tile(128, 128, 8, 8, 16, 64, 64, 2)),
    Candidate("split_k", Tile(64, 256, 8, 8, 16, 64, 64, 2)),
    Candidate("split_k", Tile(128, 64, 16, 8, 8, 64, 32, 3)),
    Candidate("split_k", Tile(64, 128, 16, 8, 8, 32, 64, 3)),
    # It does not: more blocks, and longer chunks where there are few of them.
    Candidate("split_k", Tile(64, 64, 16, 8, 8, 64, 32, 2)),
    Candidate("split_k", Tile(64, 64, 16, 8, 4, 32, 32, 3)),
    Candidate("split_k", Tile(64, 64, 32, 8, 4, 32, 32, 2)),
    Candidate("split_k", Tile(32, 64, 16, 4, 4, 16, 32, 3)),
    Candidate("split_k", Tile(32, 32, 32, 4, 4, 16, 32, 3)),
    # A narrow C.
    Candidate("split_k", Tile(32, 128, 16, 8, 4, 32, 32, 3)),
    Candidate("split_k", Tile(128, 32, 16, 8, 4, 64, 16, 3)),
    Candidate("split_k", Tile(16, 128, 16, 4, 8, 16, 64, 3)),
    Candidate("split_k", Tile(16, 64, 32, 4, 4, 16, 32, 3)),
    Candidate("split_k", Tile(128, 16, 32, 8, 4, 64, 16, 2)),
    # The same without sharing tiles, whose cost weighs more in a small problem.
    Candidate("async_copy", Tile(128, 64, 16, 8, 8, 64, 32, 3)),
    Candidate("async_copy", Tile(64, 64, 16, 8, 4, 32, 32, 3)),
    Candidate("async_copy", Tile(32, 64, 16, 4, 4, 16, 32, 3)),
    # For GPUs without asynchronous copies.
    Candidate("double_buffered", Tile(128, 128, 8, 8, 16, 64, 64, 2)),
    Candidate("double_buffered", Tile(128, 128, 8, 8, 8, 64, 32, 2)),
    Candidate("double_buffered", Tile(32, 32, 16, 4, 4, 16, 32, 2)),
    # Nothing to set up: no copies ahead, no second buffer.
    Candidate("vectorized", Tile(32, 32, 16, 4, 4)),
)
