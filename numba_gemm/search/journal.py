"""A journal: every measurement of a search in a file of JSON lines, as soon as it is made.

A search that is interrupted, or whose process dies, goes on from there: what is in the journal is not
measured again.  The first line says what the search is; each other line is one outcome.
"""

from __future__ import annotations

import itertools
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from filelock import FileLock, Timeout

from .. import records
from ..records import Seconds, Size
from .space import Candidate

__all__ = ["Journal", "JournalBusyError", "Outcome", "set_aside"]

Shape = tuple[int, int, int]


class JournalBusyError(RuntimeError):
    """Another process is at the same search."""


@dataclass(frozen=True)
class Outcome:
    """What became of one candidate on one shape, M x N x K, in one heat.

    *seconds* has the device time of one launch for each round; it is empty where the candidate failed,
    and then *failed* names the step (``compile``, ``launch``, ``verify``) and *reason* says why.
    Raises ValueError where there is neither.
    """

    candidate: Candidate
    shape: tuple[Size, Size, Size]
    heat: int
    seconds: tuple[Seconds, ...] = ()
    failed: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if not self.seconds and self.failed is None:
            raise ValueError("an outcome has neither times nor a failure")


def set_aside(path: Path, why: str) -> Path:
    """Rename a damaged file, so that it is in nobody's way and can be looked at, and warn of it."""
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in itertools.count(1))
    aside = next(name for name in names if not name.exists())
    os.replace(path, aside)
    warnings.warn(f"{path} is damaged ({why}); it is now {aside.name}", stacklevel=3)
    return aside


class Journal:
    """The journal of one search, to be used in a ``with`` statement.

    *about* is what the search is, ready for JSON: the same *path* with another *about* is set aside with
    a warning, as is a file that is no journal.  A last line without an end, as a crash may leave one, is
    dropped.  Raises JournalBusyError where another process has it open, OSError where it cannot be
    read or written.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path = path
        self.about = json.loads(json.dumps(about))
        self.outcomes: list[Outcome] = []
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        self._file: TextIO | None = None

    def __enter__(self) -> Journal:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise JournalBusyError(
                f"another process is at this search: {self.path} is locked"
            ) from error
        try:
            self._read()
            self._file = open(self.path, "a", encoding="utf-8")
            if not self.path.stat().st_size:
                self._write(self.about)
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file:
            self._file.close()
        self._lock.release()

    def add(self, outcome: Outcome) -> None:
        """Write one outcome; it is on the disk when this returns."""
        self.outcomes.append(outcome)
        self._write(asdict(outcome))

    def finish(self) -> Path:
        """Close the search, so that the next one begins anew; returns where the journal is kept."""
        done = self.path.with_suffix(".done.jsonl")
        os.replace(self.path, done)
        return done

    def _write(self, record: Mapping[str, Any]) -> None:
        assert self._file
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> None:
        if not self.path.exists():
            return
        text = self.path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        try:
            lines = whole.splitlines()
            if lines and records.parse(lines[0], dict) != self.about:
                raise ValueError("it belongs to another search")
            self.outcomes = [records.parse(line, Outcome) for line in lines[1:]]
        except ValueError as error:
            set_aside(self.path, str(error))
            self.outcomes = []
            return
        if len(whole) < len(text):
            os.truncate(self.path, len(whole))
