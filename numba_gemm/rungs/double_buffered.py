"""Double buffering: what comes next is fetched while the threads multiply.

In the rung below everybody waits twice for every chunk: for global memory, and, with one buffer,
until all have read the last chunk before the next may be stored. Here a thread asks for its part of
the next chunk before it multiplies this one, keeps it in registers meanwhile, stores it into a second
buffer, and one barrier a chunk is left: nobody reads the buffer that is being stored to, since all
have passed the barrier behind which the other one is read. The fragments do the same on a small
scale: those of k + 1 are read while those of k are multiplied, from the last k of a chunk on into the
next.

A thread now computes 8 x 16 entries, so that 6 reads serve 128 multiply-adds, and a block has 128
threads with up to 255 registers each, two blocks to a multiprocessor: one multiplies while the other
waits at its barrier.

Chunks are 8 k deep again. With 16 a prototype of this kernel had 46 TFLOP/s instead of 49: its loop was
36 kB of instructions, and the shorter one waits for instructions already.

The order of the multiply-adds within one k does not change the result, but the time: the registers
lie in two banks, even and odd, and an operand that was read for one instruction need not be read
again for the next, while operands that come from one bank wait for each other. A thread's 16 columns go
in the order FOUND_ORDER, down one and up the next: of nine tried, the fastest with rows that are not
aligned, and within 1% of the fastest with rows that are.

Source: S. Boehm, kernel 11; A. Salykova, "Advanced Matrix Multiplication Optimization on NVIDIA
GPUs".
"""

import functools

from numba import cuda, float32

from numba_gemm.harness import Geometry
from numba_gemm.model.traffic import Habits
from numba_gemm.primitives import (
    ALIGNMENT,
    block_x,
    block_y,
    clamp,
    device_function,
    fetch4,
    index,
    launch_bounds,
    load4,
    problem_size,
    quad_of,
    rows_are_aligned,
    stage_remainder,
    store4,
    thread_x,
    unroll,
    update4,
    window,
)
from numba_gemm.rung import Rung
from numba_gemm.tile import Tile

TILE = Tile(BM=128, BN=128, BK=8, TM=8, TN=16, WM=64, WN=64, stages=2)

PADDING = 4
FOUND_ORDER = (1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)


