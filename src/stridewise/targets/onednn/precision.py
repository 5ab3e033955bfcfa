"""Kernels on tensors of other stored elements: options of float32 kernels, with other elements.

Families describe kernels by formats, as if all elements were float32. The library has most of its
primitives for bfloat16 in the same formats; what says so is the table below. The core's kernels
take and give bfloat16 on every machine. All accumulate in float32. Bias, scales, shifts, statistics
and the weights of the core's kernels stay float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

from stridewise.dtypes import DType, dtype_of
from stridewise.formats import Format
from stridewise.graph import TensorType, Value
from stridewise.ops import OPS
from stridewise.targets.kernels import (
    Arg,
    Call,
    Element,
    Fill,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    PostOpSpec,
)
from stridewise.targets.onednn import conv1x1, depthwise, winograd
from stridewise.targets.onednn.context_view import ContextView
from stridewise.targets.onednn.memory import storage_of

__all__ = [
    "BF16",
    "F32",
    "FLOATS",
    "OWN",
    "PRIMITIVES",
    "AsFloat32",
    "in_bfloat16",
    "in_float32",
]

BF16, F32, U8 = dtype_of("bfloat16"), dtype_of("float32"), dtype_of("uint8")
FLOATS = frozenset({F32, BF16, dtype_of("float16")})
"""Types of tensors that may be stored as float32 or bfloat16."""

PRIMITIVES = frozenset(
    {"batch_norm_gradient", "batch_norm_training", "conv_weight_gradient", "fitted_convolution"}
    | {"fitted_deconvolution", "pooling_gradient", "pooling_places"}
    | {"batch_norm", "binary", "concat", "convolution", "deconvolution", "eltwise", "inner_product"}
    | {"layer_norm", "lrn", "matmul", "pooling", "reorder", "resampling", "scale_shift"}
    | {"shuffle", "softmax"}
)
"""Kinds of kernels that the library has for bfloat16 tensors."""

_LIGHT = frozenset(
    {"normalization", "normalized_columns", "normalized_rows", "pointwise", "reduction"}
)
"""Kinds of the core's kernels with little work for each element."""

_ROUNDING = _LIGHT | {"conv_windows"}
"""Kinds of the core's kernels that may also round float32 operands' results to bfloat16."""

_OF_ONE_TYPE = frozenset(
    {"attention", "depthwise_weight_gradient", "fused_batch_norm", "fused_batch_norm_gradient"}
    | {"transposed_depthwise"}
)
"""Kinds of the core's kernels whose tensors all have one type."""

_MIXED = _LIGHT | {
    *("depthwise", "expand_depthwise", "fitted_winograd", "narrow_groups", "strided_winograd"),
    *("conv1x1", "conv_windows", "volume_depthwise", "volume_winograd", "winograd"),
}
"""Kinds of the core's kernels whose results may have another type than their operands."""

OWN = _MIXED | _OF_ONE_TYPE
"""Kinds of the core's kernels; all of them have bfloat16 tensors."""

_WIDENING = _MIXED | {
    *("convolution", "deconvolution", "inner_product", "layer_norm", "matmul", "softmax"),
    *("fitted_convolution", "fitted_deconvolution"),
}
"""Kinds that may store float32 results of bfloat16 operands."""

_PARAMETERS = frozenset({"bias", "mean", "scale", "shift", "variance"})
"""Roles that are float32 whatever the tensors are."""

_FITTED = ("fitted_", "transposed_depthwise")
"""How kinds begin whose weights are float32 in the user's order; each run converts them."""

_WIDE_RESULTS = frozenset({"out_mean", "out_scale", "out_shift", "out_variance"})
"""Roles of results that are float32 whatever the tensors are."""

_WIDE_KINDS = frozenset({"conv_weight_gradient", "depthwise_weight_gradient"})
"""Kinds whose results are float32 alone."""

