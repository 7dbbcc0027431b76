"""The building blocks of the kernels, each through a kernel of a few lines.

The kernels run in whichever target there is, so what the GPU's lowering and the simulator's twin
return is held against the same plain Python.
"""

import functools
import operator

import numpy as np
import pytest
from numba import float32, float64, int64

from numba_gemm.operands import MAX_SIZE
from numba_gemm.primitives import (
    block_x,
    block_y,
    device_function,
    index,
    launch_bounds,
    problem_size,
    stage,
    thread_x,
    thread_y,
    unroll,
    update,
)
from numba_gemm.target import cuda

SENTINEL = -7


def run(kernel, *arguments, grid=1, block=1):
    """Launch on host arrays, which come back changed; Numba copies them there and back."""
    kernel[grid, block](*arguments)


# index --------------------------------------------------------------------------------------------

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
LARGEST = 2**31 - 1  # of what an index may be
PAIRS = [(7, 3), (3, 3), (40, 8), (46341, 46340), (LARGEST - 1, 1)]  # sum and product fit as well


@pytest.mark.parametrize("operation", ARITHMETIC, ids=lambda operation: operation.__name__)
def test_index_arithmetic(operation):
    """An index and an integer, in either order, give what Python gives, up to the largest."""

    @cuda.jit
    def kernel(a, b, out):
        out[0] = int64(operation(index(a), index(b)))
        out[1] = int64(operation(index(a), b))
        out[2] = int64(operation(a, index(b)))

    for a, b in PAIRS:
        out = np.full(3, SENTINEL, np.int64)
        run(kernel, a, b, out)
        assert out.tolist() == [operation(a, b)] * 3, (a, b)


@pytest.mark.parametrize("operation", COMPARISONS, ids=lambda operation: operation.__name__)
def test_index_comparisons(operation):
    """Comparisons agree with Python's in either order."""

    @cuda.jit
    def kernel(a, b, out):
        out[0] = operation(index(a), index(b))
        out[1] = operation(index(a), b)
        out[2] = operation(a, index(b))

    for a, b in [*PAIRS, (3, 7), (1, LARGEST)]:
        out = np.full(3, not operation(a, b), np.bool_)
        run(kernel, a, b, out)
        assert out.tolist() == [operation(a, b)] * 3, (a, b)


@pytest.mark.parametrize("integer", [np.int32, np.int64, np.uint32, np.uint64])
def test_index_of_any_integer(integer):
    """Every width and signedness becomes the same index, and mixes with one."""

    @cuda.jit
    def kernel(value, out):
        out[0] = int64(index(value))
        out[1] = int64(index(1) + value)
        out[2] = int64(value * index(2))

    out = np.full(3, SENTINEL, np.int64)
    run(kernel, integer(100), out)
    assert out.tolist() == [100, 101, 200]


def test_index_as_another_number():
    """It becomes an integer or a float without losing a digit that these have."""

    @cuda.jit
    def kernel(value, integers, floats):
        integers[0] = int64(index(value))
        floats[0] = float64(index(value))

    integers, floats = np.zeros(1, np.int64), np.zeros(1, np.float64)
    run(kernel, LARGEST, integers, floats)
    assert integers[0] == floats[0] == LARGEST


def test_index_in_place_and_with_literals():
    """The augmented operators and literals, as the kernels use them."""

    @cuda.jit
    def kernel(start, out):
        i = index(start)
        i += 5
        i *= 4
        i -= 2
        out[0] = int64(i)
        i //= 5
        out[1] = int64(i)
        i %= 4
        out[2] = int64(i)
        out[3] = int64(2 * i + 1)

    out = np.full(4, SENTINEL, np.int64)
    run(kernel, 3, out)
    assert out.tolist() == [30, 6, 2, 5]


def test_index_subscripts_an_array():
    """An index picks rows and columns, alone or beside plain integers."""

    @cuda.jit
    def kernel(matrix, out):
        row, col = index(1), index(2)
        out[0] = matrix[row, col]
        out[1] = matrix[row, 0]
        out[2] = matrix[0, col]
        out[row + col] = matrix[row - 1, col + 1]

    matrix = np.arange(8, dtype=np.float32).reshape(2, 4)
    out = np.zeros(4, np.float32)
    run(kernel, matrix, out)
    assert out.tolist() == [matrix[1, 2], matrix[1, 0], matrix[0, 2], matrix[0, 3]]


@device_function
def append(out, value):
    """Write a value behind the others; the first element counts them."""
    out[0] += 1
    out[out[0]] = int64(value)


