"""The core's convolution of tensors of integers with channels last, ``native/conv_int8``.

The library's kernels reach the rate of products where there are many of them for each result. The
core's are for the others: with few channels, as in the first layer, or exponential functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import cast

from stridewise.classes import dataclass
from stridewise.targets.kernels import (
    SCALING,
    Arg,
    Call,
    KernelOption,
    KernelSpec,
    MemorySpec,
    Operand,
)
from stridewise.targets.onednn.family import Family, KernelKind
from stridewise.targets.onednn.integers import Chain, Typed, corrected_bias
from stridewise.targets.onednn.memory import block_lanes, storage_of
from stridewise.targets.onednn.post_ops import unknown_post_op
from stridewise.tensor import Grid

__all__ = ["FAMILY", "KIND", "products_in_words"]

KIND = "conv_int8"
"""The kind of these kernels in a :class:`KernelSpec`."""

_IMAGE = 4
"""Axes of images and of weights without groups."""

_PANELS = {16: (32, 4), 8: (16, 2)}
"""By the lanes of a vector, outputs of a panel of weights, and numbers that an instruction
multiplies for each result: four bytes with VNNI, two numbers of 16 bits with AVX2."""

_MOST_UNPACKED = 1 << 16
"""Weights that each thread may bring into quads in each run: where channels are not whole quads."""

_NAMES = {16: "quads", 8: "pairs"}

_LIBRARY_LANES = 16
"""Of vectors for which the library has exact kernels, too."""

_FEW_CHANNELS = 192
"""Up to so many channels, the core's kernel may be faster than the library's. With more, it
is so in isolation, but not in networks: its pixels lie too far from each other to be fetched ahead.
Measured on Zen 4 with ResNet-50: 175 us instead of 155 for 1x1 convolutions of 256 channels."""

_MOST_PRODUCTS = 1 << 15
"""Of a result, so that sums fit 32 bits, whatever follows."""

_SLOW = frozenset({"elu", "exp", "gelu_erf", "logistic", "pow", "swish", "tanh"})
"""Post-ops that take the library longer than many products."""


def _is_taken(spec: KernelSpec) -> bool:
    """Return whether the kernel computes a convolution: images, without groups and dilated rows.

    Its padding must be smaller than its window.
    """
    src, weights, params = spec.memory("src"), spec.memory("weights"), dict(spec.params)
    if spec.kind != "convolution" or src is None or weights is None:
        return False
    if len(src.dims) != _IMAGE or len(weights.dims) != _IMAGE:
        return False
    begins, ends, dilations = (
        cast("tuple[int, ...]", params[key]) for key in ("begins", "ends", "dilations")
    )
    extents = [(n - 1) * step for n, step in zip(weights.dims[2:], dilations, strict=True)]
    return (
        storage_of(src) == "channels-last"
        and storage_of(spec.memory("dst")) == "channels-last"
        and dilations[1:] == (1,)
        and all(0 <= pad <= most for pad, most in zip(begins + ends, extents * 2, strict=True))
    )


@dataclass(frozen=True, slots=True)
class _Numbers:
    """What integers of a convolution stand for, and a bias other than that of the node."""

    source: Grid
    weights: Grid
    result: Grid | None
    bias: Arg | None


def _packed(weights: MemorySpec, lanes: int) -> MemorySpec:
    """Return weights in panels; only bytes in a row where channels are not whole groups."""
    panel, group = _PANELS[lanes]
    tag = f"Acdb{panel}a" if weights.dims[1] % group else f"AcdB{panel}a{group}b"
    return MemorySpec(weights.dims, tag, dtype="s8")


def _call(call: Call, chain: Chain, numbers: _Numbers, lanes: int) -> Call:
    """Return the core's kernel in place of the library's on float32 tensors."""
    spec, weights, result = call.spec, numbers.weights, numbers.result
    src, packed, dst = map(spec.memory, ("src", "weights", "dst"))
    assert src is not None  # a convolution has all three
    assert packed is not None
    assert dst is not None
    outputs = dst.dims[1]
    row = MemorySpec((outputs,), "a")
    args = {arg.role: arg for arg in call.args if not arg.role.startswith("post")}
    args["weights"] = replace(args["weights"], grid=weights)
    if numbers.bias is not None:
        args["bias"] = numbers.bias
    scales = weights.scales * (outputs // len(weights.scales))
    factors = tuple(scale * numbers.source.scales[0] for scale in scales)
    args["weights_scale"] = Arg("weights_scale", Operand("numbers", 0, factors))
    memories = (
        ("src", replace(src, dtype=numbers.source.dtype)),
        ("weights", _packed(packed, lanes)),
        ("weights_scale", row),
        *([("bias", row)] if "bias" in args else []),
        ("dst", replace(dst, dtype="f32" if result is None else result.dtype)),
    )
    stored = (1.0, 0.0) if result is None else (result.scales[0], float(result.zero_points[0]))
    scaling = (SCALING, (float(numbers.source.zero_points[0]), *stored))
    params = tuple(sorted([*spec.params, scaling]))
    made = KernelSpec(KIND, memories, params, tuple(chain.specs), flops=spec.flops)
    return Call(made, (*args.values(), *chain.args))


def products_in_words(typed: Typed, option: KernelOption, weights: Grid) -> Iterator[KernelOption]:
    """Yield a convolution of integers by the core's kernel, if there is one.

    Args:
        typed: the node, with the grids of its operands and of its result.
        option: the library's kernel on float32 tensors.
        weights: their grid.
    """
    (call,) = option.calls
    spec, node, source, result = call.spec, typed.context.node, typed.sources[0], typed.result
    destination, packed = spec.memory("dst"), spec.memory("weights")
    lanes = block_lanes(typed.context)
    if source is None or destination is None or packed is None or not _is_taken(spec):
        return
    if lanes not in _PANELS:
        return
    is_whole = packed.dims[1] % _PANELS[lanes][1] == 0
    if not is_whole and prod(packed.dims) > _MOST_UNPACKED:
        return
    chain = Chain()
    typed.posts(chain, destination)
    if unknown_post_op(tuple(chain.specs), rounds=True):
        return
    is_slow = any(post.algorithm in _SLOW for post in chain.specs)
    is_wide = packed.dims[1] > _FEW_CHANNELS and not is_slow
    if (is_wide and lanes == _LIBRARY_LANES) or prod(packed.dims[1:]) > _MOST_PRODUCTS:
        return
    to = "f32" if result is None else result.dtype
    bias = corrected_bias(typed.context.value(node.inputs[1]))
    made = _call(call, chain, _Numbers(source, weights, result, bias), lanes)
    name = f"{_NAMES[lanes]}, {option.algorithm}, {source.dtype} to {to}"
    yield typed.option(option, made, name)


FAMILY = Family(kinds={KIND: KernelKind({"channels-last": 0.80}, function_ns=0.2)})
