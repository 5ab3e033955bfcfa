"""Elementwise kernels on tensors of integers, means and interpolation among them.

The library's kernels take scales of two operands and no zero points, which become post-ops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from stridewise.dtypes import dtype_of
from stridewise.ops import evaluate
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
    scale_args,
    scale_memories,
)
from stridewise.targets.onednn.family import Family, KernelKind
from stridewise.targets.onednn.integers import (
    Chain,
    Typed,
    element_of,
    grid_named,
    stored_grid,
    with_types,
)
from stridewise.targets.onednn.memory import elementwise_formats
from stridewise.tensor import Grid

__all__ = ["FAMILY", "averages", "elementwise", "tables"]


# --- means and interpolation ----------------------------------------------------------------------


def _pads(spec: KernelSpec) -> bool:
    params = dict(spec.params)
    borders = [params.get("begins"), params.get("ends")]
    return any(any(item) for item in borders if isinstance(item, tuple))


def averages(option: KernelOption, context: KernelContext) -> Iterator[KernelOption]:
    """Yield means and interpolations of integers: the library's give the type that they take."""
    node = context.node
    if len(option.calls) != 1:
        return
    spec, args = option.calls[0].spec, option.calls[0].args
    algorithm = dict(spec.params).get("algorithm")
    means = {("pooling", "avg_exclude"), ("pooling", "avg_include"), ("resampling", "linear")}
    source, result = grid_named(context, node.inputs[0]), stored_grid(context)
    if (spec.kind, algorithm) not in means or source is None or result is None:
        return
    scale, zero = source.scales[0], source.zero_points[0]
    includes = algorithm == "avg_include" and _pads(spec)
    if source.dtype != result.dtype or (zero and includes) or node.op == "reduce_sum":
        return
    typed = Typed(context, (source, *(None,) * (len(option.inputs) - 1)), result)
    chain, destination = Chain(), spec.memory("dst")
    assert destination is not None
    chain.eltwise("linear", scale, -zero * scale)
    typed.posts(chain, destination)
    chain.store(result)
    types = {"src": source.dtype, "dst": result.dtype}
    made = replace(
        spec, memories=tuple(with_types(spec.memories, types)), post_ops=tuple(chain.specs)
    )
    yield typed.option(option, Call(made, args), f"{option.algorithm}, {source.dtype}")


# --- elementwise ----------------------------------------------------------------------------------


def elementwise(option: KernelOption, context: KernelContext) -> Iterator[KernelOption]:
    """Yield sums, differences and products of two tensors, of which the first holds integers.

    The second one of a product holds real numbers where its zero point is not 0. Operands that are
    broadcast are left to the core's expressions: the library takes up to seven times as long.
    """
    node = context.node
    if len(option.calls) != 1 or option.calls[0].spec.kind != "binary" or None in option.inputs:
        return
    spec, args = option.calls[0].spec, option.calls[0].args
    if len({memory.dims for _, memory in spec.memories}) > 1:
        return
    result, algorithm = stored_grid(context), str(dict(spec.params)["algorithm"])
    first, second = (arg.operand.index for arg in args[:2])
    left, right = grid_named(context, node.inputs[first]), grid_named(context, node.inputs[second])
    if left is None or right is None or result is None or algorithm not in _SIGNS:
        return
    is_product = algorithm == "mul"
    other = None if is_product and right.zero_points[0] else right
    typed = Typed(context, (left, other) if first == 0 else (other, left), result)
    chain = Chain()
    if is_product and left.zero_points[0]:
        args = (args[0], _zero_arg(left), args[2])
        made = replace(spec, params=(("algorithm", "sub"),))
        chain.eltwise("linear", left.scales[0], 0.0)
        chain.second(algorithm, spec.memories[1][1], option.calls[0].args[1], other)
        numbers: tuple[Arg, ...] = ()
        types = {"src": left.dtype, "src1": "f32", "dst": result.dtype}
        one = MemorySpec((1,) * len(spec.memories[0][1].dims), spec.memories[0][1].tag)
        made = replace(made, memories=(spec.memories[0], ("src1", one), spec.memories[2]))
    else:
        made = spec
        sign = _SIGNS[algorithm]
        chain.eltwise("linear", 1.0, -_offset(left) - sign * _offset(right) if sign else 0.0)
        types = {"src": left.dtype, "src1": other.dtype if other else "f32", "dst": result.dtype}
        numbers = (*_scales("src", left), *(_scales("src1", other) if other else ()))
    yield _finished(typed, option, Call(made, (*args, *numbers)), chain, types)


