"""Depthwise convolution of integers in every format and instruction set.

With scales that are powers of two all numbers are exact, so results must be equal to those of the
definition, also where a sum lies halfway between two integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from stridewise.dtypes import dtype_of
from stridewise.formats import algebra

from .winograd_layers import CORE, F32, KINDS, Array, format_of, stored

Pair = tuple[int, int]
Kernel = tuple[int, str]
"""Channels of a block and instruction set."""
KERNELS = [(lanes, isa) for lanes in (8, 16) for isa in CORE.byte_isas()]
LIMITS = {"u8": (0, 255), "s8": (-128, 127)}


@dataclass(frozen=True)
class Layer:
    images: int = 1
    channels: int = 16
    size: Pair = (6, 5)
    window: Pair = (3, 3)
    strides: Pair = (1, 1)
    dilations: Pair = (1, 1)
    begins: Pair = (1, 1)
    ends: Pair = (1, 1)

    @property
    def source(self) -> tuple[int, ...]:
        return self.images, self.channels, *self.size

    @property
    def result(self) -> tuple[int, ...]:
        axes = zip(
            self.size, self.window, self.strides, self.dilations, self.begins, self.ends,
            strict=True,
        )  # fmt: skip
        return (
            self.images,
            self.channels,
            *[(n + p + q - d * (t - 1) - 1) // s + 1 for n, t, s, d, p, q in axes],
        )


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    def numbers(low: int, high: int) -> Pair:
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    window, strides, dilations = numbers(1, 9), numbers(1, 3), numbers(1, 3)
    reach = [d * (t - 1) + 1 for t, d in zip(window, dilations, strict=True)]
    begins, ends = ([draw(st.integers(0, most - 1)) for most in reach] for _ in range(2))
    least = [max(1, r - p - q) for r, p, q in zip(reach, begins, ends, strict=True)]
    size = [low + extra for low, extra in zip(least, numbers(0, 20), strict=True)]
    return Layer(
        draw(st.integers(1, 3)),
        draw(st.sampled_from([1, 3, 8, 16, 19, 40, 72])),
        (size[0], size[1]), window, strides, dilations,
        (begins[0], begins[1]), (ends[0], ends[1]),
    )  # fmt: skip


@dataclass(frozen=True)
class Numbers:
    """Types, zero points and the scale of the result."""

    source: str = "u8"
    result: str = "u8"
    source_zero: int = 0
    scale: float = 1.0
    result_zero: int = 0


@st.composite
def exact_numbers(draw: st.DrawFn) -> Numbers:
    source = draw(st.sampled_from(["u8", "s8"]))
    result = draw(st.sampled_from(["u8", "s8", "f32"]))
    zeros = [draw(st.integers(*LIMITS.get(dtype, (0, 0)))) for dtype in (source, result)]
    return Numbers(source, result, zeros[0], 2.0 ** draw(st.integers(-6, 2)), zeros[1])


def sums(x: Array, w: Array, layer: Layer, zero: int) -> Array:
    """Return the sums of products of integers."""
    found = np.zeros(layer.result, np.int64)
    pads = [(0, 0), (0, 0), *zip(layer.begins, layer.ends, strict=True)]
    padded = np.pad(x.astype(np.int64) - zero, pads)
    for tap in np.ndindex(layer.window):
        at = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(
                tap, layer.dilations, layer.result[2:], layer.strides, strict=True
            )
        )
        found += padded[(..., *at)] * w[(slice(None), *tap)].reshape(-1, 1, 1)
    return found


def integers(real: Array, numbers: Numbers) -> Array:
    return np.clip(np.rint(real / numbers.scale) + numbers.result_zero, *LIMITS[numbers.result])


class Runner:
    """One kernel in a program."""

    def __init__(
        self, layer: Layer, numbers: Numbers, kind: str, kernel: Kernel,
        post_ops: tuple[Any, ...] = (), threads: int = 2,
    ) -> None:  # fmt: skip
        lanes, isa = kernel
        self.layer, self.numbers, self.fmt = layer, numbers, format_of(kind, lanes)
        tag = "acdb" if kind == "channels-last" else f"aBcd{lanes}b"
        src = CORE.MemoryDesc(layer.source, numbers.source, tag)
        self.dst = CORE.MemoryDesc(layer.result, numbers.result, tag)
        self.op = CORE.ByteDepthwise(
            src, self.dst, True, layer.begins, layer.ends, list(post_ops),
            (numbers.source_zero, numbers.scale, numbers.result_zero),
            window=layer.window, strides=layer.strides, dilations=layer.dilations,
            lanes=lanes, threads=threads, isa=isa,
        )  # fmt: skip

    def __call__(self, x: Array, w: Array, scales: Array, bias: Array, *operands: Array) -> Array:
        op, layer, numbers = self.op, self.layer, self.numbers
        wanted = op.arg_desc(CORE.ARG_DEPTHWISE_WEIGHTS)
        plain = CORE.MemoryDesc(wanted.dims, "s8", "abcde")
        packed = CORE.Buffer(wanted.nbytes)
        given = np.ascontiguousarray(w.reshape(wanted.dims), np.int8)
        CORE.prepack_into(given, plain, wanted, packed, 0, 1)
        arrays = {
            CORE.ARG_SRC: stored(x, self.fmt, numbers.source),
            CORE.ARG_DEPTHWISE_WEIGHTS: packed.array(),
            CORE.ARG_SCALES_OF | CORE.ARG_DEPTHWISE_WEIGHTS: scales,
            CORE.ARG_DEPTHWISE_BIAS: bias,
            **dict(zip(op.args[5:], operands, strict=True)),
        }
        dtype = dtype_of(numbers.result)
        result = np.full(self.dst.nbytes // dtype.itemsize, 77, dtype.numpy)
        inputs = [np.ascontiguousarray(item) for item in arrays.values()]
        program = CORE.Program(
            op.scratchpad_nbytes, [], [a.nbytes for a in inputs], [result.nbytes], op.threads
        )
        places = {arg: (2, index) for index, arg in enumerate(arrays)}
        places |= {CORE.ARG_DST: (3, 0), CORE.ARG_SCRATCHPAD: (0, 0)}
        args = [*op.args, CORE.ARG_SCRATCHPAD]
        program.add_primitive(op, [(a, op.arg_desc(a), *places[a], 0) for a in args])
        program.freeze()
        program.poison = True
        program.run(inputs, [result])
        at = algebra.offsets(self.fmt, layer.result)
        mask = np.ones(result.size, bool)
        mask[at] = False
        assert (result[mask] == 0).all(), "spare lanes"
        return result[at]


def stored_row(numbers: Array, tag: str) -> Array:
    """Return a number for each channel as it is stored, in whole blocks."""
    lanes = 1 if tag == "acdb" else int(tag[4:-1])
    return np.pad(numbers, (0, -numbers.size % lanes))


def data(layer: Layer, numbers: Numbers, seed: int) -> tuple[Array, Array, Array, Array]:
    """Return source, weights, scales and bias, of which the last two are exact."""
    rng = np.random.default_rng(seed)
    low, high = LIMITS[numbers.source]
    x = rng.integers(low, high + 1, layer.source).astype(dtype_of(numbers.source).numpy)
    w = rng.integers(-128, 128, (layer.channels, *layer.window))
    scales = (2.0 ** rng.integers(-12, -7, layer.channels)).astype(F32)
    return x, w, scales, (rng.integers(-512, 513, layer.channels) / 256).astype(F32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@settings(max_examples=60, deadline=None)
@given(layers(), exact_numbers(), st.booleans(), st.integers(0, 99))
def test_any_window_rounds_as_onnx_defines_it(
    kernel: Kernel, kind: str, layer: Layer, numbers: Numbers, clips: bool, seed: int
) -> None:
    x, w, scales, bias = data(layer, numbers, seed)
    post_ops = (("eltwise", "clip", -0.75, 6.0),) if clips else ()
    found = Runner(layer, numbers, kind, kernel, post_ops)(x, w, scales, bias)
    row = (-1, 1, 1)
    real = sums(x, w, layer, numbers.source_zero) * scales.reshape(row).astype(float)
    real = (real + bias.reshape(row)).clip(-0.75, 6.0) if clips else real + bias.reshape(row)
    wanted = real.astype(F32) if numbers.result == "f32" else integers(real, numbers)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@settings(max_examples=30, deadline=None)
@given(layers(), exact_numbers(), st.booleans(), st.booleans(), st.integers(0, 99))
def test_results_are_rounded_before_and_after_a_norm(
    kernel: Kernel, kind: str, layer: Layer, numbers: Numbers, clips: bool, relu: bool, seed: int
) -> None:
    """A rounding, then a scale and a shift for each channel, which are exact here."""
    x, w, scales, bias = data(layer, numbers, seed)
    rng = np.random.default_rng(seed)
    factors = (2.0 ** rng.integers(-3, 3, layer.channels)).astype(F32)
    shifts = (rng.integers(-64, 64, layer.channels) / 4).astype(F32)
    row = (1, layer.channels, 1, 1)
    tag = "acdb" if kind == "channels-last" else f"aBcd{kernel[0]}b"
    operand = CORE.MemoryDesc(row, "f32", tag)
    post_ops: list[Any] = [("eltwise", "linear", 0.5, 0.0), ("eltwise", "round", 0.0, 0.0)]
    post_ops += [("eltwise", "clip", -9.0, 21.0)] if clips else []
    post_ops += [("eltwise", "linear", 2.0, 0.25), ("binary", "mul", operand)]
    post_ops += [("binary", "sub", operand), ("eltwise", "relu", 0.0, 0.0)][: 1 + relu]
    runner = Runner(layer, numbers, kind, kernel, tuple(post_ops))
    found = runner(x, w, scales, bias, *(stored_row(item, tag) for item in (factors, shifts)))
    real = sums(x, w, layer, numbers.source_zero) * scales.reshape(-1, 1, 1).astype(float)
    whole = np.rint((real + bias.reshape(-1, 1, 1)) * 0.5)
    whole = whole.clip(-9, 21) if clips else whole
    real = (whole * 2 + 0.25) * factors.reshape(row) - shifts.reshape(row)
    real = np.maximum(real, 0) if relu else real
    wanted = real.astype(F32) if numbers.result == "f32" else integers(real, numbers)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("result", ["u8", "s8", "f32"])
def test_functions_are_computed_before_the_rounding(kernel: Kernel, result: str) -> None:
    layer, numbers = Layer(channels=27), Numbers("u8", result, 117, 0.01, 5)
    x, w, scales, bias = data(layer, numbers, 1)
    post_ops = (("eltwise", "hardswish", 1 / 6, 0.5), ("eltwise", "linear", 0.5, 0.25))
    found = Runner(layer, numbers, "channels-last", kernel, post_ops)(x, w, scales, bias)
    real = sums(x, w, layer, 117) * scales.reshape(-1, 1, 1).astype(float)
    real += bias.reshape(-1, 1, 1)
    real = real * np.clip(real / 6 + 0.5, 0, 1) * 0.5 + 0.25
    if result == "f32":
        np.testing.assert_allclose(found, real, rtol=1e-5, atol=1e-5)
    else:
        off = np.abs(found - integers(real, numbers))
        assert off.max() <= 1
        assert np.count_nonzero(off) <= 2


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@settings(max_examples=20, deadline=None)
@given(layers(), st.sampled_from(["u8", "s8"]), st.integers(0, 99))
def test_results_are_those_of_the_reference_evaluator(
    kernel: Kernel, layer: Layer, dtype: str, seed: int
) -> None:
    """Any scales: where a sum is next to a half, both neighbors are right."""
    rng = np.random.default_rng(seed)
    zeros = [int(rng.integers(LIMITS[dtype][0], LIMITS[dtype][1] + 1)) for _ in range(2)]
    numbers = Numbers(dtype, dtype, zeros[0], float(F32(rng.uniform(0.01, 0.2))), zeros[1])
    x, w, _, _ = data(layer, numbers, seed)
    scale, scales = F32(rng.uniform(0.01, 0.1)), rng.uniform(1e-3, 1e-2, layer.channels).astype(F32)
    bias = rng.integers(-9000, 9000, layer.channels).astype(np.int32)
    kept = dtype_of(dtype).numpy
    numbers_of = {
        "x": x, "xs": scale, "xz": kept.type(zeros[0]), "w": w[:, None].astype(np.int8),
        "ws": scales, "wz": np.zeros(layer.channels, np.int8), "b": bias, "bs": scales * scale,
        "bz": np.zeros(layer.channels, np.int32), "ys": F32(numbers.scale),
        "yz": kept.type(zeros[1]),
    }  # fmt: skip
    feeds = {name: np.asarray(array) for name, array in numbers_of.items()}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["rx"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["rw"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["rb"], axis=0),
        helper.make_node(
            "Conv", ["rx", "rw", "rb"], ["ry"], group=layer.channels, strides=layer.strides,
            dilations=layer.dilations, pads=(*layer.begins, *layer.ends), kernel_shape=layer.window,
        ),
        helper.make_node("QuantizeLinear", ["ry", "ys", "yz"], ["y"]),
    ]  # fmt: skip
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    result = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    model = helper.make_model(helper.make_graph(nodes, "g", infos, [result]))
    evaluator: Any = ReferenceEvaluator(model)
    (expected,) = evaluator.run(None, feeds)
    factors = (scales.astype(float) * float(scale)).astype(F32)
    found = Runner(layer, numbers, "channels-last", kernel)(
        x, w, factors, (bias * factors).astype(F32)
    )
    steps = (sums(x, w, layer, zeros[0]) + bias.reshape(-1, 1, 1)) * (
        scales.reshape(-1, 1, 1).astype(float) * float(scale) / numbers.scale
    )
    is_half = np.abs(steps - np.floor(steps) - 0.5) < 1e-3 + 1e-5 * np.abs(steps)
    off = np.abs(found.astype(int) - expected)
    assert off.max() <= 1
    assert not off[~is_half].any()


def test_what_the_kernel_does_not_do_is_refused() -> None:
    kernel = (8, "portable")
    with pytest.raises(ValueError, match="a padding smaller than the window"):
        Runner(Layer(begins=(3, 0)), Numbers(), "blocked", kernel)
    with pytest.raises(ValueError, match="nothing is summed up"):
        Runner(Layer(), Numbers(), "blocked", kernel, (("sum", 1.0),))
    with pytest.raises(ValueError, match="zero points that are integers of the tensors"):
        Runner(Layer(), Numbers("s8", source_zero=128), "blocked", kernel)
    with pytest.raises(ValueError, match="a positive scale of the result"):
        Runner(Layer(), Numbers(scale=0.0), "blocked", kernel)
    with pytest.raises(ValueError, match="expected s8 or u8"):
        Runner(Layer(), Numbers("f32"), "blocked", kernel)
