"""Convolutions and transposed convolutions over one, two or three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

from stridewise.frontends.torch.reader import Handler, Operand, Reader, Traced
from stridewise.graph import Attr

__all__ = ["HANDLERS", "conv_attrs"]


def _per_axis(given: Sequence[int], spatial: int) -> tuple[int, ...]:
    return tuple(given) * spatial if len(given) == 1 else tuple(given)


def conv_attrs(
    r: Reader,
    x: Operand,
    weight: Operand,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> dict[str, Attr]:
    """Return the attributes of a convolution or a transposed one, from PyTorch's arguments."""
    spatial = len(r.shape(weight)) - 2
    if len(r.shape(x)) != spatial + 2:
        raise r.refuse("an image without a batch axis")
    strides, pads, dilations = (_per_axis(item, spatial) for item in (stride, padding, dilation))
    ends = pads
    if transposed:
        more = _per_axis(output_padding, spatial)
        ends = tuple(pad - extra for pad, extra in zip(pads, more, strict=True))
    return {"strides": strides, "dilations": dilations, "pads": (*pads, *ends), "groups": groups}


def _convolution(
    r: Reader,
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Traced:
    window = (stride, padding, dilation, transposed, output_padding, groups)
    operands = [x, weight] if bias is None else [x, weight, bias]
    op = "conv_transpose" if transposed else "conv"
    return r.emit(op, operands, **conv_attrs(r, x, weight, *window))


HANDLERS: dict[str, Handler] = {"aten.convolution.default": _convolution}
