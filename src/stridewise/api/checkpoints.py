"""Checkpoints: arrays by name in one file, which a reader finds whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import InputError, ModelError, describe

__all__ = ["read_checkpoint", "write_checkpoint"]

Array = NDArray[Any]

_KIND = "stridewise checkpoint 1"
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
    # Beside its goal, as only renames within one file system are atomic.
    draft = goal.with_name(f".{goal.name}.{os.getpid()}.{secrets.token_hex(4)}")
    manifest = json.dumps({"kind": _KIND, "names": list(arrays)}).encode()
    try:
        try:
            with draft.open("xb") as file:
                np.savez(file, *arrays.values(), manifest=np.frombuffer(manifest, np.uint8))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(goal)
        finally:
            draft.unlink(missing_ok=True)
        _sync_folder(goal.parent)
    except OSError as error:
        found = error.strerror or str(error)
        where = f"checkpoint {str(goal)!r}"
        expected = "a file that can be written"
        raise InputError(describe(where, expected=expected, found=found)) from error


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
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise _damage(where, f"other bytes in {damaged}")
        with np.load(path, allow_pickle=False) as found:
            manifest: Any = json.loads(bytes(found["manifest"]))
            if manifest["kind"] != _KIND:
                raise _damage(where, repr(manifest["kind"]))
            names = cast("list[str]", manifest["names"])
            return {name: found[f"arr_{index}"] for index, name in enumerate(names)}
    except OSError as error:
        found = error.strerror or str(error)
        expected = "a file that can be read"
        raise InputError(describe(where, expected=expected, found=found)) from error
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError) as error:
        raise _damage(where, str(error) or type(error).__name__) from error


def _damage(where: str, found: str) -> ModelError:
    return ModelError(describe(where, expected="a whole checkpoint", found=found, fix=_FIX))
