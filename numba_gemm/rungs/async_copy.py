"""Asynchronous copies: the memory system fills shared memory while the threads multiply.

The rung below carries the next chunk through registers: 16 of each thread, and the instructions to
store them. ``cp.async`` copies from global to shared memory without either. The registers that are
left let a block of 256 threads compute 128 x 256 entries of C, 43 FLOP per byte instead of 32, with
one barrier a chunk for eight warps.

A copy cannot transpose, except element by element. So A travels four bytes at a time, 8 rows and 4 k
a warp: rows of As are padded by 8, which puts these 32 elements into 32 banks. B travels sixteen
bytes at a time, or four where its rows are not aligned.

The loop over chunks has no branches, as the assembler moves no instruction across one: the last
chunks, with nothing left to copy, have a loop of their own, and so have matrices B that are not
aligned. A tile that hangs over an edge copies the first rows or columns again, not the last: copies
of one and the same element by all lanes are slow.

Tiles are numbered row by row, and block n computes tile n: a launch may then cover some of them only,
as the rung above does. It needs compute capability 8.0.

Source: S. Boehm, kernel 12; CUDA C++ Programming Guide, "Asynchronous Data Copies".
"""

import functools

from numba import cuda, float32

from numba_gemm.harness import Geometry
from numba_gemm.model.traffic import Habits
from numba_gemm.primitives import (
    ALIGNMENT,
    block_x,
    clamp,
    commit_copies,
    copy_async,
    device_function,
    index,
    launch_bounds,
    load4,
    problem_size,
    rows_are_aligned,
    stage_remainder,
    thread_x,
    unroll,
    update4,
    wait_for_copies,
    window,
)
from numba_gemm.rung import Rung
from numba_gemm.tile import Tile

TILE = Tile(BM=128, BN=256, BK=8, TM=8, TN=16, WM=64, WN=64, stages=2)

PADDING = 8

# The order in which a thread multiplies its columns.  It decides how the assembler deals out registers,
# and this one of some 70 tried, among the fastest with rows that are aligned and with rows that are not,
# is several per cent above the average.
FOUND_ORDER = (4, 1, 2, 3, 15, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0)


