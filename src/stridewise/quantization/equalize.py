"""Cross-layer equalization: channels of similar range, by factors that cancel.

Between two products there is often nothing but an activation that commutes with positive factors.
Each channel between them may then be divided by a number, in the weights of the first, that the
weights of the second are multiplied by. Source: Nagel et al. 2019, Data-Free Quantization, section
4.1; here the range of a channel is the observed one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.graph import Constant, Graph, Node
from stridewise.quantization.scheme import channels_of, weight_axis
from stridewise.quantization.selection import refusals
from stridewise.tensor.statistics import Observed

__all__ = ["equalized"]

Array = NDArray[Any]
_HOMOGENEOUS = ("avg_pool", "leaky_relu", "max_pool", "relu")
"""Operators on single channels with f(s x) = s f(x) for s > 0."""

_LARGEST = 2.0**10
"""The greatest factor, so that a channel that is nearly 0 in the samples does not overflow."""


@dataclass(frozen=True, slots=True)
class _Pair:
    first: Node
    second: Node


def equalized(graph: Graph, seen: Mapping[str, Observed]) -> Graph | None:
    """Return an equivalent graph with other weights, or None if no two products are neighbors.

    Args:
        graph: without post-ops.
        seen: what calibration knows of the operands of products.
    """
    pairs = _pairs(graph)
    if not pairs:
        return None
    changed: dict[str, Array] = {}

    def data(name: str) -> Array:
        return changed.get(name, graph.constants[name].array)

    for pair in pairs:
        factors = _factors(pair.second, channels_of(graph, seen, pair.second).peak, data)
        weights, *bias = pair.first.inputs[1:]
        axis = weight_axis(pair.first)
        shape = [-1 if a == axis else 1 for a in range(data(weights).ndim)]
        changed[weights] = (data(weights) / factors.reshape(shape)).astype(np.float32)
        if bias and bias[0]:
            changed[bias[0]] = (data(bias[0]) / factors).astype(np.float32)
        second = pair.second.inputs[1]
        changed[second] = (data(second) * _per_operand(pair.second, data(second), factors)).astype(
            np.float32
        )
    constants = dict(graph.constants) | {name: Constant(item) for name, item in changed.items()}
    return replace(graph, constants=MappingProxyType(constants))


def _pairs(graph: Graph) -> list[_Pair]:
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    shared = {name for name, found in readers.items() if len(found) > 1} | set(graph.outputs)
    fixed, found = refusals(graph), list[_Pair]()
    for first in graph.nodes:
        if not _is_own(first, shared, fixed) or weight_axis(first) is None:
            continue
        node, name = first, ""
        while node is first or node.op in _HOMOGENEOUS:
            name = node.outputs[0]
            if name in shared or len(readers.get(name, ())) != 1:
                break
            node = readers[name][0]
        is_end = node is not first and node.inputs[0] == name and _is_own(node, shared, fixed)
        # Channels are the last axis of a matrix product, and the second axis of a convolution.
        if is_end and (node.op == "matmul") == (first.op == "matmul"):
            found.append(_Pair(first, node))
    return found


def _is_own(node: Node, shared: Collection[str], fixed: Collection[str]) -> bool:
    """Return whether a node is a quantized product whose constants have no other reader."""
    if node.op not in ("conv", "matmul") or node.name in fixed:
        return False
    return not any(name in shared for name in node.inputs[1:])


def _grouped(node: Node, weights: Array) -> Array:
    """Return weights as groups, outputs of a group, inputs of a group, taps."""
    if node.op == "matmul":
        turned = weights if node.int_attr("trans_b", 0) else weights.T
        return turned[None, :, :, None]
    groups = node.int_attr("groups", 1)
    return weights.reshape(groups, weights.shape[0] // groups, weights.shape[1], -1)


def _factors(node: Node, peak: Array, data: Any) -> Array:
    """Return by how much each channel before a product is divided.

    The range of a channel and that of its weights become equal. Where each channel has weights and
    scales of its own (depthwise), the ranges of all channels do.
    """
    weights = np.abs(_grouped(node, data(node.inputs[1])))
    of_output = weights.max(axis=(2, 3), keepdims=True)
    relative = (weights / np.where(of_output > 0, of_output, 1)).max(axis=(1, 3)).reshape(-1)
    is_known = (peak > 0) & (relative > 0)
    if not is_known.any():
        return np.ones(peak.size)
    power = 1.0 if weights.shape[2] == 1 else 0.5
    ratio = np.where(is_known, peak, 1) / np.where(is_known, relative, 1)
    logs = power * np.log(ratio)
    logs -= logs[is_known].mean()
    limit = np.log(_LARGEST)
    return np.where(is_known, np.exp(np.clip(logs, -limit, limit)), 1.0)


def _per_operand(node: Node, weights: Array, factors: Array) -> Array:
    """Return factors of input channels in a shape that broadcasts to the weights."""
    if node.op == "matmul":
        return factors[None, :] if node.int_attr("trans_b", 0) else factors[:, None]
    groups = node.int_attr("groups", 1)
    spread = np.repeat(factors.reshape(groups, -1), weights.shape[0] // groups, axis=0)
    return spread.reshape(*spread.shape, *(1,) * (weights.ndim - 2))
