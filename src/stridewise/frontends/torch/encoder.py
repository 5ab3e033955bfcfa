"""PyTorch's fused encoder layer of transformers, as operators that have counterparts."""

from __future__ import annotations

from math import inf
from typing import Any

from stridewise.frontends.torch.library import torch

__all__ = ["encoder_layer"]

_MASK_OF_KEYS = 1
"""The kind of a mask [batch, keys]; other masks are for [queries, keys] or all four axes."""


def encoder_layer(x: Any, _width: int, heads: int, *others: Any) -> Any:
    """Return the result of ``aten._transformer_encoder_layer_fwd`` for dense operands.

    Args:
        x: [batch, tokens, channels].
        heads: of the attention.
        others: further arguments in the order of PyTorch. The last two are the mask, which is not 0
            where a key is left out, and its kind.
    """
    functional = torch.nn.functional
    inner, outer, (has_gelu, norm_first, epsilon) = others[:2], others[2:4], others[4:7]
    first, second, wide, narrow = (others[at : at + 2] for at in range(7, 15, 2))
    mask, kind = (*others[15:], None, None)[:2]
    if mask is not None:
        mask = torch.where(mask.bool(), -inf, 0.0).to(x.dtype)
    if mask is not None and kind == _MASK_OF_KEYS:
        mask = mask[:, None, None]

    def attended(x: Any) -> Any:
        batch, tokens, channels = x.shape
        rows = functional.linear(x, *inner).view(batch, tokens, 3, heads, -1)
        query, key, value = rows.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query * query.shape[-1] ** -0.5 @ key.transpose(-2, -1)
        # The fused layer gives NaN where all keys are left out, other than attention on its own.
        found = (scores if mask is None else scores + mask).softmax(-1) @ value
        return functional.linear(found.transpose(1, 2).reshape(batch, tokens, channels), *outer)

    def spread(x: Any) -> Any:
        rows = functional.linear(x, *wide)
        rows = functional.gelu(rows) if has_gelu else functional.relu(rows)
        return functional.linear(rows, *narrow)

    def normed(x: Any, parameters: Any) -> Any:
        return functional.layer_norm(x, x.shape[-1:], *parameters, epsilon)

    if norm_first:
        x = x + attended(normed(x, first))
        return x + spread(normed(x, second))
    x = normed(x + attended(x), first)
    return normed(x + spread(x), second)