_WIDE_CONSTANTS = {
    "attention": frozenset(f"src{index}" for index in range(8)),
    "binary": frozenset({"src1"}),
}
"""By kind, roles that are float32 where they are constants: they are small, and nothing is lost."""

_PLACES = frozenset({"out_places", "places"})
"""Roles of positions, which are bytes whatever the tensors are."""

_INDICES = frozenset({"out_positions", "table"})
"""Roles of indices, which are integers whatever the tensors are."""

_NO_BFLOAT16 = "round"
"""The algorithm that the library has for float32 only."""

_JUMPS = frozenset(
    {"ceil", "equal", "floor", "greater", "greater_equal", "is_nan", "less", "less_equal", "round"}
    | {"shrink", "sign", "thresholded_relu"}
)
"""Functions that turn the rounding of an operand into another result."""

_COMPARISONS = frozenset({"greater", "greater_equal", "less", "less_equal"})
"""Those of them that do not if an operand is 0."""


class AsFloat32(ContextView):
    """What kernels see of a node with tensors of 16 bits: float32, as families describe them."""

    def value(self, name: str) -> Value:
        """Return a value of the graph, of float32 where it is of bfloat16 or float16."""
        value = self.inner.value(name)
        if value.dtype not in FLOATS:
            return value
        return replace(value, type=TensorType(F32, value.type.shape))

    def ahead(self) -> KernelContext | None:
        """Return the context of the node ahead, seen in the same way."""
        ahead = self.inner.ahead()
        return None if ahead is None else AsFloat32(ahead)

    def behind(self) -> KernelContext | None:
        """Return the context of the node behind, seen in the same way."""
        behind = self.inner.behind()
        return None if behind is None else AsFloat32(behind)


def _fills(fill: Fill | None) -> bool:
    """Return whether a fill, which is of float32 elements, can fill half as many bytes."""
    return fill is None or (fill.value == 0 and fill.count % 2 == 0)


def _parameters(option: KernelOption) -> set[int]:
    """Return which inputs are read as parameters only."""
    roles: dict[int, set[bool]] = {}
    for call in option.calls:
        for arg in call.args:
            if arg.operand.side == "in":
                is_wide = _is_parameter(call.spec, arg)
                roles.setdefault(arg.operand.index, set()).add(is_wide)
    return {index for index, found in roles.items() if found == {True}}


def _is_parameter(spec: KernelSpec, arg: Arg) -> bool:
    """Return whether a kernel reads an operand as float32 whatever the tensors are."""
    return arg.role in _PARAMETERS or (arg.role == "weights" and spec.kind.startswith(_FITTED))


def _wide_results(option: KernelOption) -> set[int]:
    """Return which outputs are float32 whatever the tensors are."""
    return {
        arg.operand.index
        for call in option.calls
        for arg in call.args
        if arg.operand.side == "out" and _is_wide_result(call.spec, arg)
    }


def _is_wide_result(spec: KernelSpec, arg: Arg) -> bool:
    return arg.role in _WIDE_RESULTS or spec.kind in _WIDE_KINDS


def _places(option: KernelOption) -> set[int]:
    """Return which inputs and outputs, counted together, are positions."""
    return {
        arg.operand.index + (len(option.inputs) if arg.operand.side == "out" else 0)
        for call in option.calls
        for arg in call.args
        if arg.role in _PLACES
    }


def _as_results(option: KernelOption) -> set[int]:
    """Return which inputs have the type of the results: sums in place, operands of own post-ops."""
    sums = {alias.input for alias in option.aliases if alias.kind == "accumulate"}
    return sums | {
        arg.operand.index
        for call in option.calls
        for arg in call.args
        if call.spec.kind in OWN and arg.role.startswith("post") and arg.operand.side == "in"
    }


