"""What the benchmarks share: operands, the clock, how a figure and its circumstances are recorded.

A figure is a device time (see numba_gemm/timing.py).  It is handed to pytest-benchmark by a clock that
stands still but for the time it is told of, so that pytest-benchmark's options and files work as usual.
"""

import functools

import numpy as np

from numba_gemm import Problem, device, dispatch, harness, nvml
from numba_gemm.target import TARGET, cuda
from numba_gemm.timing import LEAST_FOR_ENERGY, DeviceTimer, device_energy

SIZES = (256, 512, 1024, 2048, 4092, 4096, 8192) if TARGET.is_gpu else (24,)
ENERGY_SHAPE = (4096, 4096, 4096)
"""Where energy is measured without being asked for."""


OPTIONS = None
"""The options of this pytest, from conftest.py."""


class Clock:
    """A clock that goes forward only by what it is told."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        """The time so far, in seconds."""
        return self.seconds

    def add(self, measure):
        """Let as much time pass as *measure* says when called."""
        self.seconds += measure()


CLOCK = Clock()


class Multiply:
    """One problem with random operands: A, B and C on the device, and numpy's result to compare with."""

    def __init__(self, M, N, K):
        self.problem = Problem(M, N, K)
        A, B, C = harness.random_operands(M, N, K)
        self.reference = harness.Reference(self.problem, A, B)
        self.A, self.B = cuda.to_device(A), cuda.to_device(B)
        self.poison = np.full(C.shape, np.nan, np.float32)
        self.C = cuda.to_device(self.poison)

    @property
    def shape(self):
        """M, N, K."""
        return self.problem.M, self.problem.N, self.problem.K

    @property
    def arrays(self):
        """A, B and C, with NaN in every entry of C."""
        self.C.copy_to_device(self.poison)
        return self.A, self.B, self.C

    def check(self):
        """Fail where C is not what numpy has."""
        outcome = self.reference.compare(self.C.copy_to_host())
        assert outcome.passed, outcome


@functools.lru_cache(maxsize=2)
def multiply(shape):
    """The one problem of that shape: whoever is compared at it gets the same arrays."""
    return Multiply(*shape)


def shape_id(shape):
    """``n=4096`` for a cube, else M x N x K."""
    return f"n={shape[0]}" if len(set(shape)) == 1 else "x".join(map(str, shape))


@functools.cache
def monitor():
    """What reads clocks and power, and why nothing does."""
    try:
        return nvml.Monitor(), None
    except nvml.NvmlMissingError as error:
        return None, str(error)


def record(benchmark, bench, name, shape, **more):
    """Say in the figure's record, and by its group, what it is of."""
    M, N, K = shape
    benchmark.group = f"{M} x {N} x {K}"
    if not TARGET.is_gpu:
        benchmark.group += ", simulated"
        more["simulated"] = True
    benchmark.extra_info.update(bench=bench, name=name, M=M, N=N, K=K, **more)


def automatic(multiply):
    """What ``gemm`` chooses for this problem, in a word and as a call that queues it."""
    choice = dispatch.chosen_here(multiply.problem)
    return str(choice), harness.prepare(
        choice.rung, *multiply.arrays, multiply.problem, tile=choice.tile
    )


def measure(benchmark, bench, name, multiply, launch, **more):
    """Measure the device time of *launch*, or run it once where benchmarks are disabled, and check C.

    *bench* and *name* say where a report will look for it: the "ladder" or the "suite", and what ran.
    """
    record(benchmark, bench, name, multiply.shape, **more)
    if not TARGET.is_gpu or benchmark.disabled:
        benchmark.pedantic(launch)
    else:
        _measure_on_gpu(benchmark, multiply, launch)
    multiply.check()


def _measure_on_gpu(benchmark, multiply, launch):
    watch, missing = monitor()
    timer = DeviceTimer(launch, warm_l2=OPTIONS.warm_l2, monitor=watch)
    benchmark.pedantic(CLOCK.add, args=(timer.round,), rounds=timer.rounds)

    stats = benchmark.stats.stats
    flops, gpu = multiply.problem.product_flops, device.current()
    benchmark.extra_info.update(
        tflops=round(flops / stats.median / 1e12, 4),
        share_of_peak=round(flops / stats.median / gpu.fp32_peak, 4),
        spread=round((stats.max - stats.min) / stats.median, 4),
        launches_a_round=timer.launches,
        l2="warm" if OPTIONS.warm_l2 else "flushed",
        **nvml.summary(timer.readings),
    )
    if missing:
        benchmark.extra_info["nvml"] = missing
    elif (OPTIONS.energy or multiply.shape == ENERGY_SHAPE) and stats.median >= LEAST_FOR_ENERGY:
        try:
            energy = device_energy(launch, stats.median, watch)
        except RuntimeError as error:
            benchmark.extra_info["nvml"] = str(error)
            return
        benchmark.extra_info.update(
            joules=round(energy.joules, 6),
            gflop_per_joule=round(flops / energy.joules / 1e9, 3),
            sustained_watts=round(energy.watts, 1),
            sustained_seconds=energy.seconds,
        )
