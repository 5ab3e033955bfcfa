"""What the core takes for the kernel of a spec: a function for each kind of kernel."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

from stridewise.errors import ExecutionError
from stridewise.runtime.binding.arguments import KernelArguments
from stridewise.runtime.binding.defects import is_wrong
from stridewise.targets.kernels import SCALING, MemorySpec
from stridewise.targets.onednn.groups import together

if TYPE_CHECKING:
    from stridewise import _core
    from stridewise.ops.pointwise import Step

__all__ = ["FACTORIES", "KERNELS", "Factory", "numbered"]

Factory = Callable[[KernelArguments], "_core.PrimitiveDesc"]
_Step = tuple[str, list[int], float, float]


def _any_weights(s: KernelArguments, dtype: str = "") -> _core.MemoryDesc:
    """Return the weights in a format of the library's choice, with wider groups if it has them."""
    weights, count = s.memory("weights"), together(s.spec)
    dims = list(weights.dims)
    if count > 1:
        dims[:3] = dims[0] // count, count * dims[1], count * dims[2]
    return s.core.MemoryDesc(dims, dtype or weights.dtype, "any")


def _convolution(
    s: KernelArguments, weights: _core.MemoryDesc | None = None
) -> _core.PrimitiveDesc:
    is_transposed = s.spec.kind.endswith("deconvolution")
    factory = s.core.deconvolution if is_transposed else s.core.convolution
    return factory(
        s.memory("src"), weights or _any_weights(s), s.optional("bias"), s.memory("dst"),
        s.ints("strides"), s.ints("dilations"), s.ints("begins"), s.ints("ends"),
        s.post_ops(), threads=s.threads, numbers=s.numbers(),
    )  # fmt: skip


def _pooling(s: KernelArguments) -> _core.PrimitiveDesc:
    return s.core.pooling(
        s.text("algorithm"), s.memory("src"), s.memory("dst"), s.ints("kernel"),
        s.ints("strides"), s.ints("dilations"), s.ints("begins"), s.ints("ends"),
        s.post_ops(), threads=s.threads,
    )  # fmt: skip


def _plain_pooling(s: KernelArguments) -> _core.PlainPooling:
    return s.core.PlainPooling(
        s.text("algorithm"), s.memory("src"), s.memory("dst"), s.ints("kernel"),
        s.ints("strides"), s.ints("dilations"), s.ints("begins"), threads=s.threads,
    )  # fmt: skip


def _eltwise(s: KernelArguments) -> _core.PrimitiveDesc:
    return s.core.eltwise(
        s.text("algorithm"), s.memory("src"), s.memory("dst"), s.number("alpha"),
        s.number("beta"), s.post_ops(), threads=s.threads,
    )  # fmt: skip


def _binary(s: KernelArguments) -> _core.PrimitiveDesc:
    return s.core.binary(
        s.text("algorithm"), s.memory("src"), s.memory("src1"), s.memory("dst"),
        s.post_ops(), threads=s.threads, numbers=s.numbers(),
    )  # fmt: skip


def _matmul(s: KernelArguments) -> _core.PrimitiveDesc:
    return s.core.matmul(
        s.memory("src"), s.memory("weights"), s.optional("bias"), s.memory("dst"),
        s.post_ops(), threads=s.threads, numbers=s.numbers(),
    )  # fmt: skip


def _inner_product(s: KernelArguments) -> _core.PrimitiveDesc:
    return s.core.inner_product(
        s.memory("src"), s.memory("weights"), s.optional("bias"), s.memory("dst"),
        s.post_ops(), threads=s.threads,
    )  # fmt: skip


def _layer_norm(s: KernelArguments) -> _core.PrimitiveDesc:
    return s.core.layer_norm(
        s.memory("src"), s.memory("dst"), s.number("epsilon"),
        s.optional("scale") is not None, s.optional("shift") is not None, threads=s.threads,
    )  # fmt: skip


