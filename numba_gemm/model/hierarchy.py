"""The three nested tilings of C: block tiles, warp tiles, thread tiles, and who owns which entry.

In the reference's example, blocks of 128 x 128 x 8 with 256 threads, 32 x 64 warp tiles and 8 x 8 thread
tiles, 4 x 2 warp tiles are the 8 warps of 256 threads, and 4 x 8 thread tiles the 32 lanes of a warp:
each level covers the one above with nothing left over.

Source: "A GEMM Kernel, Step by Step", "The last rung"; A. Salykova, "Advanced Matrix Multiplication
Optimization on NVIDIA GPUs".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .banks import PIECE
from .occupancy import WARP

if TYPE_CHECKING:
    from numba_gemm.tile import Tile

__all__ = ["Hierarchy", "hierarchy", "owners", "why_not_exact"]


@dataclass(frozen=True)
class Hierarchy:
    """How many tiles of each level cover one of the level above, down and across.

    ``shared_bytes`` are those of all chunks that a block holds at a time, without padding.
    """

    warps: tuple[int, int]
    lanes: tuple[int, int]
    entries: tuple[int, int]
    threads: int
    shared_bytes: int


def why_not_exact(tile: Tile) -> list[str]:
    """Every reason why the warp and thread tiles of *tile* do not cover its block tile exactly."""
    if tile.WM is None or tile.WN is None:
        return ["it has no warp tile, WM x WN"]
    sizes = {name: getattr(tile, name) for name in ("BM", "BN", "BK", "WM", "WN", "TM", "TN")}
    small = [f"{name} is {size}; it should be at least 1" for name, size in sizes.items() if size < 1]
    if small:
        return small
    reasons = [
        f"{inner}={sizes[inner]} does not divide {outer}={sizes[outer]}"
        for inner, outer in (("WM", "BM"), ("WN", "BN"), ("TM", "WM"), ("TN", "WN"))
        if sizes[outer] % sizes[inner]
    ]
    lanes = (tile.WM // tile.TM) * (tile.WN // tile.TN)
    if not reasons and lanes != WARP:
        reasons.append(f"a warp tile has {lanes} thread tiles; it should have {WARP}, one for each lane")
    return reasons


def hierarchy(tile: Tile) -> Hierarchy:
    """The levels of *tile*; ValueError where they do not cover each other exactly, and why."""
    reasons = why_not_exact(tile)
    if reasons:
        raise ValueError(f"{tile} is no hierarchy: {'; '.join(reasons)}")
    assert tile.WM
    assert tile.WN
    return Hierarchy(
        warps=(tile.BM // tile.WM, tile.BN // tile.WN),
        lanes=(tile.WM // tile.TM, tile.WN // tile.TN),
        entries=(tile.TM, tile.TN),
        threads=tile.threads,
        shared_bytes=tile.shared_bytes,
    )


def owners(tile: Tile, *, split: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The warp and the lane that compute each entry of a block tile, two arrays of BM x BN.

    With *split*, as in the rungs from padded on, a thread tile is in pieces of 4 x 4 that lie as far
    apart as the warp tile allows.  Raises ValueError where the levels do not cover each other exactly,
    or where pieces do not fit the thread tile.
    """
    levels = hierarchy(tile)
    assert tile.WM
    assert tile.WN
    if split and (tile.TM % PIECE or tile.TN % PIECE):
        raise ValueError(
            f"a thread tile of {tile.TM} x {tile.TN} has no pieces of {PIECE} x {PIECE}; "
            f"both should be multiples of {PIECE}"
        )
    row, col = np.ogrid[: tile.BM, : tile.BN]
    warp = row // tile.WM * levels.warps[1] + col // tile.WN
    row, col = row % tile.WM, col % tile.WN
    if split:
        lane_row, lane_col = row // PIECE % levels.lanes[0], col // PIECE % levels.lanes[1]
    else:
        lane_row, lane_col = row // tile.TM, col // tile.TN
    return warp, lane_row * levels.lanes[1] + lane_col
