"""How long the first call of a rung takes in a fresh process: typing, code generation, linking, loading.

Importing numba_gemm and starting CUDA come before and are not in it.  Numba keeps nothing of these
kernels on disk, and the driver's own cache is switched off.
"""

import json
import os
import subprocess
import sys

import pytest
from measuring import Clock, record

from numba_gemm import LADDER
from numba_gemm.target import TARGET

SIZE = 512 if TARGET.is_gpu else 2
RUNGS = LADDER if TARGET.is_gpu else LADDER[:1]
CLOCK = Clock()

FIRST_CALL = """
import json, sys, time
import numba_gemm
from numba_gemm import harness
from numba_gemm.rungs import named
from numba_gemm.target import cuda

name, size = sys.argv[1], int(sys.argv[2])
A, B, C = (cuda.to_device(array) for array in harness.random_operands(size, size, size))
cuda.synchronize()
start = time.perf_counter()
harness.prepare(named(name), A, B, C, numba_gemm.Problem(size, size, size))()
cuda.synchronize()
print(json.dumps(time.perf_counter() - start))
"""


def first_call(name):
    """Seconds that the first call of the rung takes in a process of its own."""
    output = subprocess.run(
        [sys.executable, "-c", FIRST_CALL, name, str(SIZE)],
        env=os.environ | {"CUDA_CACHE_DISABLE": "1"},
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    return json.loads(output)


@pytest.mark.benchmark(timer=CLOCK)
@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_first_call(benchmark, rung):
    record(benchmark, "compile", rung.name, (SIZE, SIZE, SIZE))
    benchmark.group = "first call"
    benchmark.pedantic(CLOCK.add, args=(lambda: first_call(rung.name),), rounds=1)
