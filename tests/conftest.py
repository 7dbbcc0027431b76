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
from small_rungs import SMALL

from numba_gemm import LADDER, Rung
from numba_gemm.target import TARGET

settings.register_profile(
    "numba_gemm",
    deadline=None,
    max_examples=12 if TARGET.is_simulator else 100,
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("numba_gemm")


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
