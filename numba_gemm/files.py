"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["replace"]


def replace(path: Path, content: str | bytes) -> None:
    """Write *content* to *path*, a text as UTF-8; an old file gives way only to a complete one.

    Its permissions stay.  A device or a pipe is written to as it is.
    Raises OSError, which names *path*.
    """
    if isinstance(content, str):
        content = content.encode()
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    umask = os.umask(0)
    os.umask(umask)
    mode = path.stat().st_mode if path.exists() else 0o666 & ~umask
    try:
        _replace(path, content, mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _replace(path: Path, content: bytes, mode: int) -> None:
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=".numba-gemm-")
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(handle, mode & 0o777)
            os.fsync(handle)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
