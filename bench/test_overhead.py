"""What a call costs the host: wall time until it returns, on device arrays so small that the GPU waits.

The checks, the choice of a rung and the launch are in it; what the GPU does is not.
"""

import time

import peers
import pytest
from measuring import automatic, record

import numba_gemm
from numba_gemm import dispatch
from numba_gemm.target import TARGET, cuda

SHAPE = (64, 64, 64) if TARGET.is_gpu else (4, 4, 4)
CALLS, ROUNDS = (50, 20) if TARGET.is_gpu else (1, 1)

pytestmark = [
    pytest.mark.benchmark(timer=time.perf_counter),
    pytest.mark.parametrize("multiply", [SHAPE], ids=["small"], indirect=True),
]


def overhead(benchmark, name, multiply, call):
    record(benchmark, "overhead", name, multiply.shape)
    call()  # compiled before it is timed
    cuda.synchronize()
    benchmark.pedantic(call, rounds=ROUNDS, iterations=CALLS)
    cuda.synchronize()
    multiply.check()


def test_gemm(benchmark, multiply):
    """``gemm(A, B, C)`` as users call it."""
    A, B, C = multiply.arrays
    overhead(benchmark, "gemm", multiply, lambda: numba_gemm.gemm(A, B, C))


def test_naive(benchmark, multiply):
    """``gemm`` with the simplest rung: one launch, no workspace."""
    A, B, C = multiply.arrays
    overhead(benchmark, 'gemm, rung="naive"', multiply, lambda: numba_gemm.gemm(A, B, C, rung="naive"))


def test_launch(benchmark, multiply):
    """Only the launch, or launches, that Numba makes of it: what no check of ours can go below."""
    overhead(benchmark, "the launch alone", multiply, automatic(multiply)[1])


def test_choice(benchmark, multiply):
    """Only the choice of a rung and a tile, for a shape that was seen before."""
    record(benchmark, "overhead", "the choice alone", multiply.shape)
    dispatch.chosen_here(multiply.problem)
    benchmark.pedantic(
        dispatch.chosen_here, args=(multiply.problem,), rounds=ROUNDS, iterations=20 * CALLS
    )


@pytest.mark.parametrize("name", ["cuBLAS", "CuPy", "PyTorch"])
def test_peer(benchmark, multiply, name):
    overhead(benchmark, name, multiply, peers.or_skip(name, *multiply.arrays))
