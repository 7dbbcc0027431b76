"""Asynchronous copies: what arrives and when, the simulator's checks, and the instructions.

On a GPU a copy may arrive long before it is waited for, so that a test of what has not arrived yet is
about the simulator.
"""

import functools
import re

import numpy as np
import pytest
from compiling import ARCHITECTURES, compiled, compiler_errors, memory_instructions
from numba import float32, float64

from numba_gemm.primitives import (
    ALIGNMENT,
    commit_copies,
    copy_async,
    index,
    thread_x,
    thread_y,
    unroll,
    wait_for_copies,
    window,
)
from numba_gemm.target import TARGET, cuda

pytestmark = pytest.mark.skipif(
    TARGET.is_gpu and cuda.get_current_device().compute_capability < (8, 0),
    reason="needs compute capability 8.0",
)

SENTINEL = -7
ROWS, COLS = 3, 8  # of the shared arrays
COUNTS = [1, 2, 4]


def run(kernel, *arguments, grid=1, block=1):
    """Launch on host arrays, which come back changed; Numba copies them there and back."""
    kernel[grid, block](*arguments)


def numbered(rows=4, cols=12):
    """A matrix in which every element is another number."""
    return np.arange(1, rows * cols + 1, dtype=np.float32).reshape(rows, cols)


def nothing(rows=ROWS, cols=COLS):
    """A matrix of NaN."""
    return np.full((rows, cols), np.nan, np.float32)


# copy_async ---------------------------------------------------------------------------------------


@functools.cache
def copying(count, constant=None):
    """A kernel that copies *count* floats into a shared array, and that to *out*.

    *constant* is how many of them are valid where that is known to the compiler.
    """

    @cuda.jit
    def at_run_time(source, i, j, row, col, valid, out):
        tile = cuda.shared.array((ROWS, COLS), float32, alignment=ALIGNMENT)
        for r in range(ROWS):
            for c in range(COLS):
                tile[r, c] = SENTINEL
        cuda.syncthreads()
        copy_async(tile, i, j, source, row, col, count, valid)
        commit_copies()
        wait_for_copies(0)
        for r in range(ROWS):
            for c in range(COLS):
                out[r, c] = tile[r, c]

    @cuda.jit
    def at_compile_time(source, i, j, row, col, valid, out):
        tile = cuda.shared.array((ROWS, COLS), float32, alignment=ALIGNMENT)
        for r in range(ROWS):
            for c in range(COLS):
                tile[r, c] = SENTINEL
        cuda.syncthreads()
        copy_async(tile, index(i), index(j), source, index(row), index(col), count, constant)
        commit_copies()
        wait_for_copies(0)
        for r in range(ROWS):
            for c in range(COLS):
                out[r, c] = tile[r, c]

    return at_run_time if constant is None else at_compile_time


def arrived(i, j, values):
    """The shared array of those kernels with *values* from (i, j) on."""
    expected = np.full((ROWS, COLS), SENTINEL, np.float32)
    expected[i, j : j + len(values)] = values
    return expected


VALID = [(count, valid) for count in COUNTS for valid in range(count + 1)]


@pytest.mark.parametrize("constant", [False, True], ids=["at run time", "at compile time"])
@pytest.mark.parametrize(("count", "valid"), VALID)
def test_copy_async(count, valid, constant):
    """The valid floats arrive, zeros for the others, and the neighbours stay as they were."""
    kernel = copying(count, valid if constant else None)
    source = numbered()
    for (i, j), (row, col) in [((0, 0), (0, 0)), ((1, count), (3, 2 * count)), ((2, 4), (1, 8))]:
        out = nothing()
        run(kernel, source, i, j, row, col, valid, out)
        expected = [*source[row, col : col + valid], *[0] * (count - valid)]
        np.testing.assert_array_equal(out, arrived(i, j, expected))


@pytest.mark.parametrize("constant", [False, True], ids=["at run time", "at compile time"])
@pytest.mark.parametrize(("count", "valid"), VALID)
def test_copy_async_reads_the_valid_floats_only(count, valid, constant):
    """NaN arrives where it was asked for, and nowhere else."""
    out = nothing()
    run(copying(count, valid if constant else None), nothing(), 1, 4, 1, 4, valid, out)
    np.testing.assert_array_equal(out, arrived(1, 4, [*[np.nan] * valid, *[0] * (count - valid)]))


