"""What the upper rungs share: four floats at a time, and fringes that cost nothing inside.

A block tile that hangs over the edge of C computes entries that nobody stores, so it does not matter
what it reads for them.  It reads the last row or column again, where one beyond it would be: that is
settled once, by ``clamp``, and the loop over k has no checks.  Along k each product counts.  There the
loop ends with the last whole chunk, and ``stage_remainder`` copies what is left.

*wide*, in all of these, says that every row of the matrix begins at a multiple of 16 bytes
(``rows_are_aligned``).  Where it does not, four floats are four loads.
"""

from __future__ import annotations

from numba import float32

from .helpers import thread_x, update
from .index import index
from .jit import device_function
from .vectors import load4, store4

__all__ = ["clamp", "fetch4", "quad_of", "stage4", "stage4_transposed", "stage_remainder", "update4"]


@device_function
def clamp(i, size):
    """The index *i*, or the last one of *size* where it is beyond."""
    return i if i < size else size - 1


@device_function
def fetch4(source, row, col, wide):
    """Four floats of *source* from (row, col) on, as a tuple; all four have to be inside."""
    if wide:
        return load4(source, row, col)
    return source[row, col], source[row, col + 1], source[row, col + 2], source[row, col + 3]


@device_function
def stage4(source, row0, col0, tile, cols, thread, threads, wide):
    """Copy whole rows of *cols* columns from (row0, col0) on into *tile*, four floats at a time.

    All *threads* of the block call it, each with its own number *thread*; together they fill a whole
    number of rows at a time, an equal number of times: a legal tile divides so.
    """
    rows, N = tile.shape[0], index(source.shape[1])
    if wide:
        fours = cols // 4
        r, c = thread // fours, thread % fours * 4
        col = clamp(col0 + c, N - 3)
        for first in range(0, rows, threads // fours):
            store4(tile, r + first, c, load4(source, row0 + r + first, col))
    else:  # neighbours for neighbouring threads, whose reads the memory system can put together
        width = cols if threads % cols == 0 else cols // 4
        r, c = thread // width, thread % width
        for part in range(0, cols, width):
            col = clamp(col0 + c + part, N)
            for first in range(0, rows, threads // width):
                tile[r + first, c + part] = source[row0 + r + first, col]


@device_function
def quad_of(thread, quads, threads):
    """Row and first column of the four floats that *thread* copies, where a row has *quads* fours.

    Two lanes share a row and a warp has 16 rows, so that to store it transposed takes a run of 16 banks
    for each of the two.  Were more of a row dealt out to a warp, more runs would share the 32 banks, as
    they do where *threads* are too few for 16 rows.  Rows of an odd number of fours are dealt out whole.
    """
    along = quads if quads % 2 else 2
    if along == quads:  # the same in fewer instructions
        return thread // along, thread % along * 4
    down = threads // quads
    return thread // along % down, (thread // (along * down) * along + thread % along) * 4


@device_function
def stage4_transposed(source, row0, col0, tile, rows, thread, threads, wide):
    """Copy *rows* rows from (row0, col0) on into the columns of *tile*, four floats at a time.

    Or, where they are not *wide* and the threads suffice, two, which lie half a row of the chunk apart:
    so a warp reads more of each row than if they were neighbours.
    """
    cols = tile.shape[0]
    half = cols // 2
    M = index(source.shape[0])
    if not wide and threads % half == 0:
        r, c = thread // half, thread % half
        for first in range(0, rows, threads // half):
            row = clamp(row0 + r + first, M)
            x0, x1 = source[row, col0 + c], source[row, col0 + (c + half)]
            tile[c, r + first] = x0
            tile[c + half, r + first] = x1
    else:
        r, c = quad_of(thread, cols // 4, threads)
        for first in range(0, rows, threads // (cols // 4)):
            row = clamp(row0 + r + first, M)
            x0, x1, x2, x3 = fetch4(source, row, col0 + c, wide)
            tile[c, r + first] = x0
            tile[c + 1, r + first] = x1
            tile[c + 2, r + first] = x2
            tile[c + 3, r + first] = x3


@device_function
def stage_remainder(A, B, row0, col0, k0, As, Bs, BM, BN, BK, threads):
    """Copy what is left of k from k0 on, less than BK, and zeros up to BK; A arrives transposed.

    It happens once in a block, so it is short rather than fast.
    """
    M, N, K = index(A.shape[0]), index(B.shape[1]), index(A.shape[1])
    for n in range(thread_x(), BM * BK, threads):
        r, k = n // BK, n % BK
        As[k, r] = A[clamp(row0 + r, M), k0 + k] if k0 + k < K else float32(0)
    for n in range(thread_x(), BN * BK, threads):
        k, c = n // BN, n % BN
        Bs[k, c] = B[k0 + k, clamp(col0 + c, N)] if k0 + k < K else float32(0)


@device_function
def update4(C, row, col, products, alpha, beta, wide):
    """:func:`update` of four entries from (row, col) on; those beyond the last column are left out."""
    N = index(C.shape[1])
    if wide:
        if col < N:
            alpha, beta = float32(alpha), float32(beta)
            x0, x1, x2, x3 = products
            x0, x1, x2, x3 = alpha * x0, alpha * x1, alpha * x2, alpha * x3
            if beta != 0:
                c0, c1, c2, c3 = load4(C, row, col)
                x0, x1, x2, x3 = x0 + beta * c0, x1 + beta * c1, x2 + beta * c2, x3 + beta * c3
            store4(C, row, col, (x0, x1, x2, x3))
    else:
        x0, x1, x2, x3 = products
        if col < N:
            update(C, row, col, x0, alpha, beta)
        if col + 1 < N:
            update(C, row, col + 1, x1, alpha, beta)
        if col + 2 < N:
            update(C, row, col + 2, x2, alpha, beta)
        if col + 3 < N:
            update(C, row, col + 3, x3, alpha, beta)
