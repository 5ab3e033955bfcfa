"""Channel shuffle: channels seen as [groups, C / groups] are transposed.

Source: ShuffleNet (Zhang et al. 2017). Exporters write it as Reshape, Transpose, Reshape; the pass
``recognize_shuffle`` turns that into this operator, so that blocked formats can flow through.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.formats import Format
from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops.geometry import canonical_shape, copy_call, row_major
from stridewise.ops.kernels import (
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    input_of,
    output_of,
)
from stridewise.ops.registry import Array, Operands, OpSpec, Types, array, needs, register, tensor

__all__ = ["CHANNEL_SHUFFLE"]


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, groups = tensor(node, types, 0), node.int_attr("groups")
    needs(node, len(x.shape) >= 2, "an input with a channel axis", x)
    needs(node, groups > 0 and x.shape[1] % groups == 0, "groups that divide the channels", groups)
    return (x,)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x, groups = array(operands, 0), node.int_attr("groups")
    split = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    return (split.swapaxes(1, 2).reshape(x.shape),)


def _strided(fmt: Format, shape: tuple[int, ...], groups: int) -> tuple[MemorySpec, MemorySpec]:
    """Return source and destination of the transposition, for formats without blocks."""
    stored = tuple(shape[axis] for axis in fmt.permutation)
    channel = fmt.order.index(fmt.axes[1])
    outer, inner = prod(stored[:channel]), prod(stored[channel + 1 :])
    rest = shape[1] // groups
    dims = (outer, rest, groups, inner)
    source = MemorySpec(dims, strides=(groups * rest * inner, inner, rest * inner, 1))
    return source, MemorySpec(dims, strides=row_major(dims))


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    groups = node.int_attr("groups")
    results = context.formats(y.name)
    for kind, fmt in context.formats(x.name).items():
        if kind not in results:
            continue
        shape = canonical_shape(x, fmt)
        if fmt.is_blocked:
            memory = MemorySpec.of(fmt, shape)
            # oneDNN's group size is the extent of the inner one of the two transposed axes.
            spec = KernelSpec(
                "shuffle",
                (("src", memory), ("dst", memory)),
                (("axis", 1), ("group_size", shape[1] // groups)),
            )
            call = Call(spec, (Arg("src", input_of(0)), Arg("dst", output_of())))
        else:
            source, result = _strided(fmt, shape, groups)
            call = copy_call((source, 0), (result, 0), input_of(0), output_of())
        yield KernelOption(f"shuffle, {kind}", (fmt,), (results[kind],), (call,))


CHANNEL_SHUFFLE = register(OpSpec("channel_shuffle", (1, 1), _infer, _evaluate, "anchor", _kernels))
