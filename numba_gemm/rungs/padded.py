"""Padding, and a thread tile in pieces: no two lanes of one request meet in a bank.

Shared memory has 32 banks, four bytes wide; lanes that want different words of one bank wait for each
other. There are two cures, for a store and for a load:

* When A is stored transposed, one instruction of a warp stores 16 rows of A at two k that are 4 apart:
  16 neighbouring floats in row k of As, and 16 in row k + 4. Rows of As are 128 floats long, a multiple
  of 32, so every row begins in bank 0, and the two sixteens go to the same 16 banks, which takes two
  passes. With 4 floats more a row, each begins 4 banks after the one before, and row k + 4 begins 16
  banks after row k: the two sixteens fill all 32 banks in one pass.
* Where a thread has 16 columns, as in the rung above, the lanes across a warp tile would want four
  floats of b each, 16 apart, and meet in pairs. So the thread tile is split into pieces of 4 x 4, as
  far apart as the warp tile allows; lanes side by side then read side by side. With the 8 columns of
  this rung, reading has no conflict either way.

The traffic with global memory stays what it was, 32 FLOP per byte.

Source: S. Boehm, kernels 7 and 8; "A GEMM Kernel, Step by Step", rung eight.
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

PADDING = 4


@functools.cache
def build(tile: Tile = TILE):
    """The kernel for block tiles of BM x BN x BK, warp tiles of WM x WN, thread tiles of TM x TN."""
    tile.check(vector=4, warps=True, padding=PADDING)
    BM, BN, BK, WM, WN, TM, TN = tile.BM, tile.BN, tile.BK, tile.WM, tile.WN, tile.TM, tile.TN
    THREADS, WARPS_X, HALF = tile.threads, BN // WN, BK // 2
    LANES_Y, LANES_X = tile.lanes
    PADDED_BM = BM + PADDING

    @device_function
    def multiply(my_As, my_Bs, k, a, b, sums):
        """The outer product for one k: TM + TN elements in fours, TM * TN products.

        It goes down one column of the products and up the next, so that each shares an operand with
        the one before, which the registers then need not deliver again.
        """
        for i in range(0, TM, 4):
            a[i], a[i + 1], a[i + 2], a[i + 3] = load4(my_As, k, i * LANES_Y)
        for j in range(0, TN, 4):
            b[j], b[j + 1], b[j + 2], b[j + 3] = load4(my_Bs, k, j * LANES_X)
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
        As = cuda.shared.array((BK, PADDED_BM), float32, alignment=ALIGNMENT)
        Bs = cuda.shared.array((BK, BN), float32, alignment=ALIGNMENT)
        sums = cuda.local.array((TM, TN), float32)
        a = cuda.local.array(TM, float32)
        b = cuda.local.array(TN, float32)

        M, _, K = problem_size(A, B, alpha)
        row0, col0 = block_y() * BM, block_x() * BN  # corner of the block tile
        thread = thread_x()
        warp, lane = thread // 32, thread % 32
        # The corner of this thread's first piece, in the block tile.
        row = warp // WARPS_X * WM + lane // LANES_X * 4
        col = warp % WARPS_X * WN + lane % LANES_X * 4
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
            r = row0 + row + i // 4 * 4 * LANES_Y + i % 4
            if r < M:
                for quad in unroll(TN // 4):
                    j = 4 * quad
                    products = sums[i, j], sums[i, j + 1], sums[i, j + 2], sums[i, j + 3]
                    update4(C, r, col0 + col + j * LANES_X, products, alpha, beta, wide)

    return kernel


kernel = build()

RUNG = Rung(
    name="padded",
    title="Padding",
    idea="no two lanes of a request meet in a bank",
    reference="Boehm, kernels 7 and 8",
    kernel=kernel,
    cover=lambda M, N, tile: Geometry.cover(x=(N, tile.BN), y=(M, tile.BM), block=(tile.threads, 1)),
    tile=TILE,
    make=build,
    habits=Habits(rereads_edges=True),
)
gemm = RUNG.gemm