def _batch_norm(s: KernelArguments) -> _core.PrimitiveDesc:
    return s.core.batch_norm(
        s.memory("src"), s.memory("dst"), s.number("epsilon"), s.optional("scale") is not None,
        threads=s.threads,
    )  # fmt: skip


def _concat(s: KernelArguments) -> _core.PrimitiveDesc:
    sources = [s.describe(memory) for role, memory in s.spec.memories if role != "dst"]
    return s.core.concat(s.memory("dst"), s.integer("axis"), sources, threads=s.threads)


def _lrn(s: KernelArguments) -> _core.PrimitiveDesc:
    return s.core.lrn(
        s.memory("src"), s.memory("dst"), "across", s.integer("size"), s.number("alpha"),
        s.number("beta"), s.number("k"), threads=s.threads,
    )  # fmt: skip


FACTORIES: dict[str, Factory] = {
    "batch_norm": _batch_norm,
    "binary": _binary,
    "concat": _concat,
    "convolution": _convolution,
    "deconvolution": _convolution,
    "eltwise": _eltwise,
    "inner_product": _inner_product,
    "layer_norm": _layer_norm,
    "lrn": _lrn,
    "matmul": _matmul,
    "pooling": _pooling,
    "reorder": lambda s: s.core.reorder(s.memory("src"), s.memory("dst"), threads=s.threads),
    "resampling": lambda s: s.core.resampling(
        s.text("algorithm"), s.memory("src"), s.memory("dst"), s.post_ops(), threads=s.threads
    ),
    "scale_shift": lambda s: s.core.scale_shift(
        s.memory("src"), s.memory("dst"), bool(s.integer("relu")), threads=s.threads
    ),
    "shuffle": lambda s: s.core.shuffle(
        s.memory("src"), s.memory("dst"), s.integer("axis"), s.integer("group_size"),
        threads=s.threads,
    ),
    "softmax": lambda s: s.core.softmax(
        s.memory("src"), s.memory("dst"), s.integer("axis"), bool(s.integer("log")),
        threads=s.threads,
    ),
}  # fmt: skip


def _winograd(s: KernelArguments) -> _core.Winograd:
    return s.core.Winograd(
        s.memory("src"), s.memory("dst"), s.spec.memory("bias") is not None,
        s.ints("begins"), s.ints("ends"), s.post_ops(),
        tile=s.integer("tile"), lanes=s.integer("lanes"), threads=s.threads,
        window=s.ints("window"), dilations=s.ints("dilations"),
        groups=s.integer("groups"), pool=s.integer("pool", 1),
        multiplies_halves="products" in dict(s.spec.params),
    )  # fmt: skip


def _strided_winograd(s: KernelArguments) -> _core.StridedWinograd:
    return s.core.StridedWinograd(
        s.memory("src"), s.memory("dst"), s.spec.memory("bias") is not None,
        s.ints("begins"), s.ints("ends"), s.post_ops(),
        tile=s.integer("tile"), lanes=s.integer("lanes"), threads=s.threads,
        window=s.ints("window"), strides=s.ints("strides"), slices=s.optional_ints("slices"),
    )  # fmt: skip


def _fitted_winograd(s: KernelArguments) -> _core.FittedWinograd:
    return s.core.FittedWinograd(_winograd(s), bool(s.integer("transposed", 0)))


def _winograd_weight_gradient(s: KernelArguments) -> _core.WinogradWeightGradient:
    forward = s.core.Winograd(
        s.memory("src"), s.memory("diff_dst"), False, s.ints("begins"), s.ints("ends"), [],
        tile=s.integer("tile"), lanes=s.integer("lanes"), threads=s.threads,
        window=s.ints("window"), dilations=s.ints("dilations"),
    )  # fmt: skip
    return s.core.WinogradWeightGradient(forward)


def _reduction(s: KernelArguments) -> _core.Reduction:
    return s.core.Reduction(
        s.text("algorithm"), s.memory("src"), s.memory("dst"), threads=s.threads
    )


