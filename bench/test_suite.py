"""The dispatch suite: what ``gemm`` chooses by itself beside cuBLAS, at 24 shapes of every kind.

The shapes are those of numba_gemm.search.suite; ``numba-gemm report`` gives the ratios and their mean.
"""

import peers
import pytest
from measuring import CLOCK, automatic, measure, shape_id

from numba_gemm.search.suite import SUITE
from numba_gemm.target import TARGET

SHAPES = SUITE if TARGET.is_gpu else [(16, 8, 8)]

pytestmark = [
    pytest.mark.benchmark(timer=CLOCK) if TARGET.is_gpu else pytest.mark.benchmark,
    pytest.mark.parametrize("multiply", SHAPES, ids=shape_id, indirect=True),
]


def test_auto(benchmark, multiply):
    choice, launch = automatic(multiply)
    measure(benchmark, "suite", "numba_gemm", multiply, launch, choice=choice)


def test_cublas(benchmark, multiply):
    launch = peers.or_skip("cuBLAS", *multiply.arrays)
    measure(benchmark, "suite", "cuBLAS", multiply, launch)
