"""Dropout: the identity in inference; in training steps some elements, drawn by a counter, are 0.

A step draws by the number of its run, so runs have other masks, and a run that is repeated has the
same one. No mask is kept: the gradient draws it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.registry import (
    Array,
    Backward,
    Operands,
    Types,
    array,
    needs,
    register,
    tensor,
)

__all__ = ["WORD_BITS", "counter"]

WORD_BITS = 24
"""Bits of one number of a counter, which float32 holds exactly."""

_COUNTER = 4
"""Numbers of a counter: the low and the high half of the run's number, and of the seed."""

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)


def counter(run: int, seed: int) -> Array:
    """Return the counter of a run, which is the second operand of ``dropout``.

    Args:
        run: its number, from 0 on; numbers that differ by 2**48 have the same masks.
        seed: from 0 to 2**48 - 1.

    >>> counter(2**24 + 5, 7).tolist()
    [5.0, 1.0, 7.0, 0.0]
    """
    words = [(x >> shift) % 2**WORD_BITS for x in (run, seed) for shift in (0, WORD_BITS)]
    return np.array(words, np.float32)


def philox(counters: Sequence[Array], keys: Sequence[int]) -> list[Array]:
    """Return four random words of 32 bits for each counter of four words.

    Source: Salmon et al. (2011), Parallel random numbers: as easy as 1, 2, 3; Philox4x32-10.

    Args:
        counters: four arrays of uint64 below 2**32.
        keys: two words.
    """
    a, b, c, d = counters
    first, second = keys
    for _ in range(_ROUNDS):
        left, right = a * np.uint64(_MULTIPLIERS[0]), c * np.uint64(_MULTIPLIERS[1])
        shift = np.uint64(32)
        a, c = (right >> shift) ^ b ^ np.uint64(first), (left >> shift) ^ d ^ np.uint64(second)
        b, d = right & _LOW, left & _LOW
        first, second = (first + _STEPS[0]) % 2**32, (second + _STEPS[1]) % 2**32
    return [a, b, c, d]


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, share = tensor(node, types, 0), node.float_attr("share", 0.5)
    needs(node, 0 <= share < 1, "a share from 0 to below 1", share)
    stream = node.int_attr("stream", 0)
    needs(node, 0 <= stream < 2**32, "a stream from 0 to 2**32 - 1", stream)
    if len(types) > 1:
        given, wanted = tensor(node, types, 1), TensorType(x.dtype, (_COUNTER,))
        needs(node, x.dtype.name == "float32", "float32, to draw elements of", x.dtype)
        needs(node, given == wanted, f"a counter {wanted}", given)
    return (x,)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x, share = array(operands, 0), node.float_attr("share", 0.5)
    stream = node.int_attr("stream", 0)
    if len(operands) < 2:
        return (x,)
    words = np.clip(np.nan_to_num(array(operands, 1)), 0, 2**WORD_BITS - 1).astype(np.uint64)
    groups = np.arange(-(-x.size // 4), dtype=np.uint64)
    fixed = [np.full_like(groups, word) for word in (stream, *words[:2])]
    drawn = np.stack(philox([groups, *fixed], [int(word) for word in words[2:]]), axis=1)
    kept = drawn.ravel()[: x.size].reshape(x.shape) >= floor(share * 2**32)
    return (np.where(kept, x * np.float32(1 / (1 - share)), np.float32(0)),)


def _vjp(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    if len(node.inputs) < 2:
        return (gradients[0],)
    return (b.op("dropout", [gradients[0], node.inputs[1]], dict(node.attrs)),)


register(
    "dropout",
    (1, 2),
    _infer,
    _evaluate,
    "data",
    attributes={"share": "number", "stream": "integer"},
    vjp=_vjp,
)