def _normalization(s: KernelArguments) -> _core.Normalization:
    statistics = MemorySpec(s.ints("statistics"), "abcdefghijkl"[: len(s.ints("statistics"))])
    return s.core.Normalization(
        s.text("algorithm"), s.memory("src"), s.memory("dst"), s.describe(statistics),
        s.optional("scale"), s.optional("shift"), epsilon=s.number("epsilon"), threads=s.threads,
    )  # fmt: skip


def _depthwise(s: KernelArguments) -> _core.Depthwise:
    has, weights = {role for role, _ in s.spec.memories}, s.memory("depthwise_weights")
    return s.core.Depthwise(
        s.memory("src"), s.memory("dst"), "weights" in has, "bias" in has,
        "depthwise_bias" in has, s.ints("begins"), s.ints("ends"), s.post_ops(),
        between=s.integer("between"), window=s.ints("window"), strides=s.ints("strides"),
        dilations=s.ints("dilations"), lanes=s.integer("lanes"), threads=s.threads,
        multiplies_halves="products" in dict(s.spec.params), parts=s.optional_ints("parts"),
        group=weights.dims[2], slices=s.optional_ints("slices"),
    )  # fmt: skip


def _depthwise_int8(s: KernelArguments) -> _core.ByteDepthwise:
    return s.core.ByteDepthwise(
        s.memory("src"), s.memory("dst"), s.spec.memory("depthwise_bias") is not None,
        s.ints("begins"), s.ints("ends"), s.post_ops(), s.floats(SCALING),
        window=s.ints("window"), strides=s.ints("strides"), dilations=s.ints("dilations"),
        lanes=s.integer("lanes"), threads=s.threads,
    )  # fmt: skip


def _conv_int8(s: KernelArguments) -> _core.ByteConv:
    return s.core.ByteConv(
        s.memory("src"), s.memory("dst"), s.spec.memory("bias") is not None, s.ints("begins"),
        s.ints("ends"), s.post_ops(), s.floats(SCALING), window=s.memory("weights").dims[2:],
        strides=s.ints("strides"), dilations=s.ints("dilations"), threads=s.threads,
    )  # fmt: skip


def _conv1x1(s: KernelArguments) -> _core.Conv1x1:
    has, weights = {role for role, _ in s.spec.memories}, s.memory("weights")
    return s.core.Conv1x1(
        s.memory("src"), s.memory("dst"), "bias" in has, "factor" in has, s.post_ops(),
        between=s.integer("between"), lanes=s.integer("lanes"), threads=s.threads,
        strides=s.ints("strides"),
        groups=weights.dims[0] if len(weights.dims) > len(s.memory("src").dims) else 1,
    )  # fmt: skip


def _conv_windows(s: KernelArguments) -> _core.ConvWindows:
    return s.core.ConvWindows(
        s.memory("src"), s.memory("dst"), s.spec.memory("bias") is not None, s.ints("begins"),
        s.ints("ends"), s.post_ops(), window=s.memory("weights").dims[2:],
        strides=s.ints("strides"), dilations=s.ints("dilations"), lanes=s.integer("lanes"),
        threads=s.threads,
    )  # fmt: skip


def _transposed_depthwise(s: KernelArguments) -> _core.Kernel:
    return s.core.TransposedDepthwise(
        s.memory("src"), s.memory("dst"), s.ints("begins"), s.post_ops(),
        window=s.ints("window"), strides=s.ints("strides"), dilations=s.ints("dilations"),
        lanes=s.integer("lanes"), threads=s.threads,
    )  # fmt: skip


def _depthwise_weight_gradient(s: KernelArguments) -> _core.Kernel:
    return s.core.DepthwiseWeightGradient(
        s.memory("src"), s.memory("diff_dst"), s.ints("begins"),
        window=s.ints("window"), strides=s.ints("strides"), dilations=s.ints("dilations"),
        lanes=s.integer("lanes"), threads=s.threads,
    )  # fmt: skip


