"""Kernels of elementwise operators of two operands."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.graph import Refusal
from stridewise.ops.geometry import canonical_shape
from stridewise.targets.kernels import (
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    output_of,
)
from stridewise.targets.onednn.family import Family, KernelKind, Offer, float32_only
from stridewise.targets.onednn.memory import memory_of, storage_of
from stridewise.targets.onednn.pointwise import bind, pointwise_options, result_formats
from stridewise.targets.onednn.post_ops import BINARY_ALGORITHMS, fused, takes_snap
from stridewise.tensor.quantization import RANGES

__all__ = ["FAMILY"]


_COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})


@float32_only
def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    result = context.value(node.outputs[0])
    operands = [context.value(name) for name in node.inputs]
    are_alike = all((x.shape, x.origin) == (result.shape, result.origin) for x in operands)
    if not (are_alike or node.post_ops):
        # The library has more than loops over single elements only for some operands that are
        # broadcast or stored otherwise, and is no faster than the core there.
        yield from pointwise_options(context)
        return
    first, second = 0, 1
    if node.op in _COMMUTATIVE and context.value(node.inputs[0]).shape != result.shape:
        # oneDNN broadcasts its second operand fast and its first one slowly.
        first, second = 1, 0
    for kind, fmt in result_formats(context):
        left = bind(context, "src", first, kind, fmt)
        right = bind(context, "src1", second, kind, fmt)
        if left is None or right is None:
            continue
        dst = memory_of(fmt, canonical_shape(result, fmt))
        memories = (("src", left[0]), ("src1", right[0]), ("dst", dst))
        formats = (left[2], right[2]) if first == 0 else (right[2], left[2])
        reuse = left[2] == fmt and context.value(node.inputs[first]).shape == result.shape
        spec = KernelSpec(
            "binary",
            memories,
            (("algorithm", BINARY_ALGORITHMS[node.op]),),
            fused(node, dst, accumulate=False).specs,
            flops=float(prod(result.shape)),
        )
        yield KernelOption(
            f"elementwise, {kind}",
            formats,
            (fmt,),
            (Call(spec, (left[1], right[1], Arg("dst", output_of()))),),
            (Alias(first, 0, 0, "in place"),) if reuse else (),
        )


def _is_naive(spec: KernelSpec, storage: str, dst: MemorySpec) -> bool:
    """Return whether an operand is broadcast along axes without a jit kernel.

    The first operand is never broadcast fast. The second one is where it is a scalar, a row of
    channels, or lines, planes or volumes (for each item or for all), or one item for all. Where the
    result is blocked or the operand is an item, it must be stored like the result.
    """
    first, other = spec.memory("src"), spec.memory("src1")
    if first is None or other is None:
        return False
    if first.dims == other.dims == dst.dims:
        return storage == "blocked" and other.tag != dst.tag
    rank = len(dst.dims)
    if rank <= 2:
        return first.dims != dst.dims
    kept = tuple(axis for axis in range(rank) if other.dims[axis] != 1)
    tails = [tuple(range(axis, rank)) for axis in range(2, rank)]
    fast = ((), (1,), (0, 1), (1, *tails[0]), *tails, *((0, *tail) for tail in tails))
    is_item = kept == tuple(axis for axis in range(1, rank) if dst.dims[axis] != 1)
    is_elsewhere = other.tag != dst.tag and (storage == "blocked" or is_item)
    return first.dims != dst.dims or is_elsewhere or kept not in fast


def _share(spec: KernelSpec) -> float:
    """Return the part of the time that elements take, where integers have a scale a channel.

    Beginning a row of channels takes about 57 ns (measured on Zen 4).
    """
    dst, operands = spec.memory("dst"), [post.operand for post in spec.post_ops]
    if dst is None or dst.dtype not in RANGES or storage_of(dst) != "channels-last":
        return 1.0
    has_rows = any(operand is not None and operand.dims != dst.dims for operand in operands)
    return dst.dims[1] / (dst.dims[1] + _ROW) if has_rows else 1.0


_ROW = 450
"""How many elements take as long as beginning a row."""

FAMILY = Family(
    {op: Offer(_kernels, post_ops=takes_snap) for op in BINARY_ALGORITHMS},
    {"binary": KernelKind(is_naive=_is_naive, share=_share)},
)
