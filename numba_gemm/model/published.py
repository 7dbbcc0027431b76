"""The published ladders, in GFLOP/s, to compare with and to draw.

Sources: S. Boehm, "How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance", on an RTX A6000
at 4092 x 4092 x 4092; "GEMM Worklog I: Naive to Tiled", on an A100 at 4096 x 4096 x 4096.
"""

from __future__ import annotations

__all__ = ["A100_SECONDS", "A6000_GFLOPS", "gflops", "share"]

A6000_GFLOPS = {
    "naive": 309.0,
    "coalesced": 1986.5,
    "tiled2d": 2980.3,
    "column": 8474.7,
    "square": 15971.7,
    "vectorized": 18237.3,
    "autotuned": 19721.0,
    "warptiled": 21779.3,
    "cuBLAS": 23249.6,
}

A100_SECONDS = {"naive": 528.4e-3, "tiled2d": 19.3e-3, "cuBLAS": 7.5e-3}


def gflops(flop: float, seconds: float) -> float:
    """GFLOP/s of so many FLOPs in so many seconds."""
    return flop / seconds / 1e9


def share(speed: float, of: float) -> float:
    """One speed as a fraction of another."""
    return speed / of
