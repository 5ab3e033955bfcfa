"""Convolutions and matrix products of integers, which the library or the core multiplies.

Scales and zero points are arguments of the library's kernels, or become linear post-ops where it
has no such arguments. A linear function that comes first is applied to the scales of the weights
and to the bias instead: a post-op takes time for each element.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stridewise.targets.kernels import (
    Arg,
    Call,
    KernelContext,
    KernelOption,
    MemorySpec,
    Operand,
    scale_args,
    scale_memories,
)
from stridewise.targets.onednn.int8_conv import products_in_words
from stridewise.targets.onednn.int8_depthwise import is_in_rows, products_in_rows
from stridewise.targets.onednn.integers import (
    Chain,
    Typed,
    corrected_bias,
    grid_named,
    stored_grid,
    weights_grid,
    with_types,
)
from stridewise.targets.onednn.memory import storage_of
from stridewise.tensor import Grid

__all__ = ["has_library_products", "products", "products_to"]

_PRODUCTS = frozenset({"convolution", "deconvolution", "matmul"})
"""Kinds of kernels that multiply integers, for which the CPU needs instructions."""


def has_library_products(option: KernelOption) -> bool:
    """Return whether the library multiplies integers in an option."""
    for call in option.calls:
        weights = call.spec.memory("weights")
        if call.spec.kind in _PRODUCTS and weights is not None and weights.dtype == "s8":
            return True
    return False


def products(option: KernelOption, context: KernelContext) -> Iterator[KernelOption]:
    """Yield convolutions and matrix products of integers, with integers or real results."""
    for result in dict.fromkeys((stored_grid(context), None)):
        yield from products_to(result, option, context)


def products_to(
    result: Grid | None, option: KernelOption, context: KernelContext
) -> Iterator[KernelOption]:
    """Yield a convolution or a matrix product of integers, if there is one.

    Args:
        result: the grid of the integers that the result is stored as; None for real numbers.
        option: the kernel on float32 tensors.
        context: of the node; its values know their grids.
    """
    if is_in_rows(option):
        yield from products_in_rows(result, option, context)
        return
    if len(option.calls) != 1 or option.calls[0].spec.kind not in _PRODUCTS or option.aliases:
        return
    node, spec, args = context.node, option.calls[0].spec, option.calls[0].args
    source, weights = grid_named(context, node.inputs[0]), weights_grid(context, spec.kind)
    if source is None or weights is None:
        return
    if spec.kind != "matmul" and storage_of(spec.memory("src")) != "channels-last":
        return
    operands = _operands(context, option)
    typed = Typed(context, (source, *operands[1:]), result)
    yield from products_in_words(typed, option, weights)
    chain = Chain()
    destination = spec.memory("dst")
    assert destination is not None  # products have one
    typed.posts(chain, destination)
    to = "f32" if result is None else result.dtype
    types = {"src": source.dtype, "weights": "s8", "dst": to}
    if result is not None:
        chain.store(result)
    kept = [arg for arg in args if not arg.role.startswith("post")]
    kept = [replace(arg, grid=weights) if arg.role == "weights" else arg for arg in kept]
    bias = corrected_bias(context.value(node.inputs[1]))
    kept = [arg for arg in kept if bias is None or arg.role != "bias"]
    bias = next((arg for arg in kept if arg.role == "bias"), bias)
    scales = weights.scales
    if bias is None or _is_known(bias, context):
        factor, term = chain.taken_linear(has_term=bias is not None)
        scales = tuple(scale * factor for scale in scales)
        if bias is not None:
            bias = _affine(bias, factor, term)
    scale = Arg("weights_scale", Operand("numbers", 0, scales))
    numbers = (*scale_args("src", source.quantization), scale)
    memories = (*with_types(spec.memories, types), *scale_memories(numbers))
    if bias is not None:
        if spec.memory("bias") is None:
            memories = (*memories, ("bias", MemorySpec((len(bias.operand.numbers),), "a")))
        kept = [*(arg for arg in kept if arg.role != "bias"), bias]
    made = replace(spec, memories=memories, post_ops=tuple(chain.specs))
    call = Call(made, (*kept, *chain.args, *numbers))
    yield typed.option(option, call, f"{option.algorithm}, {source.dtype} to {to}")


def _is_known(bias: Arg, context: KernelContext) -> bool:
    operand = bias.operand
    return operand.side == "numbers" or context.is_constant(context.node.inputs[operand.index])


def _affine(bias: Arg, factor: float, term: float) -> Arg:
    """Return a bias, which is known before the run, times a factor plus a term."""
    if (factor, term) == (1.0, 0.0):
        return bias
    if bias.operand.side != "numbers":
        return replace(bias, affine=(factor, term))
    numbers = tuple(number * factor + term for number in bias.operand.numbers)
    return replace(bias, operand=replace(bias.operand, numbers=numbers))


def _operands(context: KernelContext, option: KernelOption) -> tuple[Grid | None, ...]:
    """Return the grids of the operands of post-ops; None where one is a factor around no zero."""
    node = context.node
    found: list[Grid | None] = [None] * len(option.inputs)
    for post in node.post_ops:
        if post.operand is not None:
            grid = grid_named(context, node.inputs[post.operand])
            if grid is not None and (post.op != "mul" or grid.zero_points[0] == 0):
                found[post.operand] = grid
    return tuple(found)
