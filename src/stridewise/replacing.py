"""Files that are replaced at once or not at all."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from glob import escape
from io import BufferedRandom
from pathlib import Path

__all__ = ["remove_abandoned", "replacing"]

_ABANDONED_S = 3600.0
"""Age of a draft whose writer has ended."""


def remove_abandoned(folder: Path, name: str = "*") -> None:
    """Remove the drafts of writers that were killed.

    Args:
        folder: where they are.
        name: a pattern of what is between their first dot and their suffix.
    """
    for draft in folder.glob(f".{name}.draft"):
        with suppress(OSError):  # it may be another user's, or its writer may end now
            if time.time() - draft.stat().st_mtime > _ABANDONED_S:
                draft.unlink()


@contextmanager
def replacing(path: Path, *, sync: bool = True) -> Generator[BufferedRandom]:
    """Yield a new file that takes the place of ``path`` at the end, unless an error occurs.

    It can be read, too.

    Args:
        path: the file; its folder must exist.
        sync: whether the content is on the disk before the file is replaced, so that it survives
            a crash of the machine.

    Raises:
        OSError: it cannot be written, or is a folder or a device, which a file must not replace.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    # Beside its goal, as only renames within one file system are atomic.
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.draft")
    remove_abandoned(path.parent, f"{escape(path.name)}.*")
    try:
        with draft.open("x+b") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
