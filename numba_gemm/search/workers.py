"""What the processes of a search do: some compile and have no GPU, one times and has it to itself.

Compiling takes seconds and every core; timing wants a quiet device.  So kernels are compiled as
:mod:`numba_gemm.codegen` does it, on a machine with or without a GPU, and travel to the process that
times as machine code inside Numba's own kernel objects, pickled.  Those are put where Numba would have
put its own after compiling: the launch then finds them and compiles nothing.

Where kernels run is decided when the rest of the package is imported, so nothing of it is imported
before ``start_compiler`` or ``start_timer`` has said which.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from ..harness import Launch
    from ..problem import Problem
    from .journal import Shape
    from .space import Candidate

__all__ = [
    "Compiled",
    "compile_candidate",
    "race",
    "race_cublas",
    "start_compiler",
    "start_timer",
    "verify",
]


@dataclass(frozen=True)
class Compiled:
    """The kernels of one candidate, pickled, and for each shape those that its launches use, in order.

    A kernel stands with the types of its arguments.
    """

    kernels: tuple[bytes, ...]
    launches: dict[Shape, tuple[int, ...]]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the line that says where kernels run off a terminal on which a progress bar is drawn."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        yield


def _launches(launch: Launch | None) -> Iterator[Launch]:
    """A launch and those behind it, but for empty ones."""
    while launch:
        if launch.geometry.blocks:
            yield launch
        launch = launch.then


# Compiling ----------------------------------------------------------------------------------------


def start_compiler(capability: tuple[int, int], multiprocessors: int, path: tuple[str, ...]) -> None:
    """Make this process one that compiles for a GPU which it does not have.

    *path* is the caller's ``sys.path``.
    """
    sys.path[:] = path
    os.nice(5)  # whoever times goes first
    os.environ.pop("NUMBA_ENABLE_CUDASIM", None)
    os.environ["NUMBA_GEMM_TARGET"] = "compiler"
    with _quiet():
        from .. import target
    from numba.cuda import dispatcher
    from numba.cuda.cudadrv import devices

    from .. import device

    assert target.TARGET.kind == "compiler"
    # Numba asks the device for its compute capability, and the harness for its multiprocessors.
    stand_in = SimpleNamespace(compute_capability=capability, id=0)
    dispatcher.get_current_device = lambda: stand_in
    devices.get_context = lambda *_: SimpleNamespace(device=stand_in)
    device.current = lambda: device.Device("", capability, multiprocessors, 1.0)
    target.cuda.device_array = lambda shape, dtype, stream=0: _no_memory(shape)


def _no_memory(shape: tuple[int, ...]) -> np.ndarray:
    """A float32 matrix of *shape* that has an address but no memory to speak of; never touched."""
    import numpy as np

    base = np.zeros(64, np.float32)
    base = base[-(base.ctypes.data // 4) % 64 :]
    return np.lib.stride_tricks.as_strided(base, shape, (4 * shape[1], 4))


def compile_candidate(candidate: Candidate, shapes: tuple[Shape, ...]) -> Compiled:
    """Compile every kernel that *candidate* launches for *shapes*.

    Raises whatever Numba, libNVVM or nvJitLink raise.
    """
    import numpy as np
    from numba import cuda
    from numba.core import serialize
    from numba.cuda import dispatcher

    from .. import harness
    from ..problem import Problem
    from ..rungs import named
    from .orders import reordered

    rung = reordered(named(candidate.rung), candidate.tile, candidate.order)
    matrix = cuda.types.float32[:, ::1]
    indices: dict[tuple[int, tuple[Any, ...]], int] = {}
    kernels: list[bytes] = []
    launches: dict[Shape, tuple[int, ...]] = {}
    for M, N, K in shapes:
        A, B, C = _no_memory((M, K)), _no_memory((K, N)), _no_memory((M, N))
        chain = harness.prepare(rung, A, B, C, Problem(M, N, K), tile=candidate.tile)
        mine = []
        for launch in _launches(chain):
            types = tuple(
                matrix
                if isinstance(argument, np.ndarray)
                else dispatcher.typeof(argument, dispatcher.Purpose.argument)
                for argument in launch.arguments
            )
            key = id(launch.kernel), types
            if key not in indices:
                indices[key] = len(kernels)
                kernel = dispatcher._Kernel(launch.kernel.py_func, types, **launch.kernel.targetoptions)
                library = kernel._codelibrary
                library.get_cubin()
                library._llvm_strs, library._ptx_cache = [], {}  # the machine code is enough
                kernels.append(serialize.dumps((types, kernel)))
            mine.append(indices[key])
        launches[M, N, K] = tuple(mine)
    return Compiled(tuple(kernels), launches)


# Timing -------------------------------------------------------------------------------------------


@dataclass
class _Operands:
    """A, B and C of one shape on the host and on the device: those of the last call are kept."""

    shape: Shape
    seed: int
    problem: Problem
    host: tuple[Any, Any, Any]
    device: tuple[Any, Any, Any]


_last: _Operands | None = None


def start_timer(path: tuple[str, ...]) -> None:
    """Make this process the one that times.  *path* is the caller's ``sys.path``."""
    sys.path[:] = path
    with _quiet():
        from .. import target  # noqa: F401  decides


