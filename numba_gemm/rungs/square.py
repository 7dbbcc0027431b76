"""Square: one thread computes TM x TN entries of C, an outer product at every k.

A column of TM entries took TM + 1 loads for TM multiply-adds.  A square of TM x TN takes TM + TN loads
for TM * TN: at 8 x 8, 16 loads for 64, a quarter of a load each.  The thread copies its TM elements of
A and TN elements of B into registers, the fragments, and multiplies every one with every other.

The block tile grows to 128 x 128 and its intensity to 32 FLOP per byte.  The price is registers: 64
sums a thread, at 256 threads a block, are a quarter of a multiprocessor's register file before
anything else is counted, so fewer warps fit on it to hide each other's waiting; each has far less to
wait for.

Source: "A GEMM Kernel, Step by Step", rungs four and five; S. Boehm, kernel 5.
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

TILE = Tile(BM=128, BN=128, BK=8, TM=8, TN=8)


@functools.cache
def build(tile: Tile = TILE):
    """The kernel for block tiles of BM x BN x BK and thread tiles of TM x TN entries."""
    tile.check()
    BM, BN, BK, TM, TN, THREADS = tile.BM, tile.BN, tile.BK, tile.TM, tile.TN, tile.threads

    @cuda.jit(**launch_bounds(THREADS, tile.blocks))
    def kernel(A, B, C, alpha, beta):
        As = cuda.shared.array((BM, BK), float32)
        Bs = cuda.shared.array((BK, BN), float32)
        sums = cuda.local.array((TM, TN), float32)
        a = cuda.local.array(TM, float32)
        b = cuda.local.array(TN, float32)

        M, N, K = problem_size(A, B, alpha)
        row0, col0 = block_y() * BM, block_x() * BN  # corner of the block tile
        thread = thread_x()
        ty, tx = thread // (BN // TN), thread % (BN // TN)  # which TM x TN square

        for i in range(TM):
            for j in range(TN):
                sums[i, j] = 0
        for k0 in range(0, K, BK):
            # Copy the chunks whose corners are (row0, k0) and (k0, col0), with zeros beyond the edge.
            stage(A, row0, k0, As, thread, THREADS)
            stage(B, k0, col0, Bs, thread, THREADS)
            cuda.syncthreads()

            for k in unroll(BK):
                # TM + TN loads, TM * TN products.
                for i in range(TM):
                    a[i] = As[ty * TM + i, k]
                for j in range(TN):
                    b[j] = Bs[k, tx * TN + j]
                for i in range(TM):
                    for j in range(TN):
                        sums[i, j] += a[i] * b[j]
            cuda.syncthreads()

        row, col = row0 + ty * TM, col0 + tx * TN
        for i in range(TM):
            if row + i < M:
                for j in range(TN):
                    if col + j < N:
                        update(C, row + i, col + j, sums[i, j], alpha, beta)

    return kernel


kernel = build()

RUNG = Rung(
    name="square",
    title="Square a thread",
    idea="a thread keeps TM x TN entries in registers",
    reference="Step by Step, rung 5; Boehm, kernel 5",
    kernel=kernel,
    cover=lambda M, N, tile: Geometry.cover(x=(N, tile.BN), y=(M, tile.BM), block=(tile.threads, 1)),
    tile=TILE,
    make=build,
)
gemm = RUNG.gemm
