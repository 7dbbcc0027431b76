"""Sharing k between blocks: which tiles are shared, and that their sums are right and repeatable."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from numba_gemm import Problem, Tile
from numba_gemm.harness import compare_with_numpy, prepare, random_operands
from numba_gemm.rungs import split_k
from numba_gemm.rungs.split_k import ENOUGH, MOST_GROUPS, SHORTEST, SPLIT_COSTS, divide, plan
from numba_gemm.target import TARGET, cuda

TILE = Tile(16, 32, 8, TM=4, TN=4, WM=16, WN=32, stages=2)
SLOTS = 132


# The plan -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tiles", [1, 2, 131, 132, 133, 264, 300, 512, 561, 2048, 100_000])
@pytest.mark.parametrize("chunks", [0, 1, 10, 100, 512, 8192, 2**28])
def test_the_plan_leaves_nothing_out(tiles, chunks):
    """Whole tiles fill the device; the rest is shared by more blocks than tiles, or not at all."""
    whole, blocks = plan(tiles, chunks, SLOTS)
    rest = tiles - whole
    if not blocks:
        assert rest == 0
        return
    assert whole % SLOTS == 0
    assert 0 < rest < blocks <= SLOTS
    share = -(-rest * chunks // blocks)
    assert SHORTEST <= share <= chunks - SPLIT_COSTS


def test_few_tiles_with_a_large_k_are_shared_by_all():
    """256 x 256 x 65536: two tiles, and every multiprocessor has a part of them."""
    assert plan(2, 8192, SLOTS) == (0, SLOTS)


def test_tiles_that_fill_the_device_stay_whole():
    """Nothing is gained where nobody idles, nor where hardly anybody does."""
    assert plan(4 * SLOTS, 512, SLOTS) == (4 * SLOTS, 0)
    assert plan(4 * SLOTS - 1, 512, SLOTS) == (4 * SLOTS - 1, 0)


def test_the_last_of_many_waves_is_shared():
    """4097^3: 33 x 17 tiles, of which 33 remain when the device has been filled four times."""
    assert plan(561, 512, SLOTS) == (528, SLOTS)


def test_a_short_k_is_not_shared():
    """It would take longer to add the parts up than to compute them."""
    assert plan(1, SPLIT_COSTS, SLOTS) == (1, 0)


@pytest.mark.parametrize("parts", [1, 2, 7, 8, 16, 17, 66, 132, 10_000])
@pytest.mark.parametrize("tile", [TILE, split_k.TILE], ids=["small", "default"])
def test_the_addition_is_divided_among_threads(parts, tile):
    """A power of two that a block has the threads for, with enough partial sums for each."""
    groups = divide(parts, tile)
    assert groups == 1 or parts >= ENOUGH * groups
    assert groups in (1, 2, 4, 8, 16)
    assert groups * tile.BN // 4 <= 1024
    larger = 2 * groups
    assert parts < ENOUGH * larger or larger > MOST_GROUPS or larger * tile.BN // 4 > 1024


# The sums -----------------------------------------------------------------------------------------


def launches(launch):
    """A launch and those that are queued behind it."""
    while launch is not None:
        yield launch
        launch = launch.then


# One tile; several, with fringes in every direction; as many as make blocks begin within a tile.
SHAPES = [(16, 32, 320), (9, 5, 333), (17, 40, 325)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("alpha", "beta"), [(1, 0), (0.5, -1.5)])
def test_shared_sums_agree_with_numpy(shape, alpha, beta, seed):
    """Poisoned where C may not be read, and shared indeed."""
    problem = Problem(*shape, alpha, beta)
    A, B, C0 = random_operands(*shape, seed=seed)
    if beta == 0:
        C0.fill(np.nan)
    dA, dB, dC = (cuda.to_device(x) for x in (A, B, C0))
    launch = prepare(split_k.RUNG, dA, dB, dC, problem, tile=TILE)
    assert len(list(launches(launch))) == 2
    launch()
    outcome = compare_with_numpy(problem, A, B, dC.copy_to_host(), C0)
    assert outcome.passed, outcome


def test_the_same_to_the_last_bit(seed):
    """Sums are added in one order, whichever block is done first."""
    shape = SHAPES[1]
    A, B, _ = random_operands(*shape, seed=seed)
    first = split_k.gemm(A, B, tile=TILE)
    for _ in range(2 if TARGET.is_simulator else 20):
        np.testing.assert_array_equal(split_k.gemm(A, B, tile=TILE), first)


@pytest.mark.simulator
def test_from_two_threads_at_once():
    """While a kernel is simulated its module cannot allocate nor build: the other thread waits."""
    A, B, _ = random_operands(5, 7, 320)
    other = Tile(32, 32, 8, 4, 4, WM=32, WN=16, stages=2)
    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(split_k.gemm, A, B, tile=tile, verify=True) for tile in (TILE, TILE, other)]
        for job in jobs:
            job.result()


def test_alpha_zero_is_not_shared():
    """There are no sums, and A and B are not read."""
    A, B, C = random_operands(16, 32, 320)
    A.fill(np.nan)
    problem = Problem(16, 32, 320, 0, 2)
    dA, dB, dC = (cuda.to_device(x) for x in (A, B, C))
    launch = prepare(split_k.RUNG, dA, dB, dC, problem, tile=TILE)
    assert len(list(launches(launch))) == 1
    launch()
    np.testing.assert_array_equal(dC.copy_to_host(), 2 * C)


@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "not aligned"])
def test_operands_anywhere(offset, seed):
    """The kernel without fringes is for matrices that begin at 16 bytes; others get the other."""
    M, N, K = 16, 32, 16
    A, B, C = random_operands(M, N, K, seed=seed)
    buffer = np.full(K * N + 4, np.nan, np.float32)
    buffer[offset : offset + K * N] = B.ravel()
    shifted = cuda.to_device(buffer)[offset : offset + K * N].reshape(K, N)
    dC = cuda.to_device(C)
    split_k.gemm(cuda.to_device(A), shifted, dC, 2, 3, tile=TILE)
    outcome = compare_with_numpy(Problem(M, N, K, 2, 3), A, B, dC.copy_to_host(), C)
    assert outcome.passed, outcome


@pytest.mark.gpu
@pytest.mark.parametrize(
    "shape", [(256, 256, 65536), (512, 512, 16384), (4096, 4096, 512), (33, 17, 9999)]
)
def test_as_it_ships(shape, seed):
    """At the sizes that it is for, twice the same."""
    A, B, _ = random_operands(*shape, seed=seed)
    C = split_k.gemm(A, B)
    outcome = compare_with_numpy(Problem(*shape), A, B, C)
    assert outcome.passed, outcome
    np.testing.assert_array_equal(split_k.gemm(A, B), C)
