"""Every rung of the ladder computes ``C <- alpha * A @ B + beta * C``, whatever the shape."""

import itertools
import math

import numpy as np
import pytest

from numba_gemm import Problem
from numba_gemm.harness import compare_with_numpy, random_operands
from numba_gemm.rungs import naive
from numba_gemm.target import TARGET, cuda


def step(rung):
    """Rows and columns of a block, and the depth of a chunk."""
    return (rung.tile.BM, rung.tile.BN, rung.tile.BK) if rung.tile else (32, 32, 4)


# Shapes relative to one block tile of m x n and a chunk of depth k.
SHAPES = {
    "one tile": lambda m, n, k: (m, n, k),
    "a row less": lambda m, n, k: (m - 1, n, k),
    "a row more": lambda m, n, k: (m + 1, n, k),
    "a column less": lambda m, n, k: (m, n - 1, k),
    "a column more": lambda m, n, k: (m, n + 1, k),
    "a k less": lambda m, n, k: (m, n, k - 1),
    "a k more": lambda m, n, k: (m, n, k + 1),
    "less of each": lambda m, n, k: (m - 1, n - 1, 2 * k - 1),
    "more of each": lambda m, n, k: (m + 1, n + 1, 2 * k + 1),
    "square": lambda m, n, k: (n - 3, n - 3, n - 3),
    "tall": lambda m, n, k: (2 * m + 3, 2, 3),
    "wide": lambda m, n, k: (2, 2 * n + 3, 3),
    "deep": lambda m, n, k: (3, 2, 5 * k + 3),
    "a row": lambda m, n, k: (1, n + 1, k + 1),
    "a column": lambda m, n, k: (m + 1, 1, k + 1),
    "an entry": lambda m, n, k: (1, 1, k + 1),
    "an outer product": lambda m, n, k: (m - 2, n - 2, 1),
    "ones": lambda m, n, k: (1, 1, 1),
    "no k": lambda m, n, k: (3, 5, 0),
    "no rows": lambda m, n, k: (0, 5, 3),
    "no columns": lambda m, n, k: (3, 0, 5),
    "no entries": lambda m, n, k: (0, 0, 3),
    "nothing": lambda m, n, k: (0, 0, 0),
}


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def shape(request, rung):
    """M, N, K at, around and far from the rung's tile."""
    return request.param(*step(rung))


def whole_numbers(M, N, K, seed=None):
    """A, B and C of small whole numbers, whose products and sums float32 holds exactly."""
    rng = np.random.default_rng(seed)
    shapes = (M, K), (K, N), (M, N)
    return [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]


def exact(A, B, C, alpha, beta):
    """What whole numbers give, by integer arithmetic; alpha and beta are multiples of a half."""
    product = np.einsum("mk,kn->mn", A.astype(np.int64), B.astype(np.int64))
    return (int(2 * alpha) * product + int(2 * beta) * C.astype(np.int64)) / 2


# Against numpy ------------------------------------------------------------------------------------


def test_agrees_with_numpy(rung, shape, seed):
    """Random matrices, within what rounding explains, entry by entry."""
    A, B, C0 = random_operands(*shape, seed=seed)
    C = rung.gemm(A, B, C0.copy(), alpha=0.75, beta=-1.25)
    outcome = compare_with_numpy(Problem(*shape, alpha=0.75, beta=-1.25), A, B, C, C0)
    assert outcome.passed, outcome


def test_is_exact_on_whole_numbers(rung, shape, seed):
    """The same shapes without the harness's own check: no rounding, so no tolerance."""
    A, B, C0 = whole_numbers(*shape, seed)
    C = rung.gemm(A, B, C0.copy(), alpha=2, beta=-3)
    np.testing.assert_array_equal(C, exact(A, B, C0, 2, -3))


@pytest.mark.parametrize(
    "shape",
    [(33, 17, 9)] if TARGET.is_simulator else [(129, 257, 65), (512, 384, 320), (1000,) * 3],
)
def test_as_it_ships(ladder_rung, shape, seed):
    """Each rung with its own tile, on a C it makes itself."""
    A, B, _ = random_operands(*shape, seed=seed)
    outcome = compare_with_numpy(Problem(*shape), A, B, ladder_rung.gemm(A, B))
    assert outcome.passed, outcome


