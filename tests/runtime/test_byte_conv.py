"""Convolution of integers with channels last, in every instruction set.

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

from .test_byte_depthwise import LIMITS, Layer, Numbers, Pair, exact_numbers, integers
from .winograd_layers import CORE, F32, Array

ISAS = CORE.byte_isas()


@dataclass(frozen=True)
class Dense(Layer):
    """A convolution in which each result reads all channels."""

    outputs: int = 8

    @property
    def result(self) -> tuple[int, ...]:
        n, _, *size = super().result
        return n, self.outputs, *size


@st.composite
def layers(draw: st.DrawFn) -> Dense:
    def numbers(low: int, high: int) -> Pair:
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    is_point = draw(st.booleans())
    window = (1, 1) if is_point else numbers(1, 5)
    strides, dilations = numbers(1, 3), (draw(st.integers(1, 3)), 1)
    reach = [d * (t - 1) + 1 for t, d in zip(window, dilations, strict=True)]
    begins, ends = ([draw(st.integers(0, most - 1)) for most in reach] for _ in range(2))
    least = [max(1, r - p - q) for r, p, q in zip(reach, begins, ends, strict=True)]
    size = [low + extra for low, extra in zip(least, numbers(0, 20), strict=True)]
    return Dense(
        draw(st.integers(1, 2)),
        draw(st.sampled_from([1, 3, 4, 8, 13, 16, 20, 66])),
        (size[0], size[1]), window, strides, dilations,
        (begins[0], begins[1]), (ends[0], ends[1]),
        draw(st.sampled_from([1, 5, 16, 17, 32, 40, 70])),
    )  # fmt: skip


def sums(x: Array, w: Array, layer: Dense, zero: int) -> Array:
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
        found += np.einsum("nchw,oc->nohw", padded[(..., *at)], w[(..., *tap)].astype(np.int64))
    return found


class Runner:
    """One kernel in a program."""

    def __init__(
        self, layer: Dense, numbers: Numbers, isa: str, post_ops: tuple[Any, ...] = (),
        threads: int = 2,
    ) -> None:  # fmt: skip
        self.layer, self.numbers = layer, numbers
        src = CORE.MemoryDesc(layer.source, numbers.source, "acdb")
        self.dst = CORE.MemoryDesc(layer.result, numbers.result, "acdb")
        self.op = CORE.ByteConv(
            src, self.dst, True, layer.begins, layer.ends, list(post_ops),
            (numbers.source_zero, numbers.scale, numbers.result_zero),
            window=layer.window, strides=layer.strides, dilations=layer.dilations,
            threads=threads, isa=isa,
        )  # fmt: skip

    def __call__(self, x: Array, w: Array, scales: Array, bias: Array, *operands: Array) -> Array:
        op, numbers = self.op, self.numbers
        wanted = op.arg_desc(CORE.ARG_WEIGHTS)
        plain = CORE.MemoryDesc(wanted.dims, "s8", "abcd")
        packed = CORE.Buffer(wanted.nbytes)
        CORE.prepack_into(np.ascontiguousarray(w, np.int8), plain, wanted, packed, 0, 1)
        arrays = {
            CORE.ARG_SRC: x.transpose(0, 2, 3, 1),
            CORE.ARG_WEIGHTS: packed.array(),
            CORE.ARG_SCALES_OF | CORE.ARG_WEIGHTS: scales,
            CORE.ARG_BIAS: bias,
            **dict(zip(op.args[5:], operands, strict=True)),
        }
        dtype = dtype_of(numbers.result)
        n, c, *size = self.layer.result
        result = np.full((n, *size, c), 77, dtype.numpy)
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
        return result.transpose(0, 3, 1, 2)


def data(layer: Dense, numbers: Numbers, seed: int) -> tuple[Array, Array, Array, Array]:
    """Return source, weights, scales and bias, of which the last two are exact."""
    rng = np.random.default_rng(seed)
    low, high = LIMITS[numbers.source]
    x = rng.integers(low, high + 1, layer.source).astype(dtype_of(numbers.source).numpy)
    w = rng.integers(-128, 128, (layer.outputs, layer.channels, *layer.window))
    scales = (2.0 ** rng.integers(-12, -7, layer.outputs)).astype(F32)
    return x, w, scales, (rng.integers(-512, 513, layer.outputs) / 256).astype(F32)


def exact(layer: Dense, numbers: Numbers, seed: int) -> Array:
    x, w, scales, bias = data(layer, numbers, seed)
    real = sums(x, w, layer, numbers.source_zero) * scales.reshape(-1, 1, 1).astype(float)
    return real + bias.reshape(-1, 1, 1)


def stored(real: Array, numbers: Numbers) -> Array:
    return real.astype(F32) if numbers.result == "f32" else integers(real, numbers)


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=80, deadline=None)
@given(layers(), exact_numbers(), st.booleans(), st.integers(0, 99))
def test_any_window_rounds_as_onnx_defines_it(
    isa: str, layer: Dense, numbers: Numbers, clips: bool, seed: int
) -> None:
    post_ops = (("eltwise", "clip", -0.75, 6.0),) if clips else ()
    found = Runner(layer, numbers, isa, post_ops)(*data(layer, numbers, seed))
    real = exact(layer, numbers, seed)
    wanted = stored(real.clip(-0.75, 6.0) if clips else real, numbers)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=60, deadline=None)
@given(
    layers(), exact_numbers(), st.sampled_from(["u8", "s8", "f32"]), st.booleans(),
    st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_results_are_rounded_before_an_operand_is_added(
    isa: str, layer: Dense, numbers: Numbers, dtype: str, multiplies: bool, rounds: bool, seed: int
) -> None:
    """A factor for each output, a rounding, and a tensor of any type, as residual sums have it."""
    rng = np.random.default_rng(seed)
    low, high = LIMITS.get(dtype, (-99, 99))
    other = rng.integers(low, high + 1, layer.result).astype(dtype_of(dtype).numpy)
    factors = (2.0 ** rng.integers(-3, 3, layer.outputs)).astype(F32)
    row = CORE.MemoryDesc((1, layer.outputs, 1, 1), "f32", "acdb")
    whole = CORE.MemoryDesc(layer.result, dtype, "acdb")
    post_ops: list[Any] = [("binary", "mul", row)] if multiplies else []
    if rounds:
        post_ops += [("eltwise", "linear", 0.5, 0.0), ("eltwise", "round", 0.0, 0.0)]
        post_ops += [("eltwise", "clip", -99.0, 120.0), ("eltwise", "linear", 2.0, 0.25)]
    post_ops += [("binary", "add", whole), ("eltwise", "linear", 0.25, 0.5)]
    operands = [factors] if multiplies else []
    runner = Runner(layer, numbers, isa, tuple(post_ops))
    found = runner(*data(layer, numbers, seed), *operands, other.transpose(0, 2, 3, 1))
    real = exact(layer, numbers, seed) * (factors.reshape(-1, 1, 1) if multiplies else 1)
    real = np.rint(real * 0.5).clip(-99, 120) * 2 + 0.25 if rounds else real
    wanted = stored((real + other.astype(float)) * 0.25 + 0.5, numbers)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("result", ["u8", "s8", "f32"])
@pytest.mark.parametrize("function", ["swish", "logistic", "tanh"])
def test_functions_are_computed_before_the_rounding(isa: str, result: str, function: str) -> None:
    layer, numbers = Dense(channels=12, outputs=27), Numbers("u8", result, 117, 0.01, 5)
    post_ops = (("eltwise", function, 1.0, 0.0), ("eltwise", "linear", 0.5, 0.25))
    found = Runner(layer, numbers, isa, post_ops)(*data(layer, numbers, 1))
    real = exact(layer, numbers, 1)
    with np.errstate(over="ignore"):
        logistic = 1 / (1 + np.exp(-real))
    functions = {"swish": real * logistic, "logistic": logistic, "tanh": np.tanh(real)}
    real = functions[function] * 0.5 + 0.25
    if result == "f32":
        np.testing.assert_allclose(found, real, rtol=1e-6, atol=2e-7)
    else:
        off = np.abs(found - integers(real, numbers))
        assert off.max() <= 1
        assert np.count_nonzero(off) <= 2


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=25, deadline=None)
@given(layers(), st.sampled_from(["u8", "s8"]), st.integers(0, 99))
def test_results_are_those_of_the_reference_evaluator(
    isa: str, layer: Dense, dtype: str, seed: int
) -> None:
    """Any scales: where a sum is next to a half, both neighbors are right."""
    rng = np.random.default_rng(seed)
    zeros = [int(rng.integers(LIMITS[dtype][0], LIMITS[dtype][1] + 1)) for _ in range(2)]
    numbers = Numbers(dtype, dtype, zeros[0], float(F32(rng.uniform(0.01, 0.2))), zeros[1])
    x, w, _, _ = data(layer, numbers, seed)
    scale, scales = F32(rng.uniform(0.01, 0.1)), rng.uniform(1e-3, 1e-2, layer.outputs).astype(F32)
    bias = rng.integers(-9000, 9000, layer.outputs).astype(np.int32)
    kept = dtype_of(dtype).numpy
    feeds: dict[str, Any] = {
        "x": x, "xs": scale, "xz": kept.type(zeros[0]), "w": w.astype(np.int8),
        "ws": scales, "wz": np.zeros(layer.outputs, np.int8), "b": bias, "bs": scales * scale,
        "bz": np.zeros(layer.outputs, np.int32), "ys": F32(numbers.scale),
        "yz": kept.type(zeros[1]),
    }  # fmt: skip
    feeds = {name: np.asarray(array) for name, array in feeds.items()}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["rx"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["rw"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["rb"], axis=0),
        helper.make_node(
            "Conv", ["rx", "rw", "rb"], ["ry"], strides=layer.strides,
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
    found = Runner(layer, numbers, isa)(x, w, factors, (bias * factors).astype(F32))
    steps = (sums(x, w, layer, zeros[0]) + bias.reshape(-1, 1, 1)) * (
        scales.reshape(-1, 1, 1).astype(float) * float(scale) / numbers.scale
    )
    is_half = np.abs(steps - np.floor(steps) - 0.5) < 1e-3 + 1e-5 * np.abs(steps)
    off = np.abs(found.astype(int) - expected)
    assert off.max() <= 1
    assert not off[~is_half].any()


def test_what_the_kernel_does_not_do_is_refused() -> None:
    isa = "portable"
    with pytest.raises(ValueError, match="a padding smaller than the window"):
        Runner(Dense(begins=(3, 0)), Numbers(), isa)
    with pytest.raises(ValueError, match="no dilation along rows"):
        Runner(Dense(dilations=(1, 2)), Numbers(), isa)
    with pytest.raises(ValueError, match="nothing is summed up"):
        Runner(Dense(), Numbers(), isa, (("sum", 1.0),))
    with pytest.raises(ValueError, match="zero points that are integers of the tensors"):
        Runner(Dense(), Numbers("s8", source_zero=128), isa)
    with pytest.raises(ValueError, match="a positive scale of the result"):
        Runner(Dense(), Numbers(scale=0.0), isa)
    with pytest.raises(ValueError, match="expected s8 or u8"):
        Runner(Dense(), Numbers("f32"), isa)
    with pytest.raises(ValueError, match="there are no mmx kernels here"):
        Runner(Dense(), Numbers(), "mmx")