def pipeline(tile: Tile, order: tuple[int, ...]):
    """The parts of the kernel, which the rung above uses as well: multiply_range and write_tile.

    A thread with as many columns as *order* has multiplies them in this order.
    """
    BM, BN, BK, WM, WN, TM, TN = tile.BM, tile.BN, tile.BK, tile.WM, tile.WN, tile.TM, tile.TN
    THREADS, STAGES = tile.threads, tile.stages
    LANES_Y, LANES_X = tile.lanes
    WARPS_X = BN // WN
    AHEAD = STAGES - 1  # chunks whose copies begin before they are needed
    PENDING = STAGES - 2  # of them, those that may still be under way when the next one is read
    A_ROWS = THREADS // 4  # rows of A, four k each, that the block copies at a time
    QUARTER = BN // 4
    B_ROWS = THREADS // QUARTER  # rows of B, four columns a thread, that it copies at a time
    HALF = BK // 2
    COLUMNS = order if TN == len(order) else tuple(range(TN))

    @device_function
    def begin_copies(A, B, row0, col0, chunk, As, Bs, buffer, wide):
        """Begin to copy a chunk of A, transposed, and one of B to the rows from *buffer* on.

        Where *wide*, rows of B begin at multiples of 16 bytes.  ``copy_async`` is told where to, where
        from, how many floats, and how many of them to read: all.
        """
        thread = thread_x()
        r, k = thread // 4, thread % 4
        to = window(As, buffer + k, r)
        for down in range(0, BM, A_ROWS):
            source = window(A, (row0 + r + down) % index(A.shape[0]), chunk * BK + k)
            for along in range(0, BK, 4):
                copy_async(to, along, down, source, 0, along, 1, 1)

        k, c = thread // QUARTER, thread % QUARTER
        N = index(B.shape[1])
        if wide:
            to = window(Bs, buffer + k, c * 4)
            source = window(B, chunk * BK + k, (col0 + c * 4) % N)
            for down in range(0, BK, B_ROWS):
                copy_async(to, down, 0, source, down, 0, 4, 4)
        else:
            to = window(Bs, buffer + k, c)
            for across in range(0, BN, QUARTER):
                source = window(B, chunk * BK + k, (col0 + c + across) % N)
                for down in range(0, BK, B_ROWS):
                    copy_async(to, down, across, source, down, 0, 1, 1)
        commit_copies()

    @device_function
    def turn(here, free):
        """The buffer to read next, and the one that has just been read."""
        if STAGES == 2:
            return free, here
        return here + BK if here < AHEAD * BK else index(0), here

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
    def multiply_chunk(As, Bs, a, b, sums):
        """All k of a chunk but the last: read those of k + 1, multiply those of k."""
        for k in unroll(HALF):  # in halves: the optimizer writes out loops up to a size
            read_fragments(As, Bs, k + 1, a, b, (k + 1) % 2)
            multiply(a, b, k % 2, sums)
        for k in unroll(HALF - 1):
            read_fragments(As, Bs, HALF + k + 1, a, b, (k + 1) % 2)
            multiply(a, b, k % 2, sums)

    @device_function
    def multiply_chunks(A, B, row0, col0, first, end, As, Bs, row, col, sums, a, b, wide):
        """The chunks from *first* to *end*, at least one."""
        for ahead in range(index(AHEAD)):
            chunk = clamp(first + ahead, end)
            begin_copies(A, B, row0, col0, chunk, As, Bs, ahead * BK, wide)
        here, free = index(0), index(AHEAD * BK)
        wait_for_copies(PENDING)
        cuda.syncthreads()
        read_fragments(window(As, here, row), window(Bs, here, col), 0, a, b, 0)

        for chunk in range(first + AHEAD, end):
            begin_copies(A, B, row0, col0, chunk, As, Bs, free, wide)
            multiply_chunk(window(As, here, row), window(Bs, here, col), a, b, sums)
            here, free = turn(here, free)
            wait_for_copies(PENDING)
            cuda.syncthreads()
            read_fragments(window(As, here, row), window(Bs, here, col), 0, a, b, 0)
            multiply(a, b, 1, sums)

        left = index(AHEAD) if AHEAD == 1 else clamp(index(AHEAD), end - first + 1)
        for _ in range(left):  # nothing is left to copy; what is read behind the last k is not used
            multiply_chunk(window(As, here, row), window(Bs, here, col), a, b, sums)
            here, free = turn(here, free)
            wait_for_copies(0)
            cuda.syncthreads()
            read_fragments(window(As, here, row), window(Bs, here, col), 0, a, b, 0)
            multiply(a, b, 1, sums)
        cuda.syncthreads()

    @device_function
    def my_corner():
        """Row and column of this thread's first entry in the block tile."""
        warp, lane = thread_x() // 32, thread_x() % 32
        row = warp // WARPS_X * WM + lane // LANES_X * 4
        col = warp % WARPS_X * WN + lane % LANES_X * 4
        return row, col

    @device_function
    def multiply_range(A, B, row0, col0, first, end, remainder, As, Bs, sums):
        """Set *sums* to the products of the chunks from *first* to *end* and of *remainder* more k."""
        a = cuda.local.array((2, TM), float32)
        b = cuda.local.array((2, TN), float32)
        row, col = my_corner()
        for i in range(TM):
            for j in range(TN):
                sums[i, j] = 0
        if first < end:
            if rows_are_aligned(B):
                multiply_chunks(A, B, row0, col0, first, end, As, Bs, row, col, sums, a, b, True)
            else:
                multiply_chunks(A, B, row0, col0, first, end, As, Bs, row, col, sums, a, b, False)
        if remainder > 0:
            stage_remainder(A, B, row0, col0, end * BK, As, Bs, BM, BN, BK, THREADS)
            cuda.syncthreads()
            for k in range(remainder):
                read_fragments(window(As, k, row), window(Bs, k, col), 0, a, b, 0)
                multiply(a, b, 0, sums)

    @device_function
    def write_tile(C, row0, col0, end_row, sums, alpha, beta):
        """Update the tile of C at (row0, col0), as far as it lies above *end_row*."""
        row, col = my_corner()
        wide = rows_are_aligned(C)
        for i in unroll(TM):
            r = row0 + (row + i // 4 * 4 * LANES_Y + i % 4)
            if r < end_row:
                for quad in unroll(TN // 4):
                    j = 4 * quad
                    products = sums[i, j], sums[i, j + 1], sums[i, j + 2], sums[i, j + 3]
                    update4(C, r, col0 + (col + j * LANES_X), products, alpha, beta, wide)

    return multiply_range, write_tile


@functools.cache
def build(tile: Tile = TILE):
    """The kernel for block tiles of BM x BN x BK, warp tiles of WM x WN, thread tiles of TM x TN."""
    tile.check(
        {
            "at least two chunks are held, stages >= 2": tile.stages >= 2,
            "threads / 4 rows of A are copied at a time, which has to divide BM": tile.threads >= 4
            and tile.BM % (tile.threads // 4) == 0,
        },
        vector=4,
        warps=True,
        staged=True,
        padding=PADDING,
    )
    BM, BN, BK, TM, TN, STAGES = tile.BM, tile.BN, tile.BK, tile.TM, tile.TN, tile.stages
    DEPTH, PADDED_BM = STAGES * BK, BM + PADDING
    multiply_range, write_tile = pipeline(tile, FOUND_ORDER)

    @cuda.jit(**launch_bounds(tile.threads, tile.blocks))
    def kernel(A, B, C, alpha, beta):
        As = cuda.shared.array((DEPTH, PADDED_BM), float32, alignment=ALIGNMENT)
        Bs = cuda.shared.array((DEPTH, BN), float32, alignment=ALIGNMENT)
        sums = cuda.local.array((TM, TN), float32)

        M, N, K = problem_size(A, B, alpha)
        across = (N + (BN - 1)) // BN
        row0, col0 = block_x() // across * BM, block_x() % across * BN  # tiles, row by row
        multiply_range(A, B, row0, col0, index(0), K // BK, K % BK, As, Bs, sums)
        write_tile(C, row0, col0, M, sums, alpha, beta)

    return kernel


kernel = build()

RUNG = Rung(
    name="async_copy",
    title="Asynchronous copies",
    idea="copies to shared memory go on while the threads multiply",
    reference="Boehm, kernel 12",
    kernel=kernel,
    cover=lambda M, N, tile: Geometry.line(-(-M // tile.BM) * -(-N // tile.BN), tile.threads),
    tile=TILE,
    make=build,
    habits=Habits(rereads_edges=True),
    requires=(8, 0),
)
gemm = RUNG.gemm
