"""Naive: one thread computes one entry of C.

A thread walks a row of A and a column of B: 2K floats for 2K FLOPs, four bytes for every single
operation, an arithmetic intensity of 0.25 FLOP per byte.  At 4096 x 4096 x 4096 the launch asks for
550 GB.

The 32 lanes of a warp are 32 consecutive values of ``threadIdx.x``.  Here that index picks the *row*,
so at each k they ask for 32 elements of A that lie a whole row apart, and later write 32 entries of C
just as far apart: 32 memory transactions where one instruction could have made do with four.

What all kernels have in common is in :mod:`numba_gemm.primitives`: M, N, K and the numbers of blocks and
threads come as ``index``, an integer that subscripts arrays at no extra cost; K is 0 where alpha is 0,
so that A and B are not read; ``update`` stores ``alpha * total + beta * C[row, col]``.

Source: "A GEMM Kernel, Step by Step", rung one; "Naive to Tiled", section 1; S. Boehm, kernel 1.
"""

from numba import cuda, float32

from numba_gemm.harness import Geometry
from numba_gemm.primitives import block_x, block_y, problem_size, thread_x, thread_y, update
from numba_gemm.rung import Rung

BLOCK = 32  # a block is BLOCK x BLOCK threads, and so many entries of C


@cuda.jit
def kernel(A, B, C, alpha, beta):
    M, N, K = problem_size(A, B, alpha)
    row = block_x() * BLOCK + thread_x()  # the fast thread index picks the row
    col = block_y() * BLOCK + thread_y()

    if row < M and col < N:
        total = float32(0)
        for k in range(K):
            total += A[row, k] * B[k, col]
        update(C, row, col, total, alpha, beta)


RUNG = Rung(
    name="naive",
    title="Naive",
    idea="one thread computes one entry of C",
    reference="Step by Step, rung 1; Naive to Tiled, section 1; Boehm, kernel 1",
    kernel=kernel,
    cover=lambda M, N, tile: Geometry.cover(x=(M, BLOCK), y=(N, BLOCK), block=(BLOCK, BLOCK)),
)
build, gemm = RUNG.build, RUNG.gemm
