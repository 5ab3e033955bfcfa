"""Kernels of matrix products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

import numpy as np

from stridewise.formats import Format, nd
from stridewise.graph import Node, Refusal
from stridewise.ops.data_format import inverse
from stridewise.ops.geometry import row_major, user_format
from stridewise.ops.matmul import BIAS, MATRIX, transposed, turned
from stridewise.targets.kernels import (
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.conv1x1 import of_inner_product
from stridewise.targets.onednn.family import Family, KernelKind, Offer, float32_only, refused
from stridewise.targets.onednn.memory import plain_memory
from stridewise.targets.onednn.post_ops import Fused, all_post_ops, fused, input_formats

__all__ = ["FAMILY", "for_vectors"]

_WIDE = 16
"""Elements of a vector of AVX-512."""

_BLOCKS = range(4, 65)
"""Rows that an inner product computes at a time, if they divide all of its rows."""


def _swap(values: tuple[int, ...], flag: int) -> tuple[int, ...]:
    return transposed(values, flag)


def _merged(memories: list[MemorySpec]) -> list[MemorySpec]:
    """Return memories with neighboring batch axes as one, where all of them can be walked so.

    The library has its fast kernels for one or two batch axes only if operands are transposed.
    """
    dims = [list(memory.dims) for memory in memories]
    strides = [list(memory.strides or ()) for memory in memories]
    for axis in reversed(range(len(dims[0]) - 3)):
        both = {tuple(each[axis : axis + 2]) for each in dims}
        nested = all(
            extents[axis] == 1 or step[axis] == extents[axis + 1] * step[axis + 1]
            for extents, step in zip(dims, strides, strict=True)
        )
        if len(both) > 1 or not nested:
            continue
        for extents, step in zip(dims, strides, strict=True):
            extents[axis : axis + 2] = [extents[axis] * extents[axis + 1]]
            del step[axis]
    return [
        MemorySpec(tuple(extents), strides=tuple(step))
        for extents, step in zip(dims, strides, strict=True)
    ]


def _seen(shape: tuple[int, ...], perm: tuple[int, ...]) -> MemorySpec:
    """Return a row-major tensor as its transpose."""
    strides = row_major(shape)
    return MemorySpec(
        tuple(shape[axis] for axis in perm), strides=tuple(strides[axis] for axis in perm)
    )


def _of_rank(memory: MemorySpec, rank: int) -> MemorySpec:
    """Return a memory with leading axes of extent 1."""
    missing = rank - len(memory.dims)
    strides = memory.strides or ()
    return MemorySpec(
        (1,) * missing + memory.dims, strides=(prod(memory.dims),) * missing + strides
    )


class _Product:
    """The operands of one node as oneDNN's matmul takes them: all of the result's rank."""

    def __init__(self, context: KernelContext) -> None:
        node = context.node
        a, b, y = (context.value(name) for name in (*node.inputs[:2], node.outputs[0]))
        self.has_constant_source = context.is_constant(a.name)
        self.constant = context.is_constant(b.name)
        trans_a, trans_b = node.int_attr("trans_a", 0), node.int_attr("trans_b", 0)
        self.flops = 2.0 * prod(y.shape)
        self.views: list[MemorySpec] | None = None
        if any(node.get(key) is not None for key in ("perm_a", "perm_b", "perm")):
            self.views = self._turned(node, a.shape, b.shape, y.shape)
            self.source, _, result = self.views
            self.result, self.flops = result.dims, self.flops * self.source.dims[-1]
            return
        a_shape = a.shape if len(a.shape) > 1 else (1, *a.shape)
        b_shape = b.shape if len(b.shape) > 1 else (*b.shape, 1)
        columns = _swap(b_shape, trans_b)[-1]
        if len(b_shape) == MATRIX and not trans_a:
            # One matrix for the whole batch: the batch is just more rows.
            a_shape = (prod(a_shape[:-1]), a_shape[-1])
            self.result = (a_shape[0], columns)
        else:
            rank = max(len(a_shape), len(b_shape))
            a_shape = (1,) * (rank - len(a_shape)) + a_shape
            b_shape = (1,) * (rank - len(b_shape)) + b_shape
            batch = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
            self.result = (*batch, _swap(a_shape, trans_a)[-2], columns)
        self.source = MemorySpec(
            _swap(a_shape, trans_a), strides=_swap(row_major(a_shape), trans_a)
        )
        self.a_shape, self.trans_a = a_shape, trans_a
        self.b_shape, self.trans_b = b_shape, trans_b
        self.flops *= self.source.dims[-1]

    def _turned(self, node: Node, *shapes: tuple[int, ...]) -> list[MemorySpec]:
        """Return the operands and the result of a product with transposes as strided memories."""
        a, b = (
            _seen(shape, turned(node, key, len(shape)))
            for shape, key in zip(shapes, ("perm_a", "perm_b"), strict=False)
        )
        y = _seen(shapes[2], inverse(turned(node, "perm", len(shapes[2]))))
        return _merged([_of_rank(memory, len(y.dims)) for memory in (a, b, y)])

    def destination(self) -> MemorySpec:
        """Return the memory of the result."""
        return plain_memory(self.result) if self.views is None else self.views[2]

    def left(self) -> tuple[MemorySpec, Arg]:
        """Return the memory of the left operand; a constant is packed row by row."""
        if not self.has_constant_source:
            return self.source, Arg("src", input_of(0))
        order = _swap(tuple(range(len(self.a_shape))), self.trans_a)
        arg = Arg("src", input_of(0), reshape=self.a_shape, permute=order)
        return plain_memory(self.source.dims), arg

    def right(self) -> tuple[MemorySpec, Arg]:
        """Return the memory of the right operand; a constant is packed as a kernel wants it."""
        if self.views is not None:
            return self.views[1], Arg("weights", input_of(1))
        dims = _swap(self.b_shape, self.trans_b)
        if self.constant:
            order = _swap(tuple(range(len(dims))), self.trans_b)
            arg = Arg("weights", input_of(1), reshape=self.b_shape, permute=order)
            return MemorySpec(dims, "any"), arg
        strides = _swap(row_major(self.b_shape), self.trans_b)
        return MemorySpec(dims, strides=strides), Arg("weights", input_of(1))


def _specs(
    product: _Product, post: Fused, *, has_bias: bool
) -> Iterator[tuple[str, KernelSpec, tuple[Arg, Arg]]]:
    source, left = product.left()
    weights, right = product.right()
    result = product.destination()
    columns = product.result[-1]
    row = plain_memory((*(1,) * (len(product.result) - 1), columns))
    bias = (("bias", row),) if has_bias else ()
    memories = (("src", source), ("weights", weights), *bias, ("dst", result))
    yield "matmul", KernelSpec("matmul", memories, (), post.specs, product.flops), (left, right)
    if (
        product.constant
        and not product.has_constant_source
        and product.views is None
        and len(weights.dims) == MATRIX
        and product.source.strides == row_major(product.source.dims)
    ):
        turned = MemorySpec(weights.dims[::-1], "any")
        order = (0, 1) if product.trans_b else (1, 0)
        bias = (("bias", MemorySpec((columns,), "a")),) if has_bias else ()
        source = plain_memory(product.source.dims)
        memories = (("src", source), ("weights", turned), *bias, ("dst", result))
        spec = KernelSpec("inner_product", memories, (), post.specs, product.flops)
        right = Arg("weights", input_of(1), reshape=product.b_shape, permute=order)
        yield "inner product", spec, (left, right)


@float32_only
def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    is_turned = node.get("perm_b") is not None or node.get("perm") is not None
    if is_turned and context.is_constant(node.inputs[1]):
        yield refused(node, "the right operand is a transposed constant")
        return
    product = _Product(context)
    if product.has_constant_source and product.views is not None:
        yield refused(node, "the left operand is a constant, and there are transposes")
        return
    has_bias = len(node.inputs) > BIAS and bool(node.inputs[BIAS])
    a, b, y = (context.value(name) for name in (*node.inputs[:2], node.outputs[0]))
    own: list[Format | None] = [
        None if context.is_constant(operand.name) else user_format(operand) for operand in (a, b)
    ]
    if has_bias:
        own.append(None if context.is_constant(node.inputs[BIAS]) else nd(1))
    elif len(node.inputs) > BIAS:
        own.append(None)
    can_sum = bool(node.post_ops) and node.post_ops[0].op == "add"
    for accumulate in (True, False) if can_sum else (False,):
        post = fused(node, product.destination(), accumulate=accumulate)
        for algorithm, spec, operands in _specs(product, post, has_bias=has_bias):
            args = [*operands]
            if has_bias:
                args.append(Arg("bias", input_of(BIAS)))
            yield KernelOption(
                algorithm + (", sum in place" if post.aliases else ""),
                input_formats(node, tuple(own), post, user_format(y)),
                (user_format(y),),
                (Call(spec, (*args, Arg("dst", output_of()), *post.args)),),
                post.aliases,
            )


def _is_inner_product(option: KernelOption) -> bool:
    return [call.spec.kind for call in option.calls] == ["inner_product"]


def _leaves_rows(option: KernelOption) -> bool:
    """Return whether the rows of an inner product do not divide into blocks."""
    rows = option.calls[0].spec.memories[0][1].dims[0]
    return rows > _BLOCKS[-1] and all(rows % block for block in _BLOCKS)


def for_vectors(
    context: KernelContext, items: Iterable[KernelOption | Refusal], lanes: int
) -> Iterator[KernelOption | Refusal]:
    """Yield the ways to compute a node on a machine with vectors of so many elements.

    Inner products whose rows leave a rest are left out with AVX-512: products of 197 rows, which is
    a prime number, take 0.8 of their time. Where blocks divide the rows, both take the same time.
    """
    for item in items:
        if not isinstance(item, KernelOption) or not _is_inner_product(item):
            yield item
            continue
        if lanes == _WIDE and _leaves_rows(item):
            yield refused(context.node, "rows leave a rest in an inner product, which is slower")
        else:
            yield item
        panels = of_inner_product(item, lanes)
        if panels is not None:
            yield panels


FAMILY = Family(
    {"matmul": Offer(_kernels, post_ops=all_post_ops)},
    {"matmul": KernelKind({"plain": 0.60}), "inner_product": KernelKind({"plain": 0.65})},
)
