"""Targets by their names in options, plan files and on the command line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from stridewise.errors import InputError
from stridewise.targets.tables.files import SHIPPED
from stridewise.targets.target import NATIVE

if TYPE_CHECKING:
    from stridewise.targets.tables.table import TableTarget

__all__ = ["NATIVE", "TARGETS", "table_target"]

TARGETS = (NATIVE, *SHIPPED)
"""Names of targets. The first runs on this machine; the others are simulated."""


def table_target(target: str | os.PathLike[str] | None) -> TableTarget | None:
    """Return a simulated target, or None for the native one.

    Args:
        target: a name of :data:`TARGETS`, the path of a TOML file, or None for the native target.

    Raises:
        InputError: there is no target of that name.
        TargetError: the file is damaged.
    """
    name = NATIVE if target is None else os.fspath(target)
    if name == NATIVE:
        return None
    # Most models are compiled for the native target.
    from stridewise.targets.tables.load import load_target, shipped  # noqa: PLC0415

    if name in SHIPPED:
        return shipped(name)
    if isinstance(target, str) and not name.endswith(".toml"):
        raise InputError.at(
            "target", expected=f"one of {', '.join(TARGETS)}, or a .toml file", found=repr(name)
        )
    return load_target(name)
