"""The published ladders that ours stands beside.

A6000
    S. Boehm, "How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance", RTX A6000,
    4092 x 4092 x 4092, GFLOP/s.
A100
    "GEMM Worklog I: Naive to Tiled", A100, 4096 x 4096 x 4096, TFLOP/s and share of a peak of 19.5.
"""

__all__ = ["A100_SHARE_OF_PEAK", "A100_TFLOPS", "A6000_GFLOPS", "CUBLAS"]

CUBLAS = "cuBLAS"

A6000_GFLOPS = {
    "naive": 309.0,
    "coalesced": 1986.5,
    "tiled2d": 2980.3,
    "column": 8474.7,
    "square": 15971.7,
    "vectorized": 18237.3,
    "autotuned": 19721.0,
    "warptiled": 21779.3,
    CUBLAS: 23249.6,
}

A100_TFLOPS = {"naive": 0.26, "tiled2d": 7.12, CUBLAS: 18.32}
A100_SHARE_OF_PEAK = {"naive": 0.013, "tiled2d": 0.365, CUBLAS: 0.939}
