"""The file of the cost cache: where it is, and whether it changed, without opening it as SQLite."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_path", "cache_state"]

_VERSION = 1
_COUNTER = slice(24, 28)
"""Bytes of the file that SQLite changes with every transaction."""


def cache_path(folder: Path | None = None) -> Path:
    """Return the file of the cost cache in ``folder``, or in the user's cache folder."""
    user = os.environ.get("XDG_CACHE_HOME", "").strip() or Path.home() / ".cache"
    root = folder or Path(user, "stridewise")
    return root / f"costs-v{_VERSION}.sqlite"


def cache_state(path: Path) -> str:
    """Return what changes with the content of a cost cache; "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            counter = file.read(_COUNTER.stop)[_COUNTER]
        found = path.stat()
    except OSError:
        return ""
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {counter.hex()}"
