"""PyTorch, imported when it is first used.

Modules of this front end can be imported without PyTorch; only their use needs it.
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.util import find_spec
from typing import Any

from stridewise.errors import DependencyError

__all__ = ["is_installed", "submodule", "torch"]


@cache
def submodule(name: str) -> Any:
    """Return a module of PyTorch.

    Args:
        name: its full name, such as ``"torch.fx"``.

    Raises:
        DependencyError: PyTorch is not installed, or has no such module.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DependencyError.at(
            "PyTorch",
            expected=f"module {name}",
            found=" ".join(str(error).split()),
            fix="pip install 'stridewise[torch]'",
        ) from error


def is_installed() -> bool:
    """Return whether PyTorch can be imported."""
    return find_spec("torch") is not None


class _Library:
    """The module ``torch``, imported when an attribute of it is first read."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by tools that look at every object, not by users of torch
            raise AttributeError(name)
        return getattr(submodule("torch"), name)


torch: Any = _Library()
