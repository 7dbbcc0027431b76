"""The shared harness: every launch, grid and check of every rung goes through here.

:func:`run` is the one way in.  It is handed a rung and knows none by name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import device, operands
from .problem import Problem
from .simulator import in_turn
from .target import TARGET, TargetError, cuda
from .tile import MAX_THREADS

if TYPE_CHECKING:
    from .rung import Rung
    from .tile import Tile

    Choosing = Callable[[operands.Operands], tuple[Rung, Tile | None]]

__all__ = [
    "Check",
    "DeviceError",
    "Geometry",
    "Launch",
    "Reference",
    "Verification",
    "VerificationError",
    "between_launches",
    "check",
    "compare_with_numpy",
    "multiprocessors",
    "prepare",
    "random_operands",
    "run",
]

MAX_GRID_X = 2**31 - 1
MAX_GRID_YZ = 65535

SIMULATED_MULTIPROCESSORS = 2
"""Multiprocessors among which to divide work in the simulator, which has none."""


class DeviceError(RuntimeError):
    """This GPU cannot run the rung; the message says what it lacks."""


class VerificationError(RuntimeError):
    """A result is further from numpy's than rounding explains."""


# Launching -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Geometry:
    """The shape of a launch: blocks in the grid along x, y, z and threads in a block along x, y."""

    grid: tuple[int, int, int]
    block: tuple[int, int]

    @classmethod
    def cover(cls, x: tuple[int, int], y: tuple[int, int], block: tuple[int, int]) -> Geometry:
        """The grid whose blocks of *block* threads cover a matrix.

        *x* and *y* give, for each direction, the entries to cover and the entries that one block
        covers.  Blocks beyond the 65535 that fit in y go on in z, where
        :func:`numba_gemm.primitives.block_y` finds them.
        """
        across, down = (-(-entries // per_block) for entries, per_block in (x, y))
        layers = max(1, -(-down // MAX_GRID_YZ))
        grid = (across, -(-down // layers), layers)
        if across > MAX_GRID_X or layers > MAX_GRID_YZ:
            raise ValueError(f"{across} x {down} blocks are more than a grid can have")
        return cls(grid, block)

    @classmethod
    def line(cls, blocks: int, threads: int) -> Geometry:
        """A line of *blocks* with *threads* each, as many as fit in x."""
        if blocks > MAX_GRID_X:
            raise ValueError(f"{blocks} blocks are more than a grid can have in x")
        return cls((blocks, 1, 1), (threads, 1))

    @property
    def blocks(self) -> int:
        """Blocks in the grid; 0 where there is nothing to compute."""
        return math.prod(self.grid)

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return math.prod(self.block)

    def validate(self) -> None:
        """Raise ValueError where no GPU takes such a launch, which the simulator does."""
        most = (MAX_GRID_X, MAX_GRID_YZ, MAX_GRID_YZ)
        for name, size, limit in zip("xyz", self.grid, most, strict=True):
            if not 0 <= size <= limit:
                raise ValueError(f"the grid has {size} blocks in {name}; it can have 0 to {limit}")
        if min(self.block) < 1 or self.threads > MAX_THREADS:
            shape = " x ".join(map(str, self.block))
            raise ValueError(f"a block is {shape} threads; it can have 1 to {MAX_THREADS}")


_one_launch = threading.RLock()


def between_launches() -> contextlib.AbstractContextManager[Any]:
    """Hold off simulated launches, and wait for one that another thread has begun.

    The simulator keeps the launch in progress in a global, so launches take turns.  And meanwhile the
    module of the kernel sees a stand-in for :mod:`numba.cuda`, with which no kernel can be built and no
    array allocated there.
    """
    return _one_launch if TARGET.is_simulator else contextlib.nullcontext()


@contextlib.contextmanager
def _simulated() -> Iterator[None]:
    """Make room for a launch in the simulator.

    At a barrier its scheduler polls until every thread has arrived, holding the interpreter for a whole
    switch interval each time: with a tenth of the usual 5 ms, small blocks take a fifth of the time.
    """
    with between_launches():
        interval = sys.getswitchinterval()
        sys.setswitchinterval(min(interval, 0.0005))
        try:
            yield
        finally:
            sys.setswitchinterval(interval)


@dataclass(frozen=True)
class Launch:
    """A kernel, its geometry and its arguments: call it to queue it once more.

    *then* is a launch to queue behind it, for work that takes several.
    """

    kernel: Any
    geometry: Geometry
    stream: Any
    arguments: tuple[Any, ...]
    then: Launch | None = None

    @property
    def count(self) -> int:
        """How many launches this is, with those behind it."""
        return 1 + (self.then.count if self.then else 0)

    def __call__(self) -> None:
        """Queue the kernel; an empty grid is nothing to do."""
        if self.geometry.blocks:
            if TARGET.is_simulator:
                with _simulated():
                    self._configured()(*self.arguments)
            else:
                self._configured_once(*self.arguments)
        if self.then:
            self.then()

    def _configured(self) -> Any:
        """The kernel with its launch geometry and stream."""
        with warnings.catch_warnings():
            # Numba warns of grids that leave multiprocessors idle; a small C has no larger one.
            warnings.filterwarnings("ignore", message=".*Grid size")
            return self.kernel[self.geometry.grid, self.geometry.block, self.stream]

    @functools.cached_property
    def _configured_once(self) -> Any:
        return self._configured()


def prepare(
    rung: Rung,
    A: Any,
    B: Any,
    C: Any,
    problem: Problem,
    *,
    tile: Tile | None = None,
    stream: Any = 0,
) -> Launch:
    """Make a launch of *rung* on checked device arrays, ready to be repeated.

    Raises TileError for an illegal tile, DeviceError for a GPU older than the rung requires.
    """
    kernel = rung.build(tile)
    if TARGET.is_gpu:
        capability = cuda.get_current_device().compute_capability
        if tuple(capability) < rung.requires:
            raise DeviceError(
                f"{rung.name} needs compute capability {_dotted(rung.requires)}; "
                f"this GPU has {_dotted(capability)}"
            )
    # With no k to sum over, alpha multiplies nothing: 0 keeps inf * 0 out of C, as BLAS has it.
    alpha = problem.alpha if problem.K else 0.0
    arguments = (A, B, C, np.float32(alpha), np.float32(problem.beta))
    if rung.split is None or not problem.M * problem.N:
        return Launch(kernel, rung.geometry(problem.M, problem.N, tile), stream, arguments)
    launch = None
    with between_launches():
        parts = rung.split(*arguments, tile or rung.tile, multiprocessors(), stream)
    for kernel, geometry, args in reversed(parts):
        launch = Launch(kernel, geometry, stream, args, launch)
    assert launch is not None
    return launch


def multiprocessors() -> int:
    """Multiprocessors among which a launch divides its work."""
    gpu = device.current()
    return gpu.multiprocessors if gpu else SIMULATED_MULTIPROCESSORS


def _dotted(capability: tuple[int, int]) -> str:
    return "{}.{}".format(*capability)


def run(
    rung: Rung | Choosing,
    A: Any,
    B: Any,
    C: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    tile: Tile | None = None,
    stream: Any = None,
    verify: bool = False,
) -> Any:
    """``C <- alpha * A @ B + beta * C`` with *rung*; returns C.

    Instead of a rung it may be a function that chooses one, and its tile, when it is given the checked
    operands; *tile* then does not count.

    A, B and C are what :mod:`numba_gemm.operands` accepts.  NumPy arrays are copied to the device and
    a NumPy C is written in place before the call returns.  Device arrays are used where they are, and
    the call returns as soon as the work is queued on *stream*, a Numba stream (the default one where
    it is None).  Without C a new one is made: a NumPy array where A and B are, else a Numba device
    array.  With *verify*, the result is compared with numpy's in float64 (see
    :func:`compare_with_numpy`).

    Raises what :func:`numba_gemm.operands.check` and :func:`prepare` raise, before anything is
    written; VerificationError where the result is wrong.
    """
    if TARGET.kind == "compiler":
        raise TargetError(f"nothing can be launched: {TARGET.reason}")
    checked = operands.check(A, B, C, alpha, beta)
    problem = checked.problem
    if not (stream is None or hasattr(stream, "synchronize")):
        raise TypeError(f"stream is a {type(stream).__name__}; it should be a Numba stream")
    stream = stream or 0
    if callable(rung):
        rung, tile = rung(checked)
    rung.build(tile)  # refuses an illegal tile before anything is copied

    device_A, device_B = checked.A.to_device(stream), checked.B.to_device(stream)
    copy_back = checked.C.on_host if checked.C else checked.on_host
    if checked.C and (problem.beta != 0 or not checked.C.on_host):
        device_C = checked.C.to_device(stream)
    else:
        device_C = cuda.device_array((problem.M, problem.N), np.float32, stream=stream)
    launch = prepare(rung, device_A, device_B, device_C, problem, tile=tile, stream=stream)

    C0 = None
    if verify and problem.beta != 0:
        C0 = _to_host(device_C, stream)
    elif verify:  # so that neither an entry that is not written nor one that is read can hide
        device_C.copy_to_device(np.full(device_C.shape, np.nan, np.float32), stream=stream)

    launch()
    if copy_back:
        result = np.empty((problem.M, problem.N), np.float32) if C is None else C
        np.copyto(np.asarray(result), _to_host(device_C, stream))
    else:
        result = device_C if C is None else C
    if verify:
        host_A, host_B, host_C = (_to_host(x, stream) for x in (device_A, device_B, device_C))
        _raise_if_wrong(rung.name, compare_with_numpy(problem, host_A, host_B, host_C, C0))
    return result


def _to_host(array: Any, stream: Any) -> np.ndarray:
    """A copy of a device array in host memory, complete when this returns."""
    host: np.ndarray = array.copy_to_host(stream=stream)
    if stream:
        stream.synchronize()
    return host


# Checking ------------------------------------------------------------------------------------------

UNIT_ROUNDOFF = 2.0**-24
SMALLEST_SUBNORMAL = 2.0**-149
LARGEST = float(np.finfo(np.float32).max)

CHECK_ALL_BELOW = 2**31
"""Multiply-adds up to which every entry is checked; above, whole rows and columns are sampled."""

SAMPLED_EDGE = 256
"""Rows and columns sampled at either end: as many as the largest tile has."""

SAMPLED_INSIDE = 64
"""Rows and columns sampled between the ends, at random."""


@dataclass(frozen=True)
class Verification:
    """How a result compares with numpy's.

    ``worst`` is the largest error as a fraction of what rounding may amount to in that entry (infinite
    where an entry is NaN that should not be), ``where`` that entry, ``entries`` how many were compared.
    """

    worst: float
    where: tuple[int, int]
    entries: int

    @property
    def passed(self) -> bool:
        """Whether every entry compared lies within its bound."""
        return self.worst <= 1


def compare_with_numpy(
    problem: Problem,
    A: np.ndarray,
    B: np.ndarray,
    C: np.ndarray,
    C0: np.ndarray | None = None,
    seed: int = 0,
) -> Verification:
    """Compare *C* with ``alpha * A @ B + beta * C0`` computed by numpy in float64, entry by entry.

    The bound of an entry is ``gamma * (|alpha| |A| |B| + |beta| |C0|)`` with
    ``gamma = (K + 3) u / (1 - (K + 3) u)`` and ``u = 2^-24``: the worst that K products, their sum,
    two scalings and an addition can lose in float32, in any order (N. J. Higham, Accuracy and
    Stability of Numerical Algorithms, section 3.5), plus half a smallest subnormal number for each
    operation that may underflow.  A wrong element cannot hide in it as it can in a norm.

    Above 2^31 multiply-adds, whole rows and columns are sampled: the first and last 256 and 64 at
    random (*seed*) in each direction.  NaN and infinity have to be where numpy has them; where the
    terms together are more than float32 holds, any of them may be.

    Raises ValueError where C has another shape than the problem, or beta != 0 has no C0.
    """
    _refuse_shape(problem, C)
    return Reference(problem, A, B, C0, seed).compare(C)


def _refuse_shape(problem: Problem, C: np.ndarray) -> None:
    if C.shape != (problem.M, problem.N):
        raise ValueError(f"C is of shape {C.shape}; it should be {problem.M} x {problem.N}")


class Reference:
    """numpy's result for one problem, computed once and compared with any number of others.

    See :func:`compare_with_numpy` for what is computed and what is raised.
    """

    def __init__(
        self,
        problem: Problem,
        A: np.ndarray,
        B: np.ndarray,
        C0: np.ndarray | None = None,
        seed: int = 0,
    ) -> None:
        if problem.beta != 0 and C0 is None:
            raise ValueError(f"beta is {problem.beta:g} but C0, which it multiplies, is missing")
        self.problem = problem
        every = slice(None)
        parts: list[tuple[Any, Any]] = []
        if problem.M * problem.N * problem.K <= CHECK_ALL_BELOW:
            parts = [(every, every)]
        else:
            rng = np.random.default_rng(seed)
            parts = [(_sample(problem.M, rng), every), (every, _sample(problem.N, rng))]
        self._parts = []
        for rows, cols in parts if problem.M * problem.N else ():
            exact = _exact(problem, A[rows], B[:, cols], None if C0 is None else C0[rows, cols])
            self._parts.append((rows, cols, *exact))

    def wrong(self, C: np.ndarray) -> list[tuple[int, int, float]]:
        """The entries of *C* compared that rounding does not explain, and what they should be.

        Row by row.  ValueError where C has another shape than the problem.
        """
        _refuse_shape(self.problem, C)
        found = {}
        for rows, cols, exact, bound, overflows in self._parts:
            error = _error_over_bound(C[rows, cols], exact, bound, overflows)
            for i, j in np.argwhere(error > 1):
                row = int(i) if isinstance(rows, slice) else int(rows[i])
                col = int(j) if isinstance(cols, slice) else int(cols[j])
                found[row, col] = float(exact[i, j])
        return [(row, col, found[row, col]) for row, col in sorted(found)]

    def compare(self, C: np.ndarray) -> Verification:
        """Compare *C* with it; ValueError where C has another shape than the problem."""
        _refuse_shape(self.problem, C)
        if C.size == 0:
            return Verification(0.0, (0, 0), 0)
        found = []
        for rows, cols, exact, bound, overflows in self._parts:
            error = _error_over_bound(C[rows, cols], exact, bound, overflows)
            i, j = np.unravel_index(np.argmax(error), error.shape)
            row = int(i) if isinstance(rows, slice) else int(rows[i])
            col = int(j) if isinstance(cols, slice) else int(cols[j])
            found.append(Verification(float(error[i, j]), (row, col), error.size))
        worst = max(found, key=lambda part: part.worst)
        return Verification(worst.worst, worst.where, sum(part.entries for part in found))


def _sample(size: int, rng: np.random.Generator) -> np.ndarray:
    """Indices of the first and last rows (or columns) and of some between, in order."""
    if size <= 2 * SAMPLED_EDGE + SAMPLED_INSIDE:
        return np.arange(size)
    inside = rng.integers(SAMPLED_EDGE, size - SAMPLED_EDGE, SAMPLED_INSIDE)
    ends = np.r_[0:SAMPLED_EDGE, size - SAMPLED_EDGE : size]
    return np.unique(np.r_[ends, inside])


def _exact(
    problem: Problem, A: np.ndarray, B: np.ndarray, C0: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The result in float64, what rounding may amount to, and where a sum may overflow on the way."""
    shape = A.shape[0], B.shape[1]
    exact = np.zeros(shape)
    magnitude = np.zeros(shape)
    overflows = np.zeros(shape, bool)
    nu = (problem.K + 3) * UNIT_ROUNDOFF
    alpha, beta = np.float64(problem.alpha), np.float64(problem.beta)
    with np.errstate(all="ignore"):
        if problem.reads_operands:
            wide_A, wide_B = A.astype(np.float64), B.astype(np.float64)
            exact += alpha * (wide_A @ wide_B)
            terms = np.abs(wide_A) @ np.abs(wide_B)
            overflows |= np.isfinite(terms) & (terms > LARGEST)
            magnitude += abs(alpha) * terms
        if problem.beta != 0:
            assert C0 is not None
            exact += beta * C0.astype(np.float64)
            magnitude += abs(beta) * np.abs(C0.astype(np.float64))

        # Past 2^23 terms the usual bound grows without limit; n u holds for a sum of any length
        # (C.-P. Jeannerod and S. M. Rump, 2013), and twice that continues it without a step.
        gamma = nu / (1 - nu) if nu < 0.5 else 2 * nu
        underflow = SMALLEST_SUBNORMAL / 2 * (problem.K + 3) * (1 + abs(alpha))
        # Where the terms add up to more than float32 holds, a partial sum may overflow on the way.
        overflows |= np.isfinite(magnitude) & (magnitude > LARGEST)
        return exact, gamma * magnitude + underflow, overflows


def _error_over_bound(
    C: np.ndarray, exact: np.ndarray, bound: np.ndarray, overflows: np.ndarray
) -> np.ndarray:
    """Error over bound of every entry of *C*; infinite where no rounding explains it."""
    with np.errstate(all="ignore"):
        ratio: np.ndarray = np.abs(C.astype(np.float64) - exact) / bound
    ratio[np.isnan(ratio)] = np.inf
    same = (C == exact) | (np.isnan(C) & np.isnan(exact))
    ratio[same | (overflows & ~np.isfinite(C))] = 0
    return ratio


def _raise_if_wrong(name: str, outcome: Verification) -> None:
    if not outcome.passed:
        raise VerificationError(
            f"{name}: the entry at {outcome.where} is {outcome.worst:.3g} times as far from numpy's "
            "as rounding can explain"
        )


def random_operands(
    M: int, N: int, K: int, seed: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fresh random A, B and C in float32, uniform between -1 and 1."""
    rng = np.random.default_rng(seed)
    A, B, C = (2 * rng.random(shape, dtype=np.float32) - 1 for shape in ((M, K), (K, N), (M, N)))
    return A, B, C


# A reader's own kernel -----------------------------------------------------------------------------

GUARD_ROWS = 4
"""Rows above and below C, in the same array, that a kernel has no business with: as many as keep C at
an address that is a multiple of 16 bytes."""

GUARD = np.float32(-7.25e7)
UNTOUCHED = np.float32(6.125e7)
"""What stands there, and what is put into C to see whether a kernel writes to an entry at all."""

WIDEST = 1024
"""The widest block tile that :func:`check` looks for."""

UNKNOWN_SIDE = 32
"""What it takes for a side of the block tile where the grid does not depend on that side of C."""

CROWD = 40, 3000
"""Block tiles along a side of C where :func:`check` crowds a GPU with blocks, and entries at most."""


@dataclass(frozen=True, repr=False)
class Check:
    """What :func:`check` found: true where the kernel is right.

    ``message`` says it in one line, ``problem`` is the one that went wrong or, of a kernel that is
    right, the last; ``where`` is the first wrong entry, row by row, and None where there is none or
    where something else is wrong than the entries of C.  ``worst`` is the largest error as a fraction
    of what rounding may amount to.
    """

    message: str
    passed: bool
    problem: Problem
    where: tuple[int, int] | None
    worst: float

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return self.message


def check(
    kernel: Any,
    geometry: Rung | Callable[[int, int], Geometry],
    *,
    tile: Tile | None = None,
    shapes: Sequence[tuple[int, int, int]] | None = None,
    seed: int | None = None,
) -> Check:
    """Run a kernel of your own on random input and compare every entry with numpy's.

    kernel
        A ``@cuda.jit`` kernel with the arguments ``(A, B, C, alpha, beta)``, as the rungs have them.
    geometry
        The grid and block it wants: a function of M and N that returns a :class:`Geometry`, or a rung
        whose kernel is launched alike, with *tile* in place of its own.
    shapes
        M, N and K of the problems, the first with several alphas and betas.  By default four: one past
        a tile in each direction, with a K that few numbers divide; exactly one tile; a single entry; no
        k at all.  On a GPU a large one follows, whose blocks compete, so that races come to light.
    seed
        Of the random input; a fresh one where it is None.

    Where beta is 0, C is NaN before.  The rows above and below C are looked after, and so are A and B.
    In the simulator, threads run one at a time and shared memory begins as NaN
    (:mod:`numba_gemm.simulator`), so that a barrier too few is seen every time.  On a GPU it is seen
    where warps happen to be unlucky, which one alone hardly is; compute-sanitizer looks there.  Not seen
    in the simulator are a barrier that some threads do not reach and too much shared memory.

    Returns a :class:`Check`, also where the kernel raised an error in the simulator.  Raises TypeError
    for a kernel or a geometry that is none, ValueError for no shapes and for a launch that no GPU takes,
    TargetError where nothing can be launched, and what a GPU raises.
    """
    if not hasattr(kernel, "py_func"):
        raise TypeError(f"kernel is a {type(kernel).__name__}; it should be made by cuda.jit")
    if TARGET.kind == "compiler":
        raise TargetError(f"nothing can be launched: {TARGET.reason}")
    asked: Callable[[int, int], Geometry]
    if callable(geometry):
        asked = geometry
        if tile is not None:
            raise TypeError("tile is for a rung; a function of M and N knows its own")
    elif hasattr(geometry, "geometry"):
        asked = functools.partial(geometry.geometry, tile=tile)
    else:
        raise TypeError(f"geometry is a {type(geometry).__name__}; it should be a function or a rung")

    def cover(M: int, N: int) -> Geometry:
        found = asked(M, N)
        if not isinstance(found, Geometry):
            raise TypeError(f"geometry({M}, {N}) is a {type(found).__name__}; it should be a Geometry")
        found.validate()
        return found

    wanted = [tuple(shape) for shape in (_shapes(cover, TARGET.is_gpu) if shapes is None else shapes)]
    if not wanted:
        raise ValueError("shapes is empty; it should have at least one")
    for shape in wanted:
        if len(shape) != 3:
            raise ValueError(f"shapes has {shape}; each should be M, N and K")
    seed = int(np.random.default_rng().integers(2**32)) if seed is None else seed
    problems = [Problem(M, N, K) for M, N, K in wanted]
    problems[1:1] = [dataclasses.replace(problems[0], alpha=alpha, beta=-0.5) for alpha in (0.75, 0.0)]
    worst, entries = 0.0, 0
    for problem in problems:
        for backwards in (False, True) if problem == problems[0] and TARGET.is_simulator else (False,):
            with in_turn(backwards=backwards):
                outcome = _check_one(kernel, cover(problem.M, problem.N), problem, seed)
            if isinstance(outcome, Check):
                return outcome
            worst, entries = max(worst, outcome.worst), entries + outcome.entries
    message = (
        f"{kernel.py_func.__name__} is right: {len(problems)} problems, {entries} entries, the largest "
        f"error is {worst:.2f} of what rounding may amount to"
    )
    return Check(message, True, problems[-1], None, worst)


def _shapes(cover: Callable[[int, int], Geometry], crowded: bool) -> list[tuple[int, int, int]]:
    """The problems of :func:`check` where none are named; *crowded* adds one of many blocks.

    That is left out where the grid does not grow with C: there is no crowd, and much to do for each.
    """
    rows, cols = _block_tile(cover)
    shapes = [(rows + 1, cols + 1, 37), (rows, cols, 32), (1, 1, 1), (rows, 1, 0)]
    crowd = _crowd(rows, cols)
    if crowded and cover(*crowd).blocks > cover(1, 1).blocks:
        shapes.append((*crowd, 3001))
    return shapes


def _crowd(rows: int, cols: int) -> tuple[int, int]:
    """A C of more blocks of *rows* x *cols* than a GPU runs at once, but for very large ones."""
    tiles, most = CROWD
    down, across = (size * max(1, min(tiles, most // size)) + 1 for size in (rows, cols))
    return down, across


def _block_tile(cover: Callable[[int, int], Geometry]) -> tuple[int, int]:
    """Rows and columns of C that one block covers, found by asking for grids."""
    one = cover(1, 1).blocks
    widest = range(1, WIDEST + 1)
    rows = next((n for n in widest if cover(n + 1, 1).blocks > one), UNKNOWN_SIDE)
    cols = next((n for n in widest if cover(1, n + 1).blocks > one), UNKNOWN_SIDE)
    return rows, cols


def _check_one(kernel: Any, geometry: Geometry, problem: Problem, seed: int) -> Check | Verification:
    """One problem: what is wrong, or how the result compares."""
    A, B, C0 = random_operands(problem.M, problem.N, problem.K, seed)
    if problem.beta == 0:
        C0.fill(np.nan)
    if problem.alpha == 0:
        A.fill(np.nan)

    def wrong(what: str, where: tuple[int, int] | None = None, worst: float = math.inf) -> Check:
        message = (
            f"{kernel.py_func.__name__} is wrong at {problem.M} x {problem.N} x {problem.K}, "
            f"alpha = {problem.alpha:g}, beta = {problem.beta:g}: {what}"
        )
        return Check(message, False, problem, where, worst)

    try:
        C, trespass = _launch_guarded(kernel, geometry, problem, A, B, C0)
    except Exception as error:
        if not TARGET.is_simulator:
            raise
        return wrong(f"it raised {type(error).__name__}: {error}")
    if trespass:
        return wrong(trespass)
    reference = Reference(problem, A, B, C0, seed)
    outcome = reference.compare(C)
    if outcome.passed:
        return outcome
    bad = reference.wrong(C)
    row, col, exact = bad[0]
    is_there = float(C[row, col])
    what = f"C[{row}, {col}] is {is_there:.6g} and should be {exact:.6g}"
    if math.isfinite(is_there):
        what += f", {abs(is_there - exact):.3g} off"
    elif problem.alpha == 0:
        what += ", as if A, which is NaN, were read although alpha is 0"
    elif problem.beta == 0:
        again, _ = _launch_guarded(kernel, geometry, problem, A, B, np.full_like(C0, UNTOUCHED))
        if again[row, col] == UNTOUCHED:
            what += ": it is not written"
        elif math.isfinite(again[row, col]):
            what += ", as if C, which was NaN, were read although beta is 0"
    if len(bad) > 1:
        rows, cols = ({entry[i] for entry in bad} for i in (0, 1))
        alone = f"row {row}" if len(rows) == 1 else f"column {col}" if len(cols) == 1 else ""
        what += f"; {len(bad)} of {outcome.entries} entries are wrong" + (
            f", all in {alone}" if alone else ""
        )
    return wrong(what, (row, col), outcome.worst)


def _launch_guarded(
    kernel: Any, geometry: Geometry, problem: Problem, A: np.ndarray, B: np.ndarray, C0: np.ndarray
) -> tuple[np.ndarray, str]:
    """C after a launch, and what else was written to, in words."""
    around = np.full((problem.M + 2 * GUARD_ROWS, problem.N), GUARD)
    inside = slice(GUARD_ROWS, GUARD_ROWS + problem.M)
    around[inside] = C0
    checked = operands.check(A, B, None, problem.alpha, 0.0)
    device_A, device_B = checked.A.to_device(0), checked.B.to_device(0)
    device_C = cuda.to_device(around)
    scalars = np.float32(problem.alpha if problem.K else 0), np.float32(problem.beta)
    Launch(kernel, geometry, 0, (device_A, device_B, device_C[inside], *scalars))()
    after = device_C.copy_to_host()
    for name, array, before in (("A", device_A, A), ("B", device_B, B)):
        if not np.array_equal(array.copy_to_host(), before, equal_nan=True):
            return after[inside], f"it changed {name}"
    outside = np.delete(after, inside, axis=0)
    if not np.all(outside == GUARD):
        return after[inside], "it wrote to memory above or below C"
    return after[inside], ""
