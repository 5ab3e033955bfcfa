"""Loss functions, as nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stridewise.errors import InputError
from stridewise.ops import GraphBuilder
from stridewise.ops.backward import Term

__all__ = ["LOSSES", "Loss", "loss_of"]

Loss = Callable[[GraphBuilder, str, str], str]
"""From a builder, the name of the prediction, and the name of the target of the same type, to the
name of a value with one element."""


def _mean(values: Term) -> Term:
    return values.of("reduce_mean", axes=tuple(range(len(values.shape))), keepdims=0)


def softmax_cross_entropy(b: GraphBuilder, prediction: str, target: str) -> str:
    """Add the mean cross-entropy of logits [N, K, ...] and shares of classes of the same shape."""
    logits, shares = Term(b, prediction), Term(b, target)
    picked = (logits.of("log_softmax", axis=1) * shares).sum((1,), keepdims=False)
    return (-_mean(picked)).name


def mean_squared_error(b: GraphBuilder, prediction: str, target: str) -> str:
    """Add the mean of the squared differences of two values of one shape."""
    difference = Term(b, prediction) - Term(b, target)
    return _mean(difference * difference).name


LOSSES: Mapping[str, Loss] = {
    "mean_squared_error": mean_squared_error,
    "softmax_cross_entropy": softmax_cross_entropy,
}
"""The loss functions that have a name."""


def loss_of(given: str | Loss) -> Loss:
    """Return a loss function.

    Raises:
        InputError: there is none of that name.
    """
    if not isinstance(given, str):
        return given
    if given not in LOSSES:
        expected = f"a function, or one of {', '.join(LOSSES)}"
        raise InputError.at("loss", expected=expected, found=repr(given))
    return LOSSES[given]
