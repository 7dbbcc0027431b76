"""Autotuned: the kernel of the rung below, with the tile parameters that measuring found best.

Larger tiles need fewer bytes for a FLOP, and more registers, which leave room for fewer warps to hide
waiting. Where the balance lies cannot be reasoned out: it depends on the latencies, the bandwidths
and the register file of the device, and on what the compiler makes of each combination. So
combinations are tried, and the fastest is written down, by compute capability. On an H200 it is one
that asks for more of global memory, 21 FLOP per byte instead of 32, and has twice the k in a chunk and
thread tiles of 16 x 4: 18% faster than the tile of the rung below, at place 100 of 341 by the model.
One reason is seen afterwards: a warp reads the fragments of one k in 12 passes over shared memory, 8 for
A and 4 for B, instead of 4 and 16, as lanes side by side now read B side by side.

Source: S. Boehm, kernel 9, whose search found the parameters for the A100 (8.0) and the A6000 (8.6).
Those for 9.0 were found by ``numba-gemm tune --rung autotuned`` on an H200, which timed 248 of the
341 legal ones (``bench/results/autotuned.json``).
"""

from numba_gemm.device import current
from numba_gemm.harness import Geometry
from numba_gemm.model.traffic import Habits
from numba_gemm.rung import Rung
from numba_gemm.tile import Tile

from . import vectorized

FOUND = {
    (8, 0): Tile(BM=64, BN=64, BK=16, TM=4, TN=4),
    (8, 6): Tile(BM=128, BN=128, BK=16, TM=8, TN=8),
    (9, 0): Tile(BM=64, BN=128, BK=16, TM=16, TN=4),
}
"""The fastest parameters by compute capability."""

DEVICE = current()
TILE = FOUND.get(DEVICE.compute_capability if DEVICE else (9, 0), FOUND[9, 0])


def build(tile: Tile = TILE):
    """The kernel of the rung below for block tiles of BM x BN x BK and thread tiles of TM x TN."""
    return vectorized.build(tile)


kernel = build()

RUNG = Rung(
    name="autotuned",
    title="Autotuned",
    idea="the same kernel with the tile parameters that measuring found",
    reference="Boehm, kernel 9",
    kernel=kernel,
    cover=lambda M, N, tile: Geometry.cover(x=(N, tile.BN), y=(M, tile.BM), block=(tile.threads, 1)),
    tile=TILE,
    tiles=FOUND,
    make=build,
    habits=Habits(rereads_edges=True),
)
gemm = RUNG.gemm
