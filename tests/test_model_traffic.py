"""What a rung asks of memory, by formula, and counted in the simulator."""

import dataclasses
import itertools

import numpy as np
import pytest
from small_rungs import SMALL

from numba_gemm import LADDER, Problem, Tile, harness
from numba_gemm.model import traffic
from numba_gemm.rungs import double_buffered, split_k, square, vectorized
from numba_gemm.target import cuda

CUBE = Problem(4096, 4096, 4096)


@pytest.fixture
def requests(monkeypatch):
    """Counts the floats that simulated threads read from and write to global memory."""
    from numba.cuda.simulator.cudadrv import devicearray

    fake = devicearray.FakeCUDAArray
    read, write, counter = fake.__getitem__, fake.__setitem__, itertools.count()

    def counting_read(self, subscript):
        value = read(self, subscript)
        if not isinstance(value, fake):
            next(counter)
        return value

    def counting_write(self, subscript, value):
        next(counter)
        write(self, subscript, value)

    monkeypatch.setattr(fake, "__getitem__", counting_read)
    monkeypatch.setattr(fake, "__setitem__", counting_write)
    return counter


def counted(counter, rung, problem):
    """Bytes that one launch asked for."""
    arrays = harness.random_operands(problem.M, problem.N, problem.K, seed=1)
    launch = harness.prepare(rung, *(cuda.to_device(array) for array in arrays), problem)
    before = next(counter)
    launch()
    return 4 * (next(counter) - before - 1)


@pytest.mark.simulator
@pytest.mark.parametrize(
    ("rung", "shape"),
    [
        *((rung, (17, 37, 19)) for rung in SMALL),
        *((rung, (17, 36, 20)) for rung in SMALL if rung.habits.rereads_edges),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_rung_asks_for_what_the_formula_says(rung, shape, requests):
    """Counted read by read, over fringes in every direction, with aligned rows and without."""
    problem = Problem(*shape, alpha=2.0, beta=0.5)
    assert counted(requests, rung, problem) == rung.requested_bytes(problem)


@pytest.mark.simulator
def test_split_k_asks_for_its_workspace_too(requests):
    """What the blocks that share two tiles write and what is added up again."""
    rung = SMALL[-1]
    assert rung.name == "split_k"
    problem = Problem(20, 8, 276)
    requested = rung.requested_bytes(problem)
    assert requested > dataclasses.replace(rung, workspace=None).requested_bytes(problem)
    assert counted(requests, rung, problem) == requested


def test_every_rung_has_its_traffic():
    """At a size without a fringe, what the tile's intensity says, and C."""
    for rung in LADDER:
        m, n = rung.reuse
        extra = (
            4 * rung.tile.BK * (m + n) * (4096 // m) * (4096 // n) if rung is double_buffered.RUNG else 0
        )
        tiles = -(-4096 // m) * (4096 // n)
        floats = tiles * traffic.worker_floats(4096, m, n) + 4096 * 4096
        requested = dataclasses.replace(rung, workspace=None).requested_bytes(CUBE)
        assert requested == 4 * floats + extra, rung.name


def test_what_blocks_and_threads_read():
    """Every rung's, and the blocks of a launch together what the launch asks for, C aside."""
    K = 4096
    found = {
        rung.name: traffic.reads(K, rung.geometry(4096, 4096).threads, rung.tile) for rung in LADDER
    }
    assert (found["naive"].thread, found["naive"].block) == (2 * K, 1024 * 2 * K)
    assert (found["tiled2d"].thread, found["tiled2d"].block) == (K / 16, 64 * K)
    assert (found["square"].thread, found["square"].block) == (K, 256 * K)
    assert (found["async_copy"].thread, found["async_copy"].block) == (1.5 * K, 384 * K)
    for rung in LADDER:
        if not rung.habits.extra_chunks and not rung.workspace:
            launch = 4 * (found[rung.name].block * rung.geometry(4096, 4096).blocks + 4096**2)
            assert rung.requested_bytes(CUBE) == launch, rung.name


def test_the_workspace_of_the_docstrings_example():
    """Seven tiles of 100 chunks on four multiprocessors: three are shared by four blocks, 75 each."""
    assert split_k.plan(7, 100, 4) == (4, 4)
    # 75 | 25 and 50 | 50 and 25 | 75: six partial sums.
    assert traffic.workspace_bytes(3, 100, 4, 128, 256) == 6 * 2 * 4 * 128 * 256


def test_a_workspace_that_nobody_needs():
    """No blocks that share, no bytes."""
    assert traffic.workspace_bytes(0, 100, 0, 128, 256) == 0
    assert split_k.RUNG.requested_bytes(CUBE, multiprocessors=64) == dataclasses.replace(
        split_k.RUNG, workspace=None
    ).requested_bytes(CUBE)


def test_what_is_read_again_at_an_edge():
    """One row more than a tile asks for a whole second one, but only where a rung clamps."""
    past = Problem(129, 128, 64)
    tile = Tile(BM=128, BN=128, BK=8, TM=8, TN=8)
    guarded = square.RUNG.requested_bytes(past, tile)
    clamped = vectorized.RUNG.requested_bytes(past, tile)
    assert clamped - guarded == 4 * 127 * 64


@pytest.mark.parametrize(
    ("addresses", "width", "sectors"),
    [
        (np.zeros(32), 4, 1),
        (4 * np.arange(32), 4, 4),
        (4 + 4 * np.arange(32), 4, 5),
        (16 * np.arange(32), 16, 16),
        (28 + 4096 * np.arange(32), 8, 64),
    ],
)
def test_transactions(addresses, width, sectors):
    """Aligned, shifted, four floats a lane, and across the edge of a sector."""
    assert traffic.transactions(addresses, width) == sectors


def test_vector_loads_are_fewer():
    """16 loads of a thread for 64 multiply-adds become 4."""
    assert 64 * traffic.shared_loads(8, 8, vector=4) == 4
