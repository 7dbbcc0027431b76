"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["replace"]


def replace(path: Path, text: str) -> None:
    """Write *text* to *path*: a file that was there is replaced only by a complete one.

    Its permissions stay.  A device or a pipe is written to as it is.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    umask = os.umask(0)
    os.umask(umask)
    mode = path.stat().st_mode if path.exists() else 0o666 & ~umask
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=".numba-gemm-")
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(handle, mode & 0o777)
    os.replace(part, path)
