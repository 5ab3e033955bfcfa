"""The graph builder that users have: layers with parameters of their own, in any data format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import prod, sqrt
from typing import Literal, TypedDict, Unpack

import numpy as np

from stridewise.errors import GraphError
from stridewise.formats import Format
from stridewise.graph import Attr
from stridewise.ops.builder import NodeBuilder
from stridewise.ops.data_format import CHANNELS_FIRST, DATA_FORMATS
from stridewise.ops.norm import RUNNING
from stridewise.ops.registry import Array

__all__ = ["ConvOptions", "GraphBuilder", "Padding", "PerAxis", "Statistics"]

Padding = int | Sequence[int] | Literal["same"]
"""Zeros around an image: one number, one for each spatial axis, or all begins and then all ends.
``"same"`` adds as many as make the result smaller by the strides alone, an odd one at the end."""


PerAxis = int | Sequence[int]
"""One number for all spatial axes, or one for each."""


class ConvOptions(TypedDict, total=False):
    """What a convolution may be told besides its size.

    Attributes:
        strides: distance between windows; 1 by default.
        padding: zeros around the image; none by default. See :data:`Padding`.
        dilation: distance between taps; 1 by default.
        groups: number of groups of channels, which are convolved separately; 1 by default.
        bias: whether there is one, with zeros, as by default; or its values [filters].
        weights: OIHW [filters, channels / groups, height, width]; random by default.
        name: of the node; its parameters are named after it.
    """

    strides: PerAxis
    padding: Padding
    dilation: PerAxis
    groups: int
    bias: bool | Array
    weights: Array | None
    name: str


class Statistics(TypedDict, total=False):
    """What a batch norm knows, one number a channel each.

    Attributes:
        scale: ones by default.
        shift: zeros by default.
        mean: zeros by default.
        variance: ones by default.
    """

    scale: Array
    shift: Array
    mean: Array
    variance: Array


class GraphBuilder(NodeBuilder):
    """Builds graphs, node by node or by layers; values are referred to by name.

    Weights that are not given are random (normal, He et al. 2015); biases and statistics that are
    not given have no effect (0, or 1 for scales). Random numbers depend only on the seed and on the
    order of the calls, so builders with either data format make the same model. Convolution weights
    are always OIHW.

    >>> b = GraphBuilder("tiny", data_format="NHWC")
    >>> x = b.input("x", (1, 8, 8, 3))
    >>> y = b.relu(b.conv2d(x, filters=4, kernel_size=3, strides=2, padding="same"))
    >>> b.type(y).shape
    (1, 4, 4, 4)
    >>> graph = b.build(outputs=[b.dense(b.flatten(b.global_avg_pool(y)), units=10)])
    >>> str(graph.values[graph.outputs[0]].type)
    'f32[1,10]'
    """

    def __init__(
        self,
        name: str = "graph",
        data_format: str = "NCHW",
        seed: int = 0,
        *,
        training: bool = False,
    ) -> None:
        """Start an empty graph.

        Args:
            name: of the graph.
            data_format: the order of feature maps: ``"NCHW"`` or ``"NHWC"``, or their siblings of
                other rank, which mean the same: one name holds for feature maps of every rank.
            seed: of the weights that are drawn.
            training: whether the weights of layers are parameters instead of constants, and batch
                norms take the statistics of the batch and keep running ones in states.

        Raises:
            FormatError: there is no such data format.
        """
        super().__init__(name, data_format)
        self._seed, self._training = seed, training

    def _learned(self, array: Array, name: str) -> str:
        """Add what a layer learns: a parameter in training, else a constant."""
        array = np.asarray(array, np.float32)
        if self._training:
            return self.parameter(array, self.fresh(name))
        return self.constant(array, name)

    @cached_property
    def _random(self) -> np.random.Generator:
        # NumPy loads that part of itself when it is first asked for: 12 ms of reading a model file,
        # which draws nothing.
        return np.random.default_rng(self._seed)

    # --- what arguments mean ------------------------------------------------------------------

    def _map_format(self, x: str, spatial: int | None = None) -> Format:
        """Return the format of a feature map, of ``spatial`` spatial axes if that is given."""
        type_ = self.type(x)
        rank = len(type_.shape)
        found = DATA_FORMATS[self.data_format].get(rank)
        if found is None or spatial not in (None, rank - 2):
            wanted = "1 to 3" if spatial is None else str(spatial)
            raise GraphError.at(
                f"graph {self.name!r}, value {x!r}",
                expected=f"a feature map with {wanted} spatial axes",
                found=str(type_),
            )
        return found

    def _extents(self, x: str) -> dict[str, int]:
        """Return the extent of each axis of a feature map by name."""
        return dict(zip(self._map_format(x).order, self.type(x).shape, strict=True))

    def _spatial(self, x: str) -> tuple[int, ...]:
        return tuple(self._extents(x)[axis] for axis in self._map_format(x).axes[2:])

    def _axis(self, x: str, axis: str | int) -> int:
        """Return the position of an axis, given by name or counted from either end."""
        rank = len(self.type(x).shape)
        if isinstance(axis, int) and -rank <= axis < rank:
            return axis % rank
        order = self._map_format(x).order if rank in CHANNELS_FIRST else ("N", "C")
        if isinstance(axis, int) or axis not in order[:rank]:
            raise GraphError.at(
                f"graph {self.name!r}, value {x!r}",
                expected=f"an axis of {self.type(x)}",
                found=repr(axis),
            )
        return order.index(axis)

    def _numbers(self, what: str, given: PerAxis, count: int) -> tuple[int, ...]:
        """Return one number for each spatial axis."""
        numbers = (given,) * count if isinstance(given, int) else tuple(given)
        if len(numbers) != count:
            raise GraphError.at(
                f"graph {self.name!r}, {what}",
                expected=f"one number, or {count}",
                found=str(numbers),
            )
        return numbers

    def _pads(
        self,
        x: str,
        padding: Padding,
        kernel: tuple[int, ...],
        strides: tuple[int, ...],
        dilations: tuple[int, ...],
    ) -> tuple[int, ...]:
        """Return the zeros before each spatial axis, then those behind."""
        if isinstance(padding, int):
            return (padding,) * (2 * len(kernel))
        if isinstance(padding, str):
            self._among("padding", [padding], ["same"])
            totals = [
                max((-(-extent // stride) - 1) * stride + (taps - 1) * dilation + 1 - extent, 0)
                for extent, taps, stride, dilation in zip(
                    self._spatial(x), kernel, strides, dilations, strict=True
                )
            ]
            return (*(total // 2 for total in totals), *(-(-total // 2) for total in totals))
        numbers = tuple(padding)
        return numbers * 2 if len(numbers) == len(kernel) else numbers

    def _among(self, what: str, given: Iterable[str], known: Iterable[str]) -> None:
        """Check words of the caller's; a wrong one must not be passed over in silence."""
        for word in given:
            if word not in known:
                raise GraphError.at(
                    f"graph {self.name!r}, {what}",
                    expected=f"one of {', '.join(known)}",
                    found=repr(word),
                )

    def _drawn(self, shape: tuple[int, ...], fan_in: int, gain: float) -> Array:
        return self._random.normal(0, sqrt(gain / fan_in), shape).astype(np.float32)

    def _bias(self, given: bool | Array, name: str, count: int) -> list[str]:
        if isinstance(given, bool):
            return [self._learned(np.zeros(count, np.float32), name)] if given else []
        return [self._learned(given, name)]

    # --- layers with parameters ---------------------------------------------------------------

    def _conv(
        self, spatial: int, x: str, filters: int, kernel_size: PerAxis, options: ConvOptions
    ) -> str:
        self._map_format(x, spatial)
        self._among(f"option of conv{spatial}d", options, ConvOptions.__annotations__)
        kernel = self._numbers("kernel_size", kernel_size, spatial)
        strides = self._numbers("strides", options.get("strides", 1), spatial)
        dilations = self._numbers("dilation", options.get("dilation", 1), spatial)
        groups = options.get("groups", 1)
        attrs: dict[str, Attr] = {
            "dilations": dilations,
            "groups": groups,
            "pads": self._pads(x, options.get("padding", 0), kernel, strides, dilations),
            "strides": strides,
        }
        node = self.fresh(options.get("name") or "conv")
        weights = options.get("weights")
        if weights is None:
            inputs = max(self._extents(x)["C"] // max(groups, 1), 1)
            weights = self._drawn((filters, inputs, *kernel), inputs * prod(kernel), 2.0)
        w = self._learned(weights, f"{node}.weights")
        operands = [x, w, *self._bias(options.get("bias", True), f"{node}.bias", filters)]
        return self.op("conv", operands, attrs, name=node)

    def conv1d(
        self, x: str, filters: int, kernel_size: PerAxis, **options: Unpack[ConvOptions]
    ) -> str:
        """Add a convolution over one spatial axis; see :meth:`conv2d`."""
        return self._conv(1, x, filters, kernel_size, options)

    def conv2d(
        self, x: str, filters: int, kernel_size: PerAxis, **options: Unpack[ConvOptions]
    ) -> str:
        """Add a convolution over height and width and return its result.

        Args:
            x: images, in the builder's data format.
            filters: number of output channels.
            kernel_size: taps, one number or one a spatial axis.
            **options: the rest by name; see :class:`ConvOptions`.

        Raises:
            GraphError: the shapes do not fit.
        """
        return self._conv(2, x, filters, kernel_size, options)

    def conv3d(
        self, x: str, filters: int, kernel_size: PerAxis, **options: Unpack[ConvOptions]
    ) -> str:
        """Add a convolution over depth, height and width; see :meth:`conv2d`."""
        return self._conv(3, x, filters, kernel_size, options)

    def batch_norm(
        self,
        x: str,
        *,
        epsilon: float = 1e-5,
        momentum: float = 0.1,
        name: str = "",
        **statistics: Unpack[Statistics],
    ) -> str:
        """Add a batch norm with known statistics: a scale and a shift for each channel.

        With ``training=True`` it uses the statistics of the batch, and each run updates the running
        statistics. The running variance is the unbiased one: its divisor is the number of elements
        of a channel minus 1.

        Args:
            x: a feature map, or a matrix [N, C].
            epsilon: added to the variance.
            momentum: share of the batch in the running statistics after a run of training.
            name: of the node.
            **statistics: one number a channel each; see :class:`Statistics`.

        Raises:
            GraphError: the shapes do not fit.
        """
        channels = self.type(x).shape[self._axis(x, "C")]
        self._among("statistic of batch_norm", statistics, Statistics.__annotations__)
        neutral = {"scale": 1.0, "shift": 0.0, "mean": 0.0, "variance": 1.0}
        rows = {
            key: np.asarray(statistics.get(key, np.full(channels, value)), np.float64)
            for key, value in neutral.items()
        }
        node = self.fresh(name or "batch_norm")
        if self._training:
            return self._trained_batch_norm(node, x, rows, epsilon, momentum)
        factor = rows["scale"] / np.sqrt(rows["variance"] + epsilon)
        made = {"scale": factor, "shift": rows["shift"] - rows["mean"] * factor}
        own = [self.constant(row.astype(np.float32), f"{node}.{key}") for key, row in made.items()]
        return self.op("scale_shift", [x, *own], name=node)

    def _trained_batch_norm(
        self, node: str, x: str, rows: dict[str, Array], epsilon: float, momentum: float
    ) -> str:
        own = [self._learned(rows[key], f"{node}.{key}") for key in ("scale", "shift")]
        names = ("mean", "variance")
        states = [
            self.state(rows[key].astype(np.float32), self.fresh(f"{node}.{key}")) for key in names
        ]
        attrs: dict[str, Attr] = {"epsilon": epsilon, RUNNING: tuple(states)}
        y, *found = self.node("batch_norm", [x, *own], attrs, name=node)
        self.track(states, found, momentum, prod(self.type(x).shape) // len(rows["scale"]))
        return y

    def track(
        self, states: Sequence[str], statistics: Sequence[str], momentum: float, count: int
    ) -> None:
        """Move the running mean and variance of a batch norm towards those of the batch.

        Source: PyTorch, BatchNorm2d. One element has no variance, and gives none. If several batch
        norms share the states, each moves what the one before has made of them.

        Args:
            states: the running mean and variance.
            statistics: mean and variance of the batch; the latter is divided by ``count``.
            momentum: share of the batch in the new ones.
            count: elements of a channel in the batch.
        """
        shares = (momentum, momentum * count / max(count - 1, 1))
        for state, statistic, share in zip(states, statistics, shares, strict=True):
            old = self._updates.pop(state, state)
            kept = self.op("mul", [old, self.constant(np.array(1 - momentum, np.float32))])
            new = self.op("mul", [statistic, self.constant(np.array(share, np.float32))])
            self.update(state, self.op("add", [kept, new]))

    def layer_norm(
        self,
        x: str,
        *,
        axis: str | int = -1,
        scale: Array | None = None,
        shift: Array | None = None,
        epsilon: float = 1e-5,
        name: str = "",
    ) -> str:
        """Add a layer norm over one axis, by position or by name (``"C"``), for each position.

        Args:
            x: what is normalized.
            axis: the last one by default.
            scale: one number for each place along the axis; ones by default.
            shift: likewise; zeros by default.
            epsilon: added to the variance.
            name: of the node.

        Raises:
            GraphError: there is no such axis, or the parameters do not fit.
        """
        position = self._axis(x, axis)
        attrs: dict[str, Attr] = {"axes": (position,), "epsilon": epsilon}
        return self._normalized("layer_norm", x, position, scale, shift, attrs, name)

    def group_norm(
        self,
        x: str,
        groups: int,
        *,
        scale: Array | None = None,
        shift: Array | None = None,
        epsilon: float = 1e-5,
        name: str = "",
    ) -> str:
        """Add a group norm; with as many groups as channels it is an instance norm.

        Args:
            x: a feature map.
            groups: of channels, which are normalized together, image by image.
            scale: one number a channel; ones by default.
            shift: one number a channel; zeros by default.
            epsilon: added to the variance.
            name: of the node.

        Raises:
            GraphError: the groups do not divide the channels, or the parameters do not fit.
        """
        attrs: dict[str, Attr] = {"groups": groups, "epsilon": epsilon}
        channel = self._axis(x, "C")
        return self._normalized("group_norm", x, channel, scale, shift, attrs, name)

    def _normalized(
        self,
        op: str,
        x: str,
        axis: int,
        scale: Array | None,
        shift: Array | None,
        attrs: dict[str, Attr],
        name: str,
    ) -> str:
        node, count = self.fresh(name or op), self.type(x).shape[axis]
        rows = {
            "scale": np.ones(count) if scale is None else scale,
            "shift": np.zeros(count) if shift is None else shift,
        }
        own = [self._learned(row, f"{node}.{key}") for key, row in rows.items()]
        return self.op(op, [x, *own], attrs, name=node)

    def prelu(self, x: str, slopes: Array, *, name: str = "") -> str:
        """Add a rectifier with a slope for negative elements, one number for each channel.

        Args:
            x: a feature map.
            slopes: as many numbers as channels.
            name: of the node.

        Raises:
            GraphError: there are not as many slopes as channels.
        """
        node, axis = self.fresh(name or "prelu"), self._axis(x, "C")
        shape = [1] * len(self.type(x).shape)
        shape[axis] = -1
        row = self._learned(np.asarray(slopes).reshape(shape), f"{node}.slopes")
        return self.op("prelu", [x, row], name=node)

    def dense(
        self,
        x: str,
        units: int,
        *,
        bias: bool | Array = True,
        weights: Array | None = None,
        name: str = "",
    ) -> str:
        """Add a matrix product over the last axis.

        Args:
            x: of shape [..., inputs].
            units: the last extent of the result.
            bias: whether to add a bias of zeros, or an array [units].
            weights: an array [units, inputs]; random by default.
            name: of the node.

        Raises:
            GraphError: the shapes do not fit.
        """
        node = self.fresh(name or "dense")
        inputs = self.type(x).shape[-1]
        if weights is None:
            weights = self._drawn((units, inputs), inputs, 1.0)
        operands = [x, self._learned(weights, f"{node}.weights")]
        operands += self._bias(bias, f"{node}.bias", units)
        return self.op("matmul", operands, {"trans_b": 1}, name=node)

    # --- layers without -----------------------------------------------------------------------

    def _pool(
        self,
        op: str,
        x: str,
        kernel_size: PerAxis,
        strides: PerAxis | None,
        padding: Padding,
        attrs: dict[str, Attr],
        name: str,
    ) -> str:
        self._map_format(x, 2)
        kernel = self._numbers("kernel_size", kernel_size, 2)
        steps = self._numbers("strides", kernel if strides is None else strides, 2)
        pads = self._pads(x, padding, kernel, steps, (1, 1))
        return self.op(
            op, [x], {"kernel": kernel, "pads": pads, "strides": steps} | attrs, name=name
        )

    def max_pool2d(
        self,
        x: str,
        kernel_size: PerAxis,
        *,
        strides: PerAxis | None = None,
        padding: Padding = 0,
        name: str = "",
    ) -> str:
        """Add max pooling over windows.

        Args:
            x: a feature map, in the builder's data format.
            kernel_size: of the windows, one number or one a spatial axis.
            strides: between windows; by default their size.
            padding: as for :meth:`conv2d`; it never is the maximum.
            name: of the node.

        Raises:
            GraphError: the shapes do not fit.
        """
        return self._pool("max_pool", x, kernel_size, strides, padding, {}, name)

    def avg_pool2d(
        self,
        x: str,
        kernel_size: PerAxis,
        *,
        strides: PerAxis | None = None,
        padding: Padding = 0,
        count_padding: bool = False,
        name: str = "",
    ) -> str:
        """Add average pooling over windows.

        Args:
            x: a feature map, in the builder's data format.
            kernel_size: of the windows, one number or one a spatial axis.
            strides: between windows; by default their size.
            padding: as for :meth:`conv2d`.
            count_padding: whether padding counts as zeros, or not at all.
            name: of the node.

        Raises:
            GraphError: the shapes do not fit.
        """
        attrs: dict[str, Attr] = {"count_include_pad": int(count_padding)}
        return self._pool("avg_pool", x, kernel_size, strides, padding, attrs, name)

    def global_avg_pool(self, x: str, *, name: str = "") -> str:
        """Add the mean over all spatial axes, which stay with extent 1.

        Raises:
            GraphError: ``x`` is no feature map.
        """
        axes = tuple(sorted(self._axis(x, axis) for axis in self._map_format(x).axes[2:]))
        return self.op("reduce_mean", [x], {"axes": axes, "keepdims": 1}, name=name)

    def relu(self, x: str, *, name: str = "") -> str:
        """Add max(x, 0)."""
        return self.op("relu", [x], name=name)

    def dropout(self, x: str, share: float = 0.5, *, name: str = "") -> str:
        """Add dropout: steps of :class:`~stridewise.Trainer` set a share of the elements to 0.

        The others are divided by one less that share. Elsewhere the result is ``x``.

        Args:
            x: float32, of any shape.
            share: of the elements that are dropped, from 0 to below 1.
            name: of the node.

        Raises:
            GraphError: the share is out of range.
        """
        return self.op("dropout", [x], {"share": float(share)}, name=name)

    def sigmoid(self, x: str, *, name: str = "") -> str:
        """Add 1 / (1 + exp(-x))."""
        return self.op("sigmoid", [x], name=name)

    def softmax(self, x: str, *, axis: str | int = -1, name: str = "") -> str:
        """Add a softmax over one axis, by position or by name (``"C"``).

        Raises:
            GraphError: there is no such axis.
        """
        return self.op("softmax", [x], {"axis": self._axis(x, axis)}, name=name)

    def add(self, a: str, b: str, *, name: str = "") -> str:
        """Add a sum, with NumPy's broadcasting."""
        return self.op("add", [a, b], name=name)

    def mul(self, a: str, b: str, *, name: str = "") -> str:
        """Add a product, with NumPy's broadcasting."""
        return self.op("mul", [a, b], name=name)

    def concat(self, values: Sequence[str], *, axis: str | int = "C", name: str = "") -> str:
        """Add a concatenation.

        Args:
            values: one or more, whose other extents are equal.
            axis: the position or the name of the axis, channels by default.
            name: of the node.

        Raises:
            GraphError: there is no such axis, or the values do not fit together.
        """
        if not values:
            raise GraphError.at(
                f"graph {self.name!r}, concat", expected="at least one value", found="none"
            )
        return self.op("concat", values, {"axis": self._axis(values[0], axis)}, name=name)

    def flatten(self, x: str, *, name: str = "") -> str:
        """Add a view as a matrix [N, all the rest], the rest in the user's own order."""
        shape = self.type(x).shape
        return self.op("reshape", [x], {"shape": (shape[0], prod(shape[1:]))}, name=name)
