"""Tiled in two dimensions: the threads of a block share what they read.

All threads in a row of C need the same row of A, all in a column the same column of B, and so far each
fetched its own.  Now the block brings one tile of A and one of B into shared memory, one element a
thread, and every element is then read by WIDTH threads before the next pair of tiles replaces them.

A block of WIDTH x WIDTH reads 2 * WIDTH * K floats for 2 * WIDTH^2 * K FLOPs: WIDTH / 4 FLOP per byte,
whatever K is.  At WIDTH = 32 that is 8 instead of 0.25, and the 550 GB of the naive kernel at 4096
become 17.

Each of the two barriers prevents an accident of its own: the first, that a thread multiplies a tile
that somebody has not finished loading; the second, that a fast thread loads over a tile that a slow
one is still reading.  Where a tile hangs over the edge of its matrix it is filled with zeros, which
add nothing to the sum.

Source: "Naive to Tiled", sections 2 and 3; "A GEMM Kernel, Step by Step", rung three; S. Boehm,
kernel 3.
"""

import functools

from numba import cuda, float32

from numba_gemm.harness import Geometry
from numba_gemm.primitives import (
    block_x,
    block_y,
    index,
    problem_size,
    thread_x,
    thread_y,
    unroll,
    update,
)
from numba_gemm.rung import Rung
from numba_gemm.tile import Tile

TILE = Tile(BM=32, BN=32, BK=32)


@functools.cache
def build(tile: Tile = TILE):
    """The kernel for square tiles of A, B and C: BM = BN = BK, one entry of C a thread."""
    tile.check(
        {
            "the tiles have to be square, BM = BN = BK": tile.BM == tile.BN == tile.BK,
            "a thread has one entry, TM = TN = 1": tile.TM == tile.TN == 1,
        }
    )
    WIDTH = tile.BM

    @cuda.jit
    def kernel(A, B, C, alpha, beta):
        As = cuda.shared.array((WIDTH, WIDTH), float32)
        Bs = cuda.shared.array((WIDTH, WIDTH), float32)

        M, N, K = problem_size(A, B, alpha)
        tx, ty = thread_x(), thread_y()
        row = block_y() * WIDTH + ty
        col = block_x() * WIDTH + tx

        # This thread brings A[row, a_col] and B[b_row, col].  Below A or beside B there is nothing to
        # bring, which an end of 0 says.
        a_col, a_end = tx, (K if row < M else index(0))
        b_row, b_end = ty, (K if col < N else index(0))

        total = float32(0)
        for _ in range(0, K, WIDTH):
            a = b = float32(0)  # what a tile holds beyond the edge
            if a_col < a_end:
                a = A[row, a_col]
            if b_row < b_end:
                b = B[b_row, col]
            As[ty, tx] = a
            Bs[ty, tx] = b
            cuda.syncthreads()  # both tiles are complete

            for k in unroll(WIDTH):
                total += As[ty, k] * Bs[k, tx]
            cuda.syncthreads()  # nobody reads these tiles any more
            a_col += WIDTH
            b_row += WIDTH

        if row < M and col < N:
            update(C, row, col, total, alpha, beta)

    return kernel


kernel = build()

RUNG = Rung(
    name="tiled2d",
    title="Tiled in 2D",
    idea="the threads of a block share tiles of A and B",
    reference="Step by Step, rung 3; Naive to Tiled, section 3; Boehm, kernel 3",
    kernel=kernel,
    cover=lambda M, N, tile: Geometry.cover(x=(N, tile.BN), y=(M, tile.BM), block=(tile.BN, tile.BM)),
    tile=TILE,
    make=build,
)
gemm = RUNG.gemm
