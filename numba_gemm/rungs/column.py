"""Column: one thread computes TM entries of a column of C, and keeps their sums in registers.

The tiles in shared memory made global traffic cheap and left the traffic between them and the
registers: two shared loads for one multiply-add.  A thread that owns a column of TM entries loads one
element of B, uses it TM times, and needs TM elements of A for that: (TM + 1) / TM loads for one
multiply-add, 1.125 instead of 2 at TM = 8.

With more entries a thread, half as many threads cover a block tile four times as large, 64 x 64 instead
of 32 x 32, so that global traffic halves as well: BM * BN / (2 * (BM + BN)) = 16 FLOP per byte.

Besides, threads are numbered in one row of BM * BN / TM, a chunk along k is only BK = 8 deep, ``stage``
does tiled2d's loading for tiles of any shape, and ``launch_bounds`` limits the registers so that more
blocks fit a multiprocessor and hide each other's waiting.

The sums live in a ``cuda.local.array``.  Registers have no addresses, so the array stays in them only
because every subscript is a constant once the loops over TM are unrolled, which the compiler does by
itself, as they are short; ``unroll`` asks for the loop over BK.

Source: "A GEMM Kernel, Step by Step", rungs four and five; S. Boehm, kernel 4.
"""

import functools

from numba import cuda, float32

from numba_gemm.harness import Geometry
from numba_gemm.primitives import (
    block_x,
    block_y,
    launch_bounds,
    problem_size,
    stage,
    thread_x,
    unroll,
    update,
)
from numba_gemm.rung import Rung
from numba_gemm.tile import Tile

TILE = Tile(BM=64, BN=64, BK=8, TM=8)


@functools.cache
def build(tile: Tile = TILE):
    """The kernel for block tiles of BM x BN x BK and columns of TM entries a thread (TN is 1)."""
    tile.check({"a thread has a column of entries, TN = 1": tile.TN == 1})
    BM, BN, BK, TM, THREADS = tile.BM, tile.BN, tile.BK, tile.TM, tile.threads

    @cuda.jit(**launch_bounds(THREADS, tile.blocks))
    def kernel(A, B, C, alpha, beta):
        As = cuda.shared.array((BM, BK), float32)
        Bs = cuda.shared.array((BK, BN), float32)
        sums = cuda.local.array(TM, float32)

        M, N, K = problem_size(A, B, alpha)
        row0, col0 = block_y() * BM, block_x() * BN  # corner of the block tile
        thread = thread_x()
        ty, tx = thread // BN, thread % BN  # which column of TM entries of the block tile

        for i in range(TM):
            sums[i] = 0
        for k0 in range(0, K, BK):
            # Copy the chunks whose corners are (row0, k0) and (k0, col0), with zeros beyond the edge.
            stage(A, row0, k0, As, thread, THREADS)
            stage(B, k0, col0, Bs, thread, THREADS)
            cuda.syncthreads()

            for k in unroll(BK):
                b = Bs[k, tx]  # loaded once, used TM times
                for i in range(TM):
                    sums[i] += As[ty * TM + i, k] * b
            cuda.syncthreads()

        row, col = row0 + ty * TM, col0 + tx
        for i in range(TM):
            if row + i < M and col < N:
                update(C, row + i, col, sums[i], alpha, beta)

    return kernel


kernel = build()

RUNG = Rung(
    name="column",
    title="Column a thread",
    idea="a thread keeps TM entries of a column in registers",
    reference="Step by Step, rungs 4 and 5; Boehm, kernel 4",
    kernel=kernel,
    cover=lambda M, N, tile: Geometry.cover(x=(N, tile.BN), y=(M, tile.BM), block=(tile.threads, 1)),
    tile=TILE,
    make=build,
)
gemm = RUNG.gemm
