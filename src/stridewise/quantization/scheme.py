"""A quantization of a graph as data: parameters of activations, integers of weights and biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.graph import Graph, Node
from stridewise.quantization.selection import PRODUCTS, select, without_zero_point
from stridewise.quantization.settings import Settings
from stridewise.runtime.tuning.offers import channels_read, mean_error
from stridewise.tensor.ranges import (
    Method,
    Parameters,
    Weights,
    parameters,
    quantized_weights,
)
from stridewise.tensor.statistics import Channels, Histogram, Observed

__all__ = ["Bias", "Layer", "Scheme", "channels_of", "make_scheme", "weight_axis"]

Array = NDArray[Any]
_MATRIX = 2
_LARGEST_BIAS = 2**30
"""Half of what int32 represents, so that sums with it do not overflow."""


@dataclass(frozen=True, slots=True)
class Bias:
    """A bias as integers, with the scale of the products of its layer.

    Attributes:
        integers: int32.
        scales: float32, one for each element.
    """

    integers: NDArray[np.int32]
    scales: NDArray[np.float32]

    @property
    def real(self) -> NDArray[np.float32]:
        """The bias that the integers stand for."""
        return self.integers.astype(np.float32) * self.scales


@dataclass(frozen=True, slots=True)
class Layer:
    """The operands of a quantized product.

    Attributes:
        weights: the weights.
        bias: the bias; None if there is none.
    """

    weights: Weights
    bias: Bias | None


@dataclass(frozen=True, slots=True)
class Scheme:
    """What each tensor and layer is stored as if nothing is left in float.

    Attributes:
        graph: the float graph that it is for.
        tensors: parameters of activations, by name.
        layers: operands of products, by the name of the node.
    """

    graph: Graph
    tensors: Mapping[str, Parameters]
    layers: Mapping[str, Layer]


def weight_axis(node: Node) -> int | None:
    """Return the axis of a product's weights with an index for each channel of its result."""
    if node.op == "conv":
        return 0
    if node.op == "matmul":
        return 0 if node.int_attr("trans_b", 0) else 1
    return 1 if node.int_attr("groups", 1) == 1 else None


def channels_of(graph: Graph, seen: Mapping[str, Observed], node: Node) -> Channels:
    """Return what is known of the channels that a product reads."""
    name, axis = channels_read(graph, node)
    return seen[name].channels[axis]


def make_scheme(
    graph: Graph,
    seen: Mapping[str, Observed],
    method: Method,
    settings: Settings,
    *,
    correct: bool,
) -> Scheme:
    """Return the quantization of a graph.

    Args:
        graph: without post-ops.
        seen: what calibration knows of the tensors that are quantized.
        method: how ranges are chosen.
        settings: options of the call.
        correct: whether biases make up for the mean error of weights.
    """
    chosen = select(graph, ())
    shared: dict[str, Histogram] = {}
    for name, root in chosen.tensors.items():
        own = seen[name].histogram
        shared[root] = own if root not in shared else shared[root].merged(own)
    signed = without_zero_point(graph, chosen)
    of_root = {
        root: parameters(
            item,
            "int8" if root in signed and item.low < 0 else settings.activations,
            method,
            settings.percentile,
        )
        for root, item in shared.items()
    }
    tensors = {name: of_root[root] for name, root in chosen.tensors.items()}
    layers: dict[str, Layer] = {}
    for node in graph.nodes:
        if node.op in PRODUCTS and node.name in chosen.layers:
            x = tensors[node.inputs[0]]
            mean = channels_of(graph, seen, node).mean if correct else None
            layers[node.name] = _layer(graph, node, x, mean, method, settings)
    return Scheme(graph, tensors, layers)


def _layer(
    graph: Graph,
    node: Node,
    x: Parameters,
    mean: Array | None,
    method: Method,
    settings: Settings,
) -> Layer:
    real = np.asarray(graph.constants[node.inputs[1]].array, np.float32)
    axis = weight_axis(node)
    bias = _bias_of(graph, node)
    # The scale of a bias is that of x times that of the weights; int32 has to represent it.
    reach = np.abs(bias) / _LARGEST_BIAS if bias is not None else np.zeros(1)
    least = np.maximum(reach / x.scale, 2.0**-60)
    if axis is None:
        least = least.max(keepdims=True)
    elif least.size == 1:
        least = np.full(real.shape[axis], least.item())
    weights = quantized_weights(
        real, axis, least, best=method == "mse", steps=settings.weight_steps
    )
    if mean is not None and node.op != "conv_transpose":
        shift = mean_error(node, weights.real - real, mean)
        bias = -shift if bias is None else bias - shift
    if bias is None:
        return Layer(weights, None)
    scales = np.broadcast_to(np.float32(x.scale) * weights.scales, bias.shape).astype(np.float32)
    limit = 2 * _LARGEST_BIAS - 1
    integers = np.clip(np.rint(bias / scales), -limit, limit).astype(np.int32)
    return Layer(weights, Bias(integers, scales))


def _bias_of(graph: Graph, node: Node) -> Array | None:
    name = node.inputs[2] if len(node.inputs) > 2 else ""
    return graph.constants[name].array.astype(np.float64) if name else None
