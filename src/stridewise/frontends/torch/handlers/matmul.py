"""Matrix products and attention."""

from __future__ import annotations

from math import inf, sqrt

from stridewise.frontends.torch.handlers.reduce import safe_softmax
from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.reader import BOOL, Handler, Operand, Reader, Results, Traced

__all__ = ["HANDLERS", "attention_weights", "for_each_head", "scale_of", "scaled"]


def _product(r: Reader, a: Operand, b: Operand) -> Traced:
    return r.emit("matmul", [a, b])


def scaled(r: Reader, x: Operand, factor: float) -> Operand:
    """Return a multiple of a tensor."""
    return x if factor == 1 else r.arithmetic("mul", x, factor)


def _add_product(
    r: Reader, added: Operand, a: Operand, b: Operand, beta: float = 1, alpha: float = 1
) -> Traced:
    columns = r.shape(b)[-1:]
    if beta == alpha == 1 and r.shape(added) == columns:
        return r.emit("matmul", [a, b, added])
    product = scaled(r, _product(r, a, b), alpha)
    return product if beta == 0 else r.arithmetic("add", product, scaled(r, added, beta))


def _linear(r: Reader, x: Operand, weight: Operand, bias: Operand | None = None) -> Traced:
    if len(r.shape(x)) < 2:
        raise r.refuse("a vector")
    operands = [x, weight] if bias is None else [x, weight, bias]
    return r.emit("matmul", operands, trans_b=1)


def scale_of(r: Reader, query: Operand, scale: float | None) -> float:
    """Return by which number an attention multiplies its scores."""
    return 1 / sqrt(r.shape(query)[-1]) if scale is None else scale


def attention_weights(
    r: Reader, query: Operand, key: Operand, mask: Operand | None, causal: bool
) -> Traced:
    """Return how much of each value the results of an attention have.

    Source: PyTorch, ``scaled_dot_product_attention``: softmax(q k^T * scale + mask) v. A mask of
    truth values says what is not hidden. If a mask hides a whole row, its weights are 0.

    Args:
        r: the graph.
        query: times the scale.
        key: of as many channels.
        mask: of truth values, or what is added to scores.
        causal: whether later keys are hidden.
    """
    hides_rows = isinstance(mask, Traced) or (mask is not None and _hides_rows(mask))
    scores = r.emit("matmul", [query, key], trans_b=1)
    if causal:
        mask = torch.full(scores.shape[-2:], -inf).triu(1)
    if mask is not None and mask.dtype in (BOOL, torch.bool):
        scores = r.chosen(mask, scores, -inf)
    elif mask is not None:
        scores = r.arithmetic("add", scores, mask)
    last = len(scores.shape) - 1
    return safe_softmax(r, scores, last) if hides_rows else r.emit("softmax", [scores], axis=last)


def for_each_head(r: Reader, x: Operand, query: Operand) -> Operand:
    """Return keys or values with each head as often as queries share it."""
    *batch, count, rows, columns = (1, *r.shape(x))
    heads = (1, *r.shape(query))[-3]
    if count in (1, heads):  # one is broadcast
        return x
    each = r.reshape(x, (*batch[1:], count, 1, rows, columns))
    each = r.emit("expand", [each], shape=(*batch[1:], count, heads // count, rows, columns))
    return r.reshape(each, (*batch[1:], heads, rows, columns))


def _attention(
    r: Reader,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    causal: bool,
    scale: float | None,
) -> Traced:
    query = scaled(r, query, scale_of(r, query, scale))
    key, value = (for_each_head(r, x, query) for x in (key, value))
    return r.emit("matmul", [attention_weights(r, query, key, mask, causal), value])


def _hides_rows(mask: Operand) -> bool:
    """Return whether a constant mask hides all elements of a row."""
    hidden = ~mask if mask.dtype == torch.bool else mask == -inf
    return bool(hidden.all(dim=-1).any())


def _flash(
    r: Reader,
    query: Operand,
    key: Operand,
    value: Operand,
    dropout: float = 0,
    causal: bool = False,
    *,
    attn_mask: Operand | None = None,
    scale: float | None = None,
) -> Results:
    if dropout:
        raise r.refuse("dropout")
    return _attention(r, query, key, value, attn_mask, causal, scale), None


def _whole(
    r: Reader,
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None = None,
    dropout: float = 0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Traced:
    if dropout:
        raise r.refuse("dropout")
    del enable_gqa  # the numbers of heads say it
    return _attention(r, query, key, value, mask, causal, scale)


HANDLERS: dict[str, Handler] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _flash,
    "aten.addmm.default": _add_product,
    "aten.baddbmm.default": _add_product,
    "aten.bmm.default": _product,
    "aten.linear.default": _linear,
    "aten.matmul.default": _product,
    "aten.mm.default": _product,
    "aten.scaled_dot_product_attention.default": _whole,
}
