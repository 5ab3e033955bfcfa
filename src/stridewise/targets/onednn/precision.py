"""Kernels on bfloat16 tensors: options of float32 kernels, with other elements.

Families describe kernels by formats, as if all elements were float32. The library has most of its
primitives for bfloat16 in the same formats; what says so is the table below. They accumulate in
float32. Bias, scales, shifts and statistics stay float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from stridewise.dtypes import DType, dtype_of
from stridewise.formats import Format
from stridewise.graph import Node, TensorType, Value
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

__all__ = ["BF16", "F32", "PRIMITIVES", "AsFloat32", "in_bfloat16"]

BF16, F32 = dtype_of("bfloat16"), dtype_of("float32")

PRIMITIVES = frozenset(
    {"batch_norm", "binary", "concat", "convolution", "deconvolution", "eltwise", "inner_product"}
    | {"layer_norm", "lrn", "matmul", "pooling", "prelu", "reorder", "resampling", "scale_shift"}
    | {"shuffle", "softmax"}
)
"""Kinds of kernels that the library has for bfloat16 tensors."""

_WIDENING = frozenset(
    {"convolution", "deconvolution", "inner_product", "layer_norm", "matmul", "softmax"}
)
"""Kinds of these that may store float32 results of bfloat16 operands."""

_PARAMETERS = frozenset({"bias", "mean", "scale", "shift", "variance"})
"""Roles that are float32 whatever the tensors are."""

_WIDE_CONSTANTS = {"binary": frozenset({"src1"}), "prelu": frozenset({"weights"})}
"""By kind, roles that are float32 where they are constants: they are small, and nothing is lost."""

_NO_BFLOAT16 = "round"
"""The algorithm that the library has for float32 only."""


class AsFloat32:
    """What kernels see of a node whose tensors are bfloat16: float32, as families describe them."""

    def __init__(self, inner: KernelContext) -> None:
        """Wrap the context of a node, or of one beside it."""
        self._inner = inner

    @property
    def node(self) -> Node:
        """The node."""
        return self._inner.node

    def value(self, name: str) -> Value:
        """Return a value of the graph, of float32 where it is of bfloat16."""
        value = self._inner.value(name)
        if value.dtype != BF16:
            return value
        return replace(value, type=TensorType(F32, value.type.shape))

    def is_constant(self, name: str) -> bool:
        """Return whether a value is known before the run."""
        return self._inner.is_constant(name)

    def formats(self, name: str) -> Mapping[str, Format]:
        """Return the storage formats that the target offers for a value, by kind."""
        return self._inner.formats(name)

    def may_place(self, index: int) -> bool:
        """Return whether input ``index`` may be produced inside an output of this node."""
        return self._inner.may_place(index)

    def ahead(self) -> KernelContext | None:
        """Return None: kernels for two nodes are of float32."""
        return None

    def behind(self) -> KernelContext | None:
        """Return None, as above."""
        return None


def _is_native(spec: KernelSpec) -> bool:
    algorithms = (dict(spec.params).get("algorithm"), *(post.algorithm for post in spec.post_ops))
    return spec.kind in PRIMITIVES and _NO_BFLOAT16 not in algorithms


def _fills(fill: Fill | None) -> bool:
    """Return whether a fill, which is of float32 elements, can fill half as many bytes."""
    return fill is None or (fill.value == 0 and fill.count % 2 == 0)


def _parameters(option: KernelOption) -> set[int]:
    """Return which inputs are read as parameters only."""
    roles: dict[int, set[str]] = {}
    for call in option.calls:
        for arg in call.args:
            if arg.operand.side == "in":
                roles.setdefault(arg.operand.index, set()).add(arg.role)
    return {index for index, found in roles.items() if found <= _PARAMETERS}


class _Typed:
    """An option in which every input and output has an element type."""

    def __init__(self, option: KernelOption, sources: tuple[DType, ...], result: DType) -> None:
        self.option, self.sources, self.result = option, sources, result

    def _of(self, spec: KernelSpec, arg: Arg) -> DType:
        """Return the type in which a kernel reads or writes an argument."""
        operand = arg.operand
        if operand.side == "out":
            return self.result
        if arg.role in _PARAMETERS or operand.side == "fill":
            return F32
        is_constant = self.option.inputs[operand.index] is None
        if is_constant and arg.role in _WIDE_CONSTANTS.get(spec.kind, ()):
            return F32
        return BF16 if is_constant else self.sources[operand.index]

    def call(self, call: Call) -> Call:
        types = {arg.role: self._of(call.spec, arg).short for arg in call.args}

        def typed(role: str, memory: MemorySpec) -> MemorySpec:
            return replace(memory, dtype=types[role])

        def post(index: int, spec: PostOpSpec) -> PostOpSpec:
            if spec.operand is None:
                return spec
            return replace(spec, operand=typed(f"post{index}", spec.operand))

        memories = tuple((role, typed(role, memory)) for role, memory in call.spec.memories)
        posts = tuple(post(index, spec) for index, spec in enumerate(call.spec.post_ops))
        return replace(call, spec=replace(call.spec, memories=memories, post_ops=posts))


def _is_sum(option: KernelOption, index: int) -> bool:
    """Return whether a result starts as the bytes of an input."""
    return any(alias.input == index and alias.kind == "accumulate" for alias in option.aliases)


def _typed(option: KernelOption, context: KernelContext, result: DType) -> KernelOption:
    """Return an option on bfloat16 operands whose results are of one type."""
    node, kept = context.node, _parameters(option)
    sources = tuple(
        F32 if index in kept else result if _is_sum(option, index) else BF16
        for index in range(len(option.inputs))
    )
    typed = _Typed(option, sources, result)
    types = (*sources, *(result for _ in option.outputs))

    def element(name: str, fmt: Format | None, stored: DType) -> Element:
        is_own = fmt is None or context.value(name).dtype == stored
        return Element() if is_own else Element(stored)

    names, formats = (*node.inputs, *node.outputs), (*option.inputs, *option.outputs)
    fill = option.fill and replace(option.fill, count=option.fill.count // 2)
    return replace(
        option,
        calls=tuple(map(typed.call, option.calls)),
        fill=fill,
        elements=tuple(map(element, names, formats, types)),
        aliases=tuple(
            alias for alias in option.aliases if result == BF16 or alias.kind == "accumulate"
        ),
    )


def in_bfloat16(options: Iterable[KernelOption], context: KernelContext) -> Iterator[KernelOption]:
    """Yield options of a node on bfloat16 tensors, where the library has the kernels.

    Args:
        options: the same on float32 tensors.
        context: of the node; its values have their own types.
    """
    for option in options:
        native = all(_is_native(call.spec) for call in option.calls)
        if option.is_joint or not native or not _fills(option.fill):
            continue
        yield replace(_typed(option, context, BF16), algorithm=f"{option.algorithm}, bf16")
        is_wide = len(option.calls) == 1 and option.calls[0].spec.kind in _WIDENING
        if is_wide and all(context.value(name).dtype == F32 for name in context.node.outputs):
            yield replace(
                _typed(option, context, F32), algorithm=f"{option.algorithm}, bf16 to f32"
            )
