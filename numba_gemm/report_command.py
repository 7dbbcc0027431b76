"""``numba-gemm report``: reads runs, prints their tables, writes what is asked for.

Everything is read and made before anything is written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import files, report, terminal
from .terminal import InputError

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Do what the options say; the exit status.  Raises InputError for what cannot be used."""
    terminal.writable(options.slim, "--slim")
    measured = _load(options.files)
    table = None
    if options.against:
        second = _load(options.against, "--against ")
        try:
            measured, table = report.compare(measured, second)
        except ValueError as error:
            raise InputError(f"--against {options.against[0]}: {error}") from error
    new = _made(measured, options)
    if table is not None:
        print(table)
    for path, content in new.items():
        files.replace(path, content)
        print(f"numba-gemm: wrote {path}", file=sys.stderr)
    if not new and table is None:
        print(report.text(measured))
    return 0


def _load(paths: Sequence[Path], option: str = "") -> report.Run:
    """The run in these files."""
    try:
        return report.load_all(paths)
    except OSError as error:
        raise InputError(f"{option}{error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{option}{error}") from error


def _made(measured: report.Run, options: argparse.Namespace) -> dict[Path, str]:
    """Everything that is to be written, by where to.

    Where only texts are to be filled, pictures lie beside the first file of figures.
    """
    new: dict[Path, str] = {}
    folder = options.output or options.files[0].parent
    terminal.distinct(
        [
            *(("--readme", readme) for readme in dict.fromkeys(options.readme)),
            ("--slim", options.slim),
            ("--output", options.output and options.output / "report.md"),
        ]
    )
    for readme in options.readme:
        try:
            text = readme.read_bytes().decode()
            new[readme] = report.fill(text, measured, folder, readme.parent)
        except OSError as error:
            raise InputError(f"--readme {readme}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"--readme {readme}: it is no text") from error
        except ValueError as error:
            raise InputError(f"--readme {readme}: {error}") from error
        terminal.writable(readme, "--readme")
    if options.output or options.readme:
        from .report_pictures import draw

        try:
            pictures = draw(measured)
        except ImportError as error:
            raise InputError(str(error)) from error
        terminal.folder(folder, "--output" if options.output else "pictures go to")
        new |= {folder / f"{name}.svg": picture for name, picture in pictures.items()}
    if options.output:
        new[folder / "report.md"] = report.text(measured) + "\n"
    if options.slim:
        new[options.slim] = report.slim(measured)
    return new
