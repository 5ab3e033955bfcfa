"""Checkpoints: arrays by name in one file, which a reader finds whole or not at all."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import InputError, ModelError
from stridewise.replacing import reason, replacing

__all__ = ["read_checkpoint", "write_checkpoint"]

Array = NDArray[Any]

_KIND = b"stridewise checkpoint 1\n"
"""What a file begins with; the SHA-256 of the rest follows, then an archive of NumPy's."""
_HEADER = len(_KIND) + hashlib.sha256().digest_size
_FIX = "use the checkpoint before it"


def write_checkpoint(path: str | os.PathLike[str], arrays: Mapping[str, Array]) -> None:
    """Write arrays to a file, which is replaced at once or not at all.

    A process or a machine that stops while it is written leaves the old file.

    Args:
        path: the file; its folder must exist.
        arrays: by name, of any element type but objects.

    Raises:
        InputError: the file cannot be written.
    """
    goal = Path(path)
    names = np.frombuffer(json.dumps(list(arrays)).encode(), np.uint8)
    try:
        with replacing(goal) as file:
            file.write(bytes(_HEADER))
            np.savez(file, *arrays.values(), names=names)
            digest = _digest(file)
            file.seek(0)
            file.write(_KIND + digest)
        _sync_folder(goal.parent)
    except (OSError, ValueError) as error:
        where = f"checkpoint {str(goal)!r}"
        expected = "a file that can be written"
        raise InputError.at(where, expected=expected, found=reason(error)) from error


def _sync_folder(folder: Path) -> None:
    """Make a rename in a folder last; only then may an older checkpoint be deleted."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the arrays of a checkpoint; all of its bytes are checked.

    Raises:
        InputError: there is no such file, or it cannot be read.
        ModelError: it is no checkpoint, or a part of it is missing or was changed.
    """
    where = f"checkpoint {str(path)!r}"
    try:
        with Path(path).open("rb") as file:
            if file.read(_HEADER) != _KIND + _digest(file):
                expected, found = "a whole checkpoint", "other bytes, or fewer"
                raise ModelError.at(where, expected=expected, found=found, fix=_FIX)
            file.seek(_HEADER)
            with np.load(file, allow_pickle=False) as archive:
                names = cast("list[str]", json.loads(bytes(archive["names"])))
                return {name: archive[f"arr_{index}"] for index, name in enumerate(names)}
    except ModelError:
        raise
    except (OSError, ValueError) as error:
        expected = "a file that can be read"
        raise InputError.at(where, expected=expected, found=reason(error)) from error


def _digest(file: io.BufferedReader | io.BufferedRandom) -> bytes:
    """Return the SHA-256 of what follows the header."""
    file.seek(_HEADER)
    return hashlib.file_digest(file, "sha256").digest()
