"""Four floats at a time, and windows: their values, the simulator's checks, and the instructions."""

import re

import numpy as np
import pytest
from compiling import ARCHITECTURES, compiled, compiler_errors, memory_instructions
from numba import float32, float64, int64

from numba_gemm.primitives import (
    ALIGNMENT,
    index,
    load4,
    rows_are_aligned,
    store4,
    thread_x,
    thread_y,
    window,
)
from numba_gemm.target import cuda

ROWS, COLS = 4, 12
CORNERS = [(0, 0), (0, 4), (1, 8), (2, 4), (3, 0), (3, 8)]  # where four floats may lie in ROWS x COLS


def run(kernel, *arguments, grid=1, block=1):
    """Launch on host arrays, which come back changed; Numba copies them there and back."""
    kernel[grid, block](*arguments)


def numbered(rows=ROWS, cols=COLS):
    """A matrix in which every element is another number."""
    return np.arange(1, rows * cols + 1, dtype=np.float32).reshape(rows, cols)


def on_device(values, offset):
    """The matrix on the device, *offset* floats after a multiple of 16 bytes, amid NaN."""
    buffer = np.full(values.size + offset + 4, np.nan, np.float32)
    buffer[offset : offset + values.size] = values.ravel()
    return cuda.to_device(buffer)[offset : offset + values.size].reshape(*values.shape)


def untouched_but(row, col, values):
    """NaN, with four *values* from (row, col) on."""
    expected = np.full((ROWS, COLS), np.nan, np.float32)
    expected[row, col : col + 4] = values
    return expected


# load4 --------------------------------------------------------------------------------------------


@cuda.jit
def load_kernel(source, row, col, out):
    """The same four floats by plain integers, by indices and by one of each."""
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = load4(source, row, col)
    out[1, 0], out[1, 1], out[1, 2], out[1, 3] = load4(source, index(row), index(col))
    out[2, 0], out[2, 1], out[2, 2], out[2, 3] = load4(source, index(row), col)


@pytest.mark.parametrize(("row", "col"), CORNERS)
def test_load4_from_global_memory(row, col):
    """Every lane holds its own element, whatever integers say which."""
    source = numbered()
    out = np.zeros((3, 4), np.float32)
    run(load_kernel, source, row, col, out)
    assert out.tolist() == [source[row, col : col + 4].tolist()] * 3


@pytest.mark.parametrize(("row", "col"), CORNERS)
def test_load4_from_shared_memory(row, col):
    """A shared array made with ALIGNMENT is read as a global one is."""

    @cuda.jit
    def kernel(source, row, col, out):
        tile = cuda.shared.array((ROWS, COLS), float32, alignment=ALIGNMENT)
        for r in range(ROWS):
            for c in range(COLS):
                tile[r, c] = source[r, c]
        out[0], out[1], out[2], out[3] = load4(tile, row, col)
        out[4], out[5], out[6], out[7] = load4(tile, index(row), index(col))

    source = numbered()
    out = np.zeros(8, np.float32)
    run(kernel, source, row, col, out)
    assert out.tolist() == source[row, col : col + 4].tolist() * 2


def test_load4_with_literals():
    """A subscript may be a constant."""

    @cuda.jit
    def kernel(source, out):
        out[0], out[1], out[2], out[3] = load4(source, 2, 8)

    out = np.zeros(4, np.float32)
    run(kernel, numbered(), out)
    assert out.tolist() == [33, 34, 35, 36]


@pytest.mark.parametrize(("row", "col"), [(0, 2), (1, 1), (2, 0), (3, 3), (4, 2)])
def test_load4_of_rows_that_are_not_aligned(row, col):
    """It is the address that counts: here a row begins one float later than the one above."""
    source = on_device(numbered(6, 9), offset=2)
    out = np.zeros((3, 4), np.float32)
    run(load_kernel, source, row, col, out)
    expected = numbered(6, 9)[row, col : col + 4].tolist()
    assert out.tolist() == [expected] * 3


# store4 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "col"), CORNERS)
def test_store4_to_global_memory(row, col):
    """Every lane arrives at its own element, and the neighbours stay as they were."""

    @cuda.jit
    def kernel(plain, indexed, row, col, a, b, c, d):
        store4(plain, row, col, (a, b, c, d))
        store4(indexed, index(row), index(col), (a, b, c, d))

    plain, indexed = np.full((2, ROWS, COLS), np.nan, np.float32)
    run(kernel, plain, indexed, row, col, *np.float32([1, 2, 3, 4]))
    np.testing.assert_array_equal(plain, untouched_but(row, col, [1, 2, 3, 4]))
    np.testing.assert_array_equal(indexed, plain)