_SIGNS = {"add": 1, "sub": -1, "mul": 0}
"""Functions of two operands, and the sign of the second one's zero point in the result."""


def _offset(grid: Grid) -> float:
    return grid.scales[0] * grid.zero_points[0]


def _scales(role: str, grid: Grid) -> tuple[Arg, ...]:
    """Return the scale of an operand, of which the library's kernel takes no zero point."""
    return scale_args(role, replace(grid, zero_points=(0,)).quantization)


def _zero_arg(grid: Grid) -> Arg:
    return Arg("src1", Operand("numbers", 0, (float(grid.zero_points[0]),)))


def _finished(
    typed: Typed, option: KernelOption, call: Call, chain: Chain, types: dict[str, str]
) -> KernelOption:
    """Return an elementwise option with the node's post-ops behind those of a chain."""
    result, spec = typed.result, call.spec
    destination = spec.memory("dst")
    assert destination is not None  # elementwise kernels have one
    assert result is not None  # it is stored as integers
    typed.posts(chain, destination)
    chain.store(result)
    numbers = scale_memories(arg for arg in call.args if arg.role.endswith("_scale"))
    memories = (*with_types(spec.memories, types), *numbers)
    made = replace(spec, memories=memories, post_ops=tuple(chain.specs))
    name = f"{option.algorithm}, {types['src']} to {types['dst']}"
    return typed.option(option, Call(made, (*call.args, *chain.args)), name)


# --- functions of one tensor ----------------------------------------------------------------------

_BYTES = 256


def _table(context: KernelContext, source: Grid, result: Grid) -> tuple[float, ...]:
    """Return the byte that a node makes of each byte, by its definition."""
    node = context.node
    stored = np.arange(_BYTES, dtype=np.uint8).view(_numpy(source))
    real = (stored.astype(np.float32) - source.zero_points[0]) * np.float32(source.scales[0])
    (found,) = evaluate(node, [real])
    bytes_ = result.stored(np.asarray(found)) + result.zero_points[0]
    return tuple(bytes_.astype(_numpy(result)).view(np.uint8).astype(float).tolist())


def _numpy(grid: Grid) -> np.dtype[Any]:
    return dtype_of(grid.dtype).numpy


def tables(context: KernelContext) -> Iterator[KernelOption]:
    """Yield the lookup of each byte of the result, for functions of one tensor of integers."""
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    source, result = grid_named(context, x.name), grid_named(context, y.name)
    if len(node.inputs) != 1 or source is None or result is None:
        return
    table = Arg("table", Operand("numbers", 0, _table(context, source, result)))
    args = (Arg("src", input_of(0)), table, Arg("dst", output_of()))
    entries = ("table", MemorySpec((_BYTES,), "a", dtype="u8"))
    for fmt, made, memory in elementwise_formats(context, x, y):
        if fmt.is_blocked:
            continue
        sides = (("src", source.dtype), ("dst", result.dtype))
        memories = tuple((role, replace(memory, dtype=dtype)) for role, dtype in sides)
        spec = KernelSpec("lookup", (*memories, entries), flops=float(prod(x.shape)))
        yield KernelOption(
            f"lookup, {source.dtype} to {result.dtype}",
            (fmt,),
            (made,),
            (Call(spec, args),),
            (Alias(0, 0, 0, "in place"),),
            elements=(element_of(source), element_of(result)),
        )


FAMILY = Family(kinds={"lookup": KernelKind()})
