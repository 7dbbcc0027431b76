"""What people would use instead, in the same process, on the same arrays, by the same clock."""

import peers
import pytest
from measuring import CLOCK, automatic, measure, shape_id

from numba_gemm.target import TARGET

SIZES = (512, 1024, 2048, 4096, 4093, 8192) if TARGET.is_gpu else (12,)

pytestmark = [
    pytest.mark.benchmark(timer=CLOCK) if TARGET.is_gpu else pytest.mark.benchmark,
    pytest.mark.parametrize("multiply", [(n, n, n) for n in SIZES], ids=shape_id, indirect=True),
]


def test_auto(benchmark, multiply):
    """``numba_gemm.gemm`` with the rung that it chooses."""
    choice, launch = automatic(multiply)
    measure(benchmark, "peers", "numba_gemm", multiply, launch, choice=choice)


@pytest.mark.parametrize("name", peers.PEERS)
def test_peer(benchmark, multiply, name):
    launch = peers.or_skip(name, *multiply.arrays)
    measure(benchmark, "peers", name, multiply, launch)
