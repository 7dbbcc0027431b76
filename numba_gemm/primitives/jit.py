"""What ``cuda.jit`` is asked for beyond the kernel itself, in a form that the simulator takes too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda

from numba_gemm.target import TARGET

__all__ = ["device_function", "jit_by_ptx", "launch_bounds"]


def device_function(function: Callable) -> Callable:
    """Decorate a function that kernels call, so that the call itself costs no instruction.

    On the GPU the function is inlined into its caller, so arrays and constants pass through it as if
    it had been written there.  The simulator calls it as it is.
    """
    options = {} if TARGET.is_simulator else {"forceinline": True}
    return cuda.jit(device=True, **options)(function)


def launch_bounds(threads: int, blocks: int) -> dict[str, tuple[int, int]]:
    """Options for ``cuda.jit``: a block has *threads*, and *blocks* of them share a multiprocessor.

    The compiler gives each thread as many registers as leave room for that, where by itself it may
    take so many that a multiprocessor holds one block less and has nothing to do while it waits.
    The simulator, which has no registers, takes no such option.
    """
    return {} if TARGET.is_simulator else {"launch_bounds": (threads, blocks)}


def jit_by_ptx(registers: int) -> Callable[[Callable], Callable]:
    """``cuda.jit`` for a kernel that is assembled as compiled, not optimized once more when linked.

    A thread gets at most so many *registers*: what the compiler would like differs by a few from one
    version of the CUDA toolkit to the next, and 129 instead of 128 may halve the number of warps.

    By default Numba links through LTO, and the second optimizer moves instructions about that the first
    had placed well; which of the two is better has to be measured.  As a decorator,
    ``cuda.jit(lto=False)`` forgets the option, so it is given with the function.
    """
    options: dict[str, Any] = {}
    if not TARGET.is_simulator:
        options = {"lto": False, "max_registers": registers}
    return lambda function: cuda.jit(function, **options)
