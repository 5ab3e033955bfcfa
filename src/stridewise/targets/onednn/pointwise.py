"""The core's kernels for expressions of elementwise operators, and for single ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod

from stridewise.formats import Format
from stridewise.graph import Attr, Node, Refusal, Value
from stridewise.ops.activation import SNAPS, UNARY, parameters
from stridewise.ops.geometry import canonical_shape, positions, row_major, user_format
from stridewise.ops.pointwise import OPERANDS, Step, steps
from stridewise.targets.kernels import (
    SCALING,
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
from stridewise.targets.onednn.activation import OWN
from stridewise.targets.onednn.family import Family, KernelKind, Offer, refused
from stridewise.targets.onednn.memory import memory_of, plain_memory
from stridewise.tensor.quantization import RANGES

__all__ = [
    "FAMILY",
    "Bound",
    "aligned",
    "bind",
    "expanded",
    "flops_of",
    "node_steps",
    "pointwise_options",
    "result_formats",
    "steps_with_posts",
]

Bound = tuple[MemorySpec, Arg, Format | None]
"""An operand as a kernel reads it: its memory, where it comes from, the format it must have."""

_SINGLE = OWN | {
    *("ceil", "cos", "erf", "floor", "pow", "prelu", "shrink", "sign", "sin", "thresholded_relu"),
    "where",
}
"""Operators that are computed here where they stand alone."""

_LIGHT = frozenset({"abs", "add", "clip", "leaky_relu", "maximum", "minimum", "mul", "neg", "relu"})
_HEAVY_FLOPS = 16.0
"""What a step takes whose operator is more than one instruction; an estimate."""


def aligned(operand: Value, result: Value) -> tuple[int, ...]:
    """Return the operand's shape with leading ones, in the user's order of the result."""
    return (1,) * (len(result.shape) - len(operand.shape)) + operand.shape


def bind(context: KernelContext, role: str, index: int, kind: str, fmt: Format) -> Bound | None:
    """Describe operand ``index`` beside a result stored in ``fmt``; None where it cannot be."""
    operand = context.value(context.node.inputs[index])
    result = context.value(context.node.outputs[0])
    order = positions(result, fmt)
    shape = aligned(operand, result)
    dims = tuple(shape[position] for position in order)
    arg = Arg(role, input_of(index))
    if context.is_constant(operand.name):
        # A lone channel row takes the blocked tag too: oneDNN is fast only then.
        memory = memory_of(fmt, dims) if prod(dims) > 1 else plain_memory(dims)
        return memory, Arg(role, input_of(index), reshape=shape, permute=order), None
    if operand.origin == result.origin and len(operand.shape) == len(result.shape):
        stored = context.formats(operand.name).get(kind)
        if kind == "user":
            stored = user_format(operand)
        if stored is not None:
            memory = memory_of(stored, canonical_shape(operand, stored))
            return replace(memory, dtype=_element_of(operand)), arg, stored
        if not _is_mask(operand):
            return None
    strides = row_major(shape)
    memory = MemorySpec(dims, strides=tuple(strides[position] for position in order))
    return replace(memory, dtype=_element_of(operand)), arg, user_format(operand)


def _is_mask(value: Value) -> bool:
    return value.dtype.name == "bool"


def _element_of(value: Value) -> str:
    """Return the type by which kernels know the elements of a value: truth values are bytes."""
    return "u8" if _is_mask(value) else "f32"


def result_formats(context: KernelContext) -> Iterator[tuple[str, Format]]:
    """Yield the formats that the result may have beside those of the operands, by kind."""
    result = context.value(context.node.outputs[0])
    same_rank = [
        value
        for value in map(context.value, context.node.inputs)
        if len(value.shape) == len(result.shape) and not context.is_constant(value.name)
    ]
    if all(value.origin == result.origin for value in same_rank):
        yield from context.formats(result.name).items()
    else:
        # The operands' axes disagree: only the user's own order means the same to both.
        yield "user", user_format(result)


def node_steps(node: Node) -> tuple[Step, ...]:
    """Return the steps of a node: of an expression, or the one of a single operator."""
    if node.op == "pointwise":
        return steps(node)
    operands = tuple(f"x{index}" for index in range(OPERANDS[node.op]))
    return (Step(node.op, operands, *(parameters(node) if node.op in UNARY else (0.0, 0.0))),)


def steps_with_posts(node: Node) -> list[Step]:
    """Return the steps of a node and of its post-ops; none where no expression computes it."""
    if node.op == "scale_shift":
        found = [Step("mul", ("x0", "x1")), Step("add", ("t0", "x2"))]
    elif node.op == "pointwise" or node.op in OPERANDS:
        found = list(node_steps(node))
    else:
        return []
    for post in node.post_ops:
        operands = () if post.operand is None else (f"x{post.operand}",)
        found.append(Step(post.op, (f"t{len(found) - 1}", *operands), post.alpha, post.beta))
    return found


def expanded(found: Sequence[Step], unrounded: int | None = None) -> tuple[Step, ...]:
    """Return steps that kernels have: a rounding to a grid is four of them.

    Args:
        found: the steps.
        unrounded: which rounding is left out, because the kernel stores integers.
    """
    made: list[Step] = []
    names: dict[str | float, str] = {}
    for index, step in enumerate(found):
        operands = tuple(names.get(item, item) for item in step.operands)
        if index == unrounded:
            names[f"t{index}"] = str(operands[0])
            continue
        if step.op not in SNAPS:
            made.append(replace(step, operands=operands))
        else:
            last = len(made)
            low, high = (limit - step.beta for limit in RANGES[SNAPS[step.op]])
            made.append(Step("div", (*operands, step.alpha)))
            made.append(Step("round", (f"t{last}",)))
            made.append(Step("clip", (f"t{last + 1}",), low, high))
            made.append(Step("mul", (f"t{last + 2}", step.alpha)))
        names[f"t{index}"] = f"t{len(made) - 1}"
    return tuple(made)


def flops_of(found: Sequence[Step]) -> float:
    """Return the operations of steps for each element."""
    return sum(1.0 if step.op in _LIGHT else _HEAVY_FLOPS for step in found)


def _refused(context: KernelContext) -> Refusal | None:
    """Return why the kernels do not compute a node: all is float32, or truth values."""
    node = context.node
    for name in (*node.inputs, *node.outputs):
        value = context.value(name)
        if value.dtype.name not in ("bool", "float32"):
            reason = f"{name!r} is {value.dtype}; the kernels are of float32 and truth values"
            return refused(node, reason)
    return None


def _scaling(memories: Sequence[tuple[str, MemorySpec]]) -> tuple[tuple[str, Attr], ...]:
    """Return the parameter that bytes need: they stand for themselves."""
    if all(memory.dtype != "u8" for _, memory in memories):
        return ()
    return ((SCALING, (1.0, 0.0) * len(memories)),)


def pointwise_options(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    """Yield the ways to compute a node in one pass over memory."""
    node = context.node
    refusal = _refused(context)
    if refusal is not None:
        yield refusal
        return
    result, found = context.value(node.outputs[0]), expanded(node_steps(node))
    flops = flops_of(found) * prod(result.shape)
    for kind, fmt in result_formats(context):
        bound = [
            bind(context, f"src{index}", index, kind, fmt) for index in range(len(node.inputs))
        ]
        operands = [item for item in bound if item is not None]
        if len(operands) != len(bound):
            continue
        dst = memory_of(fmt, canonical_shape(result, fmt))
        dst = replace(dst, dtype=_element_of(result))
        memories = (*((arg.role, memory) for memory, arg, _ in operands), ("dst", dst))
        params = (("expression", tuple(map(str, found))), *_scaling(memories))
        spec = KernelSpec("pointwise", memories, params, flops=flops)
        reused = (
            Alias(index, 0, 0, "in place")
            for index, (memory, _, stored) in enumerate(operands)
            if stored == fmt and memory == dst
        )
        yield KernelOption(
            f"pointwise, {kind}",
            tuple(stored for _, _, stored in operands),
            (fmt,),
            (Call(spec, (*(arg for _, arg, _ in operands), Arg("dst", output_of()))),),
            tuple(reused),
        )


FAMILY = Family(
    {op: Offer(pointwise_options) for op in ("pointwise", *sorted(_SINGLE))},
    {"pointwise": KernelKind()},
    typed={"pointwise": pointwise_options},
)