def _fitted(s: KernelArguments) -> _core.Kernel:
    """Return a convolution whose weights lie in the user's order, and are reordered in each run.

    Raises:
        ExecutionError: the library has no implementation with right results.
    """
    weights, chosen = s.memory("weights"), _any_weights(s, s.memory("src").dtype)
    descriptor = _convolution(s, chosen)
    while is_wrong(s.spec, descriptor.impl):
        if not descriptor.next():
            expected, found = "a kernel of the library with right results", descriptor.impl
            raise ExecutionError.at(f"kernel {s.spec}", expected=expected, found=found)
    return s.core.fitted(descriptor, {s.core.ARG_WEIGHTS: weights})


def _conv_weight_gradient(s: KernelArguments) -> _core.Kernel:
    return s.core.conv_weight_gradient(
        s.memory("src"), s.memory("diff_dst"), s.memory("dst"), s.ints("strides"),
        s.ints("dilations"), s.ints("begins"), s.ints("ends"),
        groups_together=together(s.spec), threads=s.threads,
    )  # fmt: skip


def _pooling_places(s: KernelArguments) -> _core.Kernel:
    return s.core.pooling_places(
        s.memory("src"), s.memory("dst"), s.memory("out_places"), s.ints("kernel"),
        s.ints("strides"), s.ints("dilations"), s.ints("begins"), s.ints("ends"),
        threads=s.threads,
    )  # fmt: skip


def _pooling_gradient(s: KernelArguments) -> _core.Kernel:
    return s.core.pooling_gradient(
        s.text("algorithm"), s.memory("dst"), s.memory("diff_dst"), s.optional("places"),
        s.ints("kernel"), s.ints("strides"), s.ints("dilations"), s.ints("begins"), s.ints("ends"),
        threads=s.threads,
    )  # fmt: skip


def _batch_norm_training(s: KernelArguments) -> _core.Kernel:
    return s.core.batch_norm_training(
        s.memory("src"), s.memory("dst"), s.number("epsilon"), threads=s.threads
    )


def _batch_norm_gradient(s: KernelArguments) -> _core.Kernel:
    return s.core.batch_norm_gradient(
        s.memory("src"), s.memory("diff_dst"), s.memory("dst"), s.number("epsilon"),
        threads=s.threads,
    )  # fmt: skip


def _bounds(s: KernelArguments) -> dict[str, float]:
    """Return the bounds of a batch norm's results; a spec names those that it has."""
    known = dict(s.spec.params)
    return {name: s.number(name) for name in ("low", "high") if name in known}


def _fused_batch_norm(s: KernelArguments) -> _core.BatchNorm:
    return s.core.BatchNorm(
        s.memory("src"), s.number("epsilon"), adds=bool(s.spec.post_ops), threads=s.threads,
        **_bounds(s),
    )  # fmt: skip


def _fused_batch_norm_gradient(s: KernelArguments) -> _core.BatchNormGradient:
    return s.core.BatchNormGradient(
        s.memory("src"), s.number("epsilon"), masks=s.spec.memory("shift") is not None,
        threads=s.threads, **_bounds(s),
    )  # fmt: skip


def numbered(expression: tuple[Step, ...], sources: int) -> tuple[list[_Step], list[float]]:
    """Return steps whose operands are numbers: of sources, literals and steps; and the literals."""
    operands = [item for step in expression for item in step.operands]
    literals = sorted({float(item) for item in operands if not isinstance(item, str)})
    numbers: dict[str | float, int] = {f"x{index}": index for index in range(sources)}
    numbers |= {literal: sources + index for index, literal in enumerate(literals)}
    numbers |= {f"t{index}": len(numbers) + index for index in range(len(expression))}
    renamed = [
        (step.op, [numbers[item] for item in step.operands], step.alpha, step.beta)
        for step in expression
    ]
    return renamed, literals


