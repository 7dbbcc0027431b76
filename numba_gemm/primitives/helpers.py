"""The parts of a kernel that are no rung's idea: sizes, block coordinates, fringe, BLAS rules."""

from __future__ import annotations

from numba import cuda, float32

from .index import index
from .jit import device_function

__all__ = ["block_x", "block_y", "problem_size", "stage", "thread_x", "thread_y", "update"]


@device_function
def problem_size(A, B, alpha):
    """M, N and K of ``A @ B`` as indices; K is 0 when alpha is, so that A and B are never read."""
    M, N, K = index(A.shape[0]), index(B.shape[1]), index(A.shape[1])
    if alpha == 0:
        K = index(0)
    return M, N, K


@device_function
def block_x():
    """This block's place along x, as an index."""
    return index(cuda.blockIdx.x)


@device_function
def block_y():
    """This block's place along y, as an index.

    A grid may be 2^31 - 1 blocks long in x but only 65535 in y and z, so what does not fit in y goes
    on in z, as the high digit of a two-digit number.
    """
    return index(cuda.blockIdx.z) * cuda.gridDim.y + cuda.blockIdx.y


@device_function
def thread_x():
    """This thread's place along x in its block, as an index."""
    return index(cuda.threadIdx.x)


@device_function
def thread_y():
    """This thread's place along y in its block, as an index."""
    return index(cuda.threadIdx.y)


@device_function
def update(C, row, col, product, alpha, beta):
    """``C[row, col] <- alpha * product + beta * C[row, col]``, where beta = 0 does not read C."""
    scaled = float32(alpha) * product
    if beta == 0:
        C[row, col] = scaled
    else:
        C[row, col] = scaled + float32(beta) * C[row, col]


@device_function
def stage(source, row0, col0, tile, thread, threads):
    """Copy the part of *source* whose corner is (row0, col0) into *tile*, a shared array.

    All *threads* of the block call it, each with its own number *thread*.  Consecutive threads copy
    consecutive elements of a row, and together they fill *step* whole rows at a time, an equal number
    of times: a legal tile divides so.  What lies outside *source* arrives as zero, which adds nothing
    to a sum.
    """
    rows, cols = tile.shape
    step = threads // cols
    r, c = thread // cols, thread % cols
    row, col = row0 + r, col0 + c
    end = index(source.shape[0]) if col < source.shape[1] else index(0)  # no rows out there
    for s in range(rows // step):
        value = float32(0)
        if row + s * step < end:
            value = source[row + s * step, col]
        tile[r + s * step, c] = value
