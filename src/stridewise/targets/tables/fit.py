"""A rule of a table fitted to a node: the format of every operand, and what it costs.

``ops`` says what operators compute. What matters here is only which of their inputs
are data, weights or parameters, and where a kernel on whole blocks would have to cut one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Protocol

from stridewise.formats import Format, algebra, nd
from stridewise.graph import Value
from stridewise.ops.geometry import canonical_shape, user_format
from stridewise.targets.kernels import (
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    Packed,
)
from stridewise.targets.tables.rules import ND, Rule

__all__ = ["WEIGHTED", "UnfitError", "fit"]

WEIGHTED = frozenset({"conv", "matmul"})
"""Operators whose input 1 are weights; what follows are parameters."""

_PARAMETERS = frozenset({"scale_shift"})
"""Operators whose inputs from 1 on are parameters: vectors in the user's own order."""


class UnfitError(Exception):
    """A rule does not fit a node; the message is the reason of a refusal."""


class Formats(Protocol):
    """The formats of a target that is a table."""

    def formats(self, value: Value) -> Mapping[str, Format]:
        """Return the formats that a value can be stored in, by the name of their kind."""
        ...

    def weights_format(self, kind: str, dtype: str, rank: int, groups: int) -> Format:
        """Return the format of weights."""
        ...

    def memory(self, fmt: Format, shape: Sequence[int], dtype: str) -> MemorySpec:
        """Return what is priced of a stored tensor."""
        ...


