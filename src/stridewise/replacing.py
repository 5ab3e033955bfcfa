"""Files that are replaced at once or not at all."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["replacing"]


@contextmanager
def replacing(path: Path, *, sync: bool = True) -> Generator[BinaryIO]:
    """Yield a new file that takes the place of ``path`` at the end, unless an error occurs.

    Args:
        path: the file; its folder must exist.
        sync: whether the content is on the disk before the file is replaced, so that it survives
            a crash of the machine.

    Raises:
        OSError: it cannot be written.
    """
    # Beside its goal, as only renames within one file system are atomic.
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.draft")
    try:
        with draft.open("xb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