def _operands(shape: Shape, seed: int) -> _Operands:
    global _last
    if _last is None or (_last.shape, _last.seed) != (shape, seed):
        _last = None  # makes room
        from .. import harness
        from ..problem import Problem
        from ..target import cuda

        host = harness.random_operands(*shape, seed)
        _last = _Operands(
            shape, seed, Problem(*shape), host, tuple(cuda.to_device(array) for array in host)
        )
    return _last


def _prepare(candidate: Candidate, compiled: Compiled | None, operands: _Operands) -> Launch:
    """The launch of *candidate*, with the kernels that were compiled for it."""
    from .. import harness
    from ..rungs import named
    from .orders import reordered

    rung = reordered(named(candidate.rung), candidate.tile, candidate.order)
    launch = harness.prepare(rung, *operands.device, operands.problem, tile=candidate.tile)
    if compiled:
        chain = list(_launches(launch))
        for part, index in zip(chain, compiled.launches[operands.shape], strict=True):
            types, kernel = pickle.loads(compiled.kernels[index])
            if types not in part.kernel.overloads:
                kernel.bind()
                part.kernel.add_overload(kernel, types)
    return launch


def race(
    candidate: Candidate, compiled: Compiled | None, shape: Shape, seed: int, rounds: int
) -> tuple[float, ...]:
    """Device time of one launch, in seconds, for each of *rounds*; compiles what is not compiled."""
    from .. import timing

    launch = _prepare(candidate, compiled, _operands(shape, seed))
    return timing.device_time(launch, rounds=rounds).rounds


def race_cublas(shape: Shape, seed: int, rounds: int) -> tuple[float, ...]:
    """The same of cuBLAS.  Raises CublasMissingError where there is none."""
    from .. import cublas, timing

    return timing.device_time(cublas.prepare(*_operands(shape, seed).device), rounds=rounds).rounds


def verify(candidate: Candidate, compiled: Compiled | None, shape: Shape, seed: int) -> str | None:
    """Run *candidate* into a C of NaN and compare with numpy; what is wrong, or None."""
    import numpy as np

    from .. import harness

    operands = _operands(shape, seed)
    A, B, C = operands.host
    device_C = operands.device[2]
    device_C.copy_to_device(np.full_like(C, np.nan))
    _prepare(candidate, compiled, operands)()
    outcome = harness.compare_with_numpy(operands.problem, A, B, device_C.copy_to_host(), seed=seed)
    if outcome.passed:
        return None
    return f"the entry at {outcome.where} is {outcome.worst:.3g} times as far off as rounding explains"
