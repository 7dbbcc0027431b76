"""Where kernels run: on an NVIDIA GPU or in Numba's CUDA simulator.

Numba decides between the two when :mod:`numba.cuda` is first imported, and cannot change its mind
later.  This module decides first, once, when it is imported, and says on one line of stderr what it
chose and why.  The modules beside this one take ``cuda`` from here; those in ``rungs`` and
``primitives`` import it as any Numba program does, since their packages import this module first.

Environment variables, strongest first:

``NUMBA_GEMM_TARGET``
    ``gpu`` or ``simulator`` forces the choice; ``gpu`` where none is usable is a :class:`TargetError`.
    ``compiler`` is for :mod:`numba_gemm.codegen`: kernels are compiled, on a machine with or without
    a GPU, and never launched.
``NUMBA_ENABLE_CUDASIM``
    Numba's own switch: ``1`` asks for the simulator, ``0`` for a GPU.  (Numba also reads it from
    ``.numba_config.yaml``.)
``NUMBA_GEMM_QUIET``
    Anything but nothing: the line is not printed.  Commands that run no kernel set it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numba

from .errors import TargetError

__all__ = ["MINIMUM_COMPUTE_CAPABILITY", "TARGET", "Target", "TargetError", "cuda"]

MINIMUM_COMPUTE_CAPABILITY = (7, 0)
"""The oldest GPU the package is built for (Volta)."""


Kind = Literal["gpu", "simulator", "compiler"]


@dataclass(frozen=True)
class Target:
    """The choice that was made.

    ``kind`` is ``"gpu"``, ``"simulator"`` or ``"compiler"``; ``reason`` is the sentence printed on
    stderr.
    """

    kind: Kind
    reason: str

    @property
    def is_gpu(self) -> bool:
        """True where kernels are compiled and run on a GPU."""
        return self.kind == "gpu"

    @property
    def is_simulator(self) -> bool:
        """True where kernels run as Python threads in Numba's CUDA simulator."""
        return self.kind == "simulator"


def find_gpu() -> tuple[str | None, str]:
    """Look for a GPU that Numba can compile for and run on, without importing ``numba.cuda``.

    Returns the GPU's name, or None, and a phrase that says what was found.
    """
    try:
        from cuda.bindings import driver
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError as error:
        return None, f"the CUDA Python bindings cannot be imported: {error}"

    try:
        [status] = driver.cuInit(0)
    except (RuntimeError, OSError):
        return None, "no NVIDIA driver is installed"
    if status != driver.CUresult.CUDA_SUCCESS:
        return None, f"the NVIDIA driver does not start ({status.name})"
    status, count = driver.cuDeviceGetCount()
    if status != driver.CUresult.CUDA_SUCCESS or count == 0:
        return None, "the NVIDIA driver shows no GPU"

    _, device = driver.cuDeviceGet(0)
    attribute = driver.CUdevice_attribute
    _, major = driver.cuDeviceGetAttribute(
        attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device
    )
    _, minor = driver.cuDeviceGetAttribute(
        attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device
    )
    _, raw_name = driver.cuDeviceGetName(128, device)
    name = f"{raw_name.split(bytes(1))[0].decode()} (compute capability {major}.{minor})"
    if (major, minor) < MINIMUM_COMPUTE_CAPABILITY:
        oldest = "{}.{}".format(*MINIMUM_COMPUTE_CAPABILITY)
        return None, f"{name} is older than compute capability {oldest}"

    try:
        load_nvidia_dynamic_lib("nvvm")
        load_nvidia_dynamic_lib("nvrtc")
    except (DynamicLibNotFoundError, RuntimeError):
        _, version = driver.cuDriverGetVersion()
        extra = "cu13" if version >= 13000 else "cu12"
        return None, (
            f"there is a {name}, but not the CUDA libraries that compile for it; "
            f"pip install 'numba-gemm[{extra}]' brings them"
        )
    return name, name


def _wish() -> tuple[Kind | None, str]:
    """What the environment asks for, and the variable that asks."""
    wanted = os.environ.get("NUMBA_GEMM_TARGET", "").strip().lower()
    for kind in get_args(Kind):
        if wanted == kind:
            return kind, f"NUMBA_GEMM_TARGET={kind}"
    if wanted:
        raise TargetError(f"NUMBA_GEMM_TARGET is {wanted!r}; it should be 'gpu' or 'simulator'")
    if numba.config.ENABLE_CUDASIM:
        return "simulator", "NUMBA_ENABLE_CUDASIM=1"
    if os.environ.get("NUMBA_ENABLE_CUDASIM"):
        return "gpu", f"NUMBA_ENABLE_CUDASIM={os.environ['NUMBA_ENABLE_CUDASIM']}"
    return None, ""


