"""Coalesced: the fast thread index runs along the row of C, so a warp's accesses are neighbours.

The kernel below is the naive one with ``row`` and ``col`` exchanged: the same arithmetic in the same
order, the same 0.25 FLOP per byte asked for.  But the 32 lanes of a warp now sit in one row of C.  At
each k all need the same element of A, which is fetched once and handed to all, where the naive kernel
asks for 32 that lie a row apart, in 32 transactions; and they read 32 consecutive elements of B, 128
bytes that arrive in four, where the naive kernel needs one.  Five instead of 33, and the 32 entries of
C are neighbours too.

On Boehm's A6000 global memory throughput went from 15 to 110 GB/s and the kernel became 6.4 times
faster: the largest single step of the ladder, for the choice of which index is called x.

Source: "A GEMM Kernel, Step by Step", rung two; S. Boehm, kernel 2.
"""

from numba import cuda, float32

from numba_gemm.harness import Geometry
from numba_gemm.primitives import block_x, block_y, problem_size, thread_x, thread_y, update
from numba_gemm.rung import Rung

BLOCK = 32  # a block is BLOCK x BLOCK threads, and so many entries of C


@cuda.jit
def kernel(A, B, C, alpha, beta):
    M, N, K = problem_size(A, B, alpha)
    row = block_y() * BLOCK + thread_y()
    col = block_x() * BLOCK + thread_x()  # the fast thread index runs along the row

    if row < M and col < N:
        total = float32(0)
        for k in range(K):
            total += A[row, k] * B[k, col]
        update(C, row, col, total, alpha, beta)


RUNG = Rung(
    name="coalesced",
    title="Coalesced",
    idea="the lanes of a warp read and write neighbours",
    reference="Step by Step, rung 2; Boehm, kernel 2",
    kernel=kernel,
    cover=lambda M, N, tile: Geometry.cover(x=(N, BLOCK), y=(M, BLOCK), block=(BLOCK, BLOCK)),
)
build, gemm = RUNG.build, RUNG.gemm
