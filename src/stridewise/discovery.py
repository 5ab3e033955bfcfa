"""Imports by name.

All modules in a folder, for tables that a new file enters without a further line; and the names of
a package when they are first used, for a quick start.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from stridewise.collecting import paused
from stridewise.interrupts import Deferred

__all__ = ["at_first_use", "modules_in"]


def modules_in(package: str) -> tuple[ModuleType, ...]:
    """Import the modules of a package and return them in the order of their names.

    Args:
        package: the full name of the package, which may be in the middle of its own import.

    Raises:
        ImportError: a module cannot be imported.

    >>> [module.__name__ for module in modules_in("stridewise.tensor")][0]
    'stridewise.tensor.desc'
    """
    import pkgutil  # noqa: PLC0415 (stored models need no such table)

    path = import_module(package).__path__
    return tuple(import_module(f"{package}.{item.name}") for item in pkgutil.iter_modules(path))


def at_first_use(package: str, places: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that imports its public names at their first use.

    Type checkers read the same imports under ``TYPE_CHECKING``.

    Args:
        package: the full name of the package.
        places: the names that each module defines; those of the package are its own modules.

    >>> find = at_first_use("stridewise", {"stridewise.dtypes": ("dtype_of",)})
    >>> find("dtype_of")("f32").itemsize
    4
    """
    modules = {name: module for module, names in places.items() for name in names}

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with Deferred(), paused():
            if modules[name] == package:
                return import_module(f"{package}.{name}")
            found = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, found)  # later uses do not come here
        return found

    return find
