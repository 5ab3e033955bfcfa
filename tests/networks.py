"""Small random networks, grown by hypothesis, and the builder that they are made with."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from stridewise.graph import Graph
from stridewise.ops import GraphBuilder

__all__ = ["F32", "Net", "Random", "narrow_networks", "networks", "rng"]

F32 = np.float32


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


class Net(GraphBuilder):
    """A builder with short names for what these tests need."""

    def const(self, *values: float, shape: tuple[int, ...] | None = None) -> str:
        data = np.array(values, F32)
        return self.constant(data if shape is None else data.reshape(shape), "c")

    def conv(
        self, x: str, outputs: int, kernel: int = 1, *, bias: bool = False, **attrs: Any
    ) -> str:
        shape = (outputs, self.type(x).shape[1], kernel, kernel)
        data = (np.arange(np.prod(shape)) % 7 - 3).astype(F32).reshape(shape) / F32(4)
        inputs = [x, self.constant(data, "w")]
        if bias:
            inputs.append(self.constant(np.arange(outputs).astype(F32), "b"))
        return self.op("conv", inputs, attrs)

    def scale(self, x: str) -> str:
        channels = self.type(x).shape[1]
        scale = self.constant(np.arange(1, channels + 1).astype(F32) / F32(2), "scale")
        shift = self.constant(np.arange(channels).astype(F32), "shift")
        return self.op("scale_shift", [x, scale, shift])


class Random:
    """Grows a random small network; every choice is hypothesis's."""

    def __init__(
        self, draw: Any, b: Net | None = None, shape: tuple[int, int, int, int] | None = None
    ) -> None:
        self.draw = draw
        self.b = b or Net("random")
        if shape is None:
            shape = (draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 4, 6, 16])), 5, 4)
        self.values = [self.b.input("x", shape)]
        self.rng = rng(draw(st.integers(0, 1000)))

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def any(self) -> str:
        return self.pick(*self.values[-3:])

    def shape(self, name: str) -> tuple[int, ...]:
        return self.b.type(name).shape

    def data(self, *shape: int) -> str:
        values = self.rng.uniform(0.5, 1.5, shape) * self.rng.choice([-1, 1], shape)
        return self.b.constant(values.astype(F32), "k")

    def step(self) -> str:
        kinds = [self.conv, self.scale, self.binary_constant, self.residual, self.activation]
        kinds += [self.pad, self.pool, self.shuffle, self.gate, self.identity, self.reshapes]
        kinds += [self.transposes, self.constants, self.concat, self.concat, self.slice]
        kinds += [self.excite, self.normalize, self.attend]
        return self.pick(*kinds)(self.any())

    def conv(self, x: str) -> str:
        channels = self.shape(x)[1]
        groups = self.pick(1, 1, channels)
        outputs = groups * self.pick(1, 2) if groups > 1 else self.pick(1, 4, 6, 16)
        kernel = self.pick(1, 3) if min(self.shape(x)[2:]) > 2 else 1
        inputs = [x, self.data(outputs, channels // groups, kernel, kernel)]
        inputs += [self.data(outputs)] if self.pick(True, False) else []
        pads = self.pick((0,) * 4, (kernel // 2,) * 4)
        return self.b.op("conv", inputs, {"groups": groups, "pads": pads})

    def scale(self, x: str) -> str:
        channels = self.shape(x)[1]
        return self.b.op("scale_shift", [x, self.data(channels), self.data(channels)])

    def binary_constant(self, x: str) -> str:
        channels = self.shape(x)[1]
        other = self.data(*self.pick((channels, 1, 1), (1, channels, 1, 1), (1,), ()))
        pair = self.pick((x, other), (other, x))
        op = self.pick("add", "sub", "mul", "maximum", "div")
        return self.b.op(op, (x, other) if op == "div" else pair)

    def residual(self, x: str) -> str:
        like = [v for v in self.values if self.shape(v) == self.shape(x)]
        pair = self.pick((x, self.pick(*like)), (self.pick(*like), x))
        return self.b.op(self.pick("add", "mul", "sub", "minimum"), pair)

    def activation(self, x: str) -> str:
        op = self.pick("relu", "clip", "sigmoid", "hard_swish", "leaky_relu", "abs")
        return self.b.op(op, [x], {"alpha": 0.0, "beta": 6.0} if op == "clip" else {})

    def pad(self, x: str) -> str:
        pads = (0, self.pick(0, 0, 1), self.pick(0, 1), 1, 0, 0, 0, self.pick(0, 2))
        value = self.pick(0.0, 0.0, 0.5, float("-inf"))
        if value == float("-inf"):
            # Infinities are for max pooling only; elsewhere they turn into NaN.
            y = self.b.op("pad", [x], {"pads": pads, "value": value})
            fits = min(self.shape(y)[2:]) >= 3 and not pads[1]
            return self.b.op("max_pool", [y], {"kernel": (3, 3)}) if fits else x
        return self.b.op("pad", [x], {"pads": pads, "value": value})

    def pool(self, x: str) -> str:
        if min(self.shape(x)[2:]) < 2:
            return x
        op = self.pick("max_pool", "avg_pool")
        attrs: dict[str, Any] = {"kernel": (2, 2), "pads": self.pick((0,) * 4, (1, 0, 0, 1))}
        if op == "avg_pool":
            attrs["count_include_pad"] = self.pick(0, 1)
        return self.b.op(op, [x], attrs)

    def shuffle(self, x: str) -> str:
        n, c, h, w = self.shape(x)
        groups = self.pick(*[g for g in (1, 2, 3) if c % g == 0])
        y = self.b.op("reshape", [x], {"shape": (n, groups, c // groups, h, w)})
        y = self.b.op("transpose", [y], {"perm": self.pick((0, 2, 1, 3, 4), (0, 1, 2, 3, 4))})
        return self.b.op("reshape", [y], {"shape": (n, c, h, w)})

    def gate(self, x: str) -> str:
        b = self.b
        if self.pick(True, False):
            return b.op("mul", [x, b.op("sigmoid", [x])])
        gate = b.op("clip", [b.op("add", [x, b.const(3)])], {"alpha": 0.0, "beta": 6.0})
        if self.pick(True, False):
            return b.op("div", [b.op("mul", [gate, x]), b.const(6)])
        gate = b.op("mul", [gate, b.const(1 / 6)])
        return self.pick(gate, b.op("mul", [x, gate]))

    def identity(self, x: str) -> str:
        return self.b.op("identity", [x])

    def reshapes(self, x: str) -> str:
        y = self.b.op("reshape", [x], {"shape": (int(np.prod(self.shape(x))),)})
        return self.b.op("reshape", [y], {"shape": self.shape(x)})

    def transposes(self, x: str) -> str:
        y = self.b.op("transpose", [x], {"perm": (0, 2, 3, 1)})
        y = self.b.op(self.pick("relu", "identity"), [y])
        return self.b.op("transpose", [y], {"perm": (0, 3, 1, 2)})

    def constants(self, x: str) -> str:
        channels = self.shape(x)[1]
        data = self.b.op("neg", [self.data(channels, 1, 1)])
        data = self.b.op("reshape", [data], {"shape": (1, channels, 1, 1)})
        return self.b.op("add", [data, x])

    def concat(self, x: str) -> str:
        n, c, h, w = self.shape(x)
        fitting = [v for v in self.values if self.shape(v)[::2] == (n, h) and self.shape(v)[3] == w]
        fitting = [v for v in fitting if self.shape(v)[1] + c <= 48] or [x]
        pieces = self.pick([x], [x, x], [x, self.pick(*fitting)], [self.pick(*fitting), x])
        return self.b.op("concat", pieces if c <= 24 else [x], {"axis": 1})

    def slice(self, x: str) -> str:
        starts, stops, steps = [0] * 4, list(self.shape(x)), [1] * 4
        axis = self.pick(1, 1, 2, 3)
        extent = stops[axis]
        starts[axis] = self.pick(0, extent // 2, 16 if extent > 16 else 0)
        steps[axis] = self.pick(1, 1, 2)
        attrs = {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}
        return self.b.op("slice", [x], attrs)

    def excite(self, x: str) -> str:
        op, axes = self.pick("reduce_mean", "reduce_max"), self.pick((2, 3), (1,), (3,))
        squeezed = self.b.op(op, [x], {"axes": axes, "keepdims": 1})
        gate = self.b.op("sigmoid", [squeezed])
        pair = self.pick((x, gate), (gate, x))
        return self.b.op(self.pick("mul", "add", "sub"), pair)

    def normalize(self, x: str) -> str:
        if self.pick(True, False):
            return self.b.op("lrn", [x], {"size": self.pick(1, 3, 5), "alpha": 0.5})
        return self.b.op("softmax", [x], {"axis": self.pick(0, 1, 2, 3)})

    def attend(self, x: str) -> str:
        """Products of pixels with each other, scaled: of projections, or of the pixels twice."""
        n, c, h, w = self.shape(x)
        rows = self.b.op("reshape", [x], {"shape": (n, c, h * w)})
        rows = self.b.op("transpose", [rows], {"perm": (0, 2, 1)})
        query = self.pick(rows, self.b.op("matmul", [rows, self.data(c, c)]))
        key = self.pick(query, query, self.b.op("matmul", [rows, self.data(c, c)]))
        scores = self.b.op("matmul", [query, key], {"perm_b": (0, 2, 1)})
        scores = self.b.op(self.pick("mul", "div"), [scores, self.b.const(8)])
        scores = self.pick(scores, self.b.op("softmax", [scores], {"axis": 2}))
        found = self.b.op("matmul", [scores, self.pick(rows, rows, key)])
        found = self.b.op("transpose", [found], {"perm": (0, 2, 1)})
        return self.b.op("reshape", [found], {"shape": (n, c, h, w)})

    def graph(self) -> Graph:
        for _ in range(self.draw(st.integers(2, 9))):
            self.values.append(self.step())
        asked = [self.values[-1], *self.draw(st.lists(st.sampled_from(self.values), max_size=2))]
        return self.b.build(asked)

    def squeeze(self, x: str) -> str:
        """Squeeze-and-excite: convolutions on images of 1x1."""
        channels = self.shape(x)[1]
        gate = self.b.op("reduce_mean", [x], {"axes": (2, 3), "keepdims": 1})
        gate = self.b.op("relu", [self.conv(gate)])
        weights = self.data(channels, self.shape(gate)[1], 1, 1)
        gate = self.b.op("sigmoid", [self.b.op("conv", [gate, weights])])
        return self.b.op("mul", [x, gate])


@st.composite
def networks(draw: Any) -> Graph:
    return Random(draw).graph()


@st.composite
def narrow_networks(draw: Any) -> Graph:
    """Networks whose images have axes of extent 1, where several formats have the same bytes."""
    extents = st.sampled_from([1, 1, 2, 5])
    channels = draw(st.sampled_from([1, 3, 8, 16, 17, 32]))
    shape = (draw(st.sampled_from([1, 1, 2])), channels, draw(extents), draw(extents))
    network = Random(draw, shape=shape)
    network.values.append(network.conv(network.values[-1]))
    if draw(st.booleans()):
        network.values.append(network.squeeze(network.values[-1]))
    return network.graph()
