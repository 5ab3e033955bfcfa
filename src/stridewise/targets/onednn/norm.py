"""Kernels of scale and shift, and of local response normalization."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from stridewise.formats import Format, nd
from stridewise.graph import Node, Refusal
from stridewise.ops.activation import SNAPS
from stridewise.ops.geometry import canonical_shape
from stridewise.targets.kernels import (
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    Operand,
    input_of,
    output_of,
)
from stridewise.targets.onednn.family import Family, KernelKind, Offer, refused
from stridewise.targets.onednn.memory import memory_of, storage_of
from stridewise.targets.onednn.pointwise import expanded, flops_of, steps_with_posts
from stridewise.targets.onednn.post_ops import takes_snap

__all__ = ["FAMILY"]


def _kernels_scale_shift(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if node.post_ops and node.post_ops[0].op in SNAPS:
        yield from _in_one_pass(context)
        return
    rows = [None if context.is_constant(name) else nd(1) for name in node.inputs[1:3]]
    channels = MemorySpec((x.shape[1],), "a")
    results = context.formats(y.name)
    for kind, fmt in context.formats(x.name).items():
        if kind not in results:
            continue
        memory = memory_of(fmt, canonical_shape(x, fmt))
        if not _has_vectors(memory):
            continue  # the library has loops over single elements, and the core's kernel vectors
        # With zero statistics and an epsilon of 1 a batch norm is a scale and a shift, and nothing
        # is divided by zero in the spare lanes of blocked formats.
        spec = KernelSpec(
            "scale_shift",
            (
                ("src", memory),
                ("mean", channels),
                ("variance", channels),
                ("scale", channels),
                ("shift", channels),
                ("dst", memory),
            ),
            (("relu", int(bool(node.post_ops))),),
            flops=2.0 * prod(x.shape),
        )
        args = (
            Arg("src", input_of(0)),
            Arg("mean", Operand("fill", 0)),
            Arg("variance", Operand("fill", 0)),
            Arg("scale", input_of(1)),
            Arg("shift", input_of(2)),
            Arg("dst", output_of()),
        )
        yield KernelOption(
            f"batch norm, {kind}",
            (fmt, *rows),
            (results[kind],),
            (Call(spec, args),),
            (Alias(0, 0, 0, "in place"),),
        )
    yield from _in_one_pass(context)


def _has_vectors(memory: MemorySpec) -> bool:
    """Return whether channels lie side by side, in whole vectors of every instruction set."""
    is_last = memory.tag.endswith("b")
    return storage_of(memory) == "blocked" or (is_last and memory.dims[1] % 16 == 0)


def _rows(context: KernelContext) -> Iterator[tuple[str, Format, Format, MemorySpec, MemorySpec]]:
    """Yield kinds and formats of source and result, their memory, and that of rows of channels.

    Rows that are no constants lie side by side, as those of a tensor without blocks do.
    """
    node = context.node
    x, results = context.value(node.inputs[0]), context.formats(node.outputs[0])
    fixed = all(map(context.is_constant, node.inputs[1:3]))
    for kind, fmt in context.formats(x.name).items():
        if kind in results and (fixed or not fmt.is_blocked):
            memory = memory_of(fmt, canonical_shape(x, fmt))
            row = (1, x.shape[1], *(1,) * (len(memory.dims) - 2))
            yield kind, fmt, results[kind], memory, MemorySpec(row, memory.tag)


def _in_one_pass(context: KernelContext) -> Iterator[KernelOption]:
    """Yield a product and a sum of each channel, and the post-ops, by the core's kernel."""
    found = expanded(steps_with_posts(context.node))
    fixed = [context.is_constant(name) for name in context.node.inputs[1:3]]
    rows = tuple(None if is_fixed else nd(1) for is_fixed in fixed)
    for kind, fmt, result, memory, row in _rows(context):
        spec = KernelSpec(
            "pointwise",
            (("src0", memory), ("src1", row), ("src2", row), ("dst", memory)),
            (("expression", tuple(map(str, found))),),
            flops=flops_of(found) * prod(memory.dims),
        )
        args = (
            Arg("src0", input_of(0)),
            *(
                Arg(f"src{index}", input_of(index), reshape=row.dims if is_fixed else None)
                for index, is_fixed in enumerate(fixed, start=1)
            ),
            Arg("dst", output_of()),
        )
        yield KernelOption(
            f"pointwise, {kind}",
            (fmt, *rows),
            (result,),
            (Call(spec, args),),
            (Alias(0, 0, 0, "in place"),),
        )


def _kernels_lrn(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if node.int_attr("size") % 2 == 0:
        yield refused(node, "the window is not centered for an even size")
        return
    results = context.formats(y.name)
    for kind, fmt in context.formats(x.name).items():
        if kind not in results:
            continue
        memory = memory_of(fmt, canonical_shape(x, fmt))
        spec = KernelSpec(
            "lrn",
            (("src", memory), ("dst", memory)),
            (
                ("alpha", node.float_attr("alpha", 1e-4)),
                ("beta", node.float_attr("beta", 0.75)),
                ("k", node.float_attr("bias", 1.0)),
                ("size", node.int_attr("size")),
            ),
            flops=float(node.int_attr("size") * prod(x.shape)),
        )
        args = (Arg("src", input_of(0)), Arg("dst", output_of()))
        yield KernelOption(f"lrn, {kind}", (fmt,), (results[kind],), (Call(spec, args),))


def _post_ops(node: Node) -> frozenset[str]:
    """Return relu, or a rounding to a grid and then relu."""
    return takes_snap(node) if node.post_ops else takes_snap(node) | {"relu"}


def _is_naive(_spec: KernelSpec, storage: str, dst: MemorySpec) -> bool:
    """Return whether the channels are no multiple of 16."""
    return storage != "plain" and dst.dims[1] % 16 != 0


FAMILY = Family(
    {
        "scale_shift": Offer(_kernels_scale_shift, frozenset({"conv"}), _post_ops),
        "lrn": Offer(_kernels_lrn),
    },
    {
        "scale_shift": KernelKind(),
        "lrn": KernelKind({"plain": 0.20, "channels-last": 0.30, "blocked": 0.35}, _is_naive),
    },
)