# The rules of BLAS --------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0, 1, -1, 0.5])
@pytest.mark.parametrize("alpha", [0, 1, -1, 0.5])
def test_scalars(rung, alpha, beta):
    """Every combination of the special values, where what may not be read is NaN."""
    m, _, k = step(rung)
    A, B, C0 = whole_numbers(m - 1, 3, k + 1)
    expected = exact(A, B, C0, alpha, beta)
    if alpha == 0:
        A[:], B[:] = np.nan, np.inf
    C = cuda.to_device(np.full_like(C0, np.nan) if beta == 0 else C0)
    assert rung.gemm(A, B, C, alpha, beta) is C
    np.testing.assert_array_equal(C.copy_to_host(), expected)


@pytest.mark.parametrize("alpha", [1.0, math.inf, math.nan])
@pytest.mark.parametrize("beta", [0.0, -0.5])
def test_without_k_only_beta_matters(rung, alpha, beta):
    """K = 0 gives beta * C: an empty sum is zero, and even infinity times it adds nothing."""
    A, B, C0 = whole_numbers(3, 5, 0)
    C = cuda.to_device(np.full_like(C0, np.nan) if beta == 0 else C0)
    rung.gemm(A, B, C, alpha, beta)
    np.testing.assert_array_equal(C.copy_to_host(), beta * C0)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_poison_in_A_stays_in_its_row(rung, poison):
    """A row of C depends on its own row of A alone, at the end of a tile and beyond it."""
    m, _, k = step(rung)
    A, B, C0 = whole_numbers(m + 2, 3, k + 1)
    A, B = A + 5, B + 5  # positive, so that infinity stays infinity
    expected = exact(A, B, C0, 1, 0)
    for row, column in ((m - 1, 0), (m + 1, k)):
        A[row, column] = poison
        expected[row] = poison
    np.testing.assert_array_equal(rung.gemm(A, B), expected)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_poison_in_B_stays_in_its_column(rung, poison):
    """A column of C depends on its own column of B alone."""
    _, n, k = step(rung)
    A, B, C0 = whole_numbers(3, n + 2, k + 1)
    A, B = A + 5, B + 5
    expected = exact(A, B, C0, 1, 0)
    for row, column in ((0, n - 1), (k, n + 1)):
        B[row, column] = poison
        expected[:, column] = poison
    np.testing.assert_array_equal(rung.gemm(A, B), expected)


def test_nan_in_C_stays_in_its_entry(rung):
    """With beta, an entry of C depends on what that entry held alone."""
    m, _, _ = step(rung)
    A, B, C0 = whole_numbers(m + 1, 3, 2)
    expected = exact(A, B, C0, 1, 0.5)
    C0[m, 1] = expected[m, 1] = np.nan
    np.testing.assert_array_equal(rung.gemm(A, B, C0, 1, 0.5), expected)


# Nothing else is touched --------------------------------------------------------------------------


def framed(values, filler):
    """A buffer that holds *values* with *filler* before and behind, and which part they are."""
    margin = 2 * values.shape[1] + 3
    buffer = np.full(values.size + 2 * margin, filler, np.float32)
    part = slice(margin, margin + values.size)
    buffer[part] = values.ravel()
    return buffer, part


@pytest.fixture(params=["a row less", "a row more", "a column less", "a column more"])
def framed_operands(request, rung):
    """A and B framed by NaN, C by a sentinel, and what the last buffer should hold in the end."""
    A, B, C0 = whole_numbers(*SHAPES[request.param](*step(rung)))
    buffers = framed(A, np.nan), framed(B, np.nan), framed(C0, 77)
    expected, _ = framed(exact(A, B, C0, 2, -1), 77)
    return (A.shape, B.shape, C0.shape), buffers, expected


def test_only_C_is_touched_on_the_host(rung, framed_operands):
    """Host matrices that are parts of larger buffers: nothing around C changes."""
    shapes, buffers, expected = framed_operands
    A, B, C = (
        buffer[part].reshape(shape) for shape, (buffer, part) in zip(shapes, buffers, strict=True)
    )
    rung.gemm(A, B, C, 2, -1)
    np.testing.assert_array_equal(buffers[2][0], expected)