class _Typed:
    """An option in which every input and output has an element type."""

    def __init__(
        self, option: KernelOption, source: DType, sources: tuple[DType, ...], result: DType
    ) -> None:
        self.option, self.source, self.sources, self.result = option, source, sources, result

    def _of(self, spec: KernelSpec, arg: Arg) -> DType:
        """Return the type in which a kernel reads or writes an argument."""
        operand = arg.operand
        if arg.role in _PLACES:
            return U8
        if operand.side == "out":
            return F32 if _is_wide_result(spec, arg) else self.result
        if _is_parameter(spec, arg) or operand.side == "fill":
            return F32
        if operand.side == "ahead":
            return self.source if arg.role == "src" else F32
        is_constant = self.option.inputs[operand.index] is None
        if is_constant and (spec.kind in _MIXED or arg.role in _WIDE_CONSTANTS.get(spec.kind, ())):
            return F32
        return self.source if is_constant else self.sources[operand.index]

    def call(self, call: Call) -> Call:
        types = {arg.role: self._of(call.spec, arg).short for arg in call.args}

        def typed(role: str, memory: MemorySpec) -> MemorySpec:
            return memory if role in _INDICES else replace(memory, dtype=types[role])

        def post(index: int, spec: PostOpSpec) -> PostOpSpec:
            if spec.operand is None:
                return spec
            return replace(spec, operand=typed(f"post{index}", spec.operand))

        memories = tuple((role, typed(role, memory)) for role, memory in call.spec.memories)
        posts = tuple(post(index, spec) for index, spec in enumerate(call.spec.post_ops))
        return replace(call, spec=replace(call.spec, memories=memories, post_ops=posts))


