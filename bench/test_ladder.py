"""The ladder, rung by rung, with its twin in CUDA C++ and cuBLAS beside it, at several sizes.

On a GPU the figures are device times, each round the mean of several queued launches, with TFLOP/s in
``extra_info``.  In the simulator they are host times of the simulator, labelled as such, at a size that
says nothing about a GPU.  Every result is compared with numpy's.
"""

import cuda_cpp
import numpy as np
import pytest

from numba_gemm import LADDER, Problem, cublas, device, harness
from numba_gemm.target import TARGET, cuda
from numba_gemm.timing import DeviceTimer

CUBES = (1024, 2048, 4092, 4093, 4096, 4097, 8192) if TARGET.is_gpu else (24,)
DEEP = ((256, 256, 65536), (512, 512, 16384)) if TARGET.is_gpu else ()
SHAPES = [*((n, n, n) for n in CUBES), *DEEP]
ROUNDS = 7


class DeviceClock:
    """A clock for pytest-benchmark that stands still but for the device time it is told of."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        """The device time so far, in seconds."""
        return self.seconds

    def run(self, timer):
        """One round of *timer*, by which the clock goes forward."""
        self.seconds += timer.round()


CLOCK = DeviceClock()

pytestmark = pytest.mark.benchmark(timer=CLOCK) if TARGET.is_gpu else []


def shape_id(shape):
    """``n=4096`` for a cube, else M x N x K."""
    return f"n={shape[0]}" if len(set(shape)) == 1 else "x".join(map(str, shape))


@pytest.fixture(scope="module", params=SHAPES, ids=shape_id)
def operands(request):
    """A problem, its random A and B, and a C of NaN, on the device."""
    A, B, C = harness.random_operands(*request.param)
    C.fill(np.nan)
    return Problem(*request.param), *(cuda.to_device(array) for array in (A, B, C))


def measure(benchmark, problem, launch):
    """Time *launch*, or run it once where benchmarks are disabled."""
    benchmark.group = f"{problem.M} x {problem.N} x {problem.K}"
    if not TARGET.is_gpu:
        benchmark.group += ", simulated"
        benchmark.extra_info["simulated"] = True
        benchmark.pedantic(launch)
        return
    if benchmark.disabled:
        benchmark.pedantic(launch)
        return
    timer = DeviceTimer(launch)
    benchmark.pedantic(CLOCK.run, args=(timer,), rounds=ROUNDS)
    gpu = device.current()
    tflops = problem.product_flops / benchmark.stats.stats.median / 1e12
    benchmark.extra_info.update(
        tflops=round(tflops, 3),
        share_of_peak=round(tflops * 1e12 / gpu.fp32_peak, 4),
        launches_a_round=timer.launches,
        device=gpu.name,
    )


def check(problem, A, B, C):
    outcome = harness.compare_with_numpy(problem, *(x.copy_to_host() for x in (A, B, C)))
    assert outcome.passed, outcome


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_rung(benchmark, operands, rung):
    problem, A, B, C = operands
    C.copy_to_device(np.full(C.shape, np.nan, np.float32))
    measure(benchmark, problem, harness.prepare(rung, A, B, C, problem))
    check(problem, A, B, C)


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_cuda_cpp(benchmark, operands, rung):
    """The same rung in CUDA C++, at sizes without a fringe."""
    problem, A, B, C = operands
    if not TARGET.is_gpu:
        pytest.skip("CUDA C++ needs a GPU")
    if rung.name not in cuda_cpp.RUNGS:
        pytest.skip("this rung has no twin in bench/cuda_cpp.py")
    pytest.importorskip("cupy", reason="CuPy compiles CUDA C++")
    if problem.M % 128 or problem.N % 128 or problem.K % 128:
        pytest.skip("these kernels have no bounds: only multiples of 128")
    C.copy_to_device(np.full(C.shape, np.nan, np.float32))
    measure(benchmark, problem, cuda_cpp.prepare(rung, problem, A, B, C))
    check(problem, A, B, C)


def test_cublas(benchmark, operands):
    problem, A, B, C = operands
    try:
        launch = cublas.prepare(A, B, C)
    except cublas.CublasMissingError as error:
        pytest.skip(str(error))
    C.copy_to_device(np.full(C.shape, np.nan, np.float32))
    measure(benchmark, problem, launch)
    check(problem, A, B, C)
