"""The layers of the models of the zoo, with random weights from a seed.

The distribution of weights is that of He et al. (2015). The statistics of batch norms are near to
those of their inputs, as after training: every value has an estimate of its moments, so that
activations keep their size through any number of layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from statistics import NormalDist
from typing import TypedDict, Unpack

import numpy as np

from stridewise.graph import Attr, Graph, Node
from stridewise.ops import GraphBuilder, evaluate
from stridewise.ops.data_format import DATA_FORMATS
from stridewise.ops.registry import Array

__all__ = ["BRANCH_GAIN", "ConvOptions", "Extents", "Network"]

Extents = int | Sequence[int]
"""One number for all spatial axes, or one for each."""

BRANCH_GAIN = 0.5
"""Size of the result of a residual branch."""

_EPSILON = 1e-5
_LAYER_EPSILON = 1e-6
_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / 256) for i in range(256)], np.float32)
"""Quantiles of the standard normal distribution."""


class ConvOptions(TypedDict, total=False):
    """Options of :meth:`Network.conv`."""

    padding: Extents | None
    dilation: int
    groups: int


@dataclass(frozen=True, slots=True)
class _Moments:
    """Estimates for the elements of a value: their mean, and the mean of their squares."""

    mean: float
    square: float

    @property
    def variance(self) -> float:
        return self.square - self.mean**2

    def narrowed(self, factor: float) -> _Moments:
        """Return the moments after means over parts of a value."""
        return _Moments(self.mean, self.mean**2 + factor * self.variance)


class Network:
    """A model that grows layer by layer; values are names, as in ``GraphBuilder``.

    Attributes:
        builder: the graph so far.
    """

    def __init__(self, name: str, *, data_format: str, seed: int) -> None:
        """Start an empty model.

        Args:
            name: of the model.
            data_format: the order of the axes of images; the layers are the same in each.
            seed: of the weights.

        Raises:
            FormatError: there is no such data format.
        """
        self.builder = GraphBuilder(name, data_format)
        self._rng = np.random.default_rng(seed)
        self._moments: dict[str, _Moments] = {}
        self._flattened: dict[str, str] = {}

    # --- where axes are ---------------------------------------------------------------------------

    def _order(self, rank: int) -> Sequence[str]:
        """Return the names of the axes of an image, or of a matrix."""
        family = DATA_FORMATS[self.builder.data_format]
        return family[rank].order if rank in family else ("N", "C")

    def _channel_axis(self, x: str) -> int:
        return self._order(len(self.builder.type(x).shape)).index("C")

    def channels(self, x: str) -> int:
        """Return the number of channels of an image."""
        return self.builder.type(x).shape[self._channel_axis(x)]

    def extents(self, x: str) -> tuple[int, ...]:
        """Return the spatial extents of an image."""
        shape = self.builder.type(x).shape
        return tuple(shape[axis] for axis in self._spatial_axes(x))

    def _spatial_axes(self, x: str) -> tuple[int, ...]:
        order = self._order(len(self.builder.type(x).shape))
        return tuple(axis for axis, name in enumerate(order) if name not in ("N", "C"))

    def _shape(self, batch: int, channels: int, extents: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of an image in the model's own order."""
        inner = (*extents, channels) if self._order(len(extents) + 2)[-1] == "C" else (
            channels, *extents
        )  # fmt: skip
        return (batch, *inner)

    def _spread(self, x: str, extents: Extents) -> tuple[int, ...]:
        """Return one number for each spatial axis."""
        rank = len(self._spatial_axes(x))
        return (extents,) * rank if isinstance(extents, int) else tuple(extents)

    # --- inputs and outputs -----------------------------------------------------------------------

    def image(self, batch: int, extents: Sequence[int], channels: int = 3) -> str:
        """Declare the input, images of unit variance."""
        x = self.builder.input("image", self._shape(batch, channels, extents))
        self._moments[x] = _Moments(0.0, 1.0)
        return x

    def build(self, *outputs: str) -> Graph:
        """Return the graph with these outputs."""
        return self.builder.build(outputs)

    # --- weights ----------------------------------------------------------------------------------

    def _normal(self, name: str, shape: tuple[int, ...], deviation: float) -> str:
        return self.builder.constant(self._drawn(shape, deviation), name)

    def _drawn(self, shape: tuple[int, ...], deviation: float) -> Array:
        data = self._rng.standard_normal(shape, np.float32)
        data *= np.float32(deviation)
        return data

    def _rows(self, x: str, outputs: int) -> str:
        """Draw weights [outputs, inputs] for rows that have the order of the image they were."""
        inputs = self.builder.type(x).shape[-1]
        data = self._drawn((outputs, inputs), sqrt(2 / inputs))
        image = self._flattened.get(x)
        if image is not None and self._channel_axis(image) != 1:
            pixels = (outputs, self.channels(image), *self.extents(image))
            data = np.moveaxis(data.reshape(pixels), 1, -1).reshape(outputs, inputs)
        return self.builder.constant(data, "weights")

    def _uniform(self, low: float, high: float, count: int) -> Array:
        return self._rng.uniform(low, high, count)

    def _parameter(self, name: str, data: Array) -> str:
        return self.builder.constant(data.astype(np.float32), name)

    def _bias(self, count: int) -> str:
        return self._parameter("bias", self._uniform(-0.1, 0.1, count))

    def _op(
        self, op: str, inputs: Sequence[str], attrs: dict[str, Attr] | None, moments: _Moments
    ) -> str:
        y = self.builder.op(op, inputs, attrs)
        self._moments[y] = moments
        return y

    def _weighted(self, x: str) -> _Moments:
        """Return the moments behind weights of mean 0 and variance 2 / inputs."""
        return _Moments(0.0, 2 * self._moments[x].square)

    # --- layers with weights ----------------------------------------------------------------------

    def conv(
        self,
        x: str,
        filters: int,
        kernel: Extents,
        stride: Extents = 1,
        *,
        padding: Extents | None = None,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = False,
    ) -> str:
        """Add a convolution; the padding keeps the extents by default, for odd kernels."""
        taps, inputs = self._spread(x, kernel), self.channels(x) // groups
        if padding is None:
            padding = tuple(tap // 2 * dilation for tap in taps)
        pads = self._spread(x, padding)
        w = self._normal("weights", (filters, inputs, *taps), sqrt(2 / (inputs * prod(taps))))
        attrs: dict[str, Attr] = {
            "strides": self._spread(x, stride),
            "dilations": self._spread(x, dilation),
            "pads": pads + pads,
            "groups": groups,
        }
        operands = [x, w, self._bias(filters)] if bias else [x, w]
        return self._op("conv", operands, attrs, self._weighted(x))

    def conv_transpose(self, x: str, filters: int, kernel: int) -> str:
        """Add a transposed convolution with bias whose windows lie side by side."""
        rank, inputs = len(self._spatial_axes(x)), self.channels(x)
        w = self._normal("weights", (inputs, filters, *(kernel,) * rank), sqrt(2 / inputs))
        attrs: dict[str, Attr] = {"strides": (kernel,) * rank}
        operands = [x, w, self._bias(filters)]
        return self._op("conv_transpose", operands, attrs, self._weighted(x))

    def norm(self, x: str, gain: float = 1.0) -> str:
        """Add a batch norm at inference, y = (x - mean) / sqrt(var + epsilon) * gamma + beta.

        Args:
            x: what is normalized.
            gain: how large the result is; less than 1 at the end of a residual branch.
        """
        count, before = self.channels(x), self._moments[x]
        mean = before.mean + self._rng.normal(0, 0.1 * sqrt(before.variance), count)
        variance = before.variance * self._uniform(0.75, 1.25, count)
        gamma, beta = gain * self._uniform(0.7, 1.3, count), gain * self._uniform(-0.3, 0.3, count)
        scale = gamma / np.sqrt(variance + _EPSILON)
        shift = beta - mean * scale
        operands = [x, self._parameter("scale", scale), self._parameter("shift", shift)]
        square = np.mean(scale**2 * before.variance + (scale * (before.mean - mean) + beta) ** 2)
        return self._op(
            "scale_shift", operands, None, _Moments(float(np.mean(beta)), float(square))
        )

    def layer_norm(self, x: str) -> str:
        """Add a layer norm over the channels of each pixel (Ba et al. 2016).

        y = (x - mean) / sqrt(var + epsilon) * gamma + beta.
        """
        count = self.channels(x)
        gamma, beta = self._uniform(0.7, 1.3, count), self._uniform(-0.3, 0.3, count)
        operands = [x, self._parameter("scale", gamma), self._parameter("shift", beta)]
        moments = _Moments(float(np.mean(beta)), float(np.mean(gamma**2 + beta**2)))
        over: dict[str, Attr] = {"axes": (self._channel_axis(x),), "epsilon": _LAYER_EPSILON}
        return self._op("layer_norm", operands, over, moments)

    def scale(self, x: str, factor: float) -> str:
        """Multiply each channel by a number of its own, near to ``factor``."""
        numbers = factor * self._uniform(0.5, 1.5, self.channels(x))
        shape = [1] * len(self.builder.type(x).shape)
        shape[self._channel_axis(x)] = -1
        before, square = self._moments[x], float(np.mean(numbers**2))
        moments = _Moments(float(np.mean(numbers)) * before.mean, square * before.square)
        operands = [x, self._parameter("scale", numbers.reshape(shape))]
        return self._op("mul", operands, None, moments)

    def linear(self, x: str, outputs: int) -> str:
        """Add a fully connected layer with bias over the last axis of a matrix."""
        w = self._rows(x, outputs)
        operands = [x, w, self._bias(outputs)]
        return self._op("matmul", operands, {"trans_b": 1}, self._weighted(x))

    # --- layers without weights -------------------------------------------------------------------

    def act(self, x: str, op: str, **attrs: float) -> str:
        """Add an elementwise function."""
        step = Node("act", op, ("x",), ("y",), tuple(sorted(attrs.items())))
        before = self._moments[x]
        (values,) = evaluate(step, [_NORMAL * np.float32(sqrt(before.variance)) + before.mean])
        moments = _Moments(float(np.mean(values)), float(np.mean(np.square(values))))
        return self._op(op, [x], dict(attrs), moments)

    def relu(self, x: str) -> str:
        """Add max(x, 0)."""
        return self.act(x, "relu")

    def relu6(self, x: str) -> str:
        """Add min(max(x, 0), 6)."""
        return self.act(x, "clip", alpha=0.0, beta=6.0)

    def add(self, x: str, y: str) -> str:
        """Add two images of one shape."""
        a, b = self._moments[x], self._moments[y]
        moments = _Moments(a.mean + b.mean, (a.mean + b.mean) ** 2 + a.variance + b.variance)
        return self._op("add", [x, y], None, moments)

    def gate(self, x: str, y: str) -> str:
        """Multiply an image by one number a channel."""
        a, b = self._moments[x], self._moments[y]
        moments = _Moments(a.mean * b.mean, a.square * b.square)
        return self._op("mul", [x, y], None, moments)

    def concat(self, *pieces: str) -> str:
        """Put the channels of several images one after another."""
        counts = [self.channels(piece) for piece in pieces]
        parts = [self._moments[piece] for piece in pieces]
        moments = _Moments(
            float(np.average([part.mean for part in parts], weights=counts)),
            float(np.average([part.square for part in parts], weights=counts)),
        )
        return self._op("concat", pieces, {"axis": self._channel_axis(pieces[0])}, moments)

    def slice_channels(self, x: str, start: int, stop: int) -> str:
        """Take some of the channels."""
        shape, axis = self.builder.type(x).shape, self._channel_axis(x)
        starts, stops = [0] * len(shape), list(shape)
        starts[axis], stops[axis] = start, stop
        attrs: dict[str, Attr] = {
            "starts": tuple(starts), "stops": tuple(stops), "steps": (1,) * len(shape),
        }  # fmt: skip
        return self._op("slice", [x], attrs, self._moments[x])

    def shuffle(self, x: str, groups: int) -> str:
        """Shuffle the channels between groups."""
        return self._op("channel_shuffle", [x], {"groups": groups}, self._moments[x])

    def local_norm(self, x: str) -> str:
        """Add local response normalization as Caffe's AlexNet has it."""
        attrs: dict[str, Attr] = {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}
        return self._op("lrn", [x], attrs, self._moments[x])

    def max_pool(
        self, x: str, kernel: int, stride: int, padding: int = 0, *, ceil: bool = False
    ) -> str:
        """Add max pooling; ``ceil`` keeps a last window that lies in part beyond the image."""
        rank = len(self._spatial_axes(x))
        ends = [padding] * rank
        if ceil:
            for axis, size in enumerate(self.extents(x)):
                rest = (size + 2 * padding - kernel) % stride
                ends[axis] += stride - rest if rest else 0
        attrs: dict[str, Attr] = {
            "kernel": (kernel,) * rank,
            "strides": (stride,) * rank,
            "pads": ((padding,) * rank + tuple(ends)),
        }
        return self._op("max_pool", [x], attrs, self._moments[x])

    def avg_pool(self, x: str, kernel: int, stride: int, padding: int = 0) -> str:
        """Add average pooling that counts the padding, as PyTorch does."""
        rank = len(self._spatial_axes(x))
        attrs: dict[str, Attr] = {
            "kernel": (kernel,) * rank,
            "strides": (stride,) * rank,
            "pads": (padding,) * (2 * rank),
            "count_include_pad": 1,
        }
        return self._op("avg_pool", [x], attrs, self._moments[x].narrowed(0.5))

    def mean(self, x: str, *, keep: bool = False) -> str:
        """Take the mean of each channel: an image of one pixel, or a matrix."""
        attrs: dict[str, Attr] = {"axes": self._spatial_axes(x), "keepdims": int(keep)}
        return self._op("reduce_mean", [x], attrs, self._moments[x].narrowed(0.2))

    def resize(self, x: str, extents: Sequence[int], mode: str) -> str:
        """Resize an image as PyTorch does, nearest neighbors or linear."""
        batch = self.builder.type(x).shape[0]
        attrs: dict[str, Attr] = {
            "shape": self._shape(batch, self.channels(x), extents),
            "mode": mode,
            "coordinates": "asymmetric" if mode == "nearest" else "half_pixel",
            "rounding": "floor",
        }
        return self._op("resize", [x], attrs, self._moments[x])

    def flatten(self, x: str) -> str:
        """See each image as one row, its elements in the model's own order."""
        shape = self.builder.type(x).shape
        attrs: dict[str, Attr] = {"shape": (shape[0], prod(shape[1:]))}
        y = self._op("reshape", [x], attrs, self._moments[x])
        self._flattened[y] = x
        return y

    # --- blocks of several models -----------------------------------------------------------------

    def conv_norm(
        self,
        x: str,
        filters: int,
        kernel: Extents,
        stride: Extents = 1,
        *,
        gain: float = 1.0,
        **options: Unpack[ConvOptions],
    ) -> str:
        """Add a convolution and a batch norm."""
        return self.norm(self.conv(x, filters, kernel, stride, **options), gain)

    def conv_norm_relu(
        self,
        x: str,
        filters: int,
        kernel: Extents,
        stride: Extents = 1,
        **options: Unpack[ConvOptions],
    ) -> str:
        """Add a convolution, a batch norm and a ReLU."""
        return self.relu(self.conv_norm(x, filters, kernel, stride, **options))

    def inverted(
        self,
        x: str,
        inner: int,
        kernel: int,
        stride: int,
        filters: int,
        act: Callable[[str], str],
        gate: Callable[[str], str] | None = None,
    ) -> str:
        """Add an inverted residual block (Sandler 2018): expand, filter each channel, project.

        Args:
            x: the image.
            inner: channels between; no expansion if the image has as many.
            kernel: extents of the filters of single channels.
            stride: of these filters.
            filters: channels of the result.
            act: adds the activation after the first and the second convolution.
            gate: adds what stands before the projection.
        """
        y = x if inner == self.channels(x) else act(self.conv_norm(x, inner, 1))
        y = act(self.conv_norm(y, inner, kernel, stride, groups=inner))
        y = y if gate is None else gate(y)
        has_residual = stride == 1 and self.channels(x) == filters
        y = self.conv_norm(y, filters, 1, gain=BRANCH_GAIN if has_residual else 1.0)
        return self.add(x, y) if has_residual else y

    def excite(self, x: str, squeezed: int, inner: str, outer: str, **attrs: float) -> str:
        """Gate each channel by two layers over all means (squeeze-and-excitation, Hu et al. 2018).

        Args:
            x: the image.
            squeezed: channels between the two layers.
            inner: the activation between them.
            outer: the activation after them.
            attrs: the parameters of that activation.
        """
        y = self.act(self.conv(self.mean(x, keep=True), squeezed, 1, bias=True), inner)
        y = self.conv(y, self.channels(x), 1, bias=True)
        return self.gate(x, self.act(y, outer, **attrs))

    def classify(self, x: str, classes: int = 1000) -> Graph:
        """Finish with the mean of each channel and one score a class."""
        return self.build(self.linear(self.mean(x), classes))
