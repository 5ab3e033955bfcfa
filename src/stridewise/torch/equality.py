"""How far the results of two runs of a model are apart."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from stridewise.frontends.torch.library import torch

__all__ = ["difference"]


def difference(wanted: Sequence[Any], found: Sequence[Any]) -> float:
    """Return the greatest difference of two sequences of tensors, relative to the greatest element.

    It is infinite for other numbers of tensors, shapes or element types, for integers that differ,
    and for a NaN or infinity in one place only.
    """
    if len(wanted) != len(found):
        return inf
    return max(map(_apart, wanted, found), default=0.0)


def _apart(a: Any, b: Any) -> float:
    if a.shape != b.shape or a.dtype != b.dtype:
        return inf
    if not (a.is_floating_point() or a.is_complex()):
        return 0.0 if torch.equal(a, b) else inf
    exact = torch.promote_types(a.dtype, torch.float64)
    a, b = a.to(exact), b.to(exact)
    apart = ~((a == b) | (a.isnan() & b.isnan()))
    if not bool(apart.any()):
        return 0.0
    if not bool(torch.isfinite(a[apart]).all() and torch.isfinite(b[apart]).all()):
        return inf
    scale = a[torch.isfinite(a)].abs().max().clamp_min(1e-30)
    return float((a[apart] - b[apart]).abs().max() / scale)
