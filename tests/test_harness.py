"""The shared harness: the check finds what is wrong and passes what is right; grids; timing."""

import dataclasses

import numpy as np
import pytest

from numba_gemm import LADDER, DeviceError, Problem, VerificationError, dispatch, gemm, harness
from numba_gemm.device import Device
from numba_gemm.harness import Geometry, Launch, compare_with_numpy, random_operands
from numba_gemm.primitives import block_x, block_y, problem_size, thread_x, thread_y, update
from numba_gemm.rungs import coalesced
from numba_gemm.target import cuda
from numba_gemm.timing import device_time

BLOCK = 32

# The check finds what is wrong --------------------------------------------------------------------


class Multiplied:
    """A multiply done in float64 and rounded once, whose result is then tampered with."""

    def __init__(self, M=20, N=24, K=16, alpha=0.75, beta=-0.5):
        """Multiply random matrices of these sizes."""
        self.problem = Problem(M, N, K, alpha, beta)
        self.A, self.B, self.C0 = random_operands(M, N, K, seed=1)
        wide = [array.astype(np.float64) for array in (self.A, self.B, self.C0)]
        self.exact = alpha * wide[0] @ wide[1] + beta * wide[2]
        self.C = self.exact.astype(np.float32)

    @property
    def bound(self):
        """How far rounding may take each entry, from the formula of the design."""
        operations = self.problem.K + 3
        gamma = operations * 2.0**-24 / (1 - operations * 2.0**-24)
        products = np.abs(self.A).astype(np.float64) @ np.abs(self.B)
        alpha, beta = abs(self.problem.alpha), abs(self.problem.beta)
        return gamma * (alpha * products + beta * np.abs(self.C0))

    def check(self):
        """What the harness says about C."""
        return compare_with_numpy(self.problem, self.A, self.B, self.C, self.C0)


@pytest.fixture(params=["whole", "sampled"])
def multiplied(request, monkeypatch):
    """A right result; it is checked whole, and as if it were too large for that."""
    if request.param == "sampled":
        monkeypatch.setattr(harness, "CHECK_ALL_BELOW", 10)
        monkeypatch.setattr(harness, "SAMPLED_EDGE", 3)
        monkeypatch.setattr(harness, "SAMPLED_INSIDE", 2)
    return Multiplied()


def test_a_right_result_passes(multiplied):
    """Rounding once is the least any kernel can do."""
    outcome = multiplied.check()
    assert outcome.passed
    assert 0 < outcome.worst < 0.5


EVERYWHERE = [(0, 0), (0, 23), (19, 0), (19, 23), (2, 11), (17, 11), (9, 2), (9, 21), (18, 22)]


@pytest.mark.parametrize("where", EVERYWHERE, ids=str)
def test_one_wrong_entry_is_found(multiplied, where):
    """One entry, a little further off than its own bound, at any edge of C."""
    too_far = 1.02 * multiplied.bound[where] + np.spacing(abs(multiplied.C[where]))
    multiplied.C[where] = multiplied.exact[where] + too_far
    outcome = multiplied.check()
    assert not outcome.passed
    assert outcome.where == where
    assert outcome.worst == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("where", EVERYWHERE, ids=str)
def test_an_entry_within_its_bound_passes(multiplied, where):
    """Legitimate rounding, up to the bound, is no error."""
    multiplied.C[where] = multiplied.exact[where] + 0.8 * multiplied.bound[where]
    assert multiplied.check().passed


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_stray_nan_or_infinity_is_found(multiplied, value):
    """No rounding makes one of ordinary numbers."""
    multiplied.C[19, 5] = value
    outcome = multiplied.check()
    assert outcome.worst == np.inf
    assert outcome.where == (19, 5)


def test_a_swapped_row_is_found(multiplied):
    """Right numbers in the wrong place."""
    multiplied.C[[0, 1]] = multiplied.C[[1, 0]]
    assert not multiplied.check().passed