def test_only_C_is_touched_on_the_device(rung, framed_operands):
    """The bare kernel on parts of device buffers: it neither writes nor uses what lies around."""
    shapes, buffers, expected = framed_operands
    on_device = [cuda.to_device(buffer) for buffer, _ in buffers]
    A, B, C = (
        whole[part].reshape(*shape)
        for shape, whole, (_, part) in zip(shapes, on_device, buffers, strict=True)
    )
    geometry = rung.geometry(*shapes[2])
    rung.kernel[geometry.grid, geometry.block](A, B, C, np.float32(2), np.float32(-1))
    np.testing.assert_array_equal(on_device[2].copy_to_host(), expected)
    for whole, (buffer, _) in zip(on_device[:2], buffers[:2], strict=True):
        np.testing.assert_array_equal(whole.copy_to_host(), buffer)


def test_the_kernel_by_hand(ladder_rung):
    """``kernel[grid, block](A, B, C, alpha, beta)``, as the documentation shows it."""
    A, B, C0 = whole_numbers(5, 6, 7)
    C = cuda.to_device(C0)
    geometry = ladder_rung.geometry(5, 6)
    ladder_rung.kernel[geometry.grid, geometry.block](
        cuda.to_device(A), cuda.to_device(B), C, np.float32(0.5), np.float32(-1)
    )
    np.testing.assert_array_equal(C.copy_to_host(), exact(A, B, C0, 0.5, -1))


# The launch ---------------------------------------------------------------------------------------


def along_x_and_y(rung, M, N):
    """The entries along x and y of the grid, each with how many of them a block covers."""
    m, n, _ = step(rung)
    rows, columns = (M, m), (N, n)
    return (rows, columns) if rung.name == naive.RUNG.name else (columns, rows)


def in_a_line(rung):
    """Whether the rung numbers its tiles row by row, in a grid of one dimension."""
    return rung.name in ("async_copy", "split_k")


@pytest.mark.parametrize(
    ("M", "N"),
    [
        (1, 1),
        (32, 32),
        (33, 31),
        (1000, 7),
        (4096, 4096),
        (2**22 + 5, 3),
        (3, 2**22 + 5),
        (2**24, 1),
    ],
)
def test_geometry_covers_C_exactly_once(ladder_rung, M, N):
    """No tile of C is left out or given to two blocks, however the grid is folded into z."""
    grid, block = ladder_rung.geometry(M, N).grid, ladder_rung.geometry(M, N).block
    (across, per_x), (down, per_y) = along_x_and_y(ladder_rung, M, N)
    entries_a_thread = ladder_rung.tile.TM * ladder_rung.tile.TN if ladder_rung.tile else 1
    assert math.prod(block) * entries_a_thread == per_x * per_y
    if in_a_line(ladder_rung):
        assert grid == (math.ceil(across / per_x) * math.ceil(down / per_y), 1, 1)
        return

    assert (grid[0] - 1) * per_x < across <= grid[0] * per_x
    assert max(grid[1:]) <= 65535
    numbers = [z * grid[1] + y for z in range(grid[2]) for y in range(grid[1])]  # as block_y does
    assert numbers == list(range(len(numbers)))
    needed = math.ceil(down / per_y)
    assert needed <= len(numbers) < needed + grid[2]


@pytest.mark.parametrize(("M", "N"), [(0, 5), (5, 0), (0, 0)])
def test_geometry_of_an_empty_C(ladder_rung, M, N):
    """There is nothing to launch."""
    assert ladder_rung.geometry(M, N).blocks == 0


@pytest.mark.parametrize("tiles", [4, 3])
def test_blocks_go_on_in_z(rung, tiles):
    """A grid of 1 x 2 x 2 serves four tiles along y; with three, the spare block does nothing."""
    if in_a_line(rung):
        pytest.skip("its grid has only x")
    m, n, _ = step(rung)
    transposed = rung.name == naive.RUNG.name
    M, N = (3, (tiles - 1) * n + 1) if transposed else ((tiles - 1) * m + 1, 3)
    A, B, C0 = whole_numbers(M, N, 2)
    buffer, part = framed(C0, 77)
    on_device = cuda.to_device(buffer)
    rung.kernel[(1, 2, 2), rung.geometry(M, N).block](
        cuda.to_device(A),
        cuda.to_device(B),
        on_device[part].reshape(M, N),
        np.float32(1),
        np.float32(2),
    )
    expected, _ = framed(exact(A, B, C0, 1, 2), 77)
    np.testing.assert_array_equal(on_device.copy_to_host(), expected)


# What only a GPU is large enough for --------------------------------------------------------------