def assert_appended(out, values):
    """These values were appended, and nothing was written behind them."""
    values = list(values)
    assert out[0] == len(values)
    assert out[1 : len(values) + 1].tolist() == values
    assert not out[len(values) + 1 :].any()


@pytest.mark.parametrize("stop", [0, 1, 9])
def test_range_of_stop(stop):
    """``range(stop)`` counts from zero."""

    @cuda.jit
    def kernel(stop, out):
        for k in range(index(stop)):
            append(out, k)

    out = np.zeros(16, np.int64)
    run(kernel, stop, out)
    assert_appended(out, range(stop))


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (2, 7), (5, 5), (7, 2)])
def test_range_of_start_and_stop(start, stop):
    """``range(start, stop)`` counts from start, and not at all where start is past stop."""

    @cuda.jit
    def kernel(start, stop, out):
        for k in range(index(start), index(stop)):
            append(out, k)

    out = np.zeros(16, np.int64)
    run(kernel, start, stop, out)
    assert_appended(out, range(start, stop))


@pytest.mark.parametrize(
    ("start", "stop", "step"),
    [(0, 16, 4), (0, 17, 4), (0, 15, 4), (3, 4, 8), (5, 5, 3), (6, 2, 1), (MAX_SIZE - 5, MAX_SIZE, 2)],
)
def test_range_of_start_stop_and_step(start, stop, step):
    """Steps that land on stop, short of it and beyond it; the arguments may be plain integers."""

    @cuda.jit
    def kernel(start, stop, step, out):
        for k in range(start, index(stop), step):
            append(out, k)

    out = np.zeros(16, np.int64)
    run(kernel, start, stop, step, out)
    assert_appended(out, range(start, stop, step))


def test_nested_ranges_and_use_after_the_loop():
    """Two ranges keep their own counters, and an index may be carried through both."""

    @cuda.jit
    def kernel(n, out):
        total = index(0)
        for i in range(index(n)):
            for j in range(i, index(n)):
                total += i * 10 + j
        out[0] = int64(total)

    out = np.full(1, SENTINEL, np.int64)
    run(kernel, 4, out)
    assert out[0] == sum(10 * i + j for i in range(4) for j in range(i, 4))


@pytest.mark.parametrize("count", [0, 1, 8])
def test_unroll(count):
    """A loop that is written out runs as the loop would, inside another one as well."""

    @cuda.jit
    def kernel(n, out):
        for _ in range(index(n)):
            for k in unroll(count):
                append(out, k)

    out = np.zeros(20, np.int64)
    run(kernel, 2, out)
    assert_appended(out, [*range(count)] * 2)


def test_launch_bounds():
    """The option is one that cuda.jit takes in either target, and changes no result."""

    @cuda.jit(**launch_bounds(32, 2))
    def kernel(out):
        out[thread_x()] = int64(thread_x())

    out = np.full(32, SENTINEL, np.int64)
    run(kernel, out, block=32)
    assert out.tolist() == list(range(32))


# coordinates and sizes ----------------------------------------------------------------------------


def test_block_y_goes_on_in_z():
    """z is the high digit of y, so blocks (y, z) count 0, 1, 2, ... through the layers."""

    @cuda.jit
    def kernel(out):
        out[cuda.blockIdx.z, cuda.blockIdx.y, cuda.blockIdx.x] = int64(block_y() * 100 + block_x())

    out = np.full((3, 4, 2), SENTINEL, np.int64)
    run(kernel, out, grid=(2, 4, 3))
    expected = [[[(4 * z + y) * 100 + x for x in range(2)] for y in range(4)] for z in range(3)]
    assert out.tolist() == expected


def test_thread_coordinates():
    """x is the fast index of a thread, y the slow one."""

    @cuda.jit
    def kernel(out):
        out[cuda.threadIdx.y, cuda.threadIdx.x] = int64(thread_y() * 100 + thread_x())

    out = np.full((2, 4), SENTINEL, np.int64)
    run(kernel, out, block=(4, 2))
    assert out.tolist() == [[0, 1, 2, 3], [100, 101, 102, 103]]


@pytest.mark.parametrize(("alpha", "depth"), [(1.0, 4), (-0.5, 4), (np.nan, 4), (0.0, 0), (-0.0, 0)])
def test_problem_size(alpha, depth):
    """M, N and K come from the shapes, and alpha = 0 leaves no k to read A and B for."""

    @cuda.jit
    def kernel(A, B, alpha, out):
        M, N, K = problem_size(A, B, alpha)
        out[0], out[1], out[2] = int64(M), int64(N), int64(K)

    out = np.full(3, SENTINEL, np.int64)
    run(kernel, np.zeros((2, 4), np.float32), np.zeros((4, 3), np.float32), np.float32(alpha), out)
    assert out.tolist() == [2, 3, depth]


