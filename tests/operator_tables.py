"""The tests of an operator in one file: entries for the tables of several suites.

A file of ``tests/operators`` may have these tables, which ``docs/adding-an-op.md`` describes:

- ``CASES``, ``REFUSED``: for ``tests/pure/test_ops.py``
- ``GRADIENTS``: for ``tests/pure/test_gradients.py``
- ``GRAPHS``: for ``tests/runtime/graphs.py``
- ``MODELS``: for ``tests/integration/small_models.py``
- ``NOT_EXPORTED``, ``COMPOSED``: for ``tests/integration/test_onnx_export.py``
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["entries", "rows"]


def _tables(name: str) -> Iterator[Any]:
    for path in sorted((Path(__file__).parent / "operators").glob("*.py")):
        module = import_module(f"tests.operators.{path.stem}")
        if hasattr(module, name):
            yield getattr(module, name)


def rows(name: str) -> list[Any]:
    """Return the entries of all lists of a name."""
    return [row for table in _tables(name) for row in table]


def entries(name: str) -> dict[str, Any]:
    """Return the entries of all mappings of a name."""
    tables = list(_tables(name))
    repeated = [key for key, count in Counter(k for t in tables for k in t).items() if count > 1]
    assert not repeated, f"{name} has several entries {', '.join(repeated)}"
    return {key: entry for table in tables for key, entry in table.items()}
