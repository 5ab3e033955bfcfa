"""Kept costs: their keys in the cost cache, and which entries decide the plan of a model."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from stridewise.runtime.tuning.cost_cache import CostCache

__all__ = ["KEPT", "decisive", "digest", "name_of"]

KEPT = "auto 6 "
"""What the keys of kept costs begin with. The number counts the changes of the analytic model and
of predictions."""


def digest(text: str) -> str:
    """Return a digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def name_of(key: str) -> str:
    """Return how kept costs call the kernel of a key."""
    return digest(key)[:16]


def decisive(cache: CostCache, keys: Collection[str]) -> set[str]:
    """Return those keys of a cost cache whose entries decide the plan of a model.

    Kept costs decide until all kernels of the model are measured, whatever is measured for other
    models.

    Args:
        cache: the costs.
        keys: every key that was looked up for the model.
    """
    known = cache.find(keys)
    kept = [entries for key, entries in known.items() if key.startswith(KEPT)]
    names = {label.partition(" ")[0] for entries in kept for label, _ in entries}
    kernels = {key for key in keys if name_of(key) in names}
    return set(keys) - kernels if kernels - known.keys() else set(keys)