def _typed(
    option: KernelOption, context: KernelContext, source: DType, result: DType
) -> KernelOption:
    """Return an option on operands of one type whose results are of one type."""
    node, kept, as_results = context.node, _parameters(option), _as_results(option)
    sources = tuple(
        F32 if index in kept else result if index in as_results else source
        for index in range(len(option.inputs))
    )
    typed = _Typed(option, source, sources, result)
    wide = _wide_results(option)
    results = (F32 if i in wide else result for i in range(len(option.outputs)))
    places = _places(option)
    types = tuple(U8 if i in places else t for i, t in enumerate((*sources, *results)))

    def element(name: str, fmt: Format | None, stored: DType) -> Element:
        is_own = fmt is None or context.value(name).dtype == stored
        return Element() if is_own else Element(stored)

    names, formats = (*node.inputs, *node.outputs), (*option.inputs, *option.outputs)
    fill = option.fill
    if fill is not None and result == BF16:
        fill = replace(fill, count=fill.count // 2)
    ahead, before = option.ahead, context.ahead()
    if ahead is not None and before is not None:
        ahead = _typed(ahead, before, source, source)
    return replace(
        option,
        calls=tuple(map(typed.call, option.calls)),
        fill=fill,
        elements=tuple(map(element, names, formats, types)),
        aliases=tuple(
            alias
            for alias in option.aliases
            if sources[alias.input] == result or alias.kind == "accumulate"
        ),
        ahead=ahead,
    )


def in_float32(options: Iterable[KernelOption], context: KernelContext) -> Iterator[KernelOption]:
    """Yield options of a node whose tensors are stored as float32, where they are of 16 bits.

    Args:
        options: the same on float32 tensors.
        context: of the node; its values have their own types.
    """
    for option in options:
        yield replace(_typed(option, context, F32, F32), algorithm=f"{option.algorithm}, f32")


def _jumps(step: str) -> bool:
    """Return whether a step turns the rounding of an operand into another result.

    Signs are never rounded, so masks of what is positive are safe.
    """
    op, _, operands = step.partition("(")
    return op in _JUMPS and not (op in _COMPARISONS and "0.0" in operands[:-1].split(", "))


def _is_native(spec: KernelSpec, *, has_primitives: bool) -> bool:
    algorithms = (dict(spec.params).get("algorithm"), *(post.algorithm for post in spec.post_ops))
    if _NO_BFLOAT16 in algorithms:
        return False
    if spec.kind in OWN:
        expression = cast("tuple[str, ...]", dict(spec.params).get("expression", ()))
        return not any(map(_jumps, expression))
    return has_primitives and spec.kind in PRIMITIVES


def _is_exact(option: KernelOption, context: KernelContext) -> bool:
    """Return whether exact results are not rounded, and not computed from what is.

    Operators that are not elementwise may read rounded operands, except for exact ones: gradients
    are added up from rounded products.
    """
    node, names = context.node, (*context.node.inputs, *context.node.outputs)
    if not any(context.value(name).exact for name in node.outputs):
        return True
    rounded = {
        name
        for name, element in zip(names, option.elements, strict=True)
        if name and element.dtype == BF16
    }
    if OPS[node.op].origin == "elementwise":
        return rounded.isdisjoint(names)
    return not any(context.value(name).exact for name in rounded)


_IN_PAIRS = {conv1x1.KIND: conv1x1.in_pairs, depthwise.KIND: depthwise.in_pairs}
"""By kind, the kernel that multiplies in bfloat16; of other kinds, those of Winograd have one."""

_PAIRS_ONLY = frozenset({conv1x1.KIND})
"""Kinds of the core's kernels that have no float32 products of bfloat16 tensors."""


def _multiplying_pairs(option: KernelOption) -> Iterator[KernelOption]:
    """Yield the option whose kernel multiplies in bfloat16, too, where there is one."""
    (call,) = option.calls
    spec = _IN_PAIRS.get(call.spec.kind, winograd.in_pairs)(call.spec)
    if spec is not None:
        calls = (replace(call, spec=spec),)
        yield replace(option, algorithm=f"{option.algorithm} products", calls=calls)


def _turns(spec: KernelSpec) -> bool:
    """Return whether a kernel turns images with channels first.

    These are a user's, in float32: to round them would be a step of its own.
    """
    return spec.kind == "conv_windows" and storage_of(spec.memory("src")) == "plain"


def in_bfloat16(
    options: Iterable[KernelOption],
    context: KernelContext,
    *,
    has_primitives: bool,
    has_products: bool,
) -> Iterator[KernelOption]:
    """Return options of a node on bfloat16 tensors, where there are kernels.

    Args:
        options: the same on float32 tensors.
        context: of the node; its values have their own types.
        has_primitives: whether the library has kernels on bfloat16 tensors for the machine.
        has_products: whether the machine has instructions for products of bfloat16.
    """
    found = _of_bfloat16(options, context, has_primitives=has_primitives, has_products=has_products)
    return (option for option in found if _is_exact(option, context))


def _of_bfloat16(
    options: Iterable[KernelOption],
    context: KernelContext,
    *,
    has_primitives: bool,
    has_products: bool,
) -> Iterator[KernelOption]:
    for option in options:
        native = (_is_native(c.spec, has_primitives=has_primitives) for c in option.calls)
        if not _fills(option.fill) or not all(native):
            continue
        half = replace(_typed(option, context, BF16, BF16), algorithm=f"{option.algorithm}, bf16")
        has_one = len(option.calls) == 1
        kinds = {call.spec.kind for call in option.calls}
        widens = kinds.isdisjoint(_PAIRS_ONLY) and not any(_turns(c.spec) for c in option.calls)
        if widens:
            yield half
        if has_one and has_products:
            yield from _multiplying_pairs(half)
        if kinds and kinds <= _WIDENING:
            typed = _typed(option, context, BF16, F32)
            wide = replace(typed, algorithm=f"{option.algorithm}, bf16 to f32")
            if widens:
                yield wide
            elif has_products:
                yield from _multiplying_pairs(wide)
        if has_one and kinds <= _ROUNDING:
            typed = _typed(option, context, F32, BF16)
            yield replace(typed, algorithm=f"{option.algorithm}, f32 to bf16")