def _decide() -> Target:
    """Choose, and set Numba up accordingly."""
    numba.config.reload_config()  # the environment may have changed since numba was imported
    wanted, asked_by = _wish()
    if "numba.cuda" in sys.modules:
        return _accept(wanted, asked_by)

    if wanted is None or wanted == "gpu":
        gpu, found = find_gpu()
        if gpu:
            target = Target("gpu", f"kernels run on the GPU: {found}")
        elif wanted:
            raise TargetError(f"{asked_by} asks for a GPU, but {found}")
        else:
            target = Target("simulator", f"kernels run in Numba's CUDA simulator: {found}")
    elif wanted == "simulator":
        target = Target("simulator", f"kernels run in Numba's CUDA simulator: {asked_by}")
    else:
        target = Target("compiler", f"kernels are compiled but never run: {asked_by}")

    # Numba reads its configuration again whenever the environment changes, so the choice has to be
    # left there too.
    if target.is_simulator != bool(numba.config.ENABLE_CUDASIM):
        os.environ["NUMBA_ENABLE_CUDASIM"] = "1" if target.is_simulator else "0"
        numba.config.reload_config()
    return target


def _accept(wanted: Kind | None, asked_by: str) -> Target:
    """The program imported ``numba.cuda`` before us, so Numba has chosen: check that it will do."""
    from numba import cuda

    simulated = cuda.jit.__module__.startswith("numba.cuda.simulator")
    if wanted and simulated != (wanted == "simulator"):
        raise TargetError(
            f"{asked_by}, but the program had already imported numba.cuda "
            f"{'as' if simulated else 'without'} the simulator; import numba_gemm first"
        )
    if simulated:
        return Target("simulator", "kernels run in the CUDA simulator that the program imported")
    if wanted == "compiler":
        return Target("compiler", f"kernels are compiled but never run: {asked_by}")
    gpu, found = find_gpu()
    if not gpu:
        raise TargetError(
            f"the program had already imported numba.cuda to run on a GPU, but {found}; import "
            "numba_gemm first, or set NUMBA_ENABLE_CUDASIM=1 before Python starts, and kernels "
            "run in the simulator"
        )
    return Target("gpu", f"kernels run on the GPU: {found}")


@contextlib.contextmanager
def _without_cuda_runtime() -> Iterator[None]:
    """Let Numba be imported for the simulator where there is not even CUDA's runtime library.

    While it is imported, numba-cuda asks that library for its version, to choose a format of debug
    information, and fails where there is none.  The simulator has no use for the answer.
    """
    from cuda.bindings import runtime

    ask = runtime.getLocalRuntimeVersion
    try:
        ask()
    except RuntimeError:
        runtime.getLocalRuntimeVersion = lambda: (0, 0)
    try:
        yield
    finally:
        runtime.getLocalRuntimeVersion = ask


def _allocate_once() -> None:
    """Let all threads of a simulated block get the same shared array.

    The simulator tells shared arrays apart by the line that asks for one, and makes a new one for the
    first thread that comes.  Two that come at the same time may both be the first, and each gets an
    array of its own.  This does the same with a lock.
    """
    import numpy as np
    from numba.cuda.np import numpy_support
    from numba.cuda.simulator.kernelapi import FakeCUDAShared

    allocate, lock = FakeCUDAShared.array, threading.Lock()

    def array(self: Any, shape: Any, dtype: Any, alignment: int | None = None) -> Any:
        if alignment is not None or shape == 0:
            return allocate(self, shape, dtype, alignment)  # refused, or dynamic
        asking = sys._getframe(1)
        line = asking.f_code.co_filename, asking.f_lineno
        with lock:
            if line not in self._allocations:
                kind = dtype if isinstance(dtype, np.dtype | type) else numpy_support.as_dtype(dtype)
                self._allocations[line] = np.empty(shape, kind)
            return self._allocations[line]

    FakeCUDAShared.array = array


TARGET: Target = _decide()
"""Where kernels run in this process."""

if not os.environ.get("NUMBA_GEMM_QUIET"):
    print(f"numba_gemm: {TARGET.reason}", file=sys.stderr)

with _without_cuda_runtime() if TARGET.is_simulator else contextlib.nullcontext():
    from numba import cuda  # only now: importing it is what makes the choice final

if TARGET.is_simulator:
    _allocate_once()
