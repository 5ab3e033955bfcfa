"""What an earlier start has checked about a stored model, so that later ones need not do so."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import astuple, fields
from pathlib import Path
from typing import Self

from stridewise.classes import dataclass
from stridewise.replacing import replacing

__all__ = ["Checks", "system_state"]

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SETTINGS = ("DNNL_", "GLIBC_", "GOMP_", "KMP_", "LD_", "OMP_", "ONEDNN_")
"""What the names of environment variables begin with that libraries read."""


def system_state() -> str:
    """Return what changes when the machine starts again, or libraries get other settings.

    It is "" if the system does not report when it started.
    """
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return ""
    settings = sorted(item for item in os.environ.items() if item[0].startswith(_SETTINGS))
    return hashlib.sha256(repr((boot, settings)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Checks:
    """The outcome of the checks of a stored model, in a file beside it.

    Attributes:
        content: digest of the stored model.
        costs: state of the cost cache by which the model would be planned as it is; "" for none.
        system: state of the system in which a run gave the stored outputs; "" for none.
    """

    content: str
    costs: str = ""
    system: str = ""

    @classmethod
    def read(cls, path: Path, content: str) -> Self:
        """Return what a file says about a model; nothing if it is of another one, or damaged."""
        try:
            lines = path.read_text(encoding="ascii").split("\n")
        except (OSError, UnicodeError):
            lines = []
        is_known = len(lines) == len(fields(cls)) and lines[0] == content
        return cls(*lines) if is_known else cls(content)

    def write(self, path: Path) -> None:
        """Write the file if that is possible; without it, the next start checks again."""
        with suppress(OSError), replacing(path, sync=False) as file:
            file.write("\n".join(astuple(self)).encode("ascii"))
