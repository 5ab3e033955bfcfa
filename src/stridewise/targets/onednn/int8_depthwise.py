"""The core's depthwise convolution of tensors of integers, ``native/depthwise/bytes.cpp``.

Products are summed in integers. A sum times a scale for each channel is a real number, and post-ops
and the rounding to the grid of the result follow in the same kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from stridewise.targets.kernels import (
    SCALING,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    Operand,
)
from stridewise.targets.onednn import depthwise
from stridewise.targets.onednn.family import Family, KernelKind
from stridewise.targets.onednn.integers import (
    Chain,
    Typed,
    corrected_bias,
    grid_named,
    weights_grid,
)
from stridewise.targets.onednn.post_ops import unknown_post_op
from stridewise.tensor import Grid

__all__ = ["FAMILY", "is_in_rows", "products_in_rows", "storing"]

KIND = "depthwise_int8"
"""The kind of these kernels in a :class:`KernelSpec`."""

_WEIGHTS = "Abcde32a"
"""Format of weights, in groups of channels."""
_BIAS, _SCALE = "depthwise_bias", "depthwise_weights_scale"
_PARAMS = frozenset({"begins", "dilations", "ends", "lanes", "strides", "window"})


def is_in_rows(option: KernelOption) -> bool:
    """Return whether an option is the core's depthwise convolution alone."""
    return [call.spec.kind for call in option.calls] == [depthwise.ALONE]


def products_in_rows(
    result: Grid | None, option: KernelOption, context: KernelContext
) -> Iterator[KernelOption]:
    """Yield a depthwise convolution of integers, if there is one.

    The kernel also takes post-ops with a number for each channel.

    Args:
        result: the grid of the integers that the result is stored as; None for real numbers.
        option: the kernel on float32 tensors.
        context: of the node; its values know their grids.
    """
    (call,) = option.calls
    node, spec = context.node, call.spec
    source, weights = grid_named(context, node.inputs[0]), weights_grid(context, "convolution")
    destination = spec.memory("dst")
    if source is None or weights is None or destination is None:
        return
    typed, chain = Typed(context, (source, *(None,) * (len(option.inputs) - 1)), result), Chain()
    typed.posts(chain, destination)
    if unknown_post_op(tuple(chain.specs), rounds=True):
        return
    types = {"src": source.dtype, "depthwise_weights": "s8"}
    memories = dict(spec.memories)
    args = {arg.role: arg for arg in call.args}
    channels = destination.dims[1]
    row = MemorySpec((channels,), "a")
    args["depthwise_weights"] = replace(args["depthwise_weights"], grid=weights)
    memories["depthwise_weights"] = replace(memories["depthwise_weights"], tag=_WEIGHTS)
    bias = corrected_bias(context.value(node.inputs[1]))
    if bias is not None:
        args[_BIAS], memories[_BIAS] = replace(bias, role=_BIAS), row
    scales = weights.scales * (channels // len(weights.scales))
    factors = tuple(scale * source.scales[0] for scale in scales)
    args[_SCALE], memories[_SCALE] = Arg(_SCALE, Operand("numbers", 0, factors)), row
    numbers = (float(source.zero_points[0]), *_stored_by(None))
    made = KernelSpec(
        KIND,
        tuple(
            (role, replace(memory, dtype=types.get(role, "f32")))
            for role, memory in memories.items()
        ),
        tuple(sorted([*(item for item in spec.params if item[0] in _PARAMS), (SCALING, numbers)])),
        flops=spec.flops,
    )
    name = f"{option.algorithm}, {source.dtype} to {'f32' if result is None else result.dtype}"
    yield typed.option(option, Call(storing(made, result, chain), tuple(args.values())), name)


def _stored_by(result: Grid | None) -> tuple[float, float]:
    return (1.0, 0.0) if result is None else (result.scales[0], float(result.zero_points[0]))


def storing(spec: KernelSpec, result: Grid | None, chain: Chain) -> KernelSpec:
    """Return a convolution of integers that applies post-ops and stores their results.

    Args:
        spec: a convolution of the core or the library that stores real numbers.
        result: the grid of the integers that the result is stored as; None for real numbers.
        chain: all post-ops before that.
    """
    params = spec.params
    if SCALING in dict(params):
        zero = cast("tuple[float, ...]", dict(params)[SCALING])[0]
        numbers = (zero, *_stored_by(result))
        params = tuple((key, numbers if key == SCALING else value) for key, value in params)
    elif result is not None:
        chain.store(result)
    to = "f32" if result is None else result.dtype
    memories = tuple(
        (role, replace(memory, dtype=to) if role == "dst" else memory)
        for role, memory in spec.memories
    )
    return replace(spec, memories=memories, params=params, post_ops=tuple(chain.specs))


FAMILY = Family(kinds={KIND: KernelKind()})
