"""Warp tiles: the 32 lanes of a warp work on a tile of their own, WM x WN.

In a vectorized block a warp is two rows of sixteen threads, 16 rows of C high and 128 columns wide:
for one k it reads 16 elements of A and 128 of B.  A warp's own tile of 64 x 32 takes 64 + 32, two
thirds of that, since lanes that want the same four floats get them from one read.  And the order block
tile, warp tile, thread tile follows the hardware: a multiprocessor, one of its four schedulers, a lane.

The block covers as much of C as in ``vectorized``, so that the traffic with global memory is 32 FLOP
per byte again. Chunks are as deep as the search for the rung below found them best, 16 k, which halves
the number of barriers: on an H200 this rung has 44 TFLOP/s with them at 4096, and 38 with chunks of 8.

So there are two ways to the same end. A warp of ``vectorized`` takes 20 passes over shared memory for
one k; that of ``autotuned``, whose thread tile alone was changed, 12, and this one 12. It is 3 to 8%
faster than ``autotuned`` where rows are aligned, with a third less traffic and four loads of four floats
for one k instead of five; what each of them is worth was not measured.

Source: S. Boehm, kernel 10; "A GEMM Kernel, Step by Step", rung seven.
"""

import functools

from numba import cuda, float32

from numba_gemm.harness import Geometry
from numba_gemm.model.traffic import Habits
from numba_gemm.primitives import (
    ALIGNMENT,
    block_x,
    block_y,
    device_function,
    jit_by_ptx,
    load4,
    problem_size,
    rows_are_aligned,
    stage4,
    stage4_transposed,
    stage_remainder,
    thread_x,
    unroll,
    update4,
    window,
)
from numba_gemm.rung import Rung
from numba_gemm.tile import Tile

TILE = Tile(BM=128, BN=128, BK=16, TM=8, TN=8, WM=64, WN=32)


@functools.cache
def build(tile: Tile = TILE):
    """The kernel for block tiles of BM x BN x BK, warp tiles of WM x WN, thread tiles of TM x TN."""
    tile.check(vector=4, warps=True)
    BM, BN, BK, WM, WN, TM, TN = tile.BM, tile.BN, tile.BK, tile.WM, tile.WN, tile.TM, tile.TN
    THREADS, WARPS_X, HALF = tile.threads, BN // WN, BK // 2
    LANES_X = tile.lanes[1]

    @device_function
    def multiply(my_As, my_Bs, k, a, b, sums):
        """The outer product for one k: TM + TN elements in fours, TM * TN products.

        It goes down one column of the products and up the next, so that each shares an operand with
        the one before, which the registers then need not deliver again.
        """
        for i in range(0, TM, 4):
            a[i], a[i + 1], a[i + 2], a[i + 3] = load4(my_As, k, i)
        for j in range(0, TN, 4):
            b[j], b[j + 1], b[j + 2], b[j + 3] = load4(my_Bs, k, j)
        for j in range(TN):
            for m in range(TM):
                i = m if j % 2 == 0 else TM - 1 - m
                sums[i, j] += a[i] * b[j]

    @device_function
    def multiply_chunks(A, B, row0, col0, end, As, Bs, my_As, my_Bs, a, b, sums, wide):
        """Stage and multiply whole chunks up to *end*."""
        thread = thread_x()
        for k0 in range(0, end, BK):
            stage4_transposed(A, row0, k0, As, BM, thread, THREADS, wide)
            stage4(B, k0, col0, Bs, BN, thread, THREADS, wide)
            cuda.syncthreads()
            for half in unroll(2):  # in halves: the optimizer writes out loops up to a size
                for k in unroll(HALF):
                    multiply(my_As, my_Bs, half * HALF + k, a, b, sums)
            cuda.syncthreads()

    @jit_by_ptx(tile.register_cap)
    def kernel(A, B, C, alpha, beta):
        As = cuda.shared.array((BK, BM), float32, alignment=ALIGNMENT)
        Bs = cuda.shared.array((BK, BN), float32, alignment=ALIGNMENT)
        sums = cuda.local.array((TM, TN), float32)
        a = cuda.local.array(TM, float32)
        b = cuda.local.array(TN, float32)

        M, _, K = problem_size(A, B, alpha)
        row0, col0 = block_y() * BM, block_x() * BN  # corner of the block tile
        thread = thread_x()
        warp, lane = thread // 32, thread % 32
        row = warp // WARPS_X * WM + lane // LANES_X * TM  # this thread's, in the block tile
        col = warp % WARPS_X * WN + lane % LANES_X * TN
        my_As, my_Bs = window(As, 0, row), window(Bs, 0, col)

        for i in range(TM):
            for j in range(TN):
                sums[i, j] = 0
        whole = K // BK * BK
        if rows_are_aligned(A) and rows_are_aligned(B):
            multiply_chunks(A, B, row0, col0, whole, As, Bs, my_As, my_Bs, a, b, sums, True)
        else:
            multiply_chunks(A, B, row0, col0, whole, As, Bs, my_As, my_Bs, a, b, sums, False)
        if whole < K:
            stage_remainder(A, B, row0, col0, whole, As, Bs, BM, BN, BK, THREADS)
            cuda.syncthreads()
            for k in range(BK):
                multiply(my_As, my_Bs, k, a, b, sums)

        wide = rows_are_aligned(C)
        for i in unroll(TM):
            r = row0 + row + i
            if r < M:
                for quad in unroll(TN // 4):
                    j = 4 * quad
                    products = sums[i, j], sums[i, j + 1], sums[i, j + 2], sums[i, j + 3]
                    update4(C, r, col0 + col + j, products, alpha, beta, wide)

    return kernel


kernel = build()

RUNG = Rung(
    name="warptiled",
    title="Warp tiles",
    idea="a warp computes a tile of its own",
    reference="Boehm, kernel 10",
    kernel=kernel,
    cover=lambda M, N, tile: Geometry.cover(x=(N, tile.BN), y=(M, tile.BM), block=(tile.threads, 1)),
    tile=TILE,
    make=build,
    habits=Habits(rereads_edges=True),
)
gemm = RUNG.gemm
