"""Vectors: four floats of memory an instruction, and A transposed on its way to shared memory.

A load or store instruction moves four bytes or sixteen, and every instruction waits its turn in the
same queue. Fetching a chunk four floats at a time takes a quarter of the instructions. To read the
fragments so as well, the TM elements of A that a thread needs for one k have to be neighbours, and in
A they are a row apart: so As holds the chunk transposed, As[k, row]. The transposing is done by the
stores, four of four bytes each, once a chunk; the reading by every thread at every k.

Each byte is still read once from global memory for 128 rows or columns of C, 32 FLOP per byte as in
the rung below. What falls is the number of instructions: 16 loads of a thread for 64 multiply-adds
become 4.

A fringe of C costs nothing inside: what hangs over the edge reads the last row or column again and is
not stored. The end of k, less than a chunk, is staged by itself. Where rows do not begin at multiples
of 16 bytes, the global loads are single ones; the shared ones never are.

Source: S. Boehm, kernel 6; "A GEMM Kernel, Step by Step", rung six.
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

TILE = Tile(BM=128, BN=128, BK=8, TM=8, TN=8)


@functools.cache
def build(tile: Tile = TILE):
    """The kernel for block tiles of BM x BN x BK and thread tiles of TM x TN entries."""
    tile.check(vector=4)
    BM, BN, BK, TM, TN, THREADS = tile.BM, tile.BN, tile.BK, tile.TM, tile.TN, tile.threads
    HALF = BK // 2

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
        row, col = thread // (BN // TN) * TM, thread % (BN // TN) * TN  # in the block tile
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
    name="vectorized",
    title="Vectors",
    idea="four floats an instruction, A transposed on its way",
    reference="Boehm, kernel 6",
    kernel=kernel,
    cover=lambda M, N, tile: Geometry.cover(x=(N, tile.BN), y=(M, tile.BM), block=(tile.threads, 1)),
    tile=TILE,
    make=build,
    habits=Habits(rereads_edges=True),
)
gemm = RUNG.gemm