def test_device_function():
    """A helper sees its caller's arrays, and may return several values."""

    @device_function
    def swap(array, i, j):
        array[i], array[j] = array[j], array[i]
        return i + j, i * j

    @cuda.jit
    def kernel(out):
        out[2], out[3] = swap(out, 0, 1)

    out = np.array([5, 6, 0, 0], np.int64)
    run(kernel, out)
    assert out.tolist() == [6, 5, 1, 0]


# update -------------------------------------------------------------------------------------------


@cuda.jit
def update_kernel(C, product, alpha, beta):
    """One update in the middle of C."""
    update(C, index(1), index(2), product, alpha, beta)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1.5])
@pytest.mark.parametrize("beta", [0.0, 1.0, -0.5])
def test_update(alpha, beta):
    """One entry becomes alpha * product + beta * C, and its neighbours stay as they were."""
    C = np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = C.copy()
    expected[1, 2] = alpha * 3 + beta * C[1, 2]
    run(update_kernel, C, np.float32(3), np.float32(alpha), np.float32(beta))
    np.testing.assert_array_equal(C, expected)


@pytest.mark.parametrize("old", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("beta", [0.0, -0.0])
def test_update_with_beta_zero_does_not_read(old, beta):
    """As BLAS has it, what C held does not survive beta = 0."""
    C = np.full((3, 4), old, np.float32)
    run(update_kernel, C, np.float32(3), np.float32(2), np.float32(beta))
    assert C[1, 2] == 6


def test_update_with_beta_reads():
    """NaN in C survives any other beta."""
    C = np.full((3, 4), np.nan, np.float32)
    run(update_kernel, C, np.float32(3), np.float32(0), np.float32(0.5))
    assert np.isnan(C[1, 2])


# stage --------------------------------------------------------------------------------------------


@functools.cache
def staging(rows, cols, threads):
    """A kernel that stages one tile of rows x cols and copies what arrived to *out*."""

    @cuda.jit
    def kernel(source, row0, col0, out):
        tile = cuda.shared.array((rows, cols), float32)
        thread = thread_x()
        if thread == 0:
            for r in range(rows):
                for c in range(cols):
                    tile[r, c] = float32(SENTINEL)
        cuda.syncthreads()
        stage(source, index(row0), index(col0), tile, thread, threads)
        cuda.syncthreads()
        if thread == 0:
            for r in range(rows):
                for c in range(cols):
                    out[r, c] = tile[r, c]

    return kernel


def inside_nan(values):
    """The values on the device, with nothing but NaN before and behind them in memory."""
    margin = 64
    buffer = np.full(values.size + 2 * margin, np.nan, np.float32)
    buffer[margin : margin + values.size] = values.ravel()
    return cuda.to_device(buffer)[margin : margin + values.size].reshape(*values.shape)


TILES = {
    "an element a thread": (4, 8, 32),
    "several rows at once": (8, 4, 16),
    "a row at a time": (4, 8, 8),
    "several rounds": (8, 4, 8),
}


@pytest.mark.parametrize("tile", TILES.values(), ids=TILES.keys())
@pytest.mark.parametrize(
    "corner",
    [(0, 0), (8, 8), (8, 0), (0, 8), (19, 22), (20, 3), (3, 23), (40, 40)],
    ids=lambda corner: "{} {}".format(*corner),
)
def test_stage(tile, corner):
    """The tile holds the part of the matrix under it, and zeros beyond the last row and column."""
    rows, cols, threads = tile
    row0, col0 = corner
    source = np.random.default_rng(0).random((20, 23), np.float32) + 1
    expected = np.zeros((rows, cols), np.float32)
    part = source[row0 : row0 + rows, col0 : col0 + cols]
    expected[: part.shape[0], : part.shape[1]] = part

    out = np.full((rows, cols), SENTINEL, np.float32)
    run(staging(rows, cols, threads), inside_nan(source), row0, col0, out, block=threads)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_stage_of_an_empty_matrix(shape):
    """Where there is nothing to copy, the tile is all zeros."""
    out = np.full((4, 8), SENTINEL, np.float32)
    run(staging(4, 8, 32), np.zeros(shape, np.float32), 0, 0, out, block=32)
    assert not out.any()
