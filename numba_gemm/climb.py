"""The climb: every rung on one random problem, checked, and timed where there is a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from . import cublas, harness, timing
from .model import roofline
from .problem import Problem
from .rung import Rung
from .target import TARGET, cuda

__all__ = ["Step", "climb", "time_cublas"]


@dataclass(frozen=True)
class Step:
    """What one rung did.

    ``worst`` is its largest error as a fraction of the bound, ``seconds`` the median device time, None
    in the simulator, ``spread`` slowest less fastest round as a fraction of it.  ``requested_bytes`` is
    what it asks of global memory, by formula: what is read again at an edge and a workspace included.
    """

    rung: str
    idea: str
    worst: float
    passed: bool
    seconds: float | None
    spread: float | None
    requested_bytes: int
    intensity: float

    def as_dict(self) -> dict[str, Any]:
        """The step ready for JSON, which has no infinity."""
        return asdict(self) | {"worst": self.worst if math.isfinite(self.worst) else None}


def climb(problem: Problem, rungs: Sequence[Rung], seed: int) -> Iterator[Step]:
    """Run each of *rungs* on the same random operands, into a C of NaN where beta is 0.

    Yields a :class:`Step` as soon as a rung is done.  Verified before it is timed.
    """
    A, B, C0 = harness.random_operands(problem.M, problem.N, problem.K, seed)
    if problem.beta == 0:
        C0.fill(np.nan)
    device_A, device_B = cuda.to_device(A), cuda.to_device(B)
    for rung in rungs:
        device_C = cuda.to_device(C0)
        launch = harness.prepare(rung, device_A, device_B, device_C, problem)
        launch()
        C = device_C.copy_to_host()
        outcome = harness.compare_with_numpy(problem, A, B, C, C0, seed)
        seconds, spread = _time(launch)
        requested = rung.requested_bytes(problem)
        yield Step(
            rung=rung.name,
            idea=rung.idea,
            worst=outcome.worst,
            passed=outcome.passed,
            seconds=seconds,
            spread=spread,
            requested_bytes=requested,
            intensity=roofline.intensity(problem.flops, requested),
        )


def time_cublas(problem: Problem, seed: int) -> float:
    """Median device time of cuBLAS on such a problem, in seconds.

    Raises CublasMissingError where there is none to compare with.
    """
    A, B, C = harness.random_operands(problem.M, problem.N, problem.K, seed)
    A, B, C = (cuda.to_device(array) for array in (A, B, C))
    launch = cublas.prepare(A, B, C, problem.alpha, problem.beta)
    return timing.device_time(launch).median


def _time(launch: Callable[[], None]) -> tuple[float | None, float | None]:
    """Median and spread of the device time; None for both in the simulator."""
    if not TARGET.is_gpu:
        return None, None
    measured = timing.device_time(launch)
    return measured.median, measured.spread
