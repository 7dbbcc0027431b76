"""The lab of a search: a pool of processes that compile, and one that times on the device.

A candidate may do anything: keep the assembler busy for minutes, write where it should not and so end
every later launch of its process, or never return.  It does so in a process that can be ended, and the
next candidate gets a new one.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any

from pebble import ProcessExpired, ProcessPool

from ..model.devices import Gpu
from . import workers
from .halving import CandidateError
from .journal import Shape
from .space import Candidate

__all__ = ["COMPILE_TIMEOUT", "TIMING_TIMEOUT", "LabError", "ProcessLab"]

COMPILE_TIMEOUT = 120.0
TIMING_TIMEOUT = 120.0
"""Seconds after which a candidate counts as hanging; operands are made and compared in them, too."""

LONGEST_REASON = 300


class LabError(RuntimeError):
    """The processes of a lab do not start: no candidate is to blame."""


class ProcessLab:
    """Compiles and times candidates for *shapes* on *gpu*, this machine's own; use it with ``with``.

    *seed* is that of the random operands; *processes* compile at a time, by default as many as there
    are cores but for one, which is left to whoever times.  It is what
    :func:`numba_gemm.search.halving.search` takes as its lab.
    """

    def __init__(
        self,
        gpu: Gpu,
        shapes: Sequence[Shape],
        seed: int,
        processes: int | None = None,
        *,
        compile_timeout: float = COMPILE_TIMEOUT,
        timing_timeout: float = TIMING_TIMEOUT,
    ) -> None:
        self.shapes = tuple(shapes)
        self.seed = seed
        self.processes = processes or max(1, len(os.sched_getaffinity(0)) - 1)
        self.compile_timeout = compile_timeout
        self.timing_timeout = timing_timeout
        path = tuple(os.path.abspath(folder) for folder in sys.path)
        self._start_compiler = (
            workers.start_compiler,
            (gpu.compute_capability, gpu.multiprocessors, path),
        )
        self._start_timer = (workers.start_timer, (path,))
        self._compiled: dict[Candidate, workers.Compiled] = {}
        self._refused: dict[Candidate, str] = {}
        self._compilers: Any = None
        self._timer: Any = None

    def __enter__(self) -> ProcessLab:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for pool in (self._compilers, self._timer):
            if pool:
                pool.stop()
                pool.join()

    def ready(self, candidates: Sequence[Candidate]) -> Iterator[tuple[Candidate, str | None]]:
        """Each candidate in order as soon as it is compiled, and why it does not compile or None.

        As many as twice the processes are compiled ahead.  What was compiled before, or could not be, is
        ready at once.  Raises LabError where no process starts.
        """
        if self._compilers is None:
            self._compilers = _pool(self.processes, *self._start_compiler)
        coming: deque[tuple[Candidate, Any]] = deque()
        waiting = iter(candidates)
        try:
            while True:
                for candidate in itertools.islice(waiting, 2 * self.processes - len(coming)):
                    future = None
                    if candidate not in self._compiled and candidate not in self._refused:
                        future = self._compilers.schedule(
                            workers.compile_candidate,
                            args=(candidate, self.shapes),
                            timeout=self.compile_timeout,
                        )
                    coming.append((candidate, future))
                if not coming:
                    return
                candidate, future = coming.popleft()
                if future is not None:
                    try:
                        self._compiled[candidate] = future.result()
                    except TimeoutError:
                        waited = f"{self.compile_timeout:g} s"
                        self._refused[candidate] = f"it was not compiled after {waited}"
                    except BrokenProcessPool as error:
                        raise LabError("the processes that compile do not start") from error
                    except (Exception, CancelledError) as error:
                        self._refused[candidate] = _in_a_line(error)
                yield candidate, self._refused.get(candidate)
        finally:
            for _, future in coming:
                # One that runs is left to end: its process would be killed and another started, which
                # takes longer, and dies with a traceback where the lab is closed meanwhile.
                if future is not None and not future.running():
                    future.cancel()

    def race(self, candidate: Candidate, shape: Shape, rounds: int) -> tuple[float, ...]:
        """Device time of one launch, in seconds, for each of *rounds*.

        Raises CandidateError where it cannot be launched, ends its process or takes too long.
        """
        compiled = self._compiled.get(candidate)
        times: tuple[float, ...] = self._on_device(
            workers.race, candidate, compiled, shape, self.seed, rounds
        )
        return times

    def verify(self, candidate: Candidate, shape: Shape) -> None:
        """Compare its result with numpy's.  Raises CandidateError where it is wrong, or as race does."""
        compiled = self._compiled.get(candidate)
        wrong = self._on_device(workers.verify, candidate, compiled, shape, self.seed)
        if wrong:
            raise CandidateError("verify", wrong)

    def race_cublas(self, shape: Shape, rounds: int) -> tuple[float, ...]:
        """As race, for cuBLAS.  Raises CandidateError where there is none."""
        times: tuple[float, ...] = self._on_device(workers.race_cublas, shape, self.seed, rounds)
        return times

    def _on_device(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do *work* in the process that times; after a failure it gets a new one."""
        if self._timer is None:
            self._timer = _pool(1, *self._start_timer)
        try:
            return self._timer.schedule(work, args=arguments, timeout=self.timing_timeout).result()
        except TimeoutError as error:
            reason = f"it did not return within {self.timing_timeout:g} s"
            raise CandidateError("launch", reason) from error
        except ProcessExpired as error:
            raise CandidateError("launch", f"its process ended with {error.exitcode}") from error
        except BrokenProcessPool as error:
            raise LabError("the process that times does not start") from error
        except Exception as error:
            # The error of one launch may be that of every later one in the same context.
            self._timer.stop()
            self._timer.join()
            self._timer = None
            raise CandidateError("launch", _in_a_line(error)) from error


def _pool(processes: int, start: Callable[..., None], arguments: tuple[Any, ...]) -> Any:
    """A pool whose processes begin from nothing: a fork would inherit the parent's choice of target."""
    return ProcessPool(
        max_workers=processes,
        initializer=start,
        initargs=arguments,
        context=multiprocessing.get_context("spawn"),
    )


def _in_a_line(error: BaseException) -> str:
    """An error's kind and the beginning of what it says."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 3] + "..."