@pytest.mark.parametrize(("cols", "count"), [(5, 4), (6, 4), (7, 4), (5, 2), (7, 2)])
def test_copy_async_at_the_edge(cols, count):
    """What lies beyond the last column of the last row is not read, as it is nobody's."""
    rows = 5 if count == 4 else 3  # so that the last row begins at a multiple of count
    source = numbered(rows, cols)
    col = cols // count * count
    valid = cols - col
    out = nothing()
    run(copying(count), source, 0, 4, rows - 1, col, valid, out)
    expected = [*source[-1, col:], *[0] * (count - valid)]
    np.testing.assert_array_equal(out, arrived(0, 4, expected))


def test_copy_async_of_one_float_from_anywhere():
    """One float needs no alignment, so a matrix may be transposed on the way."""

    @cuda.jit
    def kernel(source, out):
        tile = cuda.shared.array((5, 3), float32)
        for r in range(3):
            for c in range(5):
                copy_async(tile, c, r, source, r, c, 1, 1)
        commit_copies()
        wait_for_copies(0)
        for r in range(5):
            for c in range(3):
                out[r, c] = tile[r, c]

    out = nothing(5, 3)
    run(kernel, numbered(3, 5), out)
    np.testing.assert_array_equal(out, numbered(3, 5).T)


def test_copy_async_between_windows():
    """Both sides may be windows; the alignment is that of the matrices."""

    @cuda.jit
    def kernel(source, row, col, out):
        tile = cuda.shared.array((ROWS, COLS), float32, alignment=ALIGNMENT)
        to, from_ = window(tile, 1, 1), window(source, row, col)
        copy_async(to, 1, 3, from_, 1, 1, 4, 4)
        copy_async(to, 1, 1, from_, 2, 3, 2, 2)
        commit_copies()
        wait_for_copies(0)
        for c in range(2, COLS):
            out[c] = tile[2, c]

    out = np.full(COLS, SENTINEL, np.float32)
    run(kernel, numbered(), 1, 3, out)
    source = numbered()
    assert out.tolist() == [SENTINEL, SENTINEL, *source[3, 6:8], *source[2, 4:8]]


# Groups -------------------------------------------------------------------------------------------


@cuda.jit
def two_groups_kernel(source, out):
    """What is there of two groups at first, after waiting for the older one, and for both.

    The first group has two copies.
    """
    tile = cuda.shared.array((ROWS, 4), float32, alignment=ALIGNMENT)
    copy_async(tile, 0, 0, source, 0, 0, 4, 4)
    copy_async(tile, 1, 0, source, 1, 0, 4, 4)
    commit_copies()
    copy_async(tile, 2, 0, source, 2, 0, 4, 4)
    commit_copies()
    for i in range(ROWS):
        out[0, i] = tile[i, 3]
    wait_for_copies(1)
    for i in range(ROWS):
        out[1, i] = tile[i, 3]
    wait_for_copies(0)
    for i in range(ROWS):
        out[2, i] = tile[i, 3]


def two_groups():
    """What that kernel finds."""
    out = np.full((3, ROWS), SENTINEL, np.float32)
    run(two_groups_kernel, numbered(3, 4), out)
    return out.tolist()


def test_waiting_completes_the_older_groups():
    """With one group pending the older one is there, with none both."""
    _, one_pending, none_pending = two_groups()
    assert one_pending[:2] == [4, 8]
    assert none_pending == [4, 8, 12]


@pytest.mark.simulator
def test_nothing_arrives_before_it_is_waited_for():
    """NaN stands where a group is under way."""
    at_first, one_pending, _ = two_groups()
    assert np.isnan(at_first).all()
    assert np.isnan(one_pending[2])


@functools.cache
def empty_groups(pending):
    """A kernel that copies one float, then commits two groups without a copy."""

    @cuda.jit
    def kernel(source, out):
        tile = cuda.shared.array((1, 4), float32)
        copy_async(tile, 0, 0, source, 0, 0, 1, 1)
        commit_copies()
        commit_copies()
        commit_copies()
        wait_for_copies(pending)
        out[0] = tile[0, 0]

    return kernel


@pytest.mark.parametrize(
    "pending",
    [
        0,
        1,
        2,
        pytest.param(3, marks=pytest.mark.simulator),
        pytest.param(9, marks=pytest.mark.simulator),
    ],
)
def test_a_group_without_copies_counts(pending):
    """A loop that has nothing left to copy goes on to commit, and waits as before."""
    out = np.full(1, SENTINEL, np.float32)
    run(empty_groups(pending), numbered(), out)
    assert out[0] == 1 if pending < 3 else np.isnan(out[0])


