"""Losses of integer classes, and their gradients."""

from __future__ import annotations

from stridewise.dtypes import dtype_of
from stridewise.frontends.torch.handlers.gather import counted
from stridewise.frontends.torch.handlers.logic import where
from stridewise.frontends.torch.handlers.shape import unsqueezed
from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.reader import FLOAT, Handler, Operand, Reader, Results, Traced

__all__ = ["HANDLERS"]

_NONE, _MEAN = 0, 1
"""PyTorch's numbers of reductions; all others add up."""

_INT64 = dtype_of("int64")


class _Classes:
    """The classes of a loss, and the weight of each element, which is 0 where it is ignored."""

    def __init__(
        self, r: Reader, x: Operand, target: Operand, weight: Operand | None, ignored: int
    ) -> None:
        self.reader, shape = r, r.shape(x)
        if len(shape) < 2 or len(r.shape(target)) != len(shape) - 1:
            raise r.refuse("classes of one element")
        given = r.cast(r.held(target), _INT64)
        self.valid = r.negated(r.truth("equal", given, ignored))
        self.classes = where(r, self.valid, counted(r, given, shape[1]), 0)
        weights: Operand = 1.0
        if weight is not None:
            weights = r.emit("gather", [r.held(weight), self.classes], axis=0)
        self.weights = r.cast(where(r, self.valid, weights, 0.0), FLOAT)

    def total(self) -> Traced:
        """Return the sum of the weights."""
        return _summed(self.reader, self.weights)


def _summed(r: Reader, x: Traced) -> Traced:
    return r.emit("reduce_sum", [x], axes=tuple(range(len(x.shape))), keepdims=0)


def _forward(
    r: Reader, x: Operand, target: Operand, weight: Operand | None, reduction: int, ignored: int
) -> Results:
    found = _Classes(r, x, target, weight, ignored)
    data = r.held(x)
    at = unsqueezed(r, found.classes, 1)
    picked = r.reshape(r.emit("gather_elements", [data, at], axis=1), found.classes.shape)
    losses = r.emit("neg", [r.emit("mul", [picked, found.weights])])
    losses = where(r, found.valid, losses, 0.0)  # what is ignored may be infinite
    if reduction == _NONE:
        return r.cast(losses, data.dtype), r.cast(r.emit("identity", [0.0]), data.dtype)
    loss, total = _summed(r, losses), found.total()
    loss = r.emit("div", [loss, total]) if reduction == _MEAN else loss
    return r.cast(loss, data.dtype), r.cast(total, data.dtype)


def _backward(
    r: Reader,
    gradient: Operand,
    x: Operand,
    target: Operand,
    weight: Operand | None,
    reduction: int,
    ignored: int,
    total: Operand,
) -> Traced:
    found = _Classes(r, x, target, weight, ignored)
    shape = r.shape(x)
    factor = r.emit("mul", [found.weights, r.cast(r.held(gradient), FLOAT)])
    if reduction == _MEAN:
        factor = r.emit("div", [factor, r.cast(r.held(total), FLOAT)])
    # A weight of 0 is not enough: the total is 0 if all are ignored, and gradients may be infinite.
    factor = where(r, found.valid, factor, 0.0)
    counts = torch.arange(shape[1]).view(shape[1], *(1,) * (len(shape) - 2))
    is_class = r.truth("equal", unsqueezed(r, found.classes, 1), counts)
    each = r.emit("expand", [unsqueezed(r, r.emit("neg", [factor]), 1)], shape=tuple(shape))
    return r.cast(where(r, is_class, each, 0.0), r.held(x).dtype)


HANDLERS: dict[str, Handler] = {
    "aten.nll_loss2d_backward.default": _backward,
    "aten.nll_loss2d_forward.default": _forward,
    "aten.nll_loss_backward.default": _backward,
    "aten.nll_loss_forward.default": _forward,
}
