"""The core's kernel that reads images at the places of a grid."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.graph import Refusal, Value
from stridewise.ops.geometry import canonical_shape, user_format
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
from stridewise.targets.onednn.memory import memory_of, plain_memory, storage_of

__all__ = ["FAMILY"]

_MOST_AXES = 3
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Pixels along an axis that a result is interpolated from."""

_FINDING = {"plain": 3, "other": 20}
"""The channels whose interpolation takes as long as to find the pixels, by the storage."""


def _memory(context: KernelContext, value: Value, kind: str) -> MemorySpec:
    if kind == "plain":
        return plain_memory(value.shape)
    fmt = context.formats(value.name)[kind]
    return memory_of(fmt, canonical_shape(value, fmt))


@float32_only
def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, grid, y = (context.value(name) for name in (*node.inputs, *node.outputs))
    axes = len(x.shape) - 2
    if axes > _MOST_AXES or not all(prod(value.shape) for value in (x, y)):
        yield refused(node, "kernels read images of one to three axes, with elements")
        return
    mode = node.str_attr("mode", "linear")
    params = (
        ("mode", mode),
        ("border", node.str_attr("border", "zeros")),
        ("align_corners", node.int_attr("align_corners", 0)),
    )
    flops = 2.0 * _TAPS[mode] ** axes * prod(y.shape)
    for kind, fmt in context.formats(x.name).items():
        goal = context.formats(y.name).get(kind)
        if goal is None:
            continue
        memories = (
            ("src", _memory(context, x, kind)),
            ("grid", plain_memory(grid.shape)),
            ("dst", _memory(context, y, kind)),
        )
        spec = KernelSpec("grid_sample", memories, params, flops=flops)
        args = (Arg("src", input_of(0)), Arg("grid", input_of(1)), Arg("dst", output_of()))
        formats = (fmt, goal) if kind != "plain" else (user_format(x), user_format(y))
        inputs = (formats[0], user_format(grid))
        yield KernelOption(f"at places, {kind}", inputs, formats[1:], (Call(spec, args),))


def _share(spec: KernelSpec) -> float:
    """Return how much of the time is interpolation: the pixels of a place are found first."""
    result = spec.memory("dst")
    channels = 1 if result is None else result.dims[1]
    return channels / (channels + _FINDING["plain" if storage_of(result) == "plain" else "other"])


FAMILY = Family(
    {"grid_sample": Offer(_kernels)},
    {
        "grid_sample": KernelKind(
            {"plain": 0.16, "channels-last": 0.50, "blocked": 0.50}, share=_share
        )
    },
)
