"""What Numba lacks for a matrix multiply, each piece once.

Everything here may be called from a kernel and works, unchanged, on the GPU and in the simulator.
All code that builds LLVM IR lives in this folder.
"""

import numba_gemm.target  # noqa: F401  decides before numba.cuda is imported

from .helpers import block_x, block_y, problem_size, stage, thread_x, thread_y, update
from .index import index
from .jit import device_function, launch_bounds
from .loops import unroll

__all__ = [
    "block_x",
    "block_y",
    "device_function",
    "index",
    "launch_bounds",
    "problem_size",
    "stage",
    "thread_x",
    "thread_y",
    "unroll",
    "update",
]
