"""What a rung asks of memory: bytes of global memory, transactions, loads from shared memory.

"Asked for" counts every element that a thread, or a block where it shares them, requests; caches
answer part of it, so DRAM may see far less.

Source: "A GEMM Kernel, Step by Step", rungs one to five; "Naive to Tiled", sections 1 and 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .quantization import tiling
from .roofline import FLOAT32_BYTES

if TYPE_CHECKING:
    from numba_gemm.problem import Problem

__all__ = ["requested_bytes"]


def requested_bytes(problem: Problem, m: int, n: int) -> int:
    """Bytes a kernel asks of global memory when m x n entries of C share what they read.

    Every tile of C reads its m rows of A and n columns of B, so A is asked for once per column of
    tiles and B once per row of tiles; C costs what it must.  m = n = 1 is a kernel without reuse.
    """
    M, N, K = problem.M, problem.N, problem.K
    elements = M * N * (2 if problem.beta != 0 else 1)
    if problem.reads_operands:
        tiles = tiling(M, N, m, n)
        elements += M * K * tiles.across + K * N * tiles.down
    return FLOAT32_BYTES * elements