def test_a_transposed_result_is_found():
    """The same, for all of them."""
    multiplied = Multiplied(20, 20, 16)
    multiplied.C = np.ascontiguousarray(multiplied.C.T)
    assert not multiplied.check().passed


@pytest.mark.parametrize("what", ["row of A", "column of B", "entry of C"])
def test_a_missing_nan_is_found(multiplied, what):
    """NaN in an operand has to be seen in the result."""
    spoilt = {"row of A": multiplied.A, "column of B": multiplied.B, "entry of C": multiplied.C0}
    spoilt[what][0, 0] = np.nan
    outcome = multiplied.check()
    assert outcome.worst == np.inf
    assert 0 in outcome.where


def test_a_nan_in_its_place_passes(multiplied):
    """NaN where numpy has NaN is right."""
    multiplied.A[2, 0] = np.nan
    multiplied.C[2] = np.nan
    assert multiplied.check().passed


@pytest.mark.parametrize("what", ["alpha", "beta", "last k"])
def test_a_forgotten_term_is_found(multiplied, what):
    """A result that left something out altogether."""
    A, B, C0 = (a.astype(np.float64) for a in (multiplied.A, multiplied.B, multiplied.C0))
    wrong = {
        "alpha": A @ B - 0.5 * C0,
        "beta": 0.75 * A @ B + C0,
        "last k": 0.75 * A[:, :-1] @ B[:-1] - 0.5 * C0,
    }
    multiplied.C = wrong[what].astype(np.float32)
    assert not multiplied.check().passed


def test_large_problems_are_sampled(monkeypatch):
    """Above the limit the first and last rows and columns are compared, and some between."""
    monkeypatch.setattr(harness, "CHECK_ALL_BELOW", 10)
    monkeypatch.setattr(harness, "SAMPLED_EDGE", 3)
    monkeypatch.setattr(harness, "SAMPLED_INSIDE", 2)
    multiplied = Multiplied(100, 200, 5)
    entries = multiplied.check().entries
    assert 7 * 200 + 7 * 100 <= entries <= 8 * 200 + 8 * 100
    for where in ((50, 197), (97, 100), (2, 100), (50, 2)):
        tampered = Multiplied(100, 200, 5)
        tampered.C[where] += 1
        assert tampered.check().where == where


def test_limits_of_the_check():
    """Everything up to 2^31 multiply-adds; then 256 rows and columns at either end."""
    assert harness.CHECK_ALL_BELOW == 2**31
    assert harness.SAMPLED_EDGE >= 128


# ... and passes what is right ---------------------------------------------------------------------


def one(value):
    """A matrix of one entry."""
    return np.full((1, 1), value, np.float32)


@pytest.mark.parametrize(
    ("a", "b", "alpha", "result"),
    [
        (1e30, 1e30, 1, np.inf),
        (-1e30, 1e30, 1, -np.inf),
        (1e30, 1e30, 1e-30, np.inf),  # the sum is too large for float32, though not its multiple
        (1e30, 1e30, 1e-30, 1e30),
        (1e30, 1e30, 1e30, np.inf),
        (1e-30, 1e-30, 1, 0),
        (1e-30, 1e-30, 1e30, 0),  # the sum underflows, and alpha comes too late
        (3e-23, 3e-23, 1, 2.0**-149),
        (np.inf, 1, 1, np.inf),
        (np.inf, 0, 1, np.nan),
    ],
)
def test_overflow_and_underflow_pass(a, b, alpha, result):
    """What float32 arithmetic cannot help is no error of the kernel's."""
    assert compare_with_numpy(Problem(1, 1, 1, alpha), one(a), one(b), one(result)).passed


@pytest.mark.parametrize(
    ("a", "b", "alpha", "result"),
    [
        (1e19, 1e18, 1, np.inf),
        (1e19, 1e18, 1, np.nan),
        (1e30, 1e30, 1e-30, 5),  # it might have overflown, but did not
        (1e-20, 1e-20, 1, 1e-30),
        (np.inf, 1, 1, 1e30),
    ],
)
def test_overflow_and_underflow_are_no_excuse(a, b, alpha, result):
    """Where float32 could hold the result, it has to."""
    assert not compare_with_numpy(Problem(1, 1, 1, alpha), one(a), one(b), one(result)).passed


