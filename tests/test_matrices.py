"""What the upper rungs share, each helper through a kernel of a few lines: fringes, staging, update4.

Matrices lie amid NaN, and so do tiles before they are filled: a wrong address shows.
"""

import functools

import numpy as np
import pytest
from numba import float32, int64

from numba_gemm.primitives import (
    ALIGNMENT,
    clamp,
    fetch4,
    index,
    stage4,
    stage4_transposed,
    stage_remainder,
    thread_x,
    update4,
)
from numba_gemm.target import cuda

SENTINEL = -7
PADDING = 4  # columns of a tile that are not for elements
MARGIN = 64

LANES = np.arange(4)


def run(kernel, *arguments, grid=1, block=1):
    """Launch on host arrays, which come back changed; Numba copies them there and back."""
    kernel[grid, block](*arguments)


def amid_nan(values, wide=True):
    """The values on the device amid NaN, from a multiple of 16 bytes on where they are *wide*."""
    first = MARGIN if wide else MARGIN + 1
    buffer = np.full(values.size + 2 * MARGIN, np.nan, np.float32)
    buffer[first : first + values.size] = values.ravel()
    return cuda.to_device(buffer)[first : first + values.size].reshape(*values.shape)


def numbered(rows, cols):
    """A matrix in which every element is another number."""
    return np.arange(1, rows * cols + 1, dtype=np.float32).reshape(rows, cols)


def up_to_last(first, count, size):
    """The indices from *first* on, and the last of *size* for each beyond it."""
    return np.minimum(first + np.arange(count), size - 1)


def up_to_last_four(first, count, size):
    """The same by fours: beyond the last column, the last four again."""
    fours = np.minimum(first + np.arange(0, count, 4), size - 4)
    return (fours[:, None] + LANES).ravel()


# clamp, fetch4 ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("i", "size"), [(0, 1), (3, 5), (4, 5), (5, 5), (99, 5), (2**31 - 2, 1)])
def test_clamp(i, size):
    """An index that is inside stays as it is, and any other becomes the last."""

    @cuda.jit
    def kernel(i, size, out):
        out[0] = int64(clamp(index(i), index(size)))

    out = np.full(1, SENTINEL, np.int64)
    run(kernel, i, size, out)
    assert out[0] == min(i, size - 1)


@cuda.jit
def fetch_kernel(source, row, col, wide, out):
    """Four floats from (row, col) on."""
    out[0], out[1], out[2], out[3] = fetch4(source, index(row), index(col), wide)


@pytest.mark.parametrize("row", [0, 2])
@pytest.mark.parametrize("col", [0, 4, 8])
def test_fetch4_wide(row, col):
    """The four floats there."""
    source = numbered(3, 12)
    out = np.zeros(4, np.float32)
    run(fetch_kernel, amid_nan(source), row, col, True, out)
    np.testing.assert_array_equal(out, source[row, col : col + 4])


@pytest.mark.parametrize("row", [0, 2])
@pytest.mark.parametrize(("cols", "col"), [(4, 0), (5, 1), (11, 0), (11, 3), (11, 7), (12, 5)])
def test_fetch4_not_wide(row, cols, col):
    """From any column on."""
    source = numbered(3, cols)
    out = np.zeros(4, np.float32)
    run(fetch_kernel, amid_nan(source, wide=False), row, col, False, out)
    np.testing.assert_array_equal(out, source[row, col : col + 4])


# stage4, stage4_transposed ------------------------------------------------------------------------


@functools.cache
def staging(copy, depth, width, length, threads):
    """A kernel that copies into a tile of depth x width what *out* holds, then a part of *source*."""

    @cuda.jit
    def kernel(source, row0, col0, wide, out):
        tile = cuda.shared.array((depth, width), float32, alignment=ALIGNMENT)
        thread = thread_x()
        if thread == 0:
            for r in range(depth):
                for c in range(width):
                    tile[r, c] = out[r, c]
        cuda.syncthreads()
        copy(source, index(row0), index(col0), tile, length, thread, threads, wide)
        cuda.syncthreads()
        if thread == 0:
            for r in range(depth):
                for c in range(width):
                    out[r, c] = tile[r, c]

    return kernel