class _Fitting:
    """One rule and one node."""

    def __init__(self, target: Formats, context: KernelContext, rule: Rule) -> None:
        self.target, self.context, self.rule = target, context, rule
        self.node = context.node
        self.result = context.value(self.node.outputs[0])
        self.operands = {post.operand for post in self.node.post_ops if post.operand is not None}
        self.packed: list[Packed] = []

    # --- formats ----------------------------------------------------------------------------

    def stored(self, kind: str, value: Value) -> Format:
        found = self.target.formats(value).get(kind)
        if found is None:
            why = f"of shape {value.shape}" if value.origin else "with unknown axes"
            raise UnfitError(f"there is no such format for tensor {value.name!r} {why}")
        return found

    def input(self, index: int) -> Format | None:
        """Return the format of an input; constants are noted as packed and have none."""
        name = self.node.inputs[index]
        if not name:
            return None
        if index in self.operands:
            return self.data(index, self.rule.gives)
        if index and self.node.op in WEIGHTED:
            return self.weights() if index == 1 else self.plain(index)
        if index and self.node.op in _PARAMETERS:
            return self.plain(index)
        return self.data(index, self.rule.takes)

    def plain(self, index: int) -> Format | None:
        value = self.context.value(self.node.inputs[index])
        if not self.context.is_constant(value.name):
            return user_format(value)
        rank = len(value.shape)
        self.packed.append(Packed(index, nd(rank), value.shape, tuple(range(rank))))
        return None

    def data(self, index: int, kind: str) -> Format | None:
        value = self.context.value(self.node.inputs[index])
        missing = len(self.result.shape) - len(value.shape)
        if kind == ND:
            return self.plain(index)
        if self.context.is_constant(value.name):
            if missing < 0 or self.result.origin is None:
                return self.plain(index)
            fmt = self.stored(kind, self.result)
            order = self.result.origin.order
            permute = tuple(order.index(axis) for axis in fmt.axes)
            self.packed.append(Packed(index, fmt, (1,) * missing + value.shape, permute))
            return None
        if missing > 0:
            # It is broadcast along axes that it does not have, so it has no blocks of them.
            return user_format(value)
        if not missing and self.rule.gives != ND and value.origin != self.result.origin:
            raise UnfitError(f"the axes of {value.name!r} and {self.result.name!r} differ")
        return self.stored(kind, value)

    def weights(self) -> Format | None:
        if self.rule.weights == ND:
            return self.plain(1)
        value = self.context.value(self.node.inputs[1])
        if not self.context.is_constant(value.name):
            raise UnfitError("the weights are no constant, so they cannot be stored before the run")
        shape, rank = value.shape, len(value.shape)
        groups = self.node.int_attr("groups", 1)
        fmt = self.target.weights_format(self.rule.weights, value.dtype.name, rank, groups)
        permute = tuple(range(fmt.rank))
        if groups > 1:
            shape = (groups, shape[0] // groups, *shape[1:])
        elif self.node.op == "matmul" and set(fmt.axes) == {"O", "I"}:
            rows = "O" if self.node.int_attr("trans_b", 0) else "I"
            permute = tuple(int(axis != rows) for axis in fmt.axes)
        self.packed.append(Packed(1, fmt, shape, permute))
        return None

    # --- what whole blocks allow -----------------------------------------------------------

    def boxes(self) -> list[tuple[Value, tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
        """Return the boxes that the node reads or writes: tensor, starts, lengths, steps."""
        node, result = self.node, self.result
        ones = (1,) * len(result.shape)
        if node.op == "slice":
            starts, steps = node.ints_attr("starts"), node.ints_attr("steps")
            if min(steps, default=1) < 1:
                raise UnfitError("it reads an axis backwards")
            return [(self.context.value(node.inputs[0]), starts, result.shape, steps)]
        if node.op == "pad":
            if node.str_attr("mode", "constant") != "constant":
                raise UnfitError("its border is not constant")
            source = self.context.value(node.inputs[0]).shape
            return [(result, node.ints_attr("pads")[: len(ones)], source, ones)]
        if node.op != "concat":
            return []
        axis, begin = node.int_attr("axis"), 0
        found: list[tuple[Value, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []
        for name in node.inputs:
            piece = self.context.value(name).shape
            starts = tuple(begin if i == axis else 0 for i in range(len(piece)))
            found.append((result, starts, piece, ones))
            begin += piece[axis]
        return found

    def check(self) -> None:
        channels = self.context.value(self.node.inputs[0]).shape[1:2]
        most = self.rule.most_channels
        if most and channels and channels[0] > most:
            raise UnfitError(f"it is for at most {most} channels, and there are {channels[0]}")
        for value, *box in self.boxes() if self.rule.takes != ND else ():
            fmt = self.stored(self.rule.takes, value)
            order = user_format(value).order
            starts, lengths, steps = (
                tuple(numbers[order.index(axis)] for axis in fmt.axes) for numbers in box
            )
            shape = canonical_shape(value, fmt)
            if algebra.sub_tensor(fmt, shape, starts, lengths, steps) is None:
                raise UnfitError(f"the {self.node.op} cuts a block of {value.name!r}")

    # --- costs ------------------------------------------------------------------------------

    def flops(self, source: Format | None) -> float:
        """Return the arithmetic; blocks of data meet blocks of weights, spare lanes and all."""
        node, work = self.node, prod(self.result.shape)
        if node.op in WEIGHTED:
            a, w = (self.context.value(name).shape for name in node.inputs[:2])
            inner = prod(w[1:]) if node.op == "conv" else a[-2 if node.get("trans_a") else -1]
            padded = 1.0
            for packed in self.packed:
                if packed.input == 1 and source is not None and source.is_blocked and prod(w):
                    padded = algebra.element_count(packed.format, packed.shape) / prod(w)
            return 2.0 * work * inner * padded
        window = node.ints_attr("kernel") if node.get("kernel") is not None else ()
        read = sum(prod(self.context.value(name).shape) for name in node.inputs if name)
        return float(max(work * prod(window), read))

    def spec(self, inputs: tuple[Format | None, ...], outputs: tuple[Format, ...]) -> KernelSpec:
        memory = self.target.memory
        memories: list[tuple[str, MemorySpec]] = []
        node = self.node
        for names, formats, side in ((node.inputs, inputs, "in"), (node.outputs, outputs, "out")):
            for index, (name, fmt) in enumerate(zip(names, formats, strict=True)):
                if fmt is not None:
                    value = self.context.value(name)
                    shape = canonical_shape(value, fmt)
                    memories.append((f"{side}{index}", memory(fmt, shape, value.dtype.short)))
        for packed in self.packed:
            dtype = self.context.value(node.inputs[packed.input]).dtype.short
            memories.append((f"in{packed.input}", memory(packed.format, packed.shape, dtype)))
        params = (*node.attrs, ("efficiency", float(self.rule.efficiency)))
        return KernelSpec(node.op, tuple(memories), params, flops=self.flops(inputs[0]))


def fit(target: Formats, context: KernelContext, rule: Rule) -> KernelOption:
    """Return the option that computes a node by a rule.

    Raises:
        UnfitError: the rule does not fit the node.
        FormatError: the target has no format for the weights, or it cannot hold them.
    """
    fitting = _Fitting(target, context, rule)
    fitting.check()
    node = context.node
    inputs = tuple(fitting.input(index) for index in range(len(node.inputs)))
    outputs = tuple(fitting.stored(rule.gives, context.value(name)) for name in node.outputs)
    spec = fitting.spec(inputs, outputs)
    packed = tuple(fitting.packed)
    return KernelOption(str(rule), inputs, outputs, (Call(spec, ()),), packed=packed)