def test_overflow_between_the_terms_passes():
    """Two terms that overflow and would cancel: infinity or NaN, by the order of the sum."""
    A = np.array([[1e30, 1e30]], np.float32)
    B = np.array([[1e30], [-1e30]], np.float32)
    for result in (np.inf, -np.inf, np.nan, 0.0):
        assert compare_with_numpy(Problem(1, 1, 2), A, B, one(result)).passed


@pytest.mark.parametrize("K", [2**24 - 3, 2**24])
def test_a_sum_longer_than_the_bound_can_tell(K):
    """From 2^24 terms on (K + 3) u is 1 and more; a wrong result may still not pass."""
    A, B = np.ones((1, K), np.float32), np.ones((K, 1), np.float32)
    assert compare_with_numpy(Problem(1, 1, K), A, B, one(K)).passed
    assert not compare_with_numpy(Problem(1, 1, K), A, B, one(-1e12)).passed
    assert not compare_with_numpy(Problem(1, 1, K), A, B, one(np.nan)).passed


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (0, 0, 0)])
def test_an_empty_result_passes(shape):
    """There is no entry that could be wrong."""
    outcome = compare_with_numpy(Problem(*shape), *random_operands(*shape))
    assert outcome.passed
    assert outcome.entries == 0


def test_alpha_zero_does_not_read_the_operands():
    """The reference follows the rules of BLAS, too."""
    A, B, C = one(np.nan), one(np.nan), one(2)
    assert compare_with_numpy(Problem(1, 1, 1, alpha=0, beta=2), A, B, C, one(1)).passed


# verify=True --------------------------------------------------------------------------------------


@cuda.jit
def forgets_the_last_k(A, B, C, alpha, beta):
    """A loop that ends one step early."""
    M, N, K = problem_size(A, B, alpha)
    row = block_y() * BLOCK + thread_y()
    col = block_x() * BLOCK + thread_x()
    if row < M and col < N:
        total = np.float32(0)
        for k in range(K - 1):
            total += A[row, k] * B[k, col]
        update(C, row, col, total, alpha, beta)


@cuda.jit
def forgets_the_last_column(A, B, C, alpha, beta):
    """A bound that is one too small."""
    M, N, K = problem_size(A, B, alpha)
    row = block_y() * BLOCK + thread_y()
    col = block_x() * BLOCK + thread_x()
    if row < M and col + 1 < N:
        total = np.float32(0)
        for k in range(K):
            total += A[row, k] * B[k, col]
        update(C, row, col, total, alpha, beta)


@cuda.jit
def writes_nothing(A, B, C, alpha, beta):
    """A kernel that leaves C as it is."""


@cuda.jit
def reads_C_always(A, B, C, alpha, beta):
    """A kernel that multiplies C by beta even where beta is 0."""
    M, N, K = problem_size(A, B, alpha)
    row = block_y() * BLOCK + thread_y()
    col = block_x() * BLOCK + thread_x()
    if row < M and col < N:
        total = np.float32(0)
        for k in range(K):
            total += A[row, k] * B[k, col]
        C[row, col] = alpha * total + beta * C[row, col]


def rung_of(kernel):
    """A rung with that kernel, launched as the coalesced one."""
    return dataclasses.replace(coalesced.RUNG, name=kernel.__name__, kernel=kernel)


BROKEN = [forgets_the_last_k, forgets_the_last_column, writes_nothing]