def test_waiting_for_nothing():
    """There need not be a group to wait for, and waiting twice is waiting once."""

    @cuda.jit
    def kernel(source, out):
        tile = cuda.shared.array((1, 4), float32)
        wait_for_copies(0)
        copy_async(tile, 0, 0, source, 0, 0, 1, 1)
        commit_copies()
        wait_for_copies(0)
        tile[0, 0] += 1
        wait_for_copies(0)
        out[0] = tile[0, 0]

    out = np.full(1, SENTINEL, np.float32)
    run(kernel, numbered(), out)
    assert out[0] == 2


@pytest.mark.simulator
def test_a_copy_without_a_commit_does_not_arrive():
    """Only groups are waited for."""

    @cuda.jit
    def kernel(source, out):
        tile = cuda.shared.array((1, 4), float32)
        copy_async(tile, 0, 0, source, 0, 0, 1, 1)
        wait_for_copies(0)
        out[0] = tile[0, 0]

    out = np.full(1, SENTINEL, np.float32)
    run(kernel, numbered(), out)
    assert np.isnan(out[0])


def test_pipeline():
    """Blocks of threads that copy two chunks ahead, each thread reading what its neighbour copied."""
    THREADS, STAGES, CHUNKS = (4, 3, 5) if TARGET.is_simulator else (128, 3, 50)
    WIDTH, PENDING = 4 * THREADS, STAGES - 2

    @cuda.jit
    def kernel(source, out):
        tile = cuda.shared.array((STAGES, WIDTH), float32, alignment=ALIGNMENT)
        thread, row0 = thread_x(), index(cuda.blockIdx.x) * CHUNKS
        for chunk in range(STAGES - 1):
            copy_async(tile, chunk, thread * 4, source, row0 + chunk, thread * 4, 4, 4)
            commit_copies()
        total = float32(0)
        for chunk in range(index(CHUNKS)):
            wait_for_copies(PENDING)
            cuda.syncthreads()
            ahead = chunk + STAGES - 1
            if ahead < CHUNKS:
                copy_async(tile, ahead % STAGES, thread * 4, source, row0 + ahead, thread * 4, 4, 4)
            commit_copies()
            neighbour = (thread + 1) % THREADS * 4
            for lane in unroll(4):
                total += tile[chunk % STAGES, neighbour + lane]
        out[cuda.blockIdx.x, thread] = total

    source = np.random.default_rng(0).integers(0, 100, (3 * CHUNKS, WIDTH)).astype(np.float32)
    out = np.full((3, THREADS), SENTINEL, np.float32)
    run(kernel, source, out, grid=3, block=THREADS)
    sums = source.reshape(3, CHUNKS, THREADS, 4).sum(axis=(1, 3))
    np.testing.assert_array_equal(out, np.roll(sums, -1, axis=1))


@pytest.mark.simulator
def test_threads_wait_for_their_own_copies():
    """A thread that does not wait finds NaN, whatever the others did, in this block or the last one.

    The target is no shared array, so that what arrives too late can be seen.
    """

    @cuda.jit
    def kernel(source, target, waits):
        number = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if waits[number]:
            cuda.syncthreads()
        copy_async(target, number, 0, source, number, 0, 1, 1)
        if number != 3:
            commit_copies()
        if not waits[number]:
            cuda.syncthreads()
        else:
            wait_for_copies(0)

    target = nothing(6, 1)
    waits = np.array([False, True, True, False, True, False])
    run(kernel, numbered(6, 1), target, waits, grid=3, block=2)
    np.testing.assert_array_equal(target[:, 0], np.where(waits, np.arange(1, 7), np.nan))


# What the simulator notices -----------------------------------------------------------------------


@functools.cache
def one_copy(count):
    """A kernel with one copy, that it does not wait for."""

    @cuda.jit
    def kernel(source, i, j, row, col, valid):
        tile = cuda.shared.array((ROWS, COLS), float32, alignment=ALIGNMENT)
        copy_async(tile, i, j, source, row, col, count, valid)

    return kernel


@pytest.mark.simulator
@pytest.mark.parametrize("count", [0, 3, 8])
def test_simulator_notices_a_wrong_count(count):
    with pytest.raises(ValueError, match=f"count is {count}; it should be 1, 2 or 4"):
        run(one_copy(count), numbered(), 0, 0, 0, 0, 0)


@pytest.mark.simulator
@pytest.mark.parametrize(("count", "valid"), [(1, 2), (2, 3), (4, 5), (4, -1)])
def test_simulator_notices_a_wrong_valid(count, valid):
    with pytest.raises(ValueError, match=f"valid is {valid}; it should be from 0 to {count}"):
        run(one_copy(count), numbered(), 0, 0, 0, 0, valid)


