"""What the tests share: the rungs they run, what needs a GPU, how hypothesis searches.

The tests run where kernels run: on the GPU, or in Numba's CUDA simulator where there is none.  A
simulated block of 1024 threads takes a tenth of a second or more, so most tests use small blocks;
on a GPU they use the rungs' own as well.
"""

import dataclasses
import os

import numpy as np
import pytest
from hypothesis import settings

from numba_gemm import LADDER, Rung, Tile
from numba_gemm.rungs import (
    async_copy,
    autotuned,
    coalesced,
    column,
    double_buffered,
    naive,
    padded,
    split_k,
    square,
    tiled2d,
    vectorized,
    warptiled,
)
from numba_gemm.target import TARGET

settings.register_profile(
    "numba_gemm",
    deadline=None,
    max_examples=12 if TARGET.is_simulator else 100,
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("numba_gemm")


def with_tile(rung: Rung, tile: Tile) -> Rung:
    """The rung with another default tile."""
    return dataclasses.replace(rung, tile=tile, kernel=rung.build(tile))


def trimmed(rung: Rung) -> Rung:
    """A rung without a tile, launched with no more threads than a small C has work for.

    Its blocks keep the first row and column of threads that are too many.
    """

    def cover(M, N, tile):
        geometry = rung.cover(M, N, tile)
        x, y = (M, N) if rung is naive.RUNG else (N, M)
        block = min(geometry.block[0], x + 1), min(geometry.block[1], y + 1)
        return dataclasses.replace(geometry, block=block)

    return dataclasses.replace(rung, cover=cover)


SMALL = (
    trimmed(naive.RUNG),
    trimmed(coalesced.RUNG),
    with_tile(tiled2d.RUNG, Tile(8, 8, 8)),
    with_tile(column.RUNG, Tile(16, 8, 4, TM=4)),
    with_tile(square.RUNG, Tile(16, 32, 4, TM=4, TN=4)),
    with_tile(vectorized.RUNG, Tile(16, 32, 8, TM=4, TN=4)),
    with_tile(autotuned.RUNG, Tile(16, 32, 8, TM=4, TN=4)),
    with_tile(warptiled.RUNG, Tile(16, 32, 8, TM=4, TN=4, WM=16, WN=32)),
    with_tile(padded.RUNG, Tile(16, 64, 8, TM=4, TN=8, WM=16, WN=64)),
    with_tile(double_buffered.RUNG, Tile(32, 16, 8, TM=4, TN=4, WM=32, WN=16, stages=2)),
    with_tile(async_copy.RUNG, Tile(16, 32, 8, TM=4, TN=4, WM=16, WN=32, stages=3)),
    with_tile(split_k.RUNG, Tile(16, 32, 8, TM=4, TN=4, WM=16, WN=32, stages=2)),
)


def rung_id(rung: Rung) -> str:
    """The rung's name, and its tile where it has one."""
    if rung.tile is None:
        return rung.name
    return f"{rung.name}-{'x'.join(map(str, dataclasses.astuple(rung.tile)))}"


@pytest.fixture(scope="session", params=SMALL if TARGET.is_simulator else SMALL + LADDER, ids=rung_id)
def rung(request):
    """Every rung in turn, made small for the simulator; on a GPU as it ships, too."""
    return request.param


@pytest.fixture(scope="session", params=LADDER, ids=lambda rung: rung.name)
def ladder_rung(request):
    """Every rung in turn, as it ships."""
    return request.param


@pytest.fixture(scope="session")
def quick():
    """A rung that takes hundredths of a second to simulate, for tests of what is around it."""
    return SMALL[-1]


@pytest.fixture
def seed():
    """A fresh seed; pytest shows it when the test fails."""
    return int(np.random.default_rng().integers(2**32))


def pytest_configure(config):
    """Declare the markers of these tests, and expect the warnings that they provoke."""
    config.addinivalue_line("markers", "gpu: needs a GPU; skipped in the simulator")
    config.addinivalue_line("markers", "simulator: about the simulator; skipped on a GPU")
    for warning in (
        "Grid size",  # Numba's, of launches as small as these
        "Host array used in CUDA kernel",
        # NumPy's, where a simulated kernel meets what a GPU takes in silence.
        "(invalid value|overflow|underflow) encountered",
    ):
        config.addinivalue_line("filterwarnings", f"ignore:{warning}")


def pytest_runtest_setup(item):
    """Skip what this machine cannot run, and say why."""
    if item.get_closest_marker("gpu") and not TARGET.is_gpu:
        pytest.skip(f"needs a GPU, but {TARGET.reason}")
    if item.get_closest_marker("simulator") and not TARGET.is_simulator:
        pytest.skip(f"is about the simulator, but {TARGET.reason}")
