"""Files that are replaced at once or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from glob import escape
from io import BufferedRandom
from pathlib import Path

__all__ = ["check_goal", "reason", "remove_abandoned", "replacing"]

_ABANDONED_S = 3600.0
"""Age of a draft whose writer has ended."""


_LONGEST_NAME = 128
"""Bytes of a name to which a draft's name can add something; file systems take 255."""


def reason(error: OSError | ValueError) -> str:
    """Return why a file cannot be written or read; a name that no file can have is a ValueError.

    >>> reason(FileNotFoundError(2, "No such file or directory", "x"))
    'No such file or directory'
    """
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _stem(name: str) -> str:
    """Return what the names of drafts of a file have after their first dot."""
    content = os.fsencode(name)
    return name if len(content) <= _LONGEST_NAME else hashlib.sha256(content).hexdigest()


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


def check_goal(path: Path) -> None:
    """Check that a file may be written or replaced, before the work for its content begins.

    Raises:
        OSError: it may not.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"no directory {str(path.parent)!r}", str(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "a directory that cannot be written", str(path))


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
            It names ``path``, never the new file.
    """
    check_goal(path)
    # Beside its goal, as only renames within one file system are atomic.
    stem = _stem(path.name)
    draft = path.with_name(f".{stem}.{os.getpid()}.{os.urandom(4).hex()}.draft")
    remove_abandoned(path.parent, f"{escape(stem)}.*")
    try:
        with draft.open("x+b") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        if error.filename != str(draft):
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from error
    finally:
        draft.unlink(missing_ok=True)