def _pointwise(s: KernelArguments) -> _core.Pointwise:
    # Expressions are written in operators; most stored models have none.
    from stridewise.ops.pointwise import parse_expression  # noqa: PLC0415

    sources = [s.describe(memory) for role, memory in s.spec.memories if role != "dst"]
    expression = parse_expression(s.strings("expression"), len(sources))
    steps, literals = numbered(expression, len(sources))
    numbers = s.floats(SCALING)
    grids = list(zip(numbers[::2], numbers[1::2], strict=True))
    return s.core.Pointwise(steps, literals, sources, s.memory("dst"), grids, threads=s.threads)


def _rearrange(s: KernelArguments) -> _core.ReorderKernel:
    from stridewise.runtime.binding.reorder_kernels import rearrange_kernel  # noqa: PLC0415

    source = s.spec.memory("src")
    assert source is not None  # every spec of this kind has one
    return rearrange_kernel(s.ints("boxes"), s.memory("src"), s.memory("dst"), source, s.threads)


def _lookup(s: KernelArguments) -> _core.Lookup:
    return s.core.Lookup(s.memory("src"), s.memory("dst"), threads=s.threads)


def _gather_rows(s: KernelArguments) -> _core.GatherRows:
    table, result = s.spec.memory("table"), s.spec.memory("dst")
    assert table is not None  # every spec of this kind has both
    assert result is not None
    words = table.dims[0] // result.dims[1]
    return s.core.GatherRows(s.memory("src"), s.memory("dst"), words=words, threads=s.threads)


def _grid_sample(s: KernelArguments) -> _core.GridSample:
    return s.core.GridSample(
        s.text("mode"), s.text("border"), bool(s.integer("align_corners")),
        s.memory("src"), s.memory("grid"), s.memory("dst"), threads=s.threads,
    )  # fmt: skip


def _positions(s: KernelArguments) -> _core.Positions:
    return s.core.Positions(
        s.text("what"), bool(s.integer("last")), s.memory("src"), s.memory("dst"), threads=s.threads
    )


def _scatter_rows(s: KernelArguments) -> _core.ScatterRows:
    return s.core.ScatterRows(
        s.text("reduction"), s.memory("src"), s.memory("dst"), threads=s.threads
    )


def _elements(s: KernelArguments) -> _core.Elements:
    *sources, result = (memory for _, memory in s.spec.memories)
    return s.core.Elements(
        s.text("op"), list(map(_view, sources)), _view(result), threads=s.threads
    )


def _view(memory: MemorySpec) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    assert memory.strides is not None  # specs of this kind describe memory by strides
    return memory.dtype, memory.dims, memory.strides


def _running(s: KernelArguments) -> _core.Running:
    memory = s.described("src")
    return s.core.Running(
        s.text("op"), memory.dtype, memory.dims, bool(s.integer("exclusive")),
        bool(s.integer("reverse")), threads=s.threads,
    )  # fmt: skip


def _totals(s: KernelArguments) -> _core.Totals:
    memory = s.described("src")
    return s.core.Totals(s.text("op"), memory.dtype, memory.dims, threads=s.threads)


def _top_k(s: KernelArguments) -> _core.TopK:
    memory, count = s.described("src"), s.described("dst").dims[1]
    is_largest = bool(s.integer("largest"))
    return s.core.TopK(memory.dtype, memory.dims, count, is_largest, threads=s.threads)


def _gather_elements(s: KernelArguments) -> _core.GatherElements:
    data, table = s.described("src"), s.described("table")
    return s.core.GatherElements(
        data.dims, table.dims, s.integer("axis"), nbytes=data.itemsize, words=table.itemsize // 4,
        threads=s.threads,
    )  # fmt: skip


def _scatter_elements(s: KernelArguments) -> _core.ScatterElements:
    data, table = s.described("dst"), s.described("table")
    return s.core.ScatterElements(
        data.dims, table.dims, s.integer("axis"), nbytes=data.itemsize, words=table.itemsize // 4,
        reduction=s.text("reduction"), threads=s.threads,
    )  # fmt: skip