def staged(copy, depth, length, threads, source, corner, wide):
    """The tile of depth x length afterwards; what was padded on is checked to be as it was."""
    width = length + PADDING
    out = np.full((depth, width), np.nan, np.float32)
    kernel = staging(copy, depth, width, length, threads)
    run(kernel, amid_nan(source, wide), *corner, wide, out, block=threads)
    assert np.isnan(out[:, length:]).all()
    return out[:, :length]


TILES = {  # rows, columns, threads
    "one round": (4, 32, 32),
    "several rounds": (8, 32, 16),
    "a row at a time": (4, 32, 8),
    "one four a row": (32, 4, 32),
}
TRANSPOSED_TILES = {  # rows and columns of what is copied, threads
    "one round": (32, 4, 32),
    "several rounds": (16, 8, 8),
    "a row at a time": (4, 16, 4),
    "two fours a row and warp": (32, 16, 64),
    "three fours a row": (16, 12, 24),
}


def corner_id(corner):
    """The corner as a part of a test's name."""
    return "{} {}".format(*corner)


@pytest.mark.parametrize("tile", TILES.values(), ids=TILES.keys())
@pytest.mark.parametrize("corner", [(0, 0), (3, 4), (8, 40), (1, 32), (0, 44)], ids=corner_id)
def test_stage4_wide(tile, corner):
    """The rows under the tile; beyond the last column, the last four again."""
    rows, cols, threads = tile
    row0, col0 = corner
    source = numbered(40, 44)
    expected = source[row0 : row0 + rows, up_to_last_four(col0, cols, 44)]
    np.testing.assert_array_equal(staged(stage4, rows, cols, threads, source, corner, True), expected)


@pytest.mark.parametrize("tile", TILES.values(), ids=TILES.keys())
@pytest.mark.parametrize("corner", [(0, 0), (3, 5), (8, 40), (1, 32), (0, 43)], ids=corner_id)
def test_stage4_not_wide(tile, corner):
    """The rows under the tile; beyond the last column, it again."""
    rows, cols, threads = tile
    row0, col0 = corner
    source = numbered(40, 43)
    expected = source[row0 : row0 + rows, up_to_last(col0, cols, 43)]
    np.testing.assert_array_equal(staged(stage4, rows, cols, threads, source, corner, False), expected)


@pytest.mark.parametrize("tile", TRANSPOSED_TILES.values(), ids=TRANSPOSED_TILES.keys())
@pytest.mark.parametrize("corner", [(0, 0), (5, 4), (20, 8), (36, 0), (64, 8)], ids=corner_id)
def test_stage4_transposed_wide(tile, corner):
    """The columns under the tile, as rows; beyond the last row, it again."""
    rows, cols, threads = tile
    row0, col0 = corner
    source = numbered(37, 24)
    expected = source[up_to_last(row0, rows, 37), col0 : col0 + cols].T
    out = staged(stage4_transposed, cols, rows, threads, source, corner, True)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("tile", TRANSPOSED_TILES.values(), ids=TRANSPOSED_TILES.keys())
@pytest.mark.parametrize("corner", [(0, 0), (5, 3), (20, 7), (36, 5), (64, 1)], ids=corner_id)
def test_stage4_transposed_not_wide(tile, corner):
    """The same from any column on."""
    rows, cols, threads = tile
    row0, col0 = corner
    source = numbered(37, 23)
    expected = source[up_to_last(row0, rows, 37), col0 : col0 + cols].T
    out = staged(stage4_transposed, cols, rows, threads, source, corner, False)
    np.testing.assert_array_equal(out, expected)


# stage_remainder ----------------------------------------------------------------------------------

BM, BN, BK = 8, 16, 4
DEPTH, PADDED_BM, PADDED_BN = BK + 2, BM + PADDING, BN + PADDING  # more than there is to fill


@functools.cache
def remainder_staging(threads):
    """A kernel that stages the end of k into tiles that hold what is in *out_A* and *out_B*."""

    @cuda.jit
    def kernel(A, B, row0, col0, k0, out_A, out_B):
        As = cuda.shared.array((DEPTH, PADDED_BM), float32)
        Bs = cuda.shared.array((DEPTH, PADDED_BN), float32)
        if thread_x() == 0:
            for k in range(DEPTH):
                for r in range(PADDED_BM):
                    As[k, r] = out_A[k, r]
                for c in range(PADDED_BN):
                    Bs[k, c] = out_B[k, c]
        cuda.syncthreads()
        stage_remainder(A, B, index(row0), index(col0), index(k0), As, Bs, BM, BN, BK, threads)
        cuda.syncthreads()
        if thread_x() == 0:
            for k in range(DEPTH):
                for r in range(PADDED_BM):
                    out_A[k, r] = As[k, r]
                for c in range(PADDED_BN):
                    out_B[k, c] = Bs[k, c]

    return kernel