@pytest.mark.parametrize(("row", "col"), CORNERS)
def test_store4_to_shared_memory(row, col):
    """A shared array made with ALIGNMENT is written as a global one is."""

    @cuda.jit
    def kernel(row, col, a, b, c, d, out):
        tile = cuda.shared.array((ROWS, COLS), float32, alignment=ALIGNMENT)
        for r in range(ROWS):
            for c_ in range(COLS):
                tile[r, c_] = out[r, c_]
        store4(tile, row, index(col), (a, b, c, d))
        for r in range(ROWS):
            for c_ in range(COLS):
                out[r, c_] = tile[r, c_]

    out = np.full((ROWS, COLS), np.nan, np.float32)
    run(kernel, row, col, *np.float32([1, 2, 3, 4]), out)
    np.testing.assert_array_equal(out, untouched_but(row, col, [1, 2, 3, 4]))


def test_store4_of_other_numbers():
    """Each value of the tuple becomes a float32 by itself: doubles, integers, indices, literals."""

    @cuda.jit
    def kernel(target, single, double, integer):
        store4(target, 0, 0, (single, double, integer, index(integer)))
        store4(target, 1, 4, (double, 2, 0.1, single))

    target = np.full((ROWS, COLS), np.nan, np.float32)
    run(kernel, target, np.float32(1.5), 0.1, 2**24 + 1)
    expected = untouched_but(0, 0, [1.5, np.float32(0.1), 2**24, 2**24])
    expected[1, 4:8] = np.float32([0.1, 2, 0.1, 1.5])
    np.testing.assert_array_equal(target, expected)