def _gather_points(s: KernelArguments) -> _core.GatherPoints:
    data, table, batch = s.described("src"), s.described("table"), s.integer("batch_dims")
    last = batch + table.dims[-1]
    return s.core.GatherPoints(
        prod(data.dims[:batch]), data.dims[batch:last], prod(table.dims[batch:-1]),
        row_nbytes=data.itemsize * prod(data.dims[last:]), words=table.itemsize // 4,
        threads=s.threads,
    )  # fmt: skip


def _scatter_points(s: KernelArguments) -> _core.ScatterPoints:
    data, table = s.described("dst"), s.described("table")
    depth = table.dims[-1]
    return s.core.ScatterPoints(
        data.dims[:depth], prod(table.dims[:-1]),
        row_nbytes=data.itemsize * prod(data.dims[depth:]), words=table.itemsize // 4,
        reduction=s.text("reduction"),
    )  # fmt: skip


def _recurrent(s: KernelArguments) -> _core.Recurrent:
    has = {role for role, _ in s.spec.memories}
    return s.core.Recurrent(
        s.text("cell"), s.text("direction"), s.memory("src"), s.memory("dst"),
        has_bias="bias" in has, has_state="state" in has, has_cell="cell" in has,
        threads=s.threads,
    )  # fmt: skip


def _attention(s: KernelArguments) -> _core.Attention:
    beside = [s.describe(memory) for role, memory in s.spec.memories if role.startswith("src")]
    steps = list(zip(s.strings("steps"), s.floats("fills"), beside, strict=True))
    return s.core.Attention(
        s.memory("queries"), s.memory("keys"), s.memory("values"), s.memory("dst"), steps,
        scale=s.number("scale"), query_axes=s.ints("query_axes"), key_axes=s.ints("key_axes"),
        zeroed=s.text("zeroed"), threads=s.threads,
    )  # fmt: skip


def _dropout(s: KernelArguments) -> _core.Dropout:
    return s.core.Dropout(
        s.memory("dst"), s.number("share"), s.integer("stream"), threads=s.threads
    )


KERNELS: dict[str, Callable[[KernelArguments], _core.Kernel]] = {
    "attention": _attention,
    "batch_norm_gradient": _batch_norm_gradient,
    "batch_norm_training": _batch_norm_training,
    "conv1x1": _conv1x1,
    "conv_int8": _conv_int8,
    "conv_weight_gradient": _conv_weight_gradient,
    "conv_windows": _conv_windows,
    "depthwise": _depthwise,
    "depthwise_int8": _depthwise_int8,
    "depthwise_weight_gradient": _depthwise_weight_gradient,
    "dropout": _dropout,
    "elements": _elements,
    "expand_depthwise": _depthwise,
    "fitted_convolution": _fitted,
    "fitted_deconvolution": _fitted,
    "fitted_winograd": _fitted_winograd,
    "fused_batch_norm": _fused_batch_norm,
    "fused_batch_norm_gradient": _fused_batch_norm_gradient,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_points,
    "gather_rows": _gather_rows,
    "grid_sample": _grid_sample,
    "lookup": _lookup,
    "narrow_groups": _depthwise,
    "normalization": _normalization,
    "normalized_columns": _normalization,
    "normalized_rows": _normalization,
    "plain_pooling": _plain_pooling,
    "pointwise": _pointwise,
    "pooling_gradient": _pooling_gradient,
    "pooling_places": _pooling_places,
    "positions": _positions,
    "rearrange": _rearrange,
    "recurrent": _recurrent,
    "reduction": _reduction,
    "running": _running,
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_points,
    "scatter_rows": _scatter_rows,
    "strided_winograd": _strided_winograd,
    "top_k": _top_k,
    "totals": _totals,
    "transposed_depthwise": _transposed_depthwise,
    "volume_depthwise": _depthwise,
    "volume_winograd": _strided_winograd,
    "winograd": _winograd,
    "winograd_weight_gradient": _winograd_weight_gradient,
}
"""The core's kernels: one implementation each, for an instruction set or of library primitives."""