@pytest.mark.parametrize("kernel", BROKEN, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("beta", [0, 0.5])
def test_verify_finds_a_broken_kernel(kernel, beta):
    """The error names the rung and the entry."""
    A, B, C = random_operands(5, 7, 6, seed=3)
    with pytest.raises(VerificationError, match=rf"^{kernel.__name__}: the entry at \(\d, \d\) is"):
        gemm(A, B, C, beta=beta, rung=rung_of(kernel), verify=True)


def test_without_verify_nothing_is_compared():
    """Checking is asked for, not imposed."""
    A, B, C0 = random_operands(5, 7, 6, seed=3)
    C = gemm(A, B, C0.copy(), beta=0.5, rung=rung_of(writes_nothing))
    np.testing.assert_array_equal(C, C0)


def test_verify_is_not_fooled_by_a_result_that_was_there_before(quick):
    """A kernel that writes nothing into a C that already holds the answer is still found."""
    A, B, _ = random_operands(5, 7, 6, seed=3)
    C = cuda.to_device(gemm(A, B, rung=quick))
    with pytest.raises(VerificationError):
        gemm(A, B, C, rung=rung_of(writes_nothing), verify=True)


def test_verify_finds_a_kernel_that_reads_C_where_beta_is_zero():
    """Finite numbers times zero hide it; the harness makes sure that C holds none."""
    A, B, C0 = random_operands(5, 7, 6, seed=3)
    with pytest.raises(VerificationError):
        gemm(A, B, cuda.to_device(C0), rung=rung_of(reads_C_always), verify=True)


@pytest.mark.parametrize("place", [np.copy, cuda.to_device], ids=["host", "device"])
def test_verify_passes_what_is_right(quick, place):
    """Every kind of C and of scalars; the reference uses what C held before."""
    A, B, C0 = random_operands(5, 7, 6, seed=3)
    for alpha, beta in ((1, 0), (0, 1), (0.5, -2), (0, 0)):
        gemm(A, B, place(C0), alpha=alpha, beta=beta, rung=quick, verify=True)
    gemm(A, B, rung=quick, verify=True)


# Operands, geometry, timing -----------------------------------------------------------------------


def test_random_operands():
    """Float32 of the right shapes, spread over -1 to 1, the same again only for the same seed."""
    A, B, C = random_operands(30, 40, 50, seed=7)
    assert (A.shape, B.shape, C.shape) == ((30, 50), (50, 40), (30, 40))
    for array in (A, B, C):
        assert array.dtype == np.float32
        assert array.flags.c_contiguous
        assert -1 <= array.min() < -0.9
        assert 0.9 < array.max() <= 1
        assert abs(array.mean()) < 0.1
    assert len(np.unique(A)) > 0.99 * A.size
    np.testing.assert_array_equal(A, random_operands(30, 40, 50, seed=7)[0])
    assert not np.array_equal(A, random_operands(30, 40, 50, seed=8)[0])
    assert not np.array_equal(random_operands(30, 40, 50)[0], random_operands(30, 40, 50)[0])


@pytest.mark.parametrize(
    ("x", "y", "grid"),
    [
        ((1, 32), (1, 32), (1, 1, 1)),
        ((32, 32), (33, 32), (1, 2, 1)),
        ((65, 32), (1, 32), (3, 1, 1)),
        ((1, 1), (65535, 1), (1, 65535, 1)),
        ((1, 1), (65536, 1), (1, 32768, 2)),
        ((1, 1), (2**20, 1), (1, 61681, 17)),
        ((2**31 - 1, 1), (1, 1), (2**31 - 1, 1, 1)),
        ((0, 32), (5, 32), (0, 1, 1)),
        ((5, 32), (0, 32), (1, 0, 1)),
    ],
)
def test_cover(x, y, grid):
    """Blocks at, below and above what fits in each direction."""
    geometry = Geometry.cover(x, y, (32, 4))
    assert geometry.grid == grid
    assert geometry.block == (32, 4)
    assert geometry.threads == 128
    assert geometry.blocks == grid[0] * grid[1] * grid[2]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ((2**31, 1), (1, 1), "2147483648 x 1 blocks are more than a grid can have"),
        ((1, 1), (65535**2 + 1, 1), "1 x 4294836226 blocks are more than a grid can have"),
    ],
)
def test_more_blocks_than_a_grid_has(x, y, message):
    """Beyond the last block of the last layer the answer is an error, not a partial C."""
    with pytest.raises(ValueError, match=message):
        Geometry.cover(x, y, (32, 32))