def test_load4_and_store4_by_many_threads():
    """Each thread moves its own four floats through shared memory."""

    @cuda.jit
    def kernel(source, out):
        tile = cuda.shared.array((ROWS, COLS), float32, alignment=ALIGNMENT)
        row, col = thread_y(), thread_x() * 4
        store4(tile, row, col, load4(source, row, col))
        cuda.syncthreads()
        row = ROWS - 1 - row
        a, b, c, d = load4(tile, row, col)
        store4(out, row, col, (d, c, b, a))

    out = np.full((ROWS, COLS), np.nan, np.float32)
    run(kernel, numbered(), out, block=(COLS // 4, ROWS))
    expected = numbered().reshape(ROWS, COLS // 4, 4)[:, :, ::-1].reshape(ROWS, COLS)
    np.testing.assert_array_equal(out, expected)


# rows_are_aligned ---------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(5))
def test_rows_are_aligned(offset):
    """Both the first row's address and the length of a row have to be multiples of 16 bytes."""

    @cuda.jit
    def kernel(matrix, out):
        out[0] = rows_are_aligned(matrix)

    for cols in range(1, 10):
        out = np.zeros(1, np.bool_)
        run(kernel, on_device(np.zeros((3, cols), np.float32), offset), out)
        assert out[0] == (offset in (0, 4) and cols in (4, 8)), cols


# window -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "col"), [(0, 0), (0, 3), (1, 0), (2, 5)])
def test_window(row, col):
    """Element (i, j) is (row + i, col + j) of the matrix, for indices and plain integers."""

    @cuda.jit
    def kernel(matrix, row, col, i, j, out):
        plain = window(matrix, row, col)
        indexed = window(matrix, index(row), index(col))
        out[0], out[1] = plain[0, 0], plain[i, j]
        out[2], out[3] = plain[index(i), index(j)], plain[1, j]
        out[4], out[5] = indexed[0, 0], indexed[i, j]
        out[6], out[7] = indexed[index(i), index(j)], indexed[1, index(j)]

    matrix = numbered()
    out = np.zeros(8, np.float32)
    run(kernel, matrix, row, col, 1, 2, out)
    first, other = matrix[row, col], matrix[row + 1, col + 2]
    assert out.tolist() == [first, other, other, other] * 2


def test_window_is_no_copy():
    """What is written through it is in the matrix; a window of a window adds up."""

    @cuda.jit
    def kernel(matrix):
        outer = window(matrix, 1, index(2))
        outer[0, 0] = 1
        inner = window(outer, index(1), 3)
        inner[index(1), 4] = 2

    matrix = np.full((ROWS, COLS), np.nan, np.float32)
    run(kernel, matrix)
    expected = np.full((ROWS, COLS), np.nan, np.float32)
    expected[1, 2], expected[3, 9] = 1, 2
    np.testing.assert_array_equal(matrix, expected)


@pytest.mark.parametrize(("row", "col"), [(0, 3), (1, 4), (1, 7)])
def test_load4_and_store4_in_a_window(row, col):
    """Whether four floats may be moved depends on where they are, not on the window."""

    @cuda.jit
    def kernel(matrix, row, col, skip, out):
        source, target = window(matrix, row, col), window(out, row, col)
        for i in range(3):
            store4(target, i, skip, load4(source, i, skip))

    out = np.full((ROWS, COLS), np.nan, np.float32)
    run(kernel, numbered(), row, col, -col % 4, out)
    expected = np.full((ROWS, COLS), np.nan, np.float32)
    rows, cols = slice(row, row + 3), slice(col + -col % 4, col + -col % 4 + 4)
    expected[rows, cols] = numbered()[rows, cols]
    np.testing.assert_array_equal(out, expected)


def test_window_of_shared_memory():
    """A shared array has windows as well."""

    @cuda.jit
    def kernel(out):
        tile = cuda.shared.array((ROWS, COLS), float32, alignment=ALIGNMENT)
        store4(window(tile, 2, 4), 1, 4, (1, 2, 3, 4))
        out[0], out[1], out[2], out[3] = tile[3, 8], tile[3, 9], tile[3, 10], tile[3, 11]
        out[4] = int64(window(tile, index(3), 0)[0, 10])

    out = np.zeros(5, np.float32)
    run(kernel, out)
    assert out.tolist() == [1, 2, 3, 4, 3]


# What the simulator notices -----------------------------------------------------------------------


@cuda.jit
def store_kernel(target, row, col):
    """Four zeros."""
    store4(target, row, col, (0, 0, 0, 0))


@cuda.jit
def load_only_kernel(source, row, col):
    """Four floats that nobody needs."""
    load4(source, row, col)


@cuda.jit
def window_kernel(source, row, col):
    """Four floats of a window from the last column but eleven on."""
    load4(window(source, 0, 1), row, col)


@pytest.mark.simulator
@pytest.mark.parametrize("kernel", [load_only_kernel, store_kernel])
@pytest.mark.parametrize(("row", "col"), [(0, 1), (1, 2), (3, 7)])
def test_simulator_notices_a_wrong_address(kernel, row, col):
    """The error says which element and which multiple."""
    with pytest.raises(ValueError, match=rf"\({row}, {col}\).*multiple of 16 bytes"):
        run(kernel, numbered(), row, col)


@pytest.mark.simulator
@pytest.mark.parametrize("kernel", [load_only_kernel, store_kernel])
@pytest.mark.parametrize("offset", [1, 2, 3])
def test_simulator_notices_a_matrix_at_a_wrong_address(kernel, offset):
    """The columns are multiples of four, and yet the addresses are not."""
    with pytest.raises(ValueError, match=r"\(1, 4\).*multiple of 16 bytes"):
        run(kernel, on_device(numbered(), offset), 1, 4)


@pytest.mark.simulator
def test_simulator_notices_a_wrong_address_in_a_window():
    """Column 5 of a window from column 1 on is column 6."""
    with pytest.raises(ValueError, match=r"\(2, 5\).*multiple of 16 bytes"):
        run(window_kernel, numbered(), 2, 5)


@pytest.mark.simulator
@pytest.mark.parametrize("kernel", [load_only_kernel, store_kernel])
@pytest.mark.parametrize(("row", "col"), [(-1, 0), (ROWS, 0), (0, -4), (0, COLS), (0, COLS - 3)])
def test_simulator_notices_what_is_out_of_bounds(kernel, row, col):
    """All four floats have to be in one row of the matrix."""
    with pytest.raises(IndexError, match=rf"4 elements from \({row}, {col}\)"):
        run(kernel, numbered(), row, col)


@pytest.mark.simulator
def test_simulator_notices_what_is_out_of_bounds_of_a_window():
    """A window ends where its matrix does."""
    with pytest.raises(IndexError, match=r"4 elements from \(0, 11\)"):
        run(window_kernel, numbered(), 0, 11)


# Instructions -------------------------------------------------------------------------------------


@cuda.jit
def through_shared(A, B, C, alpha, beta):
    """Every kind of load and store, once each."""
    tile = cuda.shared.array((32, 32), float32, alignment=ALIGNMENT)
    row, col = thread_y(), thread_x() * 4
    store4(tile, row, col, load4(A, row, col))
    cuda.syncthreads()
    store4(C, row, col, load4(tile, col, row * 4))


@cuda.jit
def eight_of_window(A, B, C, alpha, beta):
    """Eight elements of a window."""
    tile = cuda.shared.array((32, 32), float32, alignment=ALIGNMENT)
    row, col = thread_y(), thread_x()
    tile[col, row] = alpha
    cuda.syncthreads()
    mine = window(tile, row, col)
    total = mine[0, 0]
    for i in range(1, 8):
        total += mine[i * 3, i % 2]
    C[row, col] = total


@pytest.fixture(scope="module")
def reports():
    """Everything that is compiled successfully, at once."""
    return compiled(__name__, ["through_shared", "eight_of_window"])


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_four_floats_are_one_instruction(arch, reports):
    """Of each kind one instruction, four floats wide, and no other."""
    instructions = memory_instructions(reports["through_shared", arch])
    # Global memory known to be read only adds .CONSTANT.
    kinds = [opcode.removesuffix(".CONSTANT") for opcode in instructions]
    assert kinds == ["LDG.E.128", "STS.128", "LDS.128", "STG.E.128"]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_constant_subscripts_of_a_window_cost_nothing(arch, reports):
    """Eight elements are read at one register and eight constant offsets from it."""
    loads = re.findall(r"LDS \w+, \[(\w+)[.\w]*(?:\+(0x\w+))?\]", reports["eight_of_window", arch].sass)
    registers, offsets = zip(*loads, strict=True)
    assert len(set(registers)) == 1
    expected = [(i * 3 * 32 + i % 2) * 4 for i in range(8)]
    assert sorted(int(offset or "0", 16) for offset in offsets) == expected


# What the compiler refuses ------------------------------------------------------------------------

REFUSED = {}


def refused(message):
    """A kernel that does not compile, and what the error has to say."""

    def register(function):
        REFUSED[function.__name__] = message
        return cuda.jit(function)

    return register


A_MATRIX = "should be a C-contiguous, two-dimensional float32 array"


@refused(f"load4: array(float64, 2d, C) {A_MATRIX}")
def load_doubles(A, B, C, alpha, beta):
    doubles = cuda.shared.array((4, 4), float64)
    load4(doubles, 0, 0)


@refused(f"load4: array(float32, 1d, C) {A_MATRIX}")
def load_from_one_dimension(A, B, C, alpha, beta):
    vector = cuda.shared.array(16, float32)
    load4(vector, 0, 0)


@refused(f"load4: array(float32, 3d, C) {A_MATRIX}")
def load_from_three_dimensions(A, B, C, alpha, beta):
    cube = cuda.shared.array((4, 4, 4), float32)
    load4(cube, 0, 0)


@refused(f"load4: array(float32, 2d, A) {A_MATRIX}")
def load_every_other_column(A, B, C, alpha, beta):
    load4(A[:, ::2], 0, 0)


@refused(f"load4: float32 {A_MATRIX}")
def load_from_a_number(A, B, C, alpha, beta):
    load4(alpha, 0, 0)


@refused("load4: float32 should be an integer")
def load_at_a_float(A, B, C, alpha, beta):
    load4(A, 0, alpha)


@refused(f"store4: array(float64, 2d, C) {A_MATRIX}")
def store_doubles(A, B, C, alpha, beta):
    doubles = cuda.shared.array((4, 4), float64)
    store4(doubles, 0, 0, (alpha, beta, alpha, beta))


@refused("store4: float32 should be an integer")
def store_at_a_float(A, B, C, alpha, beta):
    store4(C, alpha, 0, (alpha, beta, alpha, beta))


@refused("store4: UniTuple(float32 x 3) should be a tuple of four floats")
def store_three(A, B, C, alpha, beta):
    store4(C, 0, 0, (alpha, beta, alpha))


@refused("store4: float32 should be a tuple of four floats")
def store_one(A, B, C, alpha, beta):
    store4(C, 0, 0, alpha)


@refused(f"rows_are_aligned: array(float64, 2d, C) {A_MATRIX}")
def alignment_of_doubles(A, B, C, alpha, beta):
    doubles = cuda.shared.array((4, 4), float64)
    if rows_are_aligned(doubles):
        C[0, 0] = alpha


@refused(f"window: array(float32, 1d, C) {A_MATRIX}")
def window_of_one_dimension(A, B, C, alpha, beta):
    vector = cuda.shared.array(16, float32)
    C[0, 0] = window(vector, 0, 0)[0, 0]


@refused("window: float32 should be an integer")
def window_at_a_float(A, B, C, alpha, beta):
    C[0, 0] = window(A, alpha, 0)[0, 0]


@pytest.fixture(scope="module")
def errors(reports):
    """What the compiler says about the kernels above."""
    return compiler_errors(__name__, list(REFUSED))


@pytest.mark.parametrize("kernel", REFUSED)
def test_refused(kernel, errors):
    """The error names the function, what it was given and what that should be."""
    assert errors[kernel] is not None
    assert REFUSED[kernel] in errors[kernel]
