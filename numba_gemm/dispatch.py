"""The public multiply, and which rung serves it."""

from __future__ import annotations

from typing import Any

from . import device, harness
from .rung import Rung
from .rungs import LADDER

__all__ = ["gemm", "named"]


def named(name: str) -> Rung:
    """The rung of that name; ValueError where there is none."""
    for rung in LADDER:
        if rung.name == name:
            return rung
    known = ", ".join(rung.name for rung in LADDER)
    raise ValueError(f"there is no rung {name!r}; the ladder has {known}")


def highest() -> Rung:
    """The highest rung that the device can run; in the simulator, the highest.

    On a device that can run none it is the lowest, which then says what the device lacks.
    """
    gpu = device.current()
    if gpu is None:
        return LADDER[-1]
    able = [rung for rung in LADDER if rung.requires <= gpu.compute_capability]
    return able[-1] if able else LADDER[0]


def gemm(
    A: Any,
    B: Any,
    C: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    rung: str | Rung = "auto",
    stream: Any = None,
    verify: bool = False,
) -> Any:
    """General matrix multiply, ``C <- alpha * A @ B + beta * C``, in float32 on row-major matrices.

    Parameters
    ----------
    A, B
        Arrays of M x K and K x N, float32 and C-contiguous: NumPy arrays, Numba device arrays or, on a
        GPU, anything with ``__cuda_array_interface__``.  Any size, 0 included.
    C
        Array of M x N that is written in place; it may not share memory with A or B.  Where it is None
        a new one is made: a NumPy array where A and B are NumPy arrays, else a Numba device array.
    alpha, beta
        Real numbers, rounded to float32.  As in BLAS, alpha = 0 does not read A and B, and beta = 0
        does not read C, so that NaN in them does not matter.
    rung
        A rung of :data:`numba_gemm.LADDER` or its name; ``"auto"`` is the highest
        that the device can run.
    stream
        A Numba stream to work on; the default stream where it is None.
    verify
        Compare the result with numpy's in float64; see :func:`numba_gemm.harness.compare_with_numpy`.

    Returns
    -------
    C.  A NumPy C is complete; a device C is when the stream is.

    Raises
    ------
    TypeError
        For an unsupported array, a dtype other than float32, a scalar that is not a real number.
    ValueError
        For dimensions, sizes or strides that do not fit, a read-only C, a C that overlaps A or B,
        beta != 0 without C, an unknown rung.
    RuntimeError
        For a GPU that cannot run the rung (DeviceError), a wrong result (VerificationError).

    In each case but the last nothing is written to C.
    """
    if isinstance(rung, str):
        rung = highest() if rung == "auto" else named(rung)
    elif not isinstance(rung, Rung):
        raise TypeError(f"rung is a {type(rung).__name__}; it should be a name or a Rung")
    return harness.run(rung, A, B, C, alpha, beta, stream=stream, verify=verify)