@pytest.mark.simulator
def test_simulator_notices_a_wrong_pending():
    @cuda.jit
    def kernel():
        wait_for_copies(-1)

    with pytest.raises(ValueError, match="pending is -1; it should be 0 or more"):
        run(kernel)


@pytest.mark.simulator
@pytest.mark.parametrize(("count", "col"), [(2, 1), (2, 3), (4, 1), (4, 2), (4, 3)])
def test_simulator_notices_a_wrong_address(count, col):
    """On either side, even where only a part is valid; the error says which element and multiple."""
    message = rf"\(1, {col}\).*multiple of {4 * count} bytes"
    with pytest.raises(ValueError, match=message):
        run(one_copy(count), numbered(), 1, col, 0, 0, count)
    with pytest.raises(ValueError, match=message):
        run(one_copy(count), numbered(), 0, 0, 1, col, 1)


@pytest.mark.simulator
@pytest.mark.parametrize("count", COUNTS)
def test_simulator_notices_what_is_out_of_bounds(count):
    """All of the target has to be there, and the valid part of the source."""
    source = numbered()
    for i, j in [(-1, 0), (ROWS, 0), (0, -count), (0, COLS)]:
        with pytest.raises(IndexError, match=rf"{count} elements from \({i}, {j}\)"):
            run(one_copy(count), source, i, j, 0, 0, 0)
    for row, col in [(-1, 0), (4, 0), (0, -count), (0, 12)]:
        with pytest.raises(IndexError, match=rf"1 elements from \({row}, {col}\)"):
            run(one_copy(count), source, 0, 0, row, col, 1)


# Instructions -------------------------------------------------------------------------------------


@cuda.jit
def whole_copies(A, B, C, alpha, beta):
    """Copies of four, two and one floats, in two groups."""
    tile = cuda.shared.array((48, 128), float32, alignment=ALIGNMENT)
    row, col = thread_y(), thread_x()
    copy_async(tile, row, col * 4, A, row, col * 4, 4, 4)
    commit_copies()
    copy_async(tile, row + 16, col * 2, A, row, col * 2, 2, 2)
    copy_async(tile, row + 32, col, A, row, col, 1, 1)
    commit_copies()
    wait_for_copies(1)
    cuda.syncthreads()
    C[row, col] = tile[col, row]
    wait_for_copies(0)
    cuda.syncthreads()
    C[row + 16, col] = tile[col + 16, row]


@cuda.jit
def partial_copies(A, B, C, alpha, beta):
    """The same copies, of which as many floats are valid as *B* has columns."""
    tile = cuda.shared.array((48, 128), float32, alignment=ALIGNMENT)
    row, col, valid = thread_y(), thread_x(), B.shape[1]
    copy_async(tile, row, col * 4, A, row, col * 4, 4, valid)
    copy_async(tile, row + 16, col * 2, A, row, col * 2, 2, valid)
    copy_async(tile, row + 32, col, A, row, col, 1, index(valid))
    commit_copies()
    wait_for_copies(0)
    cuda.syncthreads()
    C[row, col] = tile[col, row]


@pytest.fixture(scope="module")
def reports():
    """Everything that is compiled successfully, at once."""
    return compiled(__name__, ["whole_copies", "partial_copies"])


def copies(report):
    """The widths in bits of the asynchronous copies, in order; no others fill the shared array."""
    instructions = memory_instructions(report)
    assert not [opcode for opcode in instructions if re.match(r"LDG\.|STS", opcode)]
    found = [opcode.split(".") for opcode in instructions if opcode.startswith("LDGSTS")]
    return [next((int(part) for part in parts if part in ("64", "128")), 32) for parts in found]