@pytest.mark.parametrize("blocks", [0, 1, 65536, 2**31 - 1])
def test_line(blocks):
    """All of them in x, and none for nothing."""
    geometry = Geometry.line(blocks, 96)
    assert geometry == Geometry((blocks, 1, 1), (96, 1))
    assert (geometry.blocks, geometry.threads) == (blocks, 96)


def test_more_blocks_than_a_line_has():
    """The answer is an error here, too."""
    with pytest.raises(ValueError, match=r"^2147483648 blocks are more than a grid can have in x$"):
        Geometry.line(2**31, 32)


@pytest.mark.simulator
def test_no_timing_in_the_simulator():
    """Its times say nothing about a GPU, so there are none."""
    with pytest.raises(RuntimeError, match="device time needs a GPU, but kernels run in"):
        device_time(lambda: None)


@pytest.mark.gpu
@pytest.mark.parametrize("own_stream", [False, True])
def test_device_time(own_stream):
    """As many positive times as rounds were asked for, of something that was really launched."""
    stream = cuda.stream() if own_stream else 0
    A, B, C = (cuda.to_device(array) for array in random_operands(256, 256, 256))
    launch = harness.prepare(coalesced.RUNG, A, B, C, Problem(256, 256, 256), stream=stream)
    timing = device_time(launch, rounds=3, stream=stream)
    assert len(timing.rounds) == 3
    assert min(timing.rounds) > 0
    assert min(timing.rounds) <= timing.median <= max(timing.rounds)
    assert timing.spread >= 0
    assert timing.launches >= 1


@pytest.mark.gpu
def test_a_gpu_that_is_too_old():
    """The rung, what it needs and what there is; C stays as it was."""
    A, B, C0 = random_operands(5, 7, 6)
    C = C0.copy()
    with pytest.raises(DeviceError, match=r"^coalesced needs compute capability 99\.0; this GPU"):
        gemm(A, B, C, rung=dataclasses.replace(coalesced.RUNG, requires=(99, 0)))
    np.testing.assert_array_equal(C, C0)


@pytest.mark.simulator
def test_the_simulator_is_no_gpu_of_any_age():
    """A rung that needs a new GPU may be studied without one."""
    A, B, _ = random_operands(1, 1, 1)
    gemm(A, B, rung=dataclasses.replace(coalesced.RUNG, requires=(99, 0)), verify=True)


def test_a_prepared_launch_may_be_repeated(quick):
    """Each call queues the kernel once more, on the same matrices."""
    A, B, C0 = (np.ones((4, 4), np.float32) for _ in range(3))
    C = cuda.to_device(C0)
    problem = Problem(4, 4, 4, beta=1)
    launch = harness.prepare(quick, cuda.to_device(A), cuda.to_device(B), C, problem)
    launch()
    launch()
    np.testing.assert_array_equal(C.copy_to_host(), np.full((4, 4), 9))


# Work in several launches --------------------------------------------------------------------------


@cuda.jit
def append(out, value):
    """Write a value behind the others; the first element counts them."""
    out[0] += 1
    out[out[0]] = value


def launches_of(out, *values, blocks=1):
    """A launch that appends each of these values, one behind the other; the first has these blocks."""
    launch = None
    for n, value in reversed(list(enumerate(values))):
        geometry = Geometry.line(1 if n else blocks, 1)
        launch = Launch(append, geometry, 0, (out, np.int64(value)), launch)
    return launch


def test_then_is_queued_behind():
    """One after the other, as often as called."""
    out = cuda.to_device(np.zeros(8, np.int64))
    launch = launches_of(out, 10, 20, 30)
    launch()
    launch()
    assert out.copy_to_host().tolist() == [6, 10, 20, 30, 10, 20, 30, 0]


