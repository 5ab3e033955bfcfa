"""A convolution and the maximum pooling after it in one kernel.

Winograd's tiles of an even number of results hold whole windows of 2x2, so that the maxima are
taken before anything is stored: a quarter of the results is written, and nothing read again.
"""

from __future__ import annotations

from collections.abc import Iterator

from stridewise.graph import Node
from stridewise.ops.geometry import canonical_shape
from stridewise.targets.kernels import (
    Call,
    KernelContext,
    KernelOption,
    behind_ahead,
    from_ahead,
)
from stridewise.targets.onednn.conv import conv_options
from stridewise.targets.onednn.memory import memory_of
from stridewise.targets.onednn.winograd import can_pool, pooled

__all__ = ["options_with_convolution"]

_WINDOW = (2, 2)


def _is_halving(node: Node) -> bool:
    """Return whether windows of 2x2 lie side by side, and none reaches beyond the image."""
    plain = node.ints_attr("pads", (0,) * 4) == (0,) * 4
    plain = plain and node.ints_attr("dilations", (1, 1)) == (1, 1)
    return plain and node.ints_attr("kernel") == node.ints_attr("strides", (1, 1)) == _WINDOW


def options_with_convolution(context: KernelContext) -> Iterator[KernelOption]:
    """Yield the ways to compute a maximum pooling together with the convolution before it."""
    ahead = context.ahead()
    node = context.node
    if ahead is None or len(context.value(node.inputs[0]).shape) != 4 or not _is_halving(node):
        return
    y = context.value(node.outputs[0])
    results = context.formats(y.name)
    for option in conv_options(ahead):
        if not isinstance(option, KernelOption) or len(option.calls) != 1:
            continue
        call = option.calls[0]
        spec = call.spec
        kind = next((k for k, fmt in results.items() if fmt == option.outputs[0]), None)
        if kind is None or not can_pool(spec):
            continue
        result = memory_of(results[kind], canonical_shape(y, results[kind]))
        yield behind_ahead(
            option,
            kind,
            algorithm=option.algorithm.replace(", ", " with its convolution, ", 1),
            outputs=(results[kind],),
            calls=(Call(pooled(spec, result), tuple(map(from_ahead, call.args))),),
        )
