"""Kernels that read and write single elements, or rows at points, by indices of a run.

The core checks the indices before it reads or writes anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.graph import Refusal
from stridewise.ops.geometry import row_major, user_format
from stridewise.targets.kernels import (
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.elements import copy_elements, element_memory
from stridewise.targets.onednn.family import Family, KernelKind, KernelRule, Offer, refused

__all__ = ["FAMILY"]

_INDICES = frozenset({"int32", "int64"})


def _refusal(context: KernelContext) -> Refusal | None:
    node = context.node
    indices = context.value(node.inputs[1])
    if indices.dtype.name not in _INDICES:
        return refused(node, f"the indices are {indices.dtype}; kernels take int32 and int64")
    if node.post_ops:
        return refused(node, "the kernels take no post-ops")
    return None


def _gather(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    """Yield the kernel of elements along an axis, or of rows at points."""
    node = context.node
    refusal = _refusal(context)
    if refusal is not None:
        yield refusal
        return
    x, indices, y = map(context.value, (*node.inputs, *node.outputs))
    memories = (
        ("src", element_memory(x)),
        ("table", element_memory(indices)),
        ("dst", element_memory(y)),
    )
    key = "axis" if node.op == "gather_elements" else "batch_dims"
    spec = KernelSpec(node.op, memories, ((key, node.int_attr(key, 0)),))
    args = Arg("src", input_of(0)), Arg("table", input_of(1)), Arg("dst", output_of())
    formats = tuple(
        None if context.is_constant(value.name) else user_format(value) for value in (x, indices)
    )
    yield KernelOption("by index", formats, (user_format(y),), (Call(spec, args),))


def _scatter(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, indices, updates, y = map(context.value, (*node.inputs, *node.outputs))
    refusal, reduction = _refusal(context), node.str_attr("reduction", "none")
    if refusal is None and reduction != "none" and x.dtype.name != "float32":
        refusal = refused(node, f"kernels combine updates of float32, not {x.dtype}")
    if refusal is not None:
        yield refusal
        return
    memories = (
        ("src", element_memory(updates)),
        ("table", element_memory(indices)),
        ("dst", element_memory(y)),
    )
    along = (("axis", node.int_attr("axis", 0)),) if node.op == "scatter_elements" else ()
    spec = KernelSpec(node.op, memories, (*along, ("reduction", reduction)))
    args = Arg("src", input_of(2)), Arg("table", input_of(1)), Arg("dst", output_of())
    call = Call(spec, args)
    fixed = [context.is_constant(value.name) for value in (x, indices, updates)]
    formats = tuple(
        None if known else user_format(value)
        for known, value in zip(fixed, (x, indices, updates), strict=True)
    )
    if not fixed[0]:
        shared = (Alias(0, 0, 0, "accumulate"),)
        yield KernelOption("by index", formats, (user_format(y),), (call,), shared)
        return
    whole = MemorySpec((prod(x.shape),), strides=row_major((prod(x.shape),)))
    constant = Arg("src0", input_of(0), reshape=(prod(x.shape),))
    first = copy_elements(x.dtype.short, (whole, constant), (whole, Arg("dst", output_of())))
    yield KernelOption("by index", formats, (user_format(y),), (first, call))


_RULES: dict[str, KernelRule] = {
    **dict.fromkeys(("gather_elements", "gather_nd"), _gather),
    "scatter_elements": _scatter,
}

FAMILY = Family(
    {"scatter_elements": Offer(_scatter)},
    {kind: KernelKind({"plain": 0.1}) for kind in (*_RULES, "scatter_nd")},
    typed={**_RULES, "scatter_nd": _scatter},
)