def test_then_is_queued_behind_an_empty_grid():
    """Nothing to do in one launch is no reason to leave out the next."""
    out = cuda.to_device(np.zeros(8, np.int64))
    launches_of(out, 10, 20, 30, blocks=0)()
    assert out.copy_to_host().tolist() == [2, 20, 30, 0, 0, 0, 0, 0]


@pytest.fixture
def splitting(quick):
    """A rung that is split in two, which append 1 and 2 to C, and how its split was called."""
    calls = []

    def split(A, B, C, alpha, beta, tile, multiprocessors, stream):
        calls.append((A, B, C, alpha, beta, tile, multiprocessors, stream))
        return [(append, Geometry.line(1, 1), (C, np.int64(value))) for value in (1, 2)]

    return dataclasses.replace(quick, split=split), calls


def test_a_split_is_queued_in_order(splitting):
    """As split has it, and nothing else."""
    rung, _ = splitting
    out = cuda.to_device(np.zeros(4, np.int64))
    launch = harness.prepare(rung, None, None, out, Problem(4, 4, 4))
    assert launch.then.then is None
    launch()
    assert out.copy_to_host().tolist() == [2, 1, 2, 0]


def test_what_a_split_is_told(splitting, monkeypatch):
    """The matrices, both scalars, the tile, the stream, and among how many to divide."""
    rung, calls = splitting
    gpu = Device("a GPU", (9, 9), multiprocessors=17, clock_hz=1e9)
    monkeypatch.setattr("numba_gemm.device.current", lambda: gpu)
    A, B, C, stream = "A", "B", "C", cuda.stream()
    other = dataclasses.replace(rung.tile, stages=3)
    harness.prepare(rung, A, B, C, Problem(4, 5, 6, 0.5, -1))
    harness.prepare(rung, A, B, C, Problem(4, 5, 6), tile=other, stream=stream)
    harness.prepare(rung, A, B, C, Problem(4, 5, 0, alpha=2))  # alpha would multiply nothing
    assert calls == [
        (A, B, C, 0.5, -1, rung.tile, 17, 0),
        (A, B, C, 1, 0, other, 17, stream),
        (A, B, C, 0, 0, rung.tile, 17, 0),
    ]


@pytest.mark.simulator
def test_what_a_split_is_told_in_the_simulator(splitting):
    """It has no multiprocessors; work is divided among two all the same."""
    rung, calls = splitting
    harness.prepare(rung, None, None, None, Problem(4, 5, 6))
    assert calls[0][-2] == harness.SIMULATED_MULTIPROCESSORS == 2


@pytest.mark.parametrize("shape", [(0, 4, 4), (4, 0, 4)])
def test_nothing_is_not_split(splitting, shape):
    """An empty C is nothing to do, in one launch."""
    rung, calls = splitting
    launch = harness.prepare(rung, None, None, None, Problem(*shape))
    assert not calls
    assert (launch.geometry.blocks, launch.then) == (0, None)
    launch()


# Which rung serves the public multiply -------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ((7, 0), "double_buffered"),
        ((7, 5), "double_buffered"),
        ((8, 0), "split_k"),
        ((10, 0), "split_k"),
        (None, "split_k"),
        ((6, 1), "naive"),  # nothing runs there, and naive says so
    ],
)
def test_the_highest_rung(monkeypatch, capability, name):
    """The highest whose requirements the device meets; without a device, the highest."""
    gpu = capability and Device("a GPU", capability, multiprocessors=1, clock_hz=1e9)
    monkeypatch.setattr("numba_gemm.device.current", lambda: gpu)
    assert dispatch.highest() is dispatch.named(name)


@pytest.mark.simulator
def test_the_highest_rung_in_the_simulator():
    """It can run all of them."""
    assert dispatch.highest() is LADDER[-1]


def test_errors_are_runtime_errors():
    """What only the device can tell is a RuntimeError."""
    assert issubclass(DeviceError, RuntimeError)
    assert issubclass(VerificationError, RuntimeError)
