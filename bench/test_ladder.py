"""The ladder, rung by rung, with its twin in CUDA C++ and cuBLAS beside it, at several sizes.

On a GPU the figures are device times (see measuring.py), with TFLOP/s, clocks and power in
``extra_info``.  In the simulator they are host times of the simulator, labelled as such, at a size that
says nothing about a GPU.  Every result is compared with numpy's.
"""

import cuda_cpp
import peers
import pytest
from measuring import CLOCK, SIZES, measure, shape_id

from numba_gemm import LADDER, harness
from numba_gemm.target import TARGET

DEEP = ((256, 256, 65536), (512, 512, 16384)) if TARGET.is_gpu else ()
SHAPES = [*((n, n, n) for n in SIZES), *((n, n, n) for n in (4093, 4097) if TARGET.is_gpu), *DEEP]

pytestmark = [
    pytest.mark.benchmark(timer=CLOCK) if TARGET.is_gpu else pytest.mark.benchmark,
    pytest.mark.parametrize("multiply", SHAPES, ids=shape_id, indirect=True),
]


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_rung(benchmark, multiply, rung):
    launch = harness.prepare(rung, *multiply.arrays, multiply.problem)
    measure(benchmark, "ladder", rung.name, multiply, launch)


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_cuda_cpp(benchmark, multiply, rung):
    """The same rung in CUDA C++, at sizes without a fringe."""
    if not TARGET.is_gpu:
        pytest.skip("CUDA C++ needs a GPU")
    if rung.name not in cuda_cpp.RUNGS:
        pytest.skip("this rung has no twin in bench/cuda_cpp.py")
    pytest.importorskip("cupy", reason="CuPy compiles CUDA C++")
    if any(size % 128 for size in multiply.shape):
        pytest.skip("these kernels have no bounds: only multiples of 128")
    launch = cuda_cpp.prepare(rung, multiply.problem, *multiply.arrays)
    measure(benchmark, "cuda_cpp", rung.name, multiply, launch)


def test_cublas(benchmark, multiply):
    """What every rung is compared with."""
    launch = peers.or_skip("cuBLAS", *multiply.arrays)
    measure(benchmark, "ladder", "cuBLAS", multiply, launch)
