"""Look into a kernel while it runs, which no GPU lets you do: registers, shared tiles, races, banks.

Both functions take a launch as a function without arguments, run it in the simulator one thread at a
time (:mod:`numba_gemm.simulator`) and say what they saw::

    run = lambda: tiled2d.gemm(A, B, tile=Tile(8, 8, 8))
    seen = debugging.look(run, thread=(2, 1), line="total +=", visit=4)
    seen.registers["total"], seen.shared["As"]

    debugging.watch(run, without_barrier=1).races  # who reads what others have not stored
    debugging.watch(run).requests(warp=0)  # and which banks each request meets

On a GPU they raise :class:`SimulatorOnlyError`.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from .model.banks import Access
from .model.occupancy import WARP
from .simulator import Observer, Site, in_turn, kernel_frames
from .target import TARGET

__all__ = [
    "Race",
    "Request",
    "SimulatorOnlyError",
    "Stop",
    "Watch",
    "look",
    "simulator_only",
    "watch",
]

FLOAT_BYTES = 4
PRIMITIVES = str(Path(__file__).parent / "primitives")


class SimulatorOnlyError(RuntimeError):
    """This looks into threads as Python runs them, and here they run on a GPU."""


def _require_simulator(caller: str) -> None:
    if not TARGET.is_simulator:
        raise SimulatorOnlyError(
            f"{caller} looks into Numba's simulator, but {TARGET.reason}; set "
            "NUMBA_GEMM_TARGET=simulator before Python starts"
        )


@contextlib.contextmanager
def simulator_only() -> Iterator[None]:
    """A block of code that only the simulator can run: on a GPU, print why it is skipped."""
    try:
        yield
    except SimulatorOnlyError as error:
        print(f"Skipped: {error}.")


# Stopping in a thread -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stop:
    """One thread, stopped: what it has in its registers, and what its block has in shared memory.

    ``registers`` are its variables, arrays made by ``cuda.local.array`` included, ``shared`` the block's
    shared arrays by name, NaN where nothing was stored yet; all of them copies.  ``where`` is the file's
    name and line, ``text`` that line, which has not run yet.
    """

    thread: tuple[int, int, int]
    block: tuple[int, int, int]
    where: str
    text: str
    registers: dict[str, Any]
    shared: dict[str, np.ndarray]

    def __str__(self) -> str:
        lines = [
            f"thread {self.thread} of block {self.block}, {self.where}, before",
            f"    {self.text}",
        ]
        for what, values in (("registers", self.registers), ("shared memory", self.shared)):
            lines.append(f"{what}:")
            width = max(map(len, values), default=0)
            for name, value in values.items():
                shown = _shown(value).replace("\n", "\n" + " " * (width + 7))
                lines.append(f"    {name:{width}} = {shown}")
        return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return np.array2string(value, precision=3, suppress_small=True, threshold=128, max_line_width=96)
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return str(value)


def look(
    run: Callable[[], Any],
    *,
    thread: tuple[int, ...] = (0,),
    block: tuple[int, ...] = (0,),
    line: str | None = None,
    visit: int = 1,
    barrier: int | None = None,
) -> Stop:
    """Run *run* and stop one thread of one block on its way: what does it see?

    thread, block
        Their numbers in x, y and z; those left out are 0.
    line, visit
        Stop before the source line of the kernel's file that contains this text, when the thread comes
        there for the *visit*-th time.
    barrier
        Or stop at its so many-th barrier (counted as they are executed, from 1) when all threads of the
        block have arrived and none has gone on.

    Raises SimulatorOnlyError on a GPU, ValueError unless one of line and barrier is given and visit and
    barrier are at least 1, and LookupError where the thread never comes there.
    """
    _require_simulator("debugging.look")
    if (line is None) == (barrier is None):
        raise ValueError(f"line is {line!r} and barrier is {barrier}; one of the two should be given")
    for name, count in (("visit", visit), ("barrier", barrier)):
        if count is not None and count < 1:
            raise ValueError(f"{name} is {count}; it should be at least 1")
    looking = _Looking(_three("thread", thread), _three("block", block), line, visit, barrier)
    with in_turn(looking):
        run()
    if looking.stop is None:
        what = f"barrier {barrier}" if line is None else f"visit {visit} of a line with {line!r}"
        raise LookupError(
            f"thread {looking.thread} of block {looking.block} never came to {what}; "
            f"it came there {looking.seen} times"
            if looking.there
            else f"no launch had a thread {looking.thread} in a block {looking.block}"
        )
    return looking.stop


def _three(name: str, numbers: tuple[int, ...]) -> tuple[int, int, int]:
    if not isinstance(numbers, tuple) or not 1 <= len(numbers) <= 3:
        raise ValueError(f"{name} is {numbers!r}; it should be a tuple of up to three numbers")
    x, y, z = (*numbers, 0, 0)[:3]
    return x, y, z


class _Looking(Observer):
    """Waits for one thread to come to one place, and keeps what it sees there."""

    def __init__(
        self,
        thread: tuple[int, int, int],
        block: tuple[int, int, int],
        line: str | None,
        visit: int,
        barrier: int | None,
    ) -> None:
        self.thread, self.block = thread, block
        self.line, self.visit, self.barrier = line, visit, barrier
        self.seen = 0
        self.there = False
        self.stop: Stop | None = None

    def begin_block(self, kernel: Any, shared: dict[str, np.ndarray]) -> None:
        self.kernel, self.shared = kernel, shared

    def _is_it(self, thread: Any) -> bool:
        return tuple(thread.threadIdx) == self.thread and tuple(thread.blockIdx) == self.block

    def tracer(self, thread: Any) -> Any:
        if not self._is_it(thread):
            return None
        self.there = True
        if self.line is None or self.stop:
            return None
        file, wanted = self.kernel.__code__.co_filename, self.line

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            if frame.f_code.co_filename != file:
                return None
            if event == "line" and wanted in linecache.getline(file, frame.f_lineno):
                self.seen += 1
                if self.seen == self.visit and not self.stop:
                    self._stop(frame)
            return trace

        return trace

    def at_barrier(self, threads: list[Any]) -> None:
        if self.barrier is None or self.stop:
            return
        for thread in threads:
            if self._is_it(thread):
                self.seen += 1
                if self.seen == self.barrier:
                    self._stop(sys._current_frames()[thread.ident])

    def _stop(self, innermost: FrameType) -> None:
        frames = kernel_frames(innermost, self.kernel.__code__)
        registers: dict[str, Any] = {}
        for frame in frames:
            # What comes from outside of the function is a constant to it, not in a register.
            own = [name for name in frame.f_locals if name not in ("_", *frame.f_code.co_freevars)]
            registers |= {name: frame.f_locals[name] for name in own}
        at = Site.of(frames[-1])
        self.stop = Stop(
            self.thread,
            self.block,
            f"{Path(at.file).name}:{at.line}",
            linecache.getline(at.file, at.line).strip(),
            {name: _copy(value) for name, value in registers.items() if self._in_register(value)},
            {name: np.array(array) for name, array in self.shared.items()},
        )

    def _in_register(self, value: Any) -> bool:
        if isinstance(value, np.ndarray):  # those made by cuda.local.array; not windows of shared ones
            return not any(np.may_share_memory(value, array) for array in self.shared.values())
        return isinstance(value, int | float | np.generic)


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


# Watching shared memory -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Race:
    """Two threads of a block that use one entry of a shared array with no barrier between them.

    At least one of the two stores.  ``first`` and ``second`` say who, what and where, in the order in
    which it happened; on a GPU it may be the other one.
    """

    array: str
    index: tuple[int, ...]
    block: tuple[int, int, int]
    first: str
    second: str

    def __str__(self) -> str:
        where = ", ".join(map(str, self.index))
        return f"{self.array}[{where}]: {self.first}, and {self.second}, with no barrier between them"


@dataclass(frozen=True)
class Request:
    """What the lanes of a warp ask of a shared array by one instruction.

    ``times`` is how often the warp did so; ``access`` has the lanes' addresses, from the array's
    beginning, of the time that took the most wavefronts.
    """

    array: str
    shape: tuple[int, ...]
    where: str
    text: str
    times: int
    access: Access

    @property
    def row_floats(self) -> int:
        """Floats from one row of the array to the next."""
        return self.shape[-1]

    @property
    def kind(self) -> tuple[str, bool, int]:
        """The array, whether it stores, and the bytes that it moves for a lane."""
        return self.array, self.access.store, self.access.width

    def __str__(self) -> str:
        verb = "stores" if self.access.store else "reads"
        floats = self.access.width // FLOAT_BYTES
        passes = self.access.wavefronts
        return (
            f"{self.array}: {verb} {floats} float{'s' if floats > 1 else ''} a lane, conflict degree "
            f"{self.access.degree}, {passes} wavefront{'s' if passes > 1 else ''} "
            f"({self.times} times at {self.where})"
        )


@dataclass(frozen=True)
class Watch:
    """What a launch did with shared memory.

    ``result`` is what the launch returned, ``races`` has one race for each entry and pair of lines, and
    ``unwritten`` counts reads of entries that nobody had stored.
    """

    result: Any
    races: tuple[Race, ...]
    unwritten: int
    _requests: dict[int, tuple[Request, ...]]

    def requests(self, warp: int = 0) -> tuple[Request, ...]:
        """What a *warp* of block 0 asked of shared memory, in the order of first use.

        Lanes are matched by counting: the n-th time that each of them comes to an instruction is taken
        for one request.  That is so where all lanes take the same way.  Raises ValueError for a warp
        that asked for nothing.
        """
        if warp not in self._requests:
            raise ValueError(f"warp is {warp}; those that used shared memory are {[*self._requests]}")
        return self._requests[warp]

    def worst(self, warp: int = 0) -> tuple[Request, ...]:
        """Of its requests, the one of each kind with the most wavefronts."""
        found: dict[tuple[str, bool, int], Request] = {}
        for request in self.requests(warp):
            known = found.setdefault(request.kind, request)
            if request.access.wavefronts > known.access.wavefronts:
                found[request.kind] = request
        return tuple(found.values())

    def __str__(self) -> str:
        if not self.races:
            return f"no races; {self.unwritten} reads of entries that nobody had stored"
        return (
            f"{len(self.races)} races, {self.unwritten} reads of entries that nobody had stored; the "
            f"first race: {self.races[0]}"
        )


def watch(run: Callable[[], Any], *, without_barrier: int | None = None) -> Watch:
    """Run *run* and record who uses which entry of shared memory, and when.

    *without_barrier* leaves out the kernel's so many-th ``cuda.syncthreads()``, from 1 in the order of
    its source: of the kernel and of the function that builds it, or of the whole file where these have
    none.

    Recording takes some microseconds for each access: a block or two will do.  Raises
    SimulatorOnlyError on a GPU and ValueError where there is no such barrier.
    """
    _require_simulator("debugging.watch")
    watching = _Watching(without_barrier)
    with in_turn(watching):
        result = run()
    return Watch(result, tuple(watching.races.values()), watching.unwritten, watching.requests())


def barriers(kernel: Any) -> list[Site]:
    """The lines of a kernel, a Python function, that call ``cuda.syncthreads()``; see :func:`watch`."""
    file, first = kernel.__code__.co_filename, kernel.__code__.co_firstlineno
    lines = linecache.getlines(file)
    ranges = [(1, len(lines))]
    for node in ast.parse("".join(lines)).body:
        begin = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        if begin <= first <= (node.end_lineno or begin):
            ranges.insert(0, (begin, node.end_lineno or begin))
    for begin, end in ranges:
        found = [
            Site(file, number)
            for number in range(begin, end + 1)
            if "cuda.syncthreads()" in lines[number - 1].partition("#")[0]
        ]
        if found:
            return found
    return []


class _Shared(np.ndarray):
    """A shared array, or a view of one, that tells the observer of every entry that is used."""

    log: _Watching | None = None
    name: str = ""
    origin: int = 0
    rows: tuple[int, ...] = ()

    def __array_finalize__(self, parent: Any) -> None:
        for attribute in ("log", "name", "origin", "rows"):
            if hasattr(parent, attribute):
                setattr(self, attribute, getattr(parent, attribute))

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if self.log is not None and not isinstance(value, np.ndarray):
            self.log.use(self, key, False, sys._getframe(1))
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        if self.log is not None:
            self.log.use(self, key, True, sys._getframe(1))

    def offset(self, key: Any) -> int:
        """Floats from the beginning of the shared array to the entry at *key*."""
        numbers = key if isinstance(key, tuple) else (key,)
        nbytes = self.ctypes.data - self.origin
        for number, stride in zip(numbers, self.strides, strict=True):
            nbytes += int(number) * stride
        return nbytes // self.itemsize


@functools.cache
def _place(code: CodeType, instruction: int) -> Any:
    """Line and columns of an instruction; its number alone changes as Python specializes the code."""
    return next(itertools.islice(code.co_positions(), instruction // 2, None))


_Where = tuple[str, bool, Site, tuple[Any, ...], int]
"""An instruction: its array, whether it stores, its line, the way there and the floats it moves."""


@dataclass
class _Use:
    """The last store to an entry, and the reads since the last barrier."""

    stored: tuple[int, Any, Site] | None  # barriers passed, thread, where
    reads: dict[int, tuple[int, Any, Site]]


class _Watching(Observer):
    """Keeps, for every entry of shared memory, who used it since the last barrier."""

    def __init__(self, without_barrier: int | None) -> None:
        self.without_barrier = without_barrier
        self.left_out: Site | None = None
        self.races: dict[Any, Race] = {}
        self.unwritten = 0
        self.uses: dict[tuple[str, int], _Use] = {}
        self.counts: dict[tuple[int, _Where], int] = {}
        self.lanes: dict[tuple[int, _Where], dict[int, np.ndarray]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.kernel: Any = None

    def begin_block(self, kernel: Any, shared: dict[str, np.ndarray]) -> None:
        self.kernel = kernel
        self.uses.clear()
        if self.without_barrier is not None:
            there = barriers(kernel)
            if not 1 <= self.without_barrier <= len(there):
                has = f"has barriers 1 to {len(there)}" if there else "has no barrier"
                raise ValueError(f"without_barrier is {self.without_barrier}; the kernel {has}")
            self.left_out = there[self.without_barrier - 1]

    def make_shared(self, name: str, array: np.ndarray) -> np.ndarray:
        watched = array.view(_Shared)
        watched.log, watched.name = self, name
        watched.origin, watched.rows = array.ctypes.data, array.shape
        self.shapes[name] = array.shape
        return watched

    def leaves_out(self, site: Site) -> bool:
        return site == self.left_out

    def use(self, array: _Shared, key: Any, store: bool, frame: FrameType) -> None:
        """An entry of *array* is used by the running thread, in *frame*."""
        thread = threading.current_thread()
        offset = array.offset(key)
        # From the access out to the kernel's file, which may be helpers of ours away.
        asked, caller, way = frame, "", [_place(frame.f_code, frame.f_lasti)]
        while asked.f_code.co_filename != self.kernel.__code__.co_filename and asked.f_back:
            if not caller and asked.f_code.co_filename.startswith(PRIMITIVES):
                caller = "" if asked.f_code.co_name == "<genexpr>" else asked.f_code.co_name
            asked = asked.f_back
            way.append(_place(asked.f_code, asked.f_lasti))
        site = Site.of(asked)
        self._race(array, offset, store, thread, site)
        if caller != "wait_for_copies" and not any(thread.blockIdx):  # type: ignore[attr-defined]
            floats = 4 if caller in ("load4", "store4") else 1
            if caller == "copy_async":
                floats = frame.f_locals["count"]
            self._request(array, offset, thread, (array.name, store, site, tuple(way), floats))

    def _race(self, array: _Shared, offset: int, store: bool, thread: Any, site: Site) -> None:
        use = self.uses.setdefault((array.name, offset), _Use(None, {}))
        now, who = thread.barriers, thread.thread_id
        if use.stored is None and not store:
            self.unwritten += 1
        if use.stored and use.stored[0] == now and use.stored[1].thread_id != who:
            self._found(array, offset, (True, *use.stored[1:]), (store, thread, site))
        if store:
            for other, (then, reader, where) in use.reads.items():
                if then == now and other != who:
                    self._found(array, offset, (False, reader, where), (True, thread, site))
            use.stored = (now, thread, site)
        else:
            use.reads[who] = (now, thread, site)

    def _found(self, array: _Shared, offset: int, first: Any, second: Any) -> None:
        key = (array.name, offset, first[2], second[2])
        if key in self.races:
            return
        index = tuple(int(number) for number in np.unravel_index(offset, array.rows))
        block = tuple(second[1].blockIdx)
        self.races[key] = Race(array.name, index, block, _did(*first), _did(*second))

    def _request(self, array: _Shared, offset: int, thread: Any, where: _Where) -> None:
        floats = where[-1]
        number = self.counts.get((thread.thread_id, where), 0)
        self.counts[thread.thread_id, where] = number + 1
        if number % floats:  # of several floats that one instruction moves, the first has the address
            return
        warp, lane = divmod(thread.thread_id, WARP)
        times = self.lanes.setdefault((warp, where), {})
        addresses = times.get(number // floats)
        if addresses is None:
            addresses = times[number // floats] = np.full(WARP, -1, dtype=np.int64)
        addresses[lane] = FLOAT_BYTES * offset

    def requests(self) -> dict[int, tuple[Request, ...]]:
        """The requests of every warp."""
        found: dict[int, list[Request]] = {}
        for (warp, where), times in self.lanes.items():
            name, store, site, _, floats = where
            each = [Access(addresses, FLOAT_BYTES * floats, store) for addresses in times.values()]
            worst = max(each, key=lambda access: access.wavefronts)
            found.setdefault(warp, []).append(
                Request(
                    name,
                    self.shapes[name],
                    f"{Path(site.file).name}:{site.line}",
                    linecache.getline(site.file, site.line).strip(),
                    len(times),
                    worst,
                )
            )
        return {warp: tuple(requests) for warp, requests in sorted(found.items())}


def _did(store: bool, thread: Any, site: Site) -> str:
    """Who did what, where."""
    verb = "stores" if store else "reads"
    x, y, z = thread.threadIdx
    number = f"({x}, {y})" if z == 0 else f"({x}, {y}, {z})"
    return f"thread {number} {verb} it in line {site.line}"
