"""Helpers that cost nothing: device functions that are always inlined."""

from __future__ import annotations

from collections.abc import Callable

from numba import cuda

from numba_gemm.target import TARGET

__all__ = ["device_function"]


def device_function(function: Callable) -> Callable:
    """Decorate a function that kernels call, so that the call itself costs no instruction.

    On the GPU the function is inlined into its caller, so arrays and constants pass through it as if
    it had been written there.  The simulator calls it as it is.
    """
    options = {} if TARGET.is_simulator else {"forceinline": True}
    return cuda.jit(device=True, **options)(function)
