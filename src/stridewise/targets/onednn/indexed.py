"""Kernels that copy rows by a table of their numbers: reading and writing by indices.

The pass ``place_indices`` brings known indices to this form. Those of a run, such as the words of
an embedding, are read as they are. The core checks them before it copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from stridewise.graph import Refusal, Value
from stridewise.ops.geometry import user_format
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
from stridewise.targets.onednn.elements import element_memory
from stridewise.targets.onednn.family import Family, KernelKind, Offer, other_than_float32, refused
from stridewise.targets.onednn.memory import plain_memory
from stridewise.targets.walks import copy_call

__all__ = ["FAMILY"]

_WORDS = {"int32": 1, "int64": 2}
"""Words of 32 bits of an index; the library has no wider integers."""


def _unfit(
    context: KernelContext, tensors: tuple[str, ...], *, takes_any: bool = False
) -> Refusal | None:
    """Return why no kernel takes a node; its input 1 has the indices.

    Kernels that take any indices also read those that are computed in the run.
    """
    node = context.node
    indices = context.value(node.inputs[1])
    is_constant = context.is_constant(indices.name)
    if not takes_any and not is_constant:
        return refused(node, "the indices are computed in the run")
    known = ("int32",) if is_constant else tuple(_WORDS)
    if indices.dtype.name not in known:
        return refused(node, f"the indices are {indices.dtype}; kernels take {' and '.join(known)}")
    if not takes_any and any(context.value(name).dtype.name != "float32" for name in tensors):
        return other_than_float32(context)
    if not all(prod(context.value(name).shape) for name in (*tensors, indices.name)):
        return refused(node, "a tensor has no elements")
    return None


def _table(context: KernelContext) -> tuple[tuple[str, MemorySpec], Arg]:
    indices = context.value(context.node.inputs[1])
    count = prod(indices.shape)
    memory = MemorySpec((count * _WORDS[indices.dtype.name],), "a", dtype="s32")
    is_constant = context.is_constant(indices.name)
    return ("table", memory), Arg("table", input_of(1), reshape=(count,) if is_constant else None)


def _rows(value: Value, dims: tuple[int, int, int]) -> MemorySpec:
    """Return rows of a value; those of other types than float32 are bytes, which the library has.

    The kernel copies rows, whatever they are.
    """
    if value.dtype.name == "float32":
        return plain_memory(dims)
    return replace(plain_memory((*dims[:2], dims[2] * value.dtype.itemsize)), dtype="u8")


def _gather(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, indices, y = (context.value(name) for name in (*node.inputs, *node.outputs))
    refusal, axis = _unfit(context, (x.name, y.name), takes_any=True), node.int_attr("axis", 0)
    is_packed = context.is_constant(x.name) and x.dtype.name != "float32"
    if refusal is None and is_packed and axis:
        refusal = other_than_float32(context)
    if refusal is not None:
        yield refusal
        return
    if is_packed:
        yield _rows_of_a_table(x, indices, y, is_known=context.is_constant(indices.name))
        return
    memory, table = _table(context)
    outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    rows, count = x.shape[axis], prod(indices.shape)
    source, result = (_rows(x, (outer, extent, inner)) for extent in (rows, count))
    spec = KernelSpec("gather_rows", (("src", source), memory, ("dst", result)))
    args = (Arg("src", input_of(0)), table, Arg("dst", output_of()))
    places = None if context.is_constant(indices.name) else user_format(indices)
    yield KernelOption(
        "rows by index", (user_format(x), places), (user_format(y),), (Call(spec, args),)
    )


def _rows_of_a_table(x: Value, indices: Value, y: Value, *, is_known: bool) -> KernelOption:
    """Return the kernel of rows of a constant that is not float32, as points of one axis."""
    points = (*indices.shape, 1)
    memories = (
        ("src", element_memory(x)),
        ("table", element_memory(indices, points)),
        ("dst", element_memory(y)),
    )
    spec = KernelSpec("gather_nd", memories, (("batch_dims", 0),))
    args = (
        Arg("src", input_of(0)),
        Arg("table", input_of(1), reshape=points if is_known else None),
        Arg("dst", output_of()),
    )
    formats = (None, None if is_known else user_format(indices))
    return KernelOption("rows by index", formats, (user_format(y),), (Call(spec, args),))


def _scatter(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, updates = context.value(node.inputs[0]), context.value(node.inputs[2])
    y = context.value(node.outputs[0])
    refusal = _unfit(context, (x.name, updates.name, y.name))
    if refusal is None and context.value(node.inputs[1]).shape[-1] != 1:
        refusal = refused(node, "points have several coordinates")
    if refusal is not None:
        yield refusal
        return
    memory, table = _table(context)
    source = plain_memory((memory[1].dims[0], prod(x.shape[1:])))
    result = plain_memory((x.shape[0], prod(x.shape[1:])))
    params = (("reduction", node.str_attr("reduction", "none")),)
    spec = KernelSpec("scatter_rows", (("src", source), memory, ("dst", result)), params)
    call = Call(spec, (Arg("src", input_of(2)), table, Arg("dst", output_of())))
    formats = (user_format(x), None, user_format(updates))
    if not context.is_constant(x.name):
        shared = (Alias(0, 0, 0, "accumulate"),)
        yield KernelOption("rows by index", formats, (user_format(y),), (call,), shared)
        return
    # A constant is copied into the result.
    whole = plain_memory((prod(x.shape),))
    first = copy_call((whole, 0), (whole, 0), input_of(0), output_of())
    yield KernelOption("rows by index", formats, (user_format(y),), (first, call))


FAMILY = Family(
    {"gather": Offer(_gather), "scatter_nd": Offer(_scatter)},
    {
        "gather_rows": KernelKind({"plain": 0.3}),
        "scatter_rows": KernelKind({"plain": 0.3}),
    },
    typed={"gather": _gather},
)
