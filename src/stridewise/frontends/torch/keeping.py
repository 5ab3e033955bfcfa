"""What a forward keeps for its backward, where PyTorch's partitioner should decide otherwise."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

from stridewise.frontends.torch.adding import called
from stridewise.frontends.torch.aliases import Aliases
from stridewise.frontends.torch.library import submodule, torch
from stridewise.frontends.torch.values import has_symbols

__all__ = ["convert_early", "is_kept", "mark_kept", "narrow_again", "normalize_again"]

_CAST = "aten._to_copy.default"

_ACTIVATIONS = frozenset({"aten.hardtanh.default", "aten.relu.default"})
"""What may follow a batch norm whose result is computed again."""

_KEPT = "stridewise_kept"
"""The mark of results of a forward that only its backward reads."""

_DENSE = 512
"""Operations of a convolution for each element of its source, from which on a gradient takes some
twenty times as long as computing that element again."""


def _again() -> Any:
    """Return the mark of what the backward computes again."""
    return submodule("torch.utils.checkpoint").CheckpointPolicy.MUST_RECOMPUTE


def narrow_again(graph: Any, parameters: Sequence[int]) -> None:
    """Let the backward convert parameters to 16 bits again.

    They are in memory anyway, and kernels convert weights as they reorder them. A kept copy would
    be written and read in addition.

    Args:
        graph: forward and backward, before they are divided.
        parameters: positions of the parameters among the inputs.
    """
    again = _again()
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    narrow = (torch.bfloat16, torch.float16)
    for index in parameters:
        for node in inputs[index].users:
            if str(node.target) == _CAST and node.meta["val"].dtype in narrow:
                node.meta.setdefault("recompute", again)


def mark_kept(forward: Any, results: int) -> None:
    """Mark the results of a forward that are for its backward alone, if shapes are known.

    Args:
        forward: its graph.
        results: how many of the graph's results come before them.
    """
    if has_symbols(forward):
        return
    (found,) = next(node for node in forward.nodes if node.op == "output").args
    aliases = Aliases.of(found)
    viewed = {node for view in aliases.views for node in view.all_input_nodes}
    for node in aliases.computed:
        is_computed = node.op == "call_function" and node not in viewed
        if is_computed and node not in found[:results]:
            node.meta[_KEPT] = True


def is_kept(node: Any) -> bool:
    """Return whether a node's result is for the backward alone."""
    return bool(node.meta.get(_KEPT))


def convert_early(graph: Any) -> None:
    """Convert results to another type as soon as they are known.

    PyTorch converts gradients of parameters at the end of a backward, which would keep all of them
    until then.
    """
    output = next(node for node in graph.nodes if node.op == "output")
    for node in output.all_input_nodes:
        if str(node.target) == _CAST and node.args[0].op == "call_function":
            node.args[0].append(node)


def normalize_again(graph: Any) -> None:
    """Let the backward normalize again what convolutions with many operations have read.

    The gradient of a batch norm needs its source anyway. Where gradients of convolutions alone need
    its result, only the source is kept. This holds for images of 16 bits; those of float32 are kept
    as in eager PyTorch, for speed.

    Args:
        graph: forward and backward, before they are divided.
    """
    backward = _backward(graph)
    readers: dict[Any, list[Any]] = {}
    for node in graph.nodes:
        if str(node.target) == "aten.convolution_backward.default":
            readers.setdefault(node.args[1], []).append(node)
    for image, gradients in readers.items():
        norm = _norm_of(image)
        is_wide = image.meta["val"].dtype.itemsize > 2
        if norm is None or is_wide or sum(map(_operations, gradients)) < _DENSE:
            continue
        is_kept = any(user in backward and user not in gradients for user in image.users)
        has_source = any(user in backward for user in norm.args[0].users)
        # Checkpoints say themselves what is computed again.
        if is_kept or not has_source or "recompute" in image.meta:
            continue
        with graph.inserting_before(gradients[0]):
            again = _normalized(norm, image)
        for gradient in gradients:
            gradient.update_arg(1, again)


def _backward(graph: Any) -> set[Any]:
    """Return what depends on gradients of the results."""
    found: set[Any] = set()
    for node in graph.nodes:
        is_given = node.op == "placeholder" and str(node.target).startswith("tangents")
        if is_given or not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def _norm_of(image: Any) -> Any:
    """Return the batch norm that an image is a result of, maybe by an activation."""
    result = image.args[0] if str(image.target) in _ACTIVATIONS else image
    if result.target is operator.getitem and result.args[1] == 0:
        norm = result.args[0]
        taken = {user.args[1] for user in norm.users}
        if str(norm.target) == "stridewise.batch_norm.default" and {1, 2} <= taken:
            return norm
    return None


def _operations(gradient: Any) -> float:
    """Return how many operations a convolution has for each element of its source."""
    weight, stride, transposed, groups = (gradient.args[index] for index in (2, 4, 7, 9))
    outputs, _, *window = weight.meta["val"].shape
    return 0 if transposed else 2 * outputs * prod(window) / (groups * prod(stride))


def _normalized(norm: Any, image: Any) -> Any:
    """Compute an image again from the source of its batch norm and from statistics."""
    x, weight, bias, epsilon = norm.args
    mean, variance = (
        next(user for user in norm.users if user.args[1] == index) for index in (1, 2)
    )
    known = torch.ops.aten._native_batch_norm_legit_no_training.default
    whole = called(norm, known, (x, weight, bias, mean, variance, 0.0, epsilon))
    made = [whole, called(norm, operator.getitem, (whole, 0))]
    if str(image.target) in _ACTIVATIONS:
        made.append(called(image, image.target, (made[-1], *image.args[1:])))
    for node in made:
        node.meta["recompute"] = _again()
    return made[-1]
