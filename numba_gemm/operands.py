"""What a caller may pass as A, B and C, checked before anything is launched or written.

A matrix is a C-contiguous, two-dimensional float32 array: a NumPy array, a Numba device array or, on a
GPU, any object with ``__cuda_array_interface__`` (CuPy, PyTorch, ...), whose stream is waited for.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np

from .model.roofline import FLOAT32_BYTES
from .problem import Problem
from .target import TARGET, cuda

__all__ = ["MAX_SIZE", "Operands", "address", "check", "scalar"]

FLOAT32 = np.dtype(np.float32)

MAX_SIZE = 2**31 - 2**17
"""The longest dimension: kernels count rows and columns in 31 bits, past the last tile's edge."""


@dataclass(frozen=True)
class Matrix:
    """One checked argument: its *name* in messages, the caller's *array* and what is known of it."""

    name: str
    array: Any
    shape: tuple[int, int]
    address: int
    on_host: bool

    @property
    def end(self) -> int:
        """The address just behind the last byte."""
        return self.address + FLOAT32_BYTES * math.prod(self.shape)

    def overlaps(self, other: Matrix) -> bool:
        """Whether the two share memory."""
        return max(self.address, other.address) < min(self.end, other.end)

    def to_device(self, stream: Any) -> Any:
        """The matrix as a Numba device array: the caller's own memory, or a copy of a NumPy array."""
        # Of a dimension of one, x[None] for example, the stride may be anything, and Numba takes a
        # stride of 0 for an array that is not contiguous.
        if self.on_host:
            rows_apart = FLOAT32_BYTES * self.shape[1], FLOAT32_BYTES
            array = np.lib.stride_tricks.as_strided(
                self.array, self.shape, rows_apart, subok=False, writeable=False
            )
            return cuda.to_device(array, stream=stream)
        if cuda.cudadrv.devicearray.is_cuda_ndarray(self.array) and (
            TARGET.is_simulator or 0 not in self.array.strides
        ):
            return self.array
        interface = {**self.array.__cuda_array_interface__, "strides": None}
        return cuda.from_cuda_array_interface(interface, owner=self.array)


@dataclass(frozen=True)
class Operands:
    """The arguments of one multiply, all of them legal.  C is None where it is to be made."""

    problem: Problem
    A: Matrix
    B: Matrix
    C: Matrix | None

    @property
    def on_host(self) -> bool:
        """Whether a new C belongs in host memory: no matrix was on the device."""
        return self.A.on_host and self.B.on_host


def check(A: Any, B: Any, C: Any = None, alpha: float = 1.0, beta: float = 0.0) -> Operands:
    """Check the arguments of ``C <- alpha * A @ B + beta * C`` without touching their elements.

    Raises TypeError for scalars that are not real numbers, for arrays of another kind and for dtypes
    other than float32; ValueError for dimensions, sizes, strides, a read-only C, a C that overlaps A or
    B, a scalar too large for float32, and beta != 0 without a C.
    """
    alpha, beta = scalar("alpha", alpha), scalar("beta", beta)
    a, b = _matrix("A", A), _matrix("B", B)
    c = None if C is None else _matrix("C", C, written=True)

    (M, K), (rows_of_B, N) = a.shape, b.shape
    if K != rows_of_B:
        raise ValueError(
            f"A is {M} x {K} and B is {rows_of_B} x {N}; "
            f"B should have as many rows as A has columns, {K}"
        )
    if c is None:
        if beta != 0:
            raise ValueError(f"beta is {beta:g} but there is no C to multiply by it; pass C")
    else:
        if c.shape != (M, N):
            raise ValueError(f"C is {c.shape[0]} x {c.shape[1]}; it should be {M} x {N}")
        for other in (a, b):
            if c.overlaps(other):
                raise ValueError(f"C shares memory with {other.name}; it should be an array of its own")
    return Operands(Problem(M, N, K, alpha, beta), a, b, c)


def scalar(name: str, value: Any) -> float:
    """A real number, rounded to the float32 that a kernel receives.

    Raises TypeError where it is none and ValueError where it does not fit.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is a {type(value).__name__}; it should be a real number")
    try:
        with np.errstate(over="ignore"):
            rounded = float(np.float32(float(value)))
    except OverflowError:  # an integer that may have too many digits to print
        raise ValueError(f"{name} is beyond even float64; it should fit in float32") from None
    if math.isinf(rounded) and value not in (math.inf, -math.inf):
        raise ValueError(f"{name} is {value}; it should fit in float32")
    return rounded


def address(array: Any) -> int:
    """Where the first element of a supported array lies."""
    return _interface("array", array)["data"][0] or 0


def _matrix(name: str, array: Any, written: bool = False) -> Matrix:
    """Check one array; *written* says that the kernel will write it."""
    interface = _interface(name, array)
    if interface.get("mask") is not None:
        raise TypeError(f"{name} is masked; it should be a plain array")

    dtype = np.dtype(interface["typestr"])
    if dtype != FLOAT32:
        raise TypeError(f"{name} has dtype {dtype}; it should be float32")
    shape = tuple(interface["shape"])
    if len(shape) != 2:
        raise ValueError(f"{name} has {len(shape)} dimension{'s'[: len(shape) != 1]}; it should have 2")
    if max(shape) > MAX_SIZE:
        raise ValueError(f"{name} is {shape[0]} x {shape[1]}; neither may be more than {MAX_SIZE}")
    strides = interface.get("strides")
    if strides is not None and not _c_contiguous(shape, strides):
        raise ValueError(
            f"{name} of shape {shape} has strides {tuple(strides)} in bytes; "
            "it should be C-contiguous, as numpy.ascontiguousarray makes it"
        )
    address, read_only = interface["data"]
    on_host = isinstance(array, np.ndarray)
    if not on_host and (address or 0) % FLOAT32_BYTES:
        raise ValueError(f"{name} begins at {address:#x}, which should be a multiple of {FLOAT32_BYTES}")
    if written and read_only:
        raise ValueError(f"{name} is read-only; it should be writable")
    return Matrix(name, array, shape, address or 0, on_host)


def _interface(name: str, array: Any) -> dict[str, Any]:
    """The array interface of a supported array, whichever side its memory is on."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} is a numpy.ma.MaskedArray; it should be a plain array")
    if isinstance(array, np.ndarray):
        return array.__array_interface__
    if TARGET.is_simulator and cuda.cudadrv.devicearray.is_cuda_ndarray(array):
        return dict(array._ary.__array_interface__)
    try:
        interface = getattr(array, "__cuda_array_interface__", None)
    except Exception as error:  # whatever its library raises: PyTorch, for one, for a gradient
        raise TypeError(f"{name} does not show its memory: {error}") from error
    if interface is None:
        raise TypeError(
            f"{name} is a {type(array).__module__}.{type(array).__qualname__}; it should be a NumPy "
            "array, a Numba device array or, on a GPU, have __cuda_array_interface__"
        )
    if not TARGET.is_gpu:
        raise TypeError(
            f"{name} lies in a GPU's memory, but {TARGET.reason}; it should be a NumPy array"
        )
    return dict(interface)


def _c_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether rows follow each other without a gap; strides of dimensions of one do not matter."""
    if 0 in shape:
        return True
    expected = FLOAT32_BYTES
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True
