"""Kernels of concatenation. Pieces that lie one after the other in memory are not copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import prod

from stridewise.formats import Format, algebra
from stridewise.graph import Refusal
from stridewise.ops.geometry import user_format
from stridewise.targets.kernels import (
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.family import Family, KernelKind, Offer
from stridewise.targets.onednn.memory import block_of, memory_of, plain_memory, storage_of
from stridewise.targets.walks import copy_call, region

__all__ = ["FAMILY"]


def _formats(context: KernelContext) -> Iterator[tuple[str, Format, tuple[Format, ...]]]:
    """Yield kind, format of the result, and formats of the pieces."""
    node = context.node
    result = context.value(node.outputs[0])
    pieces = [context.value(name) for name in node.inputs]
    variable = [piece for piece in pieces if not context.is_constant(piece.name)]
    if all(piece.origin == result.origin for piece in variable):
        for kind, fmt in context.formats(result.name).items():
            yield kind, fmt, (fmt,) * len(pieces)
    else:
        yield "user", user_format(result), tuple(user_format(piece) for piece in pieces)


class _Concat:
    """One node stored in one format: where each piece starts and what it looks like."""

    def __init__(
        self, context: KernelContext, fmt: Format, formats: tuple[Format, ...], *, user: bool
    ) -> None:
        node = context.node
        self.context, self.fmt, self.formats = context, fmt, formats
        result = context.value(node.outputs[0])
        axis = node.int_attr("axis")
        names = [context.value(name) for name in node.inputs]
        if user or result.origin is None:
            order = tuple(range(len(result.shape)))
        else:
            order = tuple(result.origin.order.index(name) for name in fmt.axes)
        self.order = order
        self.axis = order.index(axis)
        self.shape = tuple(result.shape[i] for i in order)
        self.pieces = [tuple(value.shape[i] for i in order) for value in names]
        extents = [piece[self.axis] for piece in self.pieces]
        self.starts = [0, *accumulate(extents)][:-1]
        self.user = user

    def memory(self, shape: tuple[int, ...]) -> MemorySpec:
        return plain_memory(shape) if self.user else memory_of(self.fmt, shape)

    def arg(self, role: str, index: int) -> Arg:
        if self.context.is_constant(self.context.node.inputs[index]):
            return Arg(role, input_of(index), permute=self.order)
        return Arg(role, input_of(index))

    def input_formats(self) -> tuple[Format | None, ...]:
        return tuple(
            None if self.context.is_constant(name) else fmt
            for name, fmt in zip(self.context.node.inputs, self.formats, strict=True)
        )

    def copying(self, kind: str) -> KernelOption:
        roles = [f"src{index}" for index in range(len(self.pieces))]
        memories = [(role, self.memory(p)) for role, p in zip(roles, self.pieces, strict=True)]
        spec = KernelSpec(
            "concat", (*memories, ("dst", self.memory(self.shape))), (("axis", self.axis),)
        )
        args = tuple(self.arg(role, index) for index, role in enumerate(roles))
        call = Call(spec, (*args, Arg("dst", output_of())))
        return KernelOption(f"copy, {kind}", self.input_formats(), (self.fmt,), (call,))

    def by_pieces(self, kind: str) -> KernelOption | None:
        """Return the option with a strided copy for each piece, which short rows need."""
        boxes = None if self.user or self.fmt.is_blocked else self.boxes()
        if boxes is None or None in self.input_formats():
            return None
        calls: list[Call] = []
        for index, (piece, place) in enumerate(zip(self.pieces, boxes, strict=True)):
            source = region(self.fmt, piece, (0,) * len(piece), piece)
            if source is None or source[0].dims != place[0].dims:
                return None
            calls.append(copy_call(source, place, input_of(index), output_of()))
        return KernelOption(f"copies, {kind}", self.input_formats(), (self.fmt,), tuple(calls))

    def boxes(self) -> list[tuple[MemorySpec, int]] | None:
        """Return where each piece lies in the result, or None where a block is cut."""
        found: list[tuple[MemorySpec, int]] = []
        for start, piece in zip(self.starts, self.pieces, strict=True):
            origin = tuple(start if i == self.axis else 0 for i in range(len(piece)))
            box = region(self.fmt, self.shape, origin, piece)
            if box is None:
                return None
            found.append(box)
        return found

    def in_place(self, kind: str) -> KernelOption | None:
        """Return the option that produces the pieces inside the result, if they are contiguous."""
        axis = self.fmt.axes[self.axis]
        walk = [loop for loop in algebra.loops(self.fmt, self.shape) if loop.extent > 1]
        if self.user or not walk or walk[0].axis != axis:
            return None
        boxes = self.boxes()
        if boxes is None:
            return None
        aliases: list[Alias] = []
        calls: list[Call] = []
        for index, (memory, offset) in enumerate(boxes):
            if self.context.may_place(index):
                aliases.append(Alias(index, 0, offset, "place"))
            elif self.context.is_constant(self.context.node.inputs[index]):
                return None
            else:
                source = MemorySpec(memory.dims, strides=memory.strides), 0
                calls.append(copy_call(source, (memory, offset), input_of(index), output_of()))
        if not aliases:
            return None
        return KernelOption(
            f"in place, {kind}", self.input_formats(), (self.fmt,), tuple(calls), tuple(aliases)
        )


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    for kind, fmt, formats in _formats(context):
        concat = _Concat(context, fmt, formats, user=kind == "user")
        yield concat.copying(kind)
        others = (concat.by_pieces(kind), concat.in_place(kind))
        yield from (option for option in others if option is not None)


def _is_naive(spec: KernelSpec, storage: str, dst: MemorySpec) -> bool:
    """Return whether pieces do not end with a block."""
    pieces = [memory for role, memory in spec.memories if role != "dst"]
    return storage == "blocked" and any(piece.dims[1] % block_of(dst) for piece in pieces)


def _share(spec: KernelSpec) -> float:
    """Return which part of the time moves bytes; each row of a piece is copied by itself."""
    dst, axis = spec.memory("dst"), dict(spec.params)["axis"]
    assert dst is not None  # every concatenation has a result and an axis
    assert isinstance(axis, int)
    inner = dst.dims[axis + 1 :]
    if storage_of(dst) == "channels-last" and axis > 0:
        inner = () if axis == 1 else (*inner, dst.dims[1])
    pieces = len(spec.memories) - 1
    row = dst.nbytes / prod(dst.dims) * prod(inner) * dst.dims[axis] / pieces
    return row / (row + _ROW)


_ROW = 16.0
"""Bytes that are copied in the time in which the copy of a row begins, at least (Zen 4)."""

FAMILY = Family(
    {"concat": Offer(_kernels)}, {"concat": KernelKind({"channels-last": 0.40}, _is_naive, _share)}
)