@pytest.mark.parametrize("threads", [32, 24, 96], ids="{} threads".format)
@pytest.mark.parametrize("left", [1, 2, 3], ids="{} left".format)
@pytest.mark.parametrize("corner", [(0, 0), (8, 16), (16, 32)], ids=corner_id)
def test_stage_remainder(threads, left, corner):
    """What is left of k, A transposed, zeros up to BK, and nothing behind."""
    row0, col0 = corner
    M, N, k0 = 10, 19, 8
    K = k0 + left
    A, B = numbered(M, K), numbered(K, N) + 1000
    out_A = np.full((DEPTH, PADDED_BM), np.nan, np.float32)
    out_B = np.full((DEPTH, PADDED_BN), np.nan, np.float32)
    expected_A, expected_B = out_A.copy(), out_B.copy()
    expected_A[:BK, :BM] = expected_B[:BK, :BN] = 0
    expected_A[:left, :BM] = A[up_to_last(row0, BM, M), k0:].T
    expected_B[:left, :BN] = B[k0:, up_to_last(col0, BN, N)]

    kernel = remainder_staging(threads)
    run(kernel, amid_nan(A), amid_nan(B), row0, col0, k0, out_A, out_B, block=threads)
    np.testing.assert_array_equal(out_A, expected_A)
    np.testing.assert_array_equal(out_B, expected_B)


# update4 ------------------------------------------------------------------------------------------


@cuda.jit
def update_kernel(C, col, products, alpha, beta, wide):
    """Update four entries in the middle row of C."""
    four = products[0], products[1], products[2], products[3]
    update4(C, index(1), index(col), four, alpha, beta, wide)


WIDE = [(True, 12, col) for col in (0, 4, 8, 12, 16)]
NOT_WIDE = [(False, 11, col) for col in (0, 3, 7, 8, 9, 10, 11, 12)] + [(False, 12, 8)]
PRODUCTS = np.array([3, 5, -7, 9], np.float32)


def updated(C, col, alpha, beta, wide):
    """What C holds afterwards."""
    device_C = amid_nan(C, wide)
    run(update_kernel, device_C, col, PRODUCTS, np.float32(alpha), np.float32(beta), wide)
    return device_C.copy_to_host()


@pytest.mark.parametrize(("wide", "cols", "col"), WIDE + NOT_WIDE)
@pytest.mark.parametrize("alpha", [0, 1, -1.5])
@pytest.mark.parametrize("beta", [0, 1, -0.5])
def test_update4(wide, cols, col, alpha, beta):
    """alpha * products + beta * C in the columns that there are, and no other entry changes."""
    C = numbered(3, cols)
    expected = C.copy()
    part = expected[1, col : col + 4]  # may be shorter
    part[:] = alpha * PRODUCTS[: part.size] + beta * part
    np.testing.assert_array_equal(updated(C, col, alpha, beta, wide), expected)


@pytest.mark.parametrize(("wide", "cols"), [(True, 12), (False, 11)])
@pytest.mark.parametrize("old", [np.nan, np.inf])
@pytest.mark.parametrize("beta", [0.0, -0.0])
def test_update4_with_beta_zero_does_not_read(wide, cols, old, beta):
    """As BLAS has it, what C held does not survive beta = 0."""
    C = np.full((3, cols), old, np.float32)
    expected = C.copy()
    expected[1, 4:8] = 2 * PRODUCTS
    np.testing.assert_array_equal(updated(C, 4, 2, beta, wide), expected)


@pytest.mark.parametrize(("wide", "cols"), [(True, 12), (False, 11)])
def test_update4_with_beta_reads(wide, cols):
    """NaN in C survives any other beta, in its own column."""
    C = numbered(3, cols)
    C[1, 6] = np.nan
    expected = C.copy()
    expected[1, 4:8] *= 0.5
    np.testing.assert_array_equal(updated(C, 4, 0, 0.5, wide), expected)
