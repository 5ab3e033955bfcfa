"""Import of all modules in a folder, for tables that a new file enters without a further line."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType

__all__ = ["modules_in"]


def modules_in(package: str) -> tuple[ModuleType, ...]:
    """Import the modules of a package and return them in the order of their names.

    Args:
        package: the full name of the package, which may be in the middle of its own import.

    Raises:
        ImportError: a module cannot be imported.

    >>> [module.__name__ for module in modules_in("stridewise.tensor")][0]
    'stridewise.tensor.desc'
    """
    path = import_module(package).__path__
    return tuple(import_module(f"{package}.{item.name}") for item in pkgutil.iter_modules(path))