@pytest.mark.gpu
def test_more_blocks_than_y_holds(rung, seed):
    """65535 blocks fit in y; the next ones are found in z."""
    m, n, _ = step(rung)
    transposed = rung.name == naive.RUNG.name
    shape = (3, 65535 * n + 5, 1) if transposed else (65535 * m + 5, 3, 1)
    assert rung.geometry(*shape[:2]).blocks > 65535
    A, B, C0 = random_operands(*shape, seed=seed)
    C = rung.gemm(A, B, C0.copy(), 0.5, -1)
    outcome = compare_with_numpy(Problem(*shape, 0.5, -1), A, B, C, C0)
    assert outcome.passed, outcome


@cuda.jit
def fill(array, value):
    """Write *value* to every element, with Numba's own 64-bit integers."""
    for row in range(cuda.blockIdx.x, array.shape[0], cuda.gridDim.x):
        for col in range(cuda.threadIdx.x, array.shape[1], cuda.blockDim.x):
            array[row, col] = value


def filled(shape, value):
    """A device array of one value, or a skip where it does not fit."""
    cuda.current_context().deallocations.clear()  # what earlier tests dropped and Numba still holds
    free, _ = cuda.current_context().get_memory_info()
    if 4 * math.prod(shape) > 0.8 * free:
        pytest.skip(f"needs {4 * math.prod(shape) / 1e9:.1f} GB of GPU memory")
    array = cuda.device_array(shape, np.float32)
    fill[1024, 256](array, np.float32(value))
    return array


WIDTH = 8192


@pytest.mark.gpu
@pytest.mark.parametrize("elements", [2**31, 2**32], ids=["2^31", "2^32"])
class TestLargeOffsets:
    """More elements than 31 and 32 bits count, in matrices of 8.6 and 17 GB."""

    def test_in_A(self, ladder_rung, elements):
        """The last rows of A are read where they are."""
        rows = elements // WIDTH + 5
        A = filled((rows, WIDTH), 0)
        last, B, _ = whole_numbers(3, 2, WIDTH)
        A[-3:].copy_to_device(last)
        C = ladder_rung.gemm(A, cuda.to_device(B)).copy_to_host()
        np.testing.assert_array_equal(C[-3:], exact(last, B, np.zeros((3, 2)), 1, 0))
        assert not C[:-3].any()

    def test_in_B(self, ladder_rung, elements):
        """The last rows of B are read where they are."""
        rows = elements // WIDTH + 5
        B = filled((rows, WIDTH), 0)
        ends, last, C0 = whole_numbers(2, WIDTH, 3)
        B[-3:].copy_to_device(last)
        A = np.zeros((2, rows), np.float32)
        A[:, -3:] = ends
        C = ladder_rung.gemm(cuda.to_device(A), B).copy_to_host()
        np.testing.assert_array_equal(C, exact(ends, last, C0, 1, 0))

    def test_in_C(self, ladder_rung, elements):
        """The first and last rows of C are written where they are, and read there with beta."""
        rows = elements // WIDTH + 5
        C = filled((rows, WIDTH), 3)
        A, _, _ = whole_numbers(rows, 1, 1)
        _, B, _ = whole_numbers(1, WIDTH, 1)
        ladder_rung.gemm(A, B, C, 1, 2)
        for end in (slice(0, 3), slice(rows - 3, rows)):
            expected = exact(A[end], B, np.full((3, WIDTH), 3), 1, 2)
            np.testing.assert_array_equal(C[end].copy_to_host(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [4092, 4093, 4097])
def test_around_a_large_power_of_two(ladder_rung, n, seed):
    """Rows that begin at 16 bytes, and rows that do not, with fringes of every kind."""
    A, B, C0 = random_operands(n, n, n, seed=seed)
    C = ladder_rung.gemm(A, B, C0.copy(), 1, 1)
    outcome = compare_with_numpy(Problem(n, n, n, 1, 1), A, B, C, C0)
    assert outcome.passed, outcome


@pytest.mark.gpu
def test_around_the_tiles_of_a_gpu(ladder_rung, seed):
    """Every combination of sizes below, at and above the tiles in each direction."""
    for sizes in itertools.product((127, 128, 129, 255, 257), repeat=3):
        A, B, C0 = random_operands(*sizes, seed=seed)
        C = ladder_rung.gemm(A, B, C0.copy(), 1.5, 0.5)
        outcome = compare_with_numpy(Problem(*sizes, 1.5, 0.5), A, B, C, C0)
        assert outcome.passed, (sizes, outcome)