@functools.cache
def build(tile: Tile = TILE):
    """The kernel for block tiles of BM x BN x BK, warp tiles of WM x WN, thread tiles of TM x TN."""
    tile.check(
        {"two chunks are held, stages = 2": tile.stages == 2},
        vector=4,
        warps=True,
        staged=True,
        padding=PADDING,
    )
    BM, BN, BK, WM, WN, TM, TN = tile.BM, tile.BN, tile.BK, tile.WM, tile.WN, tile.TM, tile.TN
    THREADS, WARPS_X = tile.threads, BN // WN
    LANES_Y, LANES_X = tile.lanes
    DEPTH, PADDED_BM = 2 * BK, BM + PADDING
    A_ROWS = THREADS // (BK // 4)  # rows of A, four k a thread, that the block fetches at a time
    B_ROWS = THREADS // (BN // 4)  # rows of B, four columns a thread, that it fetches at a time
    A_FLOATS, B_FLOATS = BM // A_ROWS * 4, BK // B_ROWS * 4  # what a thread fetches of a chunk
    WIDTH = BN if THREADS % BN == 0 else BN // 4  # columns of B, one a thread, where not aligned
    B_DOWN = BK // (THREADS // WIDTH)  # and the elements of such a column that a thread fetches
    HALF = BK // 2
    COLUMNS = FOUND_ORDER if TN == len(FOUND_ORDER) else tuple(range(TN))

    @device_function
    def fetch(A, B, row0, col0, k0, next_A, next_B, wide):
        """Begin to read this thread's part of a chunk into registers."""
        thread = thread_x()
        r, k = quad_of(thread, BK // 4, THREADS)
        for n in range(0, A_FLOATS, 4):
            row = clamp(row0 + r + n // 4 * A_ROWS, index(A.shape[0]))
            next_A[n], next_A[n + 1], next_A[n + 2], next_A[n + 3] = fetch4(A, row, k0 + k, wide)
        if wide:
            k, c = thread // (BN // 4), thread % (BN // 4) * 4
            col = clamp(col0 + c, index(B.shape[1]) - 3)
            for n in range(0, B_FLOATS, 4):
                row = k0 + k + n // 4 * B_ROWS
                next_B[n], next_B[n + 1], next_B[n + 2], next_B[n + 3] = load4(B, row, col)
        else:  # neighbours for neighbouring threads, whose reads the memory system can put together
            k, c = thread // WIDTH, thread % WIDTH
            for n in range(B_FLOATS):
                col = clamp(col0 + c + n // B_DOWN * WIDTH, index(B.shape[1]))
                next_B[n] = B[k0 + k + n % B_DOWN * (THREADS // WIDTH), col]

    @device_function
    def store(next_A, next_B, As, Bs, buffer, wide):
        """Store it, A transposed, to the rows from *buffer* on."""
        thread = thread_x()
        r, k = quad_of(thread, BK // 4, THREADS)
        to = window(As, buffer + k, r)
        for n in range(A_FLOATS):
            to[n % 4, n // 4 * A_ROWS] = next_A[n]
        if wide:
            k, c = thread // (BN // 4), thread % (BN // 4) * 4
            to = window(Bs, buffer + k, c)
            for n in range(0, B_FLOATS, 4):
                four = next_B[n], next_B[n + 1], next_B[n + 2], next_B[n + 3]
                store4(to, n // 4 * B_ROWS, 0, four)
        else:
            k, c = thread // WIDTH, thread % WIDTH
            to = window(Bs, buffer + k, c)
            for n in range(B_FLOATS):
                to[n % B_DOWN * (THREADS // WIDTH), n // B_DOWN * WIDTH] = next_B[n]

    @device_function
    def read_fragments(As, Bs, k, a, b, s):
        """Read this thread's elements for one k into set *s* of its fragments, in pieces of four."""
        for i in range(0, TM, 4):
            a[s, i], a[s, i + 1], a[s, i + 2], a[s, i + 3] = load4(As, k, i * LANES_Y)
        for j in range(0, TN, 4):
            b[s, j], b[s, j + 1], b[s, j + 2], b[s, j + 3] = load4(Bs, k, j * LANES_X)

    @device_function
    def multiply(a, b, s, sums):
        """The outer product of set *s*: down a column, up the next, so that steps share an operand."""
        for n in range(TN):
            j = COLUMNS[n]
            for m in range(TM):
                i = m if n % 2 == 0 else TM - 1 - m
                sums[i, j] += a[s, i] * b[s, j]

    @device_function
    def multiply_chunks(A, B, row0, col0, chunks, As, Bs, row, col, sums, a, b, wide):
        """All whole chunks, at least one; the last is fetched twice, so that the loop has no branch."""
        next_A = cuda.local.array(A_FLOATS, float32)
        next_B = cuda.local.array(B_FLOATS, float32)
        fetch(A, B, row0, col0, index(0), next_A, next_B, wide)
        store(next_A, next_B, As, Bs, index(0), wide)
        cuda.syncthreads()
        here = index(0)
        read_fragments(window(As, here, row), window(Bs, here, col), 0, a, b, 0)

        for chunk in range(chunks):
            fetch(A, B, row0, col0, clamp(chunk + 1, chunks) * BK, next_A, next_B, wide)
            my_As, my_Bs = window(As, here, row), window(Bs, here, col)
            for k in unroll(HALF):  # in halves: the optimizer writes out loops up to a size
                read_fragments(my_As, my_Bs, k + 1, a, b, (k + 1) % 2)
                multiply(a, b, k % 2, sums)
            for k in unroll(HALF - 1):
                read_fragments(my_As, my_Bs, HALF + k + 1, a, b, (k + 1) % 2)
                multiply(a, b, k % 2, sums)
            here = BK - here  # the other buffer
            store(next_A, next_B, As, Bs, here, wide)
            cuda.syncthreads()
            read_fragments(window(As, here, row), window(Bs, here, col), 0, a, b, 0)
            multiply(a, b, 1, sums)
        cuda.syncthreads()

    @cuda.jit(**launch_bounds(THREADS, tile.blocks))
    def kernel(A, B, C, alpha, beta):
        As = cuda.shared.array((DEPTH, PADDED_BM), float32, alignment=ALIGNMENT)
        Bs = cuda.shared.array((DEPTH, BN), float32, alignment=ALIGNMENT)
        sums = cuda.local.array((TM, TN), float32)
        a = cuda.local.array((2, TM), float32)
        b = cuda.local.array((2, TN), float32)

        M, _, K = problem_size(A, B, alpha)
        row0, col0 = block_y() * BM, block_x() * BN
        warp, lane = thread_x() // 32, thread_x() % 32
        row = warp // WARPS_X * WM + lane // LANES_X * 4
        col = warp % WARPS_X * WN + lane % LANES_X * 4

        for i in range(TM):
            for j in range(TN):
                sums[i, j] = 0
        chunks = K // BK
        if chunks > 0:
            if rows_are_aligned(A) and rows_are_aligned(B):
                multiply_chunks(A, B, row0, col0, chunks, As, Bs, row, col, sums, a, b, True)
            else:
                multiply_chunks(A, B, row0, col0, chunks, As, Bs, row, col, sums, a, b, False)
        if K % BK > 0:
            stage_remainder(A, B, row0, col0, chunks * BK, As, Bs, BM, BN, BK, THREADS)
            cuda.syncthreads()
            for k in range(BK):
                read_fragments(window(As, k, row), window(Bs, k, col), 0, a, b, 0)
                multiply(a, b, 0, sums)

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
    name="double_buffered",
    title="Double buffering",
    idea="the next chunk and the next fragments are fetched meanwhile",
    reference="Boehm, kernel 11",
    kernel=kernel,
    cover=lambda M, N, tile: Geometry.cover(x=(N, tile.BN), y=(M, tile.BM), block=(tile.threads, 1)),
    tile=TILE,
    make=build,
    habits=Habits(rereads_edges=True, extra_chunks=1),
)
gemm = RUNG.gemm
