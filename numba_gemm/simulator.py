"""A launch in Numba's simulator that goes the same way every time: threads take turns.

The simulator starts a Python thread for every thread of a block and lets the operating system decide
which of them gets on, so that a kernel with a race in it is right on a good day.  Within
:func:`in_turn` one thread runs at a time, from barrier to barrier, in the order of their numbers or
against it, and shared memory begins as NaN: what a thread reads before it is stored is not there, and
what is overwritten too early is gone.  Both are what the hardware may do; here it does so always.

:func:`numba_gemm.harness.check` runs kernels so, and :mod:`numba_gemm.debugging` looks into them.
"""

from __future__ import annotations

import contextlib
import linecache
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import numpy as np

from .target import TARGET

__all__ = ["Observer", "Site", "in_turn"]

ALLOCATION = re.compile(r"(\w+)\s*=\s*cuda\.shared\.array")


@dataclass(frozen=True)
class Site:
    """A line of source: where something was asked for."""

    file: str
    line: int

    @classmethod
    def of(cls, frame: FrameType) -> Site:
        """The line that *frame* is at."""
        return cls(frame.f_code.co_filename, frame.f_lineno)


class Observer:
    """What is told of a launch while it runs; this one does nothing about it.

    A *thread* has ``threadIdx``, ``blockIdx``, ``thread_id``, its number in the block, and ``barriers``,
    how many it has passed.
    """

    def begin_block(self, kernel: Any, shared: dict[str, np.ndarray]) -> None:
        """A block of *kernel*, a Python function, is about to run.

        *shared* gets its shared arrays by name, as they are made, which is when a thread asks for them.
        """

    def make_shared(self, name: str, array: np.ndarray) -> np.ndarray:
        """A shared array was made; the threads get what this returns."""
        return array

    def tracer(self, thread: Any) -> Any:
        """A trace function for *thread* (see ``sys.settrace``), or None."""
        return None

    def leaves_out(self, site: Site) -> bool:
        """Whether the barrier at *site* is to be passed as if it were not there."""
        return False

    def at_barrier(self, threads: list[Any]) -> None:
        """Every thread that has not ended waits at a barrier."""


_taking_turns = threading.RLock()


@contextlib.contextmanager
def in_turn(observer: Observer | None = None, *, backwards: bool = False) -> Iterator[None]:
    """Let launches in the simulator run their threads one at a time, in order or *backwards*.

    *observer* is told what happens, also of launches that other Python threads make meanwhile.  On a
    GPU, whose threads nobody can order, this does nothing.
    """
    if not TARGET.is_simulator:
        yield
        return
    from numba.cuda.simulator import kernel, kernelapi

    watching = observer or Observer()

    def manager(*arguments: Any) -> Any:
        return _manager_class()(watching, backwards, *arguments)

    with _taking_turns:
        managers, allocate = kernel.BlockManager, kernelapi.FakeCUDAShared.array
        kernel.BlockManager = manager
        kernelapi.FakeCUDAShared.array = _poisoned(allocate)
        try:
            yield
        finally:
            kernel.BlockManager = managers
            kernelapi.FakeCUDAShared.array = allocate


def _poisoned(allocate: Any) -> Any:
    """``cuda.shared.array`` whose arrays are NaN at first and known to the block's manager."""

    from numba.cuda.np import numpy_support

    def array(self: Any, shape: Any, dtype: Any, alignment: int | None = None) -> Any:
        if alignment is not None or shape == 0:
            return allocate(self, shape, dtype, alignment)  # refused, or dynamic
        asking = sys._getframe(1)
        block = threading.current_thread()._manager  # type: ignore[attr-defined]
        site = Site.of(asking)
        if site not in block.arrays:
            kind = dtype if isinstance(dtype, np.dtype | type) else numpy_support.as_dtype(dtype)
            made = np.empty(shape, kind)
            made.fill(np.nan if made.dtype.kind == "f" else -1)
            name = _name(asking)
            block.arrays[site] = block.observer.make_shared(name, made)
            block.shared[name] = block.arrays[site]
        return block.arrays[site]

    return array


def _name(frame: FrameType) -> str:
    """What the array is called that this line makes."""
    match = ALLOCATION.search(linecache.getline(frame.f_code.co_filename, frame.f_lineno))
    return match[1] if match else f"line {frame.f_lineno}"


def _manager_class() -> Any:
    """The block manager; a function, as its base classes exist in the simulator only."""
    from numba.cuda.simulator.kernel import BlockThread

    class Thread(BlockThread):  # type: ignore[misc]
        """A thread of a block that runs when it is told to, up to its next barrier."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.turn = threading.Lock()
            self.turn.acquire()
            self.started = self.ended = False
            self.barriers = 0

        def go_on(self) -> None:
            """Run it up to its next barrier or its end; returns when it is there."""
            if self.started:
                self.turn.release()
            else:
                self.started = True
                self.start()
            self._manager.pause.acquire()

        def run(self) -> None:
            trace = self._manager.observer.tracer(self)
            if trace:
                sys.settrace(trace)
            try:
                super().run()
            finally:
                if trace:
                    sys.settrace(None)
                self.ended = True
                self._manager.pause.release()

        def syncthreads(self) -> None:
            site = Site.of(sys._getframe(2))  # behind this method and the fake module's
            if self.abort or self._manager.observer.leaves_out(site):
                return
            self._manager.pause.release()
            self.turn.acquire()
            if self.abort:
                raise RuntimeError("another thread of the block has failed")
            self.barriers += 1

    class Manager:
        """Runs the threads of one block in turn."""

        def __init__(
            self,
            observer: Observer,
            backwards: bool,
            function: Any,
            grid_dim: Any,
            block_dim: Any,
            debug: bool,
        ) -> None:
            self._block_dim = block_dim
            self.block_state = np.zeros(block_dim, dtype=np.bool_)
            self.observer, self.backwards, self.function, self.debug = (
                observer,
                backwards,
                function,
                debug,
            )
            self.pause = threading.Lock()
            self.pause.acquire()
            self.arrays: dict[Site, np.ndarray] = {}
            self.shared: dict[str, np.ndarray] = {}

        def run(self, grid_point: Any, *arguments: Any) -> None:
            """Run the block at *grid_point*; raises what a thread of it raises."""
            self.observer.begin_block(self.function, self.shared)
            z_y_x = np.ndindex(*self._block_dim[::-1])

            def target() -> None:
                self.function(*arguments)

            threads = [Thread(target, self, grid_point, point[::-1], self.debug) for point in z_y_x]
            if self.backwards:
                threads.reverse()
            alive = threads
            try:
                while alive:
                    for thread in alive:
                        thread.go_on()
                        if thread.exception:
                            raise thread.exception[0].with_traceback(thread.exception[1])
                    alive = [thread for thread in alive if not thread.ended]
                    if alive:
                        self.observer.at_barrier(alive)
            finally:
                for thread in threads:  # after a failure, let the others end
                    if thread.started and not thread.ended:
                        thread.abort = True
                        thread.go_on()

    return Manager


def kernel_frames(innermost: FrameType | None, code: CodeType) -> list[FrameType]:
    """The frames of the kernel with *code*, and of what it calls in its file, outermost first."""
    frames = []
    frame = innermost
    while frame is not None:
        if frame.f_code.co_filename == code.co_filename:
            frames.append(frame)
        if frame.f_code is code:
            return frames[::-1]
        frame = frame.f_back
    return []
