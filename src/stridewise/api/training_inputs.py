"""What a trainer is given: batches, labels and options, checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import ExecutionError, InputError
from stridewise.graph import Graph
from stridewise.training import Optimizer

__all__ = ["as_array", "check_finite", "check_options", "pairs", "step_arrays"]

Array = NDArray[Any]


def _may_name(given: object) -> bool:
    return isinstance(given, Iterable | None) and not isinstance(given, str)


def check_options(
    graph: object,
    optimizer: object,
    loss: object,
    train: object,
    clip_norm: object,
    accumulate: object,
    seed: object,
    streams: object,
) -> None:
    """Refuse arguments of a trainer that are of another kind.

    Raises:
        InputError: one of them.
    """
    is_norm = (
        isinstance(clip_norm, int | float)
        and not isinstance(clip_norm, bool)
        and isfinite(clip_norm)
        and clip_norm > 0
    )
    fits = (
        ("graph", isinstance(graph, Graph), "a graph, such as sw.load gives", type(graph).__name__),
        (
            "optimizer",
            isinstance(optimizer, Optimizer) and not isinstance(optimizer, type),
            "sw.SGD(...) or sw.AdamW(...)",
            repr(optimizer),
        ),
        ("loss", isinstance(loss, str) or callable(loss), "a name or a function", repr(loss)),
        (
            "train",
            _may_name(train),
            "names of parameters, as a list",
            repr(train),
        ),
        (
            "clip_norm",
            clip_norm is None or is_norm,
            "a number above 0, or None",
            repr(clip_norm),
        ),
        (
            "accumulate",
            isinstance(accumulate, int) and not isinstance(accumulate, bool) and accumulate > 0,
            "an integer from 1 on",
            repr(accumulate),
        ),
        (
            "seed",
            isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**48,
            "an integer from 0 to 2**48 - 1",
            repr(seed),
        ),
        ("streams", streams == 1, "1, as steps run one after the other", repr(streams)),
    )
    for name, does_fit, expected, found in fits:
        if not does_fit:
            raise InputError.at(f"Trainer, {name}", expected=expected, found=found)


def pairs(batches: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    """Yield the inputs and the labels of batches.

    Raises:
        InputError: a batch is no pair.
    """
    for batch in batches:
        if not isinstance(batch, tuple | list) or len(cast("Sequence[Any]", batch)) != 2:
            expected = "pairs of inputs and labels"
            found = type(cast("object", batch)).__name__
            raise InputError.at("fit, batches", expected=expected, found=found)
        x, labels = cast("tuple[Any, Any]", batch)
        yield x, labels


def as_array(where: str, given: Any) -> Array:
    """Return what is given as an array of NumPy.

    Raises:
        InputError: it is none; a tensor of PyTorch that needs gradients is none, either.
    """
    try:
        return np.asarray(given)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError.at(where, expected="an array", found=str(error)) from error


def step_arrays(
    graph: Graph, names: Sequence[str], x: Any, target: str, labels: Any, parts: int, *, kind: str
) -> dict[str, Array]:
    """Return the arrays of a step by the names of a graph's inputs.

    Args:
        graph: of the step.
        names: its inputs that are not about the loss.
        x: an array, or arrays by name.
        target: the input that takes the labels.
        labels: classes, or an array like the target.
        parts: number of batches of the graph that a step takes.
        kind: the name of the loss.

    Raises:
        InputError: an array does not fit.
    """
    if not isinstance(x, Mapping) and len(names) != 1:
        expected = f"arrays by name, for {', '.join(names)}"
        raise InputError.at("step, x", expected=expected, found="one array")
    inputs = cast("Mapping[str, Any]", x if isinstance(x, Mapping) else {names[0]: x})
    if set(inputs) != set(names):
        found = ", ".join(map(str, inputs)) or "none"
        raise InputError.at("step, x", expected=f"inputs {', '.join(names)}", found=found)
    arrays = {name: as_array(f"step, {name!r}", inputs[name]) for name in names}
    for name, array in arrays.items():
        _check(f"step, {name!r}", array, _whole(graph, name, parts))
    shape, given = _whole(graph, target, parts), as_array("step, labels", labels)
    if kind == "softmax_cross_entropy" and given.dtype != np.float32:
        arrays[target] = _shares(given, shape)
    else:
        _check("step, labels", given, shape)
        if given.dtype != np.float32:
            raise InputError.at("step, labels", expected="float32", found=str(given.dtype))
        arrays[target] = given
    return arrays


def _whole(graph: Graph, name: str, parts: int) -> tuple[int, ...]:
    shape = graph.value(name).shape
    return (shape[0] * parts, *shape[1:])


def _check(where: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        whole = f"a step takes {shape[0]} items: fill a smaller batch up, or leave it out"
        fix = whole if array.shape[1:] == shape[1:] else ""
        raise InputError.at(where, expected=f"shape {shape}", found=str(array.shape), fix=fix)
    # Kernels of maxima and ReLU hide NaN, so that a loss may be finite where weights are not.
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError.at(where, expected="finite numbers", found="NaN or infinities")


def _shares(labels: Array, shape: tuple[int, ...]) -> Array:
    """Return classes as shares of classes."""
    count, wanted = shape[1], (shape[0], *shape[2:])
    is_integer = labels.dtype.kind in "iu"
    if (
        not is_integer
        or labels.shape != wanted
        or (labels.size and not 0 <= labels.min() <= labels.max() < count)
    ):
        expected = f"integers of shape {wanted}, from 0 to {count - 1}, or float32 {shape}"
        found = f"{labels.dtype} {labels.shape}"
        if is_integer and labels.size:
            found += f", from {labels.min()} to {labels.max()}"
        raise InputError.at("step, labels", expected=expected, found=found)
    return np.moveaxis(np.eye(count, dtype=np.float32)[labels], -1, 1)


def check_finite(where: str, arrays: Mapping[str, Array]) -> None:
    """Check what was learned.

    Raises:
        ExecutionError: there is a NaN or an infinity.
    """
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            fix = "continue from a checkpoint with a lower learning rate, or with clip_norm"
            found = f"NaN or infinities in {name!r}"
            raise ExecutionError.at(where, expected="finite numbers", found=found, fix=fix)
