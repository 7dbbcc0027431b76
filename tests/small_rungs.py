"""The ladder with tiles that a simulator can run, for the tests."""

import dataclasses

from numba_gemm import Rung, Tile
from numba_gemm.rungs import (
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


def with_tile(rung: Rung, tile: Tile) -> Rung:
    """The rung with another default tile."""
    return dataclasses.replace(rung, tile=tile, kernel=rung.build(tile))


def trimmed(rung: Rung) -> Rung:
    """A rung without a tile, launched with no more threads than a small C has work for.

    Its blocks keep the first row and column of threads that are too many.
    """

    def cover(M, N, tile):
        geometry = rung.cover(M, N, tile)
        x, y = (M, N) if rung is naive.RUNG else (N, M)
        block = min(geometry.block[0], x + 1), min(geometry.block[1], y + 1)
        return dataclasses.replace(geometry, block=block)

    return dataclasses.replace(rung, cover=cover)


SMALL = (
    trimmed(naive.RUNG),
    trimmed(coalesced.RUNG),
    with_tile(tiled2d.RUNG, Tile(8, 8, 8)),
    with_tile(column.RUNG, Tile(16, 8, 4, TM=4)),
    with_tile(square.RUNG, Tile(16, 32, 4, TM=4, TN=4)),
    with_tile(vectorized.RUNG, Tile(16, 32, 8, TM=4, TN=4)),
    with_tile(autotuned.RUNG, Tile(16, 32, 8, TM=4, TN=4)),
    with_tile(warptiled.RUNG, Tile(16, 32, 8, TM=4, TN=4, WM=16, WN=32)),
    with_tile(padded.RUNG, Tile(16, 64, 8, TM=4, TN=8, WM=16, WN=64)),
    with_tile(double_buffered.RUNG, Tile(32, 16, 8, TM=4, TN=4, WM=32, WN=16, stages=2)),
    with_tile(async_copy.RUNG, Tile(16, 32, 8, TM=4, TN=4, WM=16, WN=32, stages=3)),
    with_tile(split_k.RUNG, Tile(16, 32, 8, TM=4, TN=4, WM=16, WN=32, stages=2)),
)
