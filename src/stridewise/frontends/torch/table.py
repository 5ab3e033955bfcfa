"""The table of aten operators that have a counterpart, and of those that PyTorch decomposes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stridewise.frontends.torch.encoder import encoder_layer
from stridewise.frontends.torch.handlers import (
    activation,
    along_axis,
    conv,
    elementwise,
    fold,
    gather,
    gradients,
    index,
    logic,
    losses,
    matmul,
    norm,
    pool,
    reduce,
    resize,
    shape,
)
from stridewise.frontends.torch.library import submodule, torch
from stridewise.frontends.torch.reader import Handler

__all__ = ["HANDLERS", "OF_FLOATS", "PRODUCTS", "VIEWS", "decompositions"]

HANDLERS: Mapping[str, Handler] = {
    **activation.HANDLERS,
    **along_axis.HANDLERS,
    **conv.HANDLERS,
    **elementwise.HANDLERS,
    **fold.HANDLERS,
    **gather.HANDLERS,
    **gradients.HANDLERS,
    **index.HANDLERS,
    **logic.HANDLERS,
    **losses.HANDLERS,
    **matmul.HANDLERS,
    **norm.HANDLERS,
    **pool.HANDLERS,
    **reduce.HANDLERS,
    **resize.HANDLERS,
    **shape.HANDLERS,
}
"""Handlers by the name of an operator's overload, such as ``"aten.add.Tensor"``."""

_OF_FLOATS = (activation, conv, fold, gradients, matmul, norm, pool, resize)

OF_FLOATS = frozenset(name for module in _OF_FLOATS for name in module.HANDLERS)
"""Names of operators whose handlers take no integers."""

PRODUCTS = frozenset((*conv.HANDLERS, *matmul.HANDLERS))
"""Names of convolutions, matrix products and attention."""

VIEWS = frozenset(shape.VIEWS)
"""Names of operators that compute nothing."""

_DECOMPOSED = (
    "frobenius_norm", "glu", "huber_loss", "logaddexp", "logit", "mse_loss", "norm",
    "smooth_l1_loss", "square", "std_mean",
)  # fmt: skip
"""Operators whose parts have counterparts. Others would only fall into more parts."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return decompositions, most of them PyTorch's, of operators without a counterpart."""
    aten = torch.ops.aten
    wanted = [getattr(aten, name) for name in _DECOMPOSED if hasattr(aten, name)]
    found = submodule("torch._decomp").get_decompositions(wanted)
    return {**found, aten._transformer_encoder_layer_fwd.default: encoder_layer}
