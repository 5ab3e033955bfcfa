"""Offers: grids that tensors and weights may be rounded to, so that plans store them as integers.

Ranges of tensors come from samples. Tensors that some node only moves elements between have one
grid, so that the node copies integers. Weights have a symmetric grid with a scale for each result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import dtype_of
from stridewise.graph import Graph, Node, Value
from stridewise.ops.activation import UNARY, UNBOUNDED, Bounds, bounds
from stridewise.ops.activation import parameters as parameters_of
from stridewise.ops.data_format import channel_axis
from stridewise.ops.quantize import MOVES
from stridewise.planner.derivation.provenance import Derived
from stridewise.tensor import Grid
from stridewise.tensor.ranges import parameters, quantized_weights
from stridewise.tensor.statistics import Channels, Histogram

__all__ = ["bias_of", "channels_read", "mean_error", "observable", "observed", "with_offers"]

Array = NDArray[Any]
_F32 = dtype_of("float32")
_PRODUCTS = ("conv", "conv_transpose", "matmul")
_SUMS = frozenset(
    {"add", "avg_pool", "mul", "pointwise", "reduce_mean", "resize", "scale_shift", "sub"}
)
"""Operators beside moves and functions of one tensor that have kernels on integers."""
_LEAST_SCALE = 2.0**-60


def observable(graph: Graph) -> dict[str, str]:
    """Return the tensors that may be offered a grid, each with the one whose grid it has.

    These are the operands of products with constant weights, and of what makes such operands.
    """
    wanted: dict[str, None] = {}
    root: dict[str, str] = {}

    def group(name: str) -> str:
        while root.setdefault(name, name) != name:
            name = root[name]
        return name

    def fits(name: str) -> bool:
        value = graph.values[name] if name else None
        is_real = value is not None and value.dtype == _F32 and value.grid is None
        return is_real and not graph.is_packed(name)

    for node in reversed(graph.nodes):
        if _weight_axes(graph, node) is not None:
            wanted[node.inputs[0]] = None
        elif node.outputs[0] not in wanted or not _computes_integers(node):
            continue
        result = node.outputs[0]
        posts = {post.operand for post in node.post_ops if post.operand is not None}
        if result in wanted:
            places = posts if node.op in _PRODUCTS else range(len(node.inputs))
            wanted |= dict.fromkeys(node.inputs[place] for place in places)
            if node.op in MOVES and not node.post_ops:
                for name in filter(fits, node.inputs):
                    root[group(name)] = group(result)
    return {name: group(name) for name in wanted if fits(name)}


def _computes_integers(node: Node) -> bool:
    return node.op in MOVES or node.op in _SUMS or node.op in UNARY or node.op in _PRODUCTS


def _weight_axes(graph: Graph, node: Node) -> tuple[int | None] | None:
    """Return the axis of a product's weights with a scale for each index; None for no offer."""
    if node.op not in _PRODUCTS or not graph.is_packed(node.inputs[1]):
        return None
    weights, x = (graph.values[name] for name in (node.inputs[1], node.inputs[0]))
    if weights.dtype != _F32 or x.dtype != _F32 or weights.name not in graph.constants:
        return None
    if weights.grid is not None or graph.is_packed(x.name):
        return None
    if node.op == "matmul":
        is_plain = len(weights.shape) == 2 and not node.int_attr("trans_a", 0)
        return (0 if node.int_attr("trans_b", 0) else 1,) if is_plain else None
    return (0 if node.op == "conv" else None,)


def observed(
    graph: Graph, runs: Iterable[Mapping[str, Array]]
) -> tuple[dict[str, Grid], dict[str, tuple[float, ...]]]:
    """Return the grid of each tensor whose elements are finite, and biases of rounded weights.

    Args:
        graph: the graph.
        runs: for each sample, the tensors of :func:`observable` by name.
    """
    groups = observable(graph)
    seen = {root: Histogram() for root in groups.values()}
    channels = {
        channels_read(graph, node): Channels()
        for node in graph.nodes
        if _weight_axes(graph, node) is not None
    }
    count = 0
    for tensors in runs:
        count += 1
        for name, root in groups.items():
            seen[root].add(tensors[name])
        for (name, axis), item in channels.items():
            item.add(tensors[name], axis)
    known, limits = _bounds(graph), dict[str, Bounds]()
    for name, root in groups.items():
        own = known.get(name, UNBOUNDED)
        limits[root] = _hull((own, limits.get(root, own)))
    of_root = {
        root: _grid(item, count, limits[root]) for root, item in seen.items() if item.is_finite
    }
    grids = {name: of_root[root] for name, root in groups.items() if root in of_root}
    means = {key: item.mean for key, item in channels.items() if key[0] in grids}
    return grids, _biases(graph, means)


