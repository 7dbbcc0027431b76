"""What Numba lacks for a matrix multiply, each piece once.

Everything here may be called from a kernel and works, unchanged, on the GPU and in the simulator.
All code that builds LLVM IR lives in this folder.
"""

import numba_gemm.target  # noqa: F401  decides before numba.cuda is imported

from .async_copies import commit_copies, copy_async, wait_for_copies
from .helpers import block_x, block_y, problem_size, stage, thread_x, thread_y, update
from .index import index
from .jit import device_function, jit_by_ptx, launch_bounds
from .loops import unroll
from .matrices import (
    clamp,
    fetch4,
    quad_of,
    stage4,
    stage4_transposed,
    stage_remainder,
    update4,
)
from .vectors import ALIGNMENT, load4, rows_are_aligned, store4
from .windows import window

__all__ = [
    "ALIGNMENT",
    "block_x",
    "block_y",
    "clamp",
    "commit_copies",
    "copy_async",
    "device_function",
    "fetch4",
    "index",
    "jit_by_ptx",
    "launch_bounds",
    "load4",
    "problem_size",
    "quad_of",
    "rows_are_aligned",
    "stage",
    "stage4",
    "stage4_transposed",
    "stage_remainder",
    "store4",
    "thread_x",
    "thread_y",
    "unroll",
    "update",
    "update4",
    "wait_for_copies",
    "window",
]
