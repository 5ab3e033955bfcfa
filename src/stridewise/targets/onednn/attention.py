"""The core's kernel of attention, ``native/attention/attention.cpp``."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.graph import Refusal, Value
from stridewise.ops.attention import OPERANDS, AttentionShape, attention_shape, steps_of
from stridewise.ops.data_format import inverse
from stridewise.ops.geometry import row_major, user_format
from stridewise.ops.matmul import turned
from stridewise.targets.kernels import (
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.family import Family, KernelKind, Offer, float32_only, refused
from stridewise.targets.onednn.memory import plain_memory

__all__ = ["FAMILY", "attends"]

_MOST_AXES = 12
_MOST_VALUES = OPERANDS + 8 + 1
_ROLES = ("queries", "keys", "values")
_FEWEST_QUERIES = 8
"""Queries of which vectors are full enough."""
_LARGEST = 512
"""Elements of a query or a value up to which a group of queries stays in the nearer caches."""
_POWER_NS = 0.26
"""What one thread takes for a power of the softmax. Measured on Zen 4."""


def attends(queries: int, keys: int, depth: int, width: int) -> bool:
    """Return whether the kernel is faster than those of both products and of the softmax.

    Each lane of its vectors is a query, and queries, their sums and some scores must stay in the
    caches of a core.
    """
    return queries >= _FEWEST_QUERIES and keys > 1 and max(depth, width) <= _LARGEST


def _matrices(
    value: Value, perm: tuple[int, ...], batch: tuple[int, ...], parts: tuple[int, ...]
) -> MemorySpec | None:
    """Return a transposed tensor as matrices with batch axes that are those of steps.

    Args:
        value: a row-major tensor.
        perm: its transpose to batch axes, rows and columns.
        batch: the extents of the batch axes, of which the tensor may have 1.
        parts: what each of the batch axes is divided into, all in one.

    Returns:
        None if the parts are no divisions of single axes.
    """
    strides = row_major(value.shape)
    nest: list[tuple[int, int]] = []  # extent, stride; from the last axis on
    left = list(parts)
    for axis, whole in reversed(list(zip(perm[:-2], batch, strict=True))):
        step, rest = strides[axis] if value.shape[axis] > 1 else 0, whole
        while rest > 1:
            part = left.pop()
            if rest % part:
                return None
            nest.append((part if value.shape[axis] > 1 else 1, step))
            step, rest = step * part, rest // part
    nest += [(1, 0)] * len(left)
    nest = [*nest[::-1], *((value.shape[axis], strides[axis]) for axis in perm[-2:])]
    return MemorySpec(tuple(extent for extent, _ in nest), strides=tuple(step for _, step in nest))


def _beside(context: KernelContext, name: str, found: AttentionShape) -> MemorySpec:
    """Return the operand of a step; elements of neighboring queries lie side by side in a constant.

    They are in neighboring lanes, so that operands of another order are transposed in each run.
    """
    dims = context.value(name).shape
    if not context.is_constant(name):
        return plain_memory(dims)
    rank, keys = len(dims), found.key_axes
    queries = tuple(range(rank - keys - found.query_axes, rank - keys))
    order = (*range(queries[0]), *range(rank - keys, rank), *queries)
    strides = row_major(tuple(dims[axis] for axis in order))
    return MemorySpec(dims, strides=tuple(strides[order.index(axis)] for axis in range(rank)))


def _spec(context: KernelContext) -> KernelSpec | None:
    """Return the kernel of a node; None if its steps see other batch axes than its matrices."""
    node = context.node
    q, k, v, y = (context.value(name) for name in (*node.inputs[:OPERANDS], node.outputs[0]))
    found = attention_shape(node, q.type, k.type, v.type)
    rank, axes = len(q.shape), found.query_axes + found.key_axes
    perms = [turned(node, key, rank) for key in ("perm_q", "perm_k", "perm_v")]
    perms.append(inverse(turned(node, "perm", rank)))
    parts = found.scores[:-axes]
    memories = [
        (role, _matrices(value, perm, found.batch, parts))
        for role, value, perm in zip((*_ROLES, "dst"), (q, k, v, y), perms, strict=True)
    ]
    known = [(role, memory) for role, memory in memories if memory is not None]
    if len(known) < len(memories):
        return None
    beside = [
        (f"src{index}", _beside(context, name, found))
        for index, name in enumerate(node.inputs[OPERANDS:])
    ]
    steps = steps_of(node)
    return KernelSpec(
        "attention",
        (*known[:OPERANDS], *beside, *known[OPERANDS:]),
        (
            ("fills", tuple(fill for _, fill in steps)),
            ("key_axes", found.scores[-found.key_axes :]),
            ("query_axes", found.scores[-axes : -found.key_axes]),
            ("scale", node.float_attr("scale", 1.0)),
            ("steps", tuple(step for step, _ in steps)),
            ("zeroed", node.str_attr("zeroed", "")),
        ),
        flops=2.0 * prod(found.batch) * found.queries * found.keys * (found.depth + found.width),
    )


def _powers_ns(spec: KernelSpec) -> float:
    dst, keys = spec.memory("dst"), spec.memory("keys")
    return 0.0 if dst is None or keys is None else _POWER_NS * prod(dst.dims[:-1]) * keys.dims[-2]


@float32_only
def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    values = [context.value(name) for name in (*node.inputs, *node.outputs)]
    if not all(prod(value.shape) for value in values):
        yield refused(node, "an operand or the result has no elements")
        return
    if any(context.is_constant(name) for name in node.inputs[:OPERANDS]):
        yield refused(node, "its queries, keys or values are constants")
        return
    spec = _spec(context)
    axes = [] if spec is None else [len(memory.dims) for _, memory in spec.memories]
    if spec is None or max(axes) > _MOST_AXES or len(values) > _MOST_VALUES:
        reason = "its steps or axes are too many, or steps see other batch axes than its products"
        yield refused(node, reason)
        return
    args = [Arg(role, input_of(index)) for index, (role, _) in enumerate(spec.memories[:-1])]
    formats = tuple(
        None if context.is_constant(value.name) else user_format(value) for value in values[:-1]
    )
    yield KernelOption(
        "blocks of queries",
        formats,
        (user_format(values[-1]),),
        (Call(spec, (*args, Arg("dst", output_of()))),),
    )


FAMILY = Family(
    {"attention": Offer(_kernels)},
    {"attention": KernelKind({"plain": 0.85}, loops_ns=_powers_ns)},
)