def _grid(seen: Histogram, count: int, limits: Bounds) -> Grid:
    # The fewer samples, the further are others beyond their ranges, but not beyond limits.
    wider = 1 + 1 / max(count, 1)
    low = max(wider * seen.low, min(limits[0], 0.0))
    high = min(wider * seen.high, max(limits[1], 0.0))
    made = parameters(replace(seen, low=low, high=high), "uint8", "minmax")
    return Grid("u8", (made.scale,), (made.zero_point,))


def _bounds(graph: Graph) -> dict[str, Bounds]:
    """Return the least and the greatest number that each result of a function can be."""
    found: dict[str, Bounds] = {}
    for node in graph.nodes:
        last = node.post_ops[-1] if node.post_ops else None
        if last is not None:
            limits = bounds(last.op, last.alpha, last.beta)
        elif node.op in MOVES:
            limits = _hull(found.get(name, UNBOUNDED) for name in node.inputs if name)
        else:
            limits = bounds(node.op, *(parameters_of(node) if node.op in UNARY else ()))
        found[node.outputs[0]] = limits
    return found


def _hull(several: Iterable[Bounds]) -> Bounds:
    lows, highs = zip(*several, strict=True)
    return min(lows), max(highs)


def _biases(graph: Graph, means: Mapping[tuple[str, int], Array]) -> dict[str, tuple[float, ...]]:
    """Return the bias of each product's rounded weights, by the name of the weights.

    It makes up for the mean error of the results. Weights that several nodes read have none.
    """
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    found: dict[str, tuple[float, ...]] = {}
    for node in graph.nodes:
        axes = _weight_axes(graph, node)
        if axes is None or node.op == "conv_transpose":
            continue
        mean, bias = means.get(channels_read(graph, node)), bias_of(node)
        if mean is None:
            continue
        is_constant = bias in graph.constants or (not bias and node.op == "conv")
        name = str(node.inputs[1])
        if readers[name] > 1 or not is_constant:
            continue
        data = graph.constants[name].array
        error = _weights_grid(graph, name, axes[0]).rounded(data) - data
        own = graph.constants[bias].array.reshape(-1) if bias else 0.0
        corrected = np.asarray(own - mean_error(node, error, mean), np.float32)
        if np.isfinite(corrected).all():
            found[name] = tuple(corrected.tolist())
    return found


def bias_of(node: Node) -> str:
    """Return the name of the bias of a product; "" for none."""
    posts = {post.operand for post in node.post_ops}
    return node.inputs[2] if len(node.inputs) > 2 and 2 not in posts else ""


def channels_read(graph: Graph, node: Node) -> tuple[str, int]:
    """Return the activation that a product reads, and the axis of its channels for the product."""
    name = node.inputs[0]
    rank = len(graph.values[name].shape)
    return name, rank - 1 if node.op == "matmul" else channel_axis(node, rank)


def mean_error(node: Node, error: Array, mean: Array) -> Array:
    """Return the mean error of a product's results for operands of some mean.

    Source: Nagel et al. 2019, Data-Free Quantization, section 4.2: the error of the weights times
    the mean of the operand.
    """
    if node.op == "matmul":
        return mean @ (error.T if node.int_attr("trans_b", 0) else error)
    taps = error.reshape(*error.shape[:2], -1).sum(axis=2, dtype=np.float64)
    groups = node.int_attr("groups", 1)
    rows = taps.reshape(groups, -1, taps.shape[1])
    return np.einsum("goc,gc->go", rows, mean.reshape(groups, -1)).reshape(-1)


def with_offers(
    derived: Derived, grids: Mapping[str, Grid], biases: Mapping[str, tuple[float, ...]]
) -> Derived:
    """Return a graph whose tensors, and the weights of products that read them, have offers.

    Args:
        derived: the graph.
        grids: of tensors.
        biases: of rounded weights; see :func:`observed`.
    """
    if not grids:
        return derived
    graph = derived.graph
    values: dict[str, Value] = dict(graph.values)
    for name, grid in grids.items():
        values[name] = replace(values[name], offer=grid)
    for node in graph.nodes:
        axes = _weight_axes(graph, node)
        if axes is not None and node.inputs[0] in grids:
            name = node.inputs[1]
            grid = _weights_grid(graph, name, axes[0])
            values[name] = replace(values[name], offer=grid, bias=biases.get(name, ()))
    return replace(derived, graph=replace(graph, values=MappingProxyType(values)))


def _weights_grid(graph: Graph, name: str, axis: int | None) -> Grid:
    """Return the grid of weights whose scales have the least squared error."""
    data = graph.constants[name].array
    least = np.full(1 if axis is None else data.shape[axis], _LEAST_SCALE)
    scales: Sequence[float] = (
        quantized_weights(data, axis, least, best=True).scales.reshape(-1).tolist()
    )
    return Grid("s8", tuple(scales), (0,), axis)
