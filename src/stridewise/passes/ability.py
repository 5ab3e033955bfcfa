"""The questions of passes about kernels; a target has the answers."""

from __future__ import annotations

from collections.abc import Callable

from stridewise.classes import dataclass
from stridewise.graph import Node

__all__ = ["Ability", "never"]


def never(_queries: int, _keys: int, _depth: int, _width: int) -> bool:
    """Return that products and softmax are faster apart; see :attr:`Ability.attends`."""
    return False


@dataclass(frozen=True, slots=True)
class Ability:
    """The abilities of the kernels of a target.

    Attributes:
        library: the name of the kernel library in messages.
        dtypes: element types that kernels compute in.
        post_ops: returns the operators that kernels of a node take as its next post-op.
        resamples: returns whether a kernel computes a ``resize`` of a tensor of this shape.
        steps: operators that kernels of a ``pointwise`` expression take as its steps.
        attends: returns whether a kernel computes attention faster than kernels of its products and
            of its softmax do, given the numbers of queries and of keys, their depth, and the width
            of values.
    """

    library: str
    dtypes: frozenset[str]
    post_ops: Callable[[Node], frozenset[str]]
    resamples: Callable[[Node, tuple[int, ...]], bool]
    steps: frozenset[str] = frozenset()
    attends: Callable[[int, int, int, int], bool] = never
