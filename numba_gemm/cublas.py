"""cuBLAS, to compare with: the vendor's FP32 multiply, called through CuPy.

Of the maintained Python bindings, nvmath-python's (``nvmath.bindings.cublas``) and CuPy's reach the same
library by the same function.  CuPy's is taken because its wheel brings cuBLAS along, its arrays share
Numba's without a copy, and it hands the call through unchanged, on the same default stream as Numba.
``sgemm`` runs in cuBLAS' default math mode, which is FP32 arithmetic without TF32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .target import TARGET

__all__ = ["CublasMissingError", "prepare"]


class CublasMissingError(RuntimeError):
    """There is no cuBLAS to compare with; the message says why and what brings one."""


def prepare(A: Any, B: Any, C: Any, alpha: float = 1.0, beta: float = 0.0) -> Callable[[], None]:
    """A call that queues ``C <- alpha * A @ B + beta * C`` by cuBLAS on the default stream.

    A, B and C are float32 row-major device arrays.  Raises CublasMissingError without a GPU or CuPy.
    """
    if not TARGET.is_gpu:
        raise CublasMissingError(f"cuBLAS needs a GPU, but {TARGET.reason}")
    try:
        import cupy
        from cupy import cublas
    except ImportError as error:
        raise CublasMissingError(
            f"CuPy, which brings cuBLAS, cannot be imported ({error}); install numba-gemm[bench], "
            "or cupy-cuda12x for CUDA 12"
        ) from error

    # cuBLAS stores columns: the row-major C is its transpose, which is B^T @ A^T.
    left, right, out = (cupy.asarray(array).T for array in (B, A, C))

    def launch() -> None:
        with cupy.cuda.Stream.null:
            cublas.gemm("N", "N", left, right, out=out, alpha=alpha, beta=beta)

    return launch
