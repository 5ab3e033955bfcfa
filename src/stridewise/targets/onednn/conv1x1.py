"""Convolution of 1x1, alone or with the product by a factor for each channel before it.

Squeeze and excitation multiplies each channel of an image by a number (Hu et al.,
arXiv:1709.01507), and mobile networks have a convolution of 1x1 after that. One kernel computes
both: it multiplies pixels by the factors while it copies them into the order of its products. It
also computes tails of channels and exponential functions of post-ops faster than the library, and
products of matrices, whose rows are pixels. The kernels are the core's,
``native/conv1x1/conv1x1.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import cast

from stridewise.classes import dataclass
from stridewise.formats import Format
from stridewise.graph import Node
from stridewise.ops.activation import UNARY
from stridewise.ops.geometry import canonical_shape
from stridewise.ops.pointwise import Step, steps
from stridewise.targets.kernels import (
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    PostOpSpec,
    behind_ahead,
    from_ahead,
    input_of,
    output_of,
)
from stridewise.targets.onednn.activation import ELTWISE, eltwise_steps
from stridewise.targets.onednn.depthwise import has_bias, is_1x1, kinds_of
from stridewise.targets.onednn.family import Family, KernelKind
from stridewise.targets.onednn.memory import block_lanes, memory_of
from stridewise.targets.onednn.post_ops import Fused, fused, input_formats, unknown_post_op

__all__ = ["FAMILY", "KIND", "conv1x1_options", "in_pairs", "of_inner_product"]

KIND = "conv1x1"
"""The kind of these kernels in a :class:`KernelSpec`."""

_LANES = (8, 16)


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A product of an image by a factor for each channel, and functions of it.

    Attributes:
        context: of the node that computes it.
        image: which of its inputs is the image.
        factor: which one has the factors.
        functions: as post-ops.
    """

    context: KernelContext
    image: int
    factor: int
    functions: tuple[PostOpSpec, ...]

    @property
    def names(self) -> tuple[str, str]:
        """The image and the factors."""
        inputs = self.context.node.inputs
        return inputs[self.image], inputs[self.factor]


def _chain(node: Node) -> tuple[Step, ...]:
    """Return the steps of a node; none if it is no product, or has something else than functions.

    Each step but the first has one operand, the result of the step before.
    """
    if node.op == "mul" and not node.post_ops:
        return (Step("mul", ("x0", "x1")),)
    if node.op != "pointwise" or len(node.inputs) != 2:
        return ()
    found = steps(node)
    is_product = found[0].op == "mul" and set(found[0].operands) == {"x0", "x1"}
    is_chain = all(
        step.op in UNARY and step.op in ELTWISE and step.operands == (f"t{index}",)
        for index, step in enumerate(found[1:])
    )
    return found if is_product and is_chain else ()


def _scaled(context: KernelContext) -> _Scaled | None:
    """Return what a node computes if that is a product by a factor for each channel."""
    node = context.node
    chain = _chain(node)
    if not chain or any(map(context.is_constant, node.inputs)):
        return None
    shape = context.value(node.outputs[0]).shape
    shapes = [context.value(name).shape for name in node.inputs]
    factor = next((i for i in (1, 0) if shapes[i] == (*shape[:2], 1, 1)), None)
    if factor is None or shapes[1 - factor] != shape:
        return None
    functions = (eltwise_steps(step.op, step.alpha, step.beta) for step in chain[1:])
    posts = tuple(PostOpSpec("eltwise", *item) for each in functions for item in each)
    return _Scaled(context, 1 - factor, factor, posts)


