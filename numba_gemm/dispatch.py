"""The public multiply, and which kernel serves it.

A large C is cut into large tiles, a small one into more and smaller ones, a deep problem is divided
along k: no kernel is the fastest everywhere.  ``gemm(rung="auto")`` takes the one that was fastest when
something like it was measured on such a device (:mod:`numba_gemm.search.found`), or else the one that
the models expect to be (:mod:`numba_gemm.search.predict`), of a portfolio.  In the simulator, where
speed means nothing, it is the highest rung as it is.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from . import device, harness
from .model import devices
from .operands import Operands
from .problem import Problem
from .rung import Rung
from .rungs import LADDER, named
from .search import found, predict
from .search.portfolio import PORTFOLIO
from .search.space import Candidate, short
from .target import TARGET, cuda
from .tile import Tile

__all__ = ["Choice", "choose", "chosen_here", "explain", "forget", "gemm", "named"]

REMEMBERED = 4096
"""Shapes whose choice is remembered; the one that was not asked for longest is dropped."""


@dataclass(frozen=True)
class Choice:
    """The kernel for a multiply: a rung, a tile (None for the rung's own) and why."""

    rung: Rung
    tile: Tile | None
    reason: str

    def __str__(self) -> str:
        tile = self.tile or self.rung.tile
        return f"{self.rung.name} {short(tile)}" if tile else self.rung.name


def highest() -> Rung:
    """The highest rung that the device can run; in the simulator, the highest.

    On a device that can run none it is the lowest, which then says what the device lacks.
    """
    gpu = device.current()
    if gpu is None:
        return LADDER[-1]
    able = [rung for rung in LADDER if rung.requires <= gpu.compute_capability]
    return able[-1] if able else LADDER[0]


# Choosing -----------------------------------------------------------------------------------------


def choose(problem: Problem, gpu: devices.Gpu, aligned: bool = True) -> Choice:
    """The kernel for *problem* on *gpu*, which need not be there.

    *aligned* says that A, B and C begin at multiples of 16 bytes.  alpha and beta make no difference.
    Results for the shape's class (:func:`numba_gemm.search.found.shape_class`) decide, or else those for
    the same sizes with other rows; where there are none the model does, among the portfolio's tiles of
    the highest of its rungs that *gpu* can run.
    """
    if not problem.M * problem.N * problem.K:
        return Choice(_highest_on(gpu), None, "there is nothing to multiply")
    own, *others = found.classes(problem.M, problem.N, problem.K, aligned)
    for shape_class in (own, *others):
        for result in found.best(_results(gpu.name), shape_class):
            rung = _able(result.candidate, gpu)
            if rung:
                instead = "" if shape_class == own else f", in place of {own}"
                reason = f"fastest of those measured for {shape_class}{instead}: {_speed(result)}"
                return Choice(rung, result.candidate.tile, reason)
    expected = predictions(problem, gpu)
    if not expected:
        return Choice(_highest_on(gpu), None, f"the highest rung that the {gpu.name} can run")
    seconds, candidate = expected[0]
    return Choice(
        named(candidate.rung),
        candidate.tile,
        f"nothing measured for {own.partition(' ')[0]}; the model expects {seconds * 1e6:.4g} us, "
        f"the least of {len(expected)} tiles",
    )


def _speed(result: found.Found) -> str:
    """How fast it was, where, and beside cuBLAS if that was measured."""
    where = "{} x {} x {}".format(*result.shape)
    share = f", {result.cublas_seconds / result.seconds:.2f} x cuBLAS" if result.cublas_seconds else ""
    return f"{result.flops_per_second / 1e12:.2f} TFLOP/s{share} at {where}"


def predictions(problem: Problem, gpu: devices.Gpu) -> list[tuple[float, Candidate]]:
    """The portfolio's tiles of the highest rung that *gpu* can run, with predicted seconds, least first.

    The models say nothing of what sets rungs apart, so rungs are not compared by them.
    """
    able = [candidate for candidate in PORTFOLIO if _able(candidate, gpu)]
    ladder = [rung.name for rung in LADDER]
    top = max((ladder.index(candidate.rung) for candidate in able), default=None)
    rated = [
        (predict.candidate_seconds(candidate, problem, gpu), candidate)
        for candidate in able
        if ladder.index(candidate.rung) == top
    ]
    return sorted(rated, key=lambda pair: pair[0])


def _able(candidate: Candidate, gpu: devices.Gpu) -> Rung | None:
    """The candidate's rung, or None where *gpu* cannot run it or it does not take the tile."""
    try:
        rung = named(candidate.rung)
    except ValueError:  # found with another version
        return None
    if rung.requires > gpu.compute_capability:
        return None
    if candidate.tile is None:
        return rung
    if rung.why_illegal(candidate.tile) or predict.limits(candidate.tile, gpu):
        return None
    return rung


def _highest_on(gpu: devices.Gpu) -> Rung:
    able = [rung for rung in LADDER if rung.requires <= gpu.compute_capability]
    return able[-1] if able else LADDER[0]


@functools.lru_cache(maxsize=8)
def _results(name: str) -> tuple[found.Found, ...]:
    return tuple(found.load(name))


@functools.cache
def _gpu(ordinal: int) -> devices.Gpu | None:
    """The models' view of the device with that number; None where they do not know it."""
    try:
        gpu = devices.current()
        here = device.current()
        if gpu and here and gpu.name != here.name:
            return devices.named(here.name)
    except (RuntimeError, ValueError):
        return None
    return gpu


@functools.cache
def _several_gpus() -> bool:
    """Whether it has to be asked which one is in use, which costs more than to look up a choice."""
    return len(cuda.gpus) > 1


@functools.lru_cache(maxsize=REMEMBERED)
def _remembered(M: int, N: int, K: int, aligned: bool, ordinal: int) -> Choice:
    gpu = _gpu(ordinal)
    if gpu is None:
        return Choice(
            highest(), None, "the models do not know this GPU; the highest rung that it can run"
        )
    return choose(Problem(M, N, K), gpu, aligned)


def chosen_here(problem: Problem, aligned: bool = True) -> Choice:
    """:func:`choose` for the GPU at hand; in the simulator, the highest rung as it is.

    A choice is remembered for as long as the process lives, whatever is found meanwhile; :func:`forget`
    drops them all.
    """
    if not TARGET.is_gpu:
        return Choice(LADDER[-1], None, "the simulator has no speed: the highest rung")
    ordinal = cuda.current_context().device.id if _several_gpus() else 0
    return _remembered(problem.M, problem.N, problem.K, aligned, ordinal)


def forget() -> None:
    """Drop the choices and results that this process remembers, so that new results count."""
    _remembered.cache_clear()
    _results.cache_clear()
    _gpu.cache_clear()


def _for_operands(operands: Operands) -> tuple[Rung, Tile | None]:
    """What :func:`gemm` multiplies these with."""
    A, B, C = operands.A, operands.B, operands.C
    aligned = (
        (A.on_host or not A.address % 16)
        and (B.on_host or not B.address % 16)
        and (C is None or C.on_host or not C.address % 16)
    )
    choice = chosen_here(operands.problem, aligned)
    return choice.rung, choice.tile


def explain(problem: Problem, gpu: devices.Gpu, aligned: bool = True) -> str:
    """What :func:`choose` takes for *problem* on *gpu*, and what else there was: a few lines of text."""
    choice = choose(problem, gpu, aligned)
    M, N, K = problem.M, problem.N, problem.K
    lines = [f"{M} x {N} x {K} on the {gpu.name}: {choice}", f"  {choice.reason}"]
    if not M * N * K:
        return "\n".join(lines)
    lines += [
        "  Classes: each size counts as the power of two next to it; then whole, where M and N are",
        f"  multiples of {found.WHOLE} and K of {found.WHOLE_K}, aligned, where N and K are multiples of"
        f" {found.ALIGNED}, or else odd.",
    ]
    for shape_class in found.classes(M, N, K, aligned):
        results = found.best(_results(gpu.name), shape_class)
        if results:
            lines += ["", f"Measured for {shape_class}, the fastest tile of each rung:"]
        lines += [f"  {result.candidate!s:42} {_speed(result)}" for result in results]
    expected = predictions(problem, gpu)
    if expected:
        lines += ["", "What the model expects:"]
    for seconds, candidate in expected:
        speed = problem.product_flops / seconds / 1e12
        lines.append(f"  {candidate!s:42} {speed:7.2f} TFLOP/s, {seconds * 1e6:.4g} us")
    return "\n".join(lines)


# Multiplying --------------------------------------------------------------------------------------


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
        A rung of :data:`numba_gemm.LADDER` or its name; ``"auto"`` is the one, with the tile, that
        :func:`choose` takes for this shape on this GPU, and the highest in the simulator.
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
        chosen = _for_operands if rung == "auto" else named(rung)
    elif isinstance(rung, Rung):
        chosen = rung
    else:
        raise TypeError(f"rung is a {type(rung).__name__}; it should be a name or a Rung")
    return harness.run(chosen, A, B, C, alpha, beta, stream=stream, verify=verify)
