"""The target ``onednn-cpu``: x86 CPUs through oneDNN 3.x, in float32 and bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from stridewise.classes import dataclass
from stridewise.dtypes import DType
from stridewise.formats import Block, Format, nd
from stridewise.graph import Refusal, Value
from stridewise.ops.geometry import user_format
from stridewise.ops.pointwise import OPERANDS
from stridewise.passes.ability import Ability
from stridewise.targets.kernels import KernelContext, KernelOption, KernelSpec
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.attention import attends
from stridewise.targets.onednn.cast import views_in_bfloat16
from stridewise.targets.onednn.constants import with_constants
from stridewise.targets.onednn.elements import moved
from stridewise.targets.onednn.groups import fills_tiles
from stridewise.targets.onednn.int8 import boundary, in_int8, in_offered_int8
from stridewise.targets.onednn.int8_products import has_library_products
from stridewise.targets.onednn.matmul import for_vectors
from stridewise.targets.onednn.precision import (
    BF16,
    F32,
    FLOATS,
    AsFloat32,
    in_bfloat16,
    in_float32,
)
from stridewise.targets.onednn.reorder import reorder_spec
from stridewise.targets.onednn.resize import is_resampling
from stridewise.targets.onednn.table import OFFERS, TYPED, efficiency, kernel_options, post_ops
from stridewise.targets.target import NATIVE, Accuracy, Precision
from stridewise.tensor import Storage

__all__ = ["ABILITY", "FormatKind", "LibraryTarget", "onednn_cpu"]

ABILITY = Ability(
    "oneDNN",
    frozenset(dtype.name for dtype in FLOATS),
    post_ops,
    is_resampling,
    frozenset(OPERANDS),
    attends,
)
"""What the kernels can do, as far as passes depend on it."""


@dataclass(frozen=True, slots=True)
class FormatKind:
    """A family of storage formats over N, C and any number of spatial axes.

    Attributes:
        base: ``"plain"``, ``"channels-last"`` or ``"blocked"``.
        channels_last: whether channels are the innermost axis.
        block: channels per block; 0 for none.
        dtype: the type of stored elements; None for the type of the tensor itself.
    """

    base: str
    channels_last: bool = False
    block: int = 0
    dtype: DType | None = None

    @property
    def name(self) -> str:
        """What reports call it: ``"blocked"``, ``"blocked bf16"``."""
        return self.base if self.dtype is None else f"{self.base} {self.dtype.short}"

    def of(self, axes: tuple[str, ...]) -> Format:
        """Return the format of this kind over ``axes``."""
        return _format(axes, self.channels_last, self.block)


@cache
def _format(axes: tuple[str, ...], channels_last: bool, block: int) -> Format:
    order = (axes[0], *axes[2:], axes[1]) if channels_last else axes
    blocks = (Block(axes[1], block),) if block else ()
    return Format(axes, (*order, *blocks))


_MOST_AXES = 12
"""The most that oneDNN takes."""


def _odd(value: Value) -> str:
    """Return why no kernel needs to know a shape; "" where some may."""
    if 0 in value.shape:
        return "has no elements"
    rank = len(value.shape)
    return f"has {rank} axes, kernels take {_MOST_AXES} at most" if rank > _MOST_AXES else ""


def _is_view(context: KernelContext, option: KernelOption) -> bool:
    """Return whether an option runs nothing and keeps to the formats of fallback kernels."""
    if option.calls or option.fill is not None:
        return False
    node = context.node
    pairs = zip((*node.inputs, *node.outputs), (*option.inputs, *option.outputs), strict=True)
    return all(fmt is None or fmt == user_format(context.value(name)) for name, fmt in pairs)


@dataclass(frozen=True, slots=True)
class LibraryTarget:
    """The kernels of oneDNN and of the core; the families of this package describe them.

    Attributes:
        name: the target's name in the API and on the command line.
        kinds: the storage formats on offer, ``plain`` first.
        efficiency: which part of the roofline a kernel reaches, for ``tune="model"``.
        dtypes: element types that kernels compute in.
        reorder: what reports call a reorder.
        has_host: whether nodes without a kernel run on the host.
        accuracy: whether kernels may round otherwise than the definition of an operator does.
        precision: what tensors may be stored in beside their own type.
        has_bfloat16: whether the library has kernels on bfloat16 tensors for the machine.
        has_products: whether the machine has instructions for products of bfloat16.
        has_int8: whether there are kernels on tensors of integers for the machine.
        has_int8_products: whether the library's products of integers are exact on it.
        has_tiles: whether it multiplies tiles of bfloat16 and integers.
    """

    name: str
    kinds: tuple[FormatKind, ...]
    efficiency: Callable[[KernelSpec], float]
    dtypes: frozenset[str] = ABILITY.dtypes
    reorder: str = "reorder"
    has_host: bool = True
    accuracy: Accuracy = "fast"
    precision: Precision = "model"
    has_bfloat16: bool = False
    has_products: bool = False
    has_int8: bool = False
    has_int8_products: bool = False
    has_tiles: bool = False

    @property
    def library(self) -> str:
        """What implements the kernels."""
        return "onednn"

    def formats(self, value: Value) -> Mapping[str, Format]:
        """Return the formats that a value can be stored in, by the name of their kind.

        What no kernel takes is stored as fallback kernels take it.
        """
        origin = value.origin
        if self._foreign(value) or _odd(value):
            return {"plain": user_format(value)}
        if origin is None:
            return {"plain": nd(len(value.shape))}
        if origin.rank < 3 or origin.axes[:2] != ("N", "C"):
            return {"plain": Format(origin.axes, origin.axes)}
        return {kind.name: kind.of(origin.axes) for kind in self.kinds if kind.dtype is None}

    def storages(self, value: Value) -> Mapping[str, Storage]:
        """Return the ways to store a value, by the name of their kind."""
        own = self.formats(value)
        if _odd(value) or value.dtype not in FLOATS:
            return {name: Storage(fmt) for name, fmt in own.items()}
        element = None if self._has_primitives(value.dtype) else F32
        return {
            kind.name: Storage(own[kind.base], kind.dtype or element)
            for kind in self.kinds
            if kind.base in own and kind.dtype != value.dtype
        }

    def options(self, context: KernelContext) -> Iterable[KernelOption | Refusal]:
        """Yield the ways to compute a node, and why others are not offered."""
        odd, foreign = self._unfit(context)
        if odd:
            yield Refusal(self.name, context.node.name, odd[0])
            return
        if self.has_int8 and context.node.op in ("dequantize", "quantize"):
            yield from boundary(context)
        if foreign:
            yield from self._typed(context, foreign[0])
            return
        if context.node.op == "cast":
            yield from self._as_accurate(context, kernel_options(context), only_views=False)
            if self.precision == "bfloat16":
                yield from views_in_bfloat16(context)
            return
        types = self._types(context)
        items = list(kernel_options(context if types == {F32} else AsFloat32(context)))
        if context.node.op == "matmul":
            items = list(for_vectors(context, items, max(kind.block for kind in self.kinds)))
        tiled = [item for item in items if isinstance(item, KernelOption)]
        items = [item for item in items if isinstance(item, Refusal) or not fills_tiles(item)]
        options = [item for item in items if isinstance(item, KernelOption)]
        if types == {F32}:
            yield from self._as_accurate(context, items, only_views=False)
        else:
            yield from (item for item in items if isinstance(item, Refusal))
            if BF16 not in types:
                yield from self._as_accurate(context, options, only_views=True)
            yield from self._as_accurate(context, in_float32(options, context), only_views=False)
        if BF16 in types or self.precision == "bfloat16":
            found = in_bfloat16(
                tiled if self.has_tiles else options,
                context,
                has_primitives=self.has_bfloat16,
                has_products=self.has_products,
            )
            yield from self._as_accurate(context, found, only_views=False)
        if self.precision == "bfloat16" and not self.has_bfloat16:
            reason = "the library has kernels on bfloat16 tensors with AVX-512 only"
            yield Refusal("dtype", context.node.name, reason)
        if types == {F32} and self.precision != "float32":
            yield from self._in_int8(context, tiled if self.has_tiles else options)

    def _typed(self, context: KernelContext, reason: str) -> Iterator[KernelOption | Refusal]:
        """Yield the kernels of a node with a tensor of another type than floats.

        Args:
            context: of the node.
            reason: why those of floats do not compute it.
        """
        rule = TYPED.get(context.node.op)
        if rule is not None:
            items = rule(context)
            found = [
                with_constants(context, item) if isinstance(item, KernelOption) else item
                for item in items
            ]
        else:
            known = list(kernel_options(context))
            views = self._as_accurate(context, known, only_views=True)
            found = [*views, *moved(known, context)]
        if not any(isinstance(item, KernelOption) for item in found):
            yield Refusal(self.name, context.node.name, reason)
        yield from found

    def _unfit(self, context: KernelContext) -> tuple[list[str], list[str]]:
        """Return why no kernel needs to know the shapes of a node, and takes its dtypes."""
        sides = (("input", context.node.inputs), ("output", context.node.outputs))
        named = [
            (f"{side} {index}", context.value(name))
            for side, names in sides
            for index, name in enumerate(names)
            if name
        ]
        odd = [f"{where} {why}" for where, value in named if (why := _odd(value))]
        foreign = [
            f"{where} {why}"
            for where, value in named
            if not context.is_constant(value.name) and (why := self._foreign(value))
        ]
        return odd, foreign

    def _as_accurate(
        self, context: KernelContext, items: Iterable[KernelOption | Refusal], *, only_views: bool
    ) -> Iterator[KernelOption | Refusal]:
        for item in items:
            if only_views and not (isinstance(item, KernelOption) and _is_view(context, item)):
                continue
            if self.accuracy == "exact" and isinstance(item, KernelOption) and item.approximate:
                reason = f"{item.algorithm}: it rounds otherwise than the definition"
                yield Refusal("accuracy", context.node.name, reason)
            else:
                yield item

    def _in_int8(
        self, context: KernelContext, options: Sequence[KernelOption]
    ) -> Iterator[KernelOption | Refusal]:
        """Yield options on quantized tensors, of a node whose values have grids."""
        if self.has_int8:
            for option in (*in_int8(options, context), *in_offered_int8(options, context)):
                if self.has_int8_products or not has_library_products(option):
                    yield option
        elif any(context.value(name).grid is not None for name in context.node.outputs):
            reason = "kernels on integers need AVX2, or AVX-512 with VNNI"
            yield Refusal("int8", context.node.name, reason)

    def _types(self, context: KernelContext) -> set[DType]:
        """Return the types of the tensors of a node, without those of constants."""
        names = (*context.node.inputs, *context.node.outputs)
        values = [context.value(name) for name in names if name and not context.is_constant(name)]
        return {value.dtype for value in values}

    def _has_primitives(self, dtype: DType) -> bool:
        """Return whether the library's kernels have tensors of a dtype."""
        return dtype == F32 or (dtype == BF16 and self.has_bfloat16)

    def _foreign(self, value: Value) -> str:
        """Return why kernels do not take the dtype of a value; "" where they do."""
        if value.dtype.name in self.dtypes:
            return ""
        return f"is {value.dtype}, kernels take {', '.join(sorted(self.dtypes))}"

    def joins(self, op: str) -> frozenset[str]:
        """Return the operators whose results kernels of an operator may compute as well."""
        return OFFERS[op].joins if op in OFFERS else frozenset()

    def reorder_spec(self, value: Value, source: Storage, goal: Storage) -> KernelSpec:
        """Return the kernel that stores a value in another way."""
        return reorder_spec(value, source, goal)

    def spell(self, fmt: Format) -> str:
        """Return what reports call a format."""
        return fmt.name


def onednn_cpu(
    machine: Machine, accuracy: Accuracy = "fast", dtype: Precision = "model"
) -> LibraryTarget:
    """Return the target for a machine: 16 channels a block with AVX-512, 8 without.

    Args:
        machine: what plans are for.
        accuracy: ``"exact"`` leaves out kernels that round otherwise, such as Winograd convolution.
        dtype: what tensors may be stored in beside their own type.
    """
    block = 16 if machine.has_avx512 else 8
    kinds = (
        FormatKind("plain"),
        FormatKind("channels-last", channels_last=True),
        FormatKind("blocked", block=block),
    )
    if dtype == "bfloat16":
        kinds += tuple(replace(kind, dtype=BF16) for kind in kinds)
    return LibraryTarget(
        NATIVE,
        kinds,
        efficiency,
        accuracy=accuracy,
        precision=dtype,
        has_bfloat16=machine.has_avx512,
        has_products=machine.has_bfloat16,
        has_int8=machine.has_int8,
        has_int8_products=machine.has_int8_products,
        has_tiles=machine.has_tiles,
    )