def conv1x1_options(context: KernelContext) -> Iterator[KernelOption]:
    """Yield the core's ways to compute a convolution of 1x1, and what scales its source, too."""
    node, lanes = context.node, block_lanes(context)
    if lanes not in _LANES or not is_1x1(context):
        return
    weights, groups = context.value(node.inputs[1]).shape, node.int_attr("groups", 1)
    if weights[0] == groups:
        return  # a filter for each channel
    is_cut = groups > 1 and any(extent % lanes for extent in (weights[0] // groups, weights[1]))
    can_sum = bool(node.post_ops) and node.post_ops[0].op == "add"
    for kind in kinds_of(context, node.inputs[0], node.outputs[0]):
        if is_cut and kind != "channels-last":
            continue
        for accumulate in (True, False) if can_sum else (False,):
            yield from _options(_Way(context, kind, lanes, accumulate))


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to compute a convolution of 1x1: a kind of storage, and how it adds an operand."""

    context: KernelContext
    kind: str
    lanes: int
    accumulate: bool

    def memory(self, context: KernelContext, name: str) -> MemorySpec:
        """Return a tensor in this kind of storage."""
        value, fmt = context.value(name), context.formats(name)[self.kind]
        return memory_of(fmt, canonical_shape(value, fmt))


def _options(way: _Way) -> Iterator[KernelOption]:
    """Yield the convolution alone, and with the product before it."""
    context, kind = way.context, way.kind
    node, ahead = context.node, context.ahead()
    result = context.formats(node.outputs[0])[kind]
    post = fused(node, way.memory(context, node.outputs[0]), accumulate=way.accumulate)
    if unknown_post_op(post.specs):
        return
    between = context.formats(node.inputs[0])[kind]
    absent: tuple[Format | None, ...] = (None,) * (len(node.inputs) - 1)
    inputs = input_formats(node, (between, *absent), post, result)
    suffix = f"{kind}, sum in place" if post.aliases else kind
    yield KernelOption(f"1x1, {suffix}", inputs, (result,), (_call(way, post, None),), post.aliases)
    scaled = None if ahead is None else _scaled(ahead)
    if scaled is None or unknown_post_op(scaled.functions):
        return
    if kind not in kinds_of(scaled.context, *scaled.names):
        return
    sources = tuple(scaled.context.formats(name)[kind] for name in scaled.context.node.inputs)
    option = behind_ahead(
        KernelOption("", sources, (between,)),
        kind,
        algorithm=f"1x1 of a product, {suffix}",
        inputs=inputs[1:],
        outputs=(result,),
        calls=(_call(way, post, scaled),),
    )
    yield replace(option, aliases=post.aliases)


def _call(way: _Way, post: Fused, scaled: _Scaled | None) -> Call:
    context = way.context
    node, functions = context.node, () if scaled is None else scaled.functions
    weights, y = (context.value(name) for name in (node.inputs[1], node.outputs[0]))
    packed = _weights(weights.shape, node.int_attr("groups", 1), way.lanes)
    args = [Arg("weights", input_of(1), reshape=packed.dims)]
    memories = [("weights", packed)]
    if has_bias(node):
        args.append(Arg("bias", input_of(2)))
        memories.append(("bias", MemorySpec((weights.shape[0],), "a")))
    if scaled is None:
        args.append(Arg("src", input_of(0)))
        memories.append(("src", way.memory(context, node.inputs[0])))
    else:
        indices = zip(("src", "factor"), (scaled.image, scaled.factor), strict=True)
        args += [from_ahead(Arg(role, input_of(index))) for role, index in indices]
        names = zip(("src", "factor"), scaled.names, strict=True)
        memories += [(role, way.memory(scaled.context, name)) for role, name in names]
    # Operands of post-ops have numbers that count those of the source.
    shifted = [replace(arg, role=_shifted(arg.role, len(functions))) for arg in post.args]
    spec = KernelSpec(
        KIND,
        (*memories, ("dst", way.memory(context, y.name))),
        _params(len(functions), way.lanes, node.ints_attr("strides", (1, 1))),
        (*functions, *post.specs),
        flops=2.0 * prod(y.shape) * weights.shape[1],
    )
    return Call(spec, (*args, Arg("dst", output_of()), *shifted))


def _params(
    between: int, lanes: int, strides: tuple[int, ...]
) -> tuple[tuple[str, int | tuple[int, ...]], ...]:
    return (("between", between), ("lanes", lanes), ("strides", strides))


def in_pairs(spec: KernelSpec) -> KernelSpec | None:
    """Return the kernel that multiplies pairs of bfloat16; None if there is none.

    Args:
        spec: the kernel with float32 products, whose source is of bfloat16.
    """
    memories, params = dict(spec.memories), dict(spec.params)
    source, weights, lanes = memories["src"], memories["weights"], cast("int", params["lanes"])
    is_plain = "factor" not in memories and params["between"] == 0 and len(weights.dims) == 4
    if not is_plain or source.tag != "acdb" or source.dims[1] % 2:
        return None
    memories["weights"] = MemorySpec(weights.dims, f"AcdB{2 * lanes}a2b", dtype="bf16")
    return replace(
        spec, memories=tuple(memories.items()), params=(*spec.params, ("products", "bf16"))
    )


def of_inner_product(option: KernelOption, lanes: int) -> KernelOption | None:
    """Return the core's way to compute an inner product, whose rows are the pixels of an image.

    Args:
        option: one inner product with weights of two axes.
        lanes: elements of a vector.
    """
    (call,) = option.calls
    memories = dict(call.spec.memories)
    outputs = memories["dst"].dims[1]
    operands = (arg for arg in call.args if arg.role.startswith("post"))
    is_packed = any(arg.reshape or arg.permute for arg in operands)
    if lanes not in _LANES or is_packed or unknown_post_op(call.spec.post_ops):
        return None
    result = _as_pixels(memories["dst"])
    weights = _weights((outputs, memories["src"].dims[1], 1, 1), 1, lanes)
    memories |= {"src": _as_pixels(memories["src"]), "weights": weights, "dst": result}
    posts = (replace(post, operand=result) if post.operand else post for post in call.spec.post_ops)
    params = _params(0, lanes, (1, 1))
    spec = KernelSpec(KIND, tuple(memories.items()), params, tuple(posts), call.spec.flops)
    args = (_with_pixel(arg) if arg.role == "weights" else arg for arg in call.args)
    algorithm = option.algorithm.replace("inner product", "1x1", 1)
    return replace(option, algorithm=algorithm, calls=(Call(spec, tuple(args)),))


def _as_pixels(memory: MemorySpec) -> MemorySpec:
    rows, channels = memory.dims
    return MemorySpec((1, channels, 1, rows), "acdb")


def _with_pixel(weights: Arg) -> Arg:
    shape, order = weights.reshape or (), weights.permute or ()
    return replace(weights, reshape=(*shape, 1, 1), permute=(*order, len(order), len(order) + 1))


def _weights(shape: tuple[int, ...], groups: int, lanes: int) -> MemorySpec:
    """Return weights in panels of inputs and pairs of vectors of outputs."""
    if groups == 1:
        return MemorySpec(shape, f"Acdb{2 * lanes}a")
    return MemorySpec((groups, shape[0] // groups, *shape[1:]), f"aBdec{2 * lanes}b")


def _shifted(role: str, count: int) -> str:
    return f"post{int(role.removeprefix('post')) + count}"


FAMILY = Family(kinds={KIND: KernelKind({"channels-last": 0.88, "blocked": 0.92}, function_ns=0.2)})