@pytest.mark.parametrize("kernel", ["whole_copies", "partial_copies"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_copy_is_one_instruction(kernel, arch, reports):
    """Of the width that was asked for; only the widest leaves out L1."""
    report = reports[kernel, arch]
    assert copies(report) == [128, 64, 32]
    assert [".128" in opcode for opcode in re.findall(r"LDGSTS\S*BYPASS\S*", report.sass)] == [True]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_only_partial_copies_fill_with_zeros(arch, reports):
    """A copy that is known to be whole pays nothing for those that are not."""
    assert "ZFILL" not in reports["whole_copies", arch].sass
    assert len(re.findall(r"LDGSTS\S*ZFILL", reports["partial_copies", arch].sass)) == 2
    assert not re.findall(r"LDGSTS[^;]*, !?U?PT?\d? ;", reports["whole_copies", arch].sass)
    assert len(re.findall(r"LDGSTS[^;]*, !?P\d ;", reports["partial_copies", arch].sass)) == 3


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_groups_are_committed_and_waited_for_in_order(arch, reports):
    """Where the kernel says so, and with the number that it says."""
    sass = reports["whole_copies", arch].sass
    found = re.findall(r"LDGSTS|LDGDEPBAR|DEPBAR\.LE SB0, 0x\w+|STG", sass)
    assert found == [
        *["LDGSTS", "LDGDEPBAR"],
        *["LDGSTS", "LDGSTS", "LDGDEPBAR"],
        *["DEPBAR.LE SB0, 0x1", "STG"],
        *["DEPBAR.LE SB0, 0x0", "STG"],
    ]


# What the compiler refuses ------------------------------------------------------------------------

REFUSED = {}


def refused(message):
    """A kernel that does not compile, and what the error has to say."""

    def register(function):
        REFUSED[function.__name__] = message
        return cuda.jit(function)

    return register


A_MATRIX = "should be a C-contiguous, two-dimensional float32 array"
A_COUNT = "it should be a constant 1, 2 or 4"
A_PENDING = "it should be a constant, 0 or more"


@refused(f"copy_async: array(float64, 2d, C) {A_MATRIX}")
def copy_to_doubles(A, B, C, alpha, beta):
    doubles = cuda.shared.array((4, 4), float64)
    copy_async(doubles, 0, 0, A, 0, 0, 1, 1)


@refused(f"copy_async: array(float32, 1d, C) {A_MATRIX}")
def copy_to_one_dimension(A, B, C, alpha, beta):
    vector = cuda.shared.array(16, float32)
    copy_async(vector, 0, 0, A, 0, 0, 1, 1)


@refused(f"copy_async: array(float32, 3d, C) {A_MATRIX}")
def copy_to_three_dimensions(A, B, C, alpha, beta):
    cube = cuda.shared.array((4, 4, 4), float32)
    copy_async(cube, 0, 0, A, 0, 0, 1, 1)


@refused(f"copy_async: array(float32, 2d, A) {A_MATRIX}")
def copy_from_every_other_column(A, B, C, alpha, beta):
    tile = cuda.shared.array((4, 4), float32)
    copy_async(tile, 0, 0, A[:, ::2], 0, 0, 1, 1)


@refused("copy_async: float32 should be an integer")
def copy_to_a_float(A, B, C, alpha, beta):
    tile = cuda.shared.array((4, 4), float32)
    copy_async(tile, 0, alpha, A, 0, 0, 1, 1)


@refused("copy_async: float32 should be an integer")
def copy_from_a_float(A, B, C, alpha, beta):
    tile = cuda.shared.array((4, 4), float32)
    copy_async(tile, 0, 0, A, alpha, 0, 1, 1)


@refused("copy_async: float32 should be an integer")
def copy_a_float_of_valid(A, B, C, alpha, beta):
    tile = cuda.shared.array((4, 4), float32)
    copy_async(tile, 0, 0, A, 0, 0, 1, alpha)


@refused(f"copy_async: count is Literal[int](3); {A_COUNT}")
def copy_three(A, B, C, alpha, beta):
    tile = cuda.shared.array((4, 4), float32)
    copy_async(tile, 0, 0, A, 0, 0, 3, 3)


@refused(f"copy_async: count is int64; {A_COUNT}")
def copy_at_run_time(A, B, C, alpha, beta):
    tile = cuda.shared.array((4, 4), float32)
    copy_async(tile, 0, 0, A, 0, 0, A.shape[0], 1)


@refused(f"wait_for_copies: pending is int64; {A_PENDING}")
def wait_at_run_time(A, B, C, alpha, beta):
    wait_for_copies(A.shape[0])


@refused(f"wait_for_copies: pending is index; {A_PENDING}")
def wait_for_an_index(A, B, C, alpha, beta):
    wait_for_copies(index(1))


@refused(f"wait_for_copies: pending is Literal[int](-1); {A_PENDING}")
def wait_for_less_than_nothing(A, B, C, alpha, beta):
    wait_for_copies(-1)


@pytest.fixture(scope="module")
def errors(reports):
    """What the compiler says about the kernels above."""
    return compiler_errors(__name__, list(REFUSED))


@pytest.mark.parametrize("kernel", REFUSED)
def test_refused(kernel, errors):
    """The error names the function, what it was given and what that should be."""
    assert errors[kernel] is not None
    assert REFUSED[kernel] in errors[kernel]
