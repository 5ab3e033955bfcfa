"""Windows of images as columns of a matrix (``unfold``), and their sums as images (``fold``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.reader import Handler, Operand, Reader, Traced

__all__ = ["HANDLERS"]

Pair = Sequence[int]


def _counts(size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> list[int]:
    """Return the number of windows along each axis."""
    return [
        (n + 2 * pad - apart * (taps - 1) - 1) // step + 1
        for n, taps, apart, pad, step in zip(size, kernel, dilation, padding, stride, strict=True)
    ]


def _unfold(
    r: Reader, x: Operand, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair
) -> Traced:
    if len(r.shape(x)) != 4:
        raise r.refuse("an image without a batch axis")
    batch, channels, *size = r.shape(x)
    rows, columns = _counts(size, kernel, dilation, padding, stride)
    if any(padding):
        x = r.emit("pad", [x], pads=(0, 0, *padding, 0, 0, *padding), value=0.0)
    found: list[Traced] = []
    for at in product(*map(range, kernel)):
        piece = x
        for axis, (tap, apart, step, count) in enumerate(
            zip(at, dilation, stride, (rows, columns), strict=True), start=2
        ):
            start = tap * apart
            piece = r.cut(piece, axis, start, start + (count - 1) * step + 1, step)
        found.append(r.reshape(piece, (batch, channels, 1, rows * columns)))
    joined = r.emit("concat", found, axis=2)
    return r.reshape(joined, (batch, channels * len(found), rows * columns))


def _fold(
    r: Reader,
    x: Operand,
    size: Pair,
    kernel: Pair,
    dilation: Pair,
    padding: Pair,
    stride: Pair,
) -> Traced:
    """Add windows up by a transposed convolution, in which each tap has a channel of its own."""
    if len(r.shape(x)) != 3:
        raise r.refuse("columns without a batch axis")
    batch, taps = r.shape(x)[0], kernel[0] * kernel[1]
    channels = r.shape(x)[1] // taps
    counts = _counts(size, kernel, dilation, padding, stride)
    ends = [
        (count - 1) * step + apart * (tap - 1) + 1 - pad - n
        for n, count, tap, apart, pad, step in zip(
            size, counts, kernel, dilation, padding, stride, strict=True
        )
    ]
    weight = torch.eye(taps).reshape(taps, 1, *kernel).repeat(channels, 1, 1, 1)
    return r.emit(
        "conv_transpose",
        [r.reshape(x, (batch, channels * taps, *counts)), weight],
        strides=tuple(stride),
        dilations=tuple(dilation),
        pads=(*padding, *ends),
        groups=channels,
    )


HANDLERS: dict[str, Handler] = {
    "aten.col2im.default": _fold,
    "aten.im2col.default": _unfold,
}
