"""What the commands of the command line share: tables, progress, refusals, files."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from . import files

__all__ = [
    "MOST_ELEMENTS",
    "InputError",
    "distinct",
    "folder",
    "milliseconds",
    "progress",
    "show",
    "stdout",
    "table",
    "writable",
    "write_json",
]

MOST_ELEMENTS = 2**40
"""Elements of a matrix above which it is refused as a slip of the keyboard."""

PIPED_WIDTH = 120


class InputError(Exception):
    """Something the user typed cannot be used; the message is one line."""


def stdout() -> Console:
    """Where tables go: as wide as the terminal, and wide enough where there is none."""
    return Console() if sys.stdout.isatty() else Console(width=PIPED_WIDTH)


def table(title: str) -> Table:
    """An empty table, its title on the left and no more lines than it needs."""
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def show(console: Console, table: Table) -> None:
    """Print *table* below its title, which may be wider than the table."""
    title, table.title = table.title, None
    console.print(title, style="table.title", highlight=False, markup=False, soft_wrap=True)
    console.print(table)


def progress(console: Console) -> Progress:
    """A bar that says what is being done and how many of how many are; it goes when it is full."""
    return Progress(
        TextColumn("{task.description:10}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
    )


def milliseconds(seconds: float) -> str:
    """A time as it stands in tables."""
    return f"{seconds * 1e3:.3f} ms"


def writable(path: Path | None, option: str = "--json") -> Path | None:
    """Where the *path* of *option* leads, refused before any work where nothing can be written."""
    if path is None:
        return None
    try:
        end = path.resolve()
        if end.is_dir():
            raise IsADirectoryError("it is a folder")
        if end.exists() and not end.is_file():
            return end  # a device or a pipe, which is written to as it is
        end.with_name(end.name).exists()  # a name that is too long shows here
        with tempfile.TemporaryFile(dir=end.parent):
            return end
    except OSError as error:
        raise InputError(f"{option} {path}: {error.strerror or error}") from error
    except RuntimeError as error:
        raise InputError(f"{option} {path}: it is a link to itself") from error


def distinct(paths: Iterable[tuple[str, Path | None]]) -> None:
    """Refuse two options, given with their files, that would write the same one."""
    taken: dict[Path, str] = {}
    for option, path in paths:
        if path is None:
            continue
        other = taken.setdefault(path.resolve(), option)
        if other != option:
            raise InputError(f"{other} and {option} are both to write {path}")


def folder(path: Path, option: str) -> None:
    """Make the folder *path* of *option* where there is none; refused where nothing can be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InputError(f"{option} {path}: {error.strerror}") from error


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write whole or not at all."""
    files.replace(path, json.dumps(record, indent=2, allow_nan=False) + "\n")
