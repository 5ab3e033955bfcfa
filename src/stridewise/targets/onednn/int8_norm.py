"""A batch norm between two roundings, in one kernel with the convolution before it.

Its scale cannot be folded into weights, because the result of the convolution is rounded first. One
kernel rounds it to its grid, scales and shifts each channel, and rounds that to the next grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stridewise.ops.data_format import is_turned
from stridewise.targets.kernels import (
    Arg,
    Call,
    Element,
    KernelContext,
    KernelOption,
    MemorySpec,
    behind_ahead,
    from_ahead,
    input_of,
)
from stridewise.targets.onednn.conv import conv_options
from stridewise.targets.onednn.int8_depthwise import storing
from stridewise.targets.onednn.int8_products import products_to
from stridewise.targets.onednn.integers import Chain, Typed, element_of, stored_grid
from stridewise.tensor import Grid

__all__ = ["held_by_norm", "norm_with_convolution"]


def norm_with_convolution(context: KernelContext) -> Iterator[KernelOption]:
    """Yield the ways to compute a scale and a shift together with the convolution before it."""
    node, ahead = context.node, context.ahead()
    if node.op != "scale_shift" or ahead is None or stored_grid(ahead) is None:
        return
    is_row = all(map(context.is_constant, node.inputs[1:3]))
    if not is_row or is_turned(node) or is_turned(ahead.node):
        return
    for option in conv_options(ahead):
        if not isinstance(option, KernelOption) or option.is_joint:
            continue
        for made in products_to(None, option, ahead):
            for result in dict.fromkeys((stored_grid(context), None)):
                yield from _joined(made, context, result)


def _joined(
    option: KernelOption, context: KernelContext, result: Grid | None
) -> Iterator[KernelOption]:
    """Yield a convolution that rounds its result, with the scale and the shift that follow."""
    node, (call,) = context.node, option.calls
    found = context.formats(node.outputs[0]).items()
    kind = next((kind for kind, fmt in found if fmt == option.outputs[0]), None)
    destination = call.spec.memory("dst")
    if kind is None or destination is None:
        return
    chain = Chain(call.spec.post_ops)
    factor = chain.taken_last()
    row = (1, destination.dims[1], *(1,) * (len(destination.dims) - 2))
    for index, algorithm in ((1, "mul"), (2, "add")):
        arg = Arg("", input_of(index), reshape=row)
        if algorithm == "mul" and factor != 1.0:
            arg = replace(arg, affine=(factor, 0.0))
        chain.second(algorithm, MemorySpec(row, destination.tag), arg, None)
    Typed(context, (None,) * len(node.inputs), result).posts(chain, destination)
    spec = storing(call.spec, result, chain)
    joined = behind_ahead(
        option,
        f"{kind}, batch norm",
        algorithm=f"{option.algorithm.rpartition(' to ')[0]} to {result.dtype if result else 'f32'}"
        ", with its convolution",
        inputs=(None,) * (len(node.inputs) - 1),
        outputs=option.outputs,
        calls=(Call(spec, (*map(from_ahead, call.args), *chain.args)),),
    )
    assert joined.ahead is not None  # of both nodes
    yield replace(
        joined,
        elements=(*(Element(),) * len(node.inputs), element_of(result)),
        ahead=replace(joined.ahead, elements=option.elements),
    )


def held_by_norm(context: KernelContext) -> Iterator[KernelOption]:
    """Yield the options of a convolution that the kernel of a batch norm computes as well."""
    behind = context.behind()
    if behind is None or behind.node.op != "scale_shift":
        return
    found = (option.ahead for option in norm_with_convolution(behind))
    yield from dict.fromkeys(option for option in found if option is not None)
