"""A program: ordered steps, where every byte lies, and which constants are packed how.

Plain, printable data. :mod:`stridewise.runtime.execution.executor` makes native objects of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stridewise.graph import Node
from stridewise.planner.plan import Reorder
from stridewise.planner.split import WHOLE, Split
from stridewise.targets.kernels import KernelSpec
from stridewise.tensor import TensorDesc

__all__ = [
    "ArenaBlock",
    "ArenaTensor",
    "Binding",
    "CopyStep",
    "FillStep",
    "KernelStep",
    "PackedConstant",
    "Program",
    "Ref",
    "Space",
    "Step",
    "Written",
    "caller_label",
    "constant_label",
    "copy_labels",
    "operand_label",
    "output_labels",
    "piece_label",
    "reorder_label",
    "update_label",
]


Space = Literal["arena", "constant", "input", "output", "parameter", "state"]
"""What a place in memory is relative to."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A place in memory.

    Attributes:
        space: the arena of one run, the packed constants, the arrays of a call, or the memory of
            parameters and states, which belongs to the program.
        index: which constant, input, output, form of a parameter, or state; 0 for the arena.
        offset: bytes from its start.
    """

    space: Space
    index: int
    offset: int

    def __str__(self) -> str:
        number = "" if self.space == "arena" else f" {self.index}"
        return f"{self.space}{number}+{self.offset}"


@dataclass(frozen=True, slots=True)
class Binding:
    """A role of a kernel and the memory it works on."""

    role: str
    ref: Ref


@dataclass(frozen=True, slots=True)
class Written:
    """A tensor that is complete after a step."""

    value: str
    ref: Ref
    desc: TensorDesc


@dataclass(frozen=True, slots=True)
class KernelStep:
    """Execute a primitive, or call what computes the node on the host.

    Attributes:
        node: the node or tensor that it is for.
        spec: what to execute; of the kind ``HOST`` where it is no primitive.
        implementation: the library's name of it, "" for its own choice.
        bindings: the arguments.
        scratch: offset of the scratchpad in the arena.
        cost_ns: predicted time.
        written: tensors that are complete afterwards.
        in_place: roles of results, each with the role of the operand whose bytes it overwrites.
    """

    node: str
    spec: KernelSpec
    implementation: str
    bindings: tuple[Binding, ...]
    scratch: int
    cost_ns: float
    written: tuple[Written, ...] = ()
    in_place: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        args = " ".join(f"{binding.role}={binding.ref}" for binding in self.bindings)
        return f"{self.node}: {self.spec.kind} [{self.implementation}] {args}"


@dataclass(frozen=True, slots=True)
class CopyStep:
    """Copy bytes."""

    node: str
    source: Ref
    target: Ref
    nbytes: int
    written: tuple[Written, ...] = ()

    def __str__(self) -> str:
        return f"{self.node}: copy {self.nbytes} bytes from {self.source} to {self.target}"


@dataclass(frozen=True, slots=True)
class FillStep:
    """Fill float32 elements with one value."""

    node: str
    target: Ref
    count: int
    value: float
    written: tuple[Written, ...] = ()

    def __str__(self) -> str:
        return f"{self.node}: fill {self.count} at {self.target} with {self.value}"


Step = KernelStep | CopyStep | FillStep


@dataclass(frozen=True, slots=True)
class PackedConstant:
    """A constant or parameter in the memory format that a kernel wants.

    Attributes:
        value: the constant or parameter of the graph; "" for one that has ``fill`` everywhere.
        fill: the element of made-up constants.
        reshape: shape to give the array first, None for its own.
        permute: permutation after that, None for none.
        spec: the kernel that asks for the format; None for the array's own row-major bytes.
        implementation: the implementation that asks.
        role: the role of that kernel.
        layout: the memory layout that the implementation resolved the format to: extents, strides,
            blocks and bytes, as text. A kernel that is made anew must ask for the same; "" for row-
            major bytes.
    """

    value: str
    fill: float
    reshape: tuple[int, ...] | None
    permute: tuple[int, ...] | None
    spec: KernelSpec | None
    implementation: str
    role: str
    layout: str = ""


@dataclass(frozen=True, slots=True)
class ArenaTensor:
    """A stored tensor in a block of the arena.

    Attributes:
        value: the value.
        desc: Origin and Storage.
        offset: bytes from the start of the arena.
        first: the first step that needs it, an index into the steps of the program.
        last: the last one.
    """

    value: str
    desc: TensorDesc
    offset: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ArenaBlock:
    """Bytes of the arena that nothing else may use for a while.

    Attributes:
        offset: bytes from the start of the arena.
        nbytes: its size.
        first: the first step that needs it, an index into the steps of the program.
        last: the last one.
        tensors: the stored tensors that share these bytes; none in a scratchpad.
        node: for a scratchpad, the step's node; else "".
    """

    offset: int
    nbytes: int
    first: int
    last: int
    tensors: tuple[ArenaTensor, ...]
    node: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """Everything needed to run.

    Attributes:
        inputs: names of the inputs, in order.
        outputs: names of the outputs, in order.
        steps: in order of execution.
        arena_nbytes: size of the arena of one run.
        lower_bound_nbytes: no arrangement of these tensors needs less.
        constants: what is packed once, before the first run.
        blocks: what lies where in the arena, and when.
        split: the steps are those of a part of the caller's arrays, and run once for each.
        parameters: forms of parameters, packed before the first run and whenever a parameter is
            replaced; one that steps write has its own row-major bytes.
        states: names of the states, each in its own row-major bytes.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[Step, ...]
    arena_nbytes: int
    lower_bound_nbytes: int
    constants: tuple[PackedConstant, ...]
    blocks: tuple[ArenaBlock, ...] = ()
    split: Split = WHOLE
    parameters: tuple[PackedConstant, ...] = ()
    states: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"arena {self.arena_nbytes} bytes, {len(self.constants)} constants"]
        if self.split != WHOLE:
            lines.append(str(self.split))
        return "\n".join([*lines, *map(str, self.steps)]) + "\n"


def reorder_label(reorder: Reorder) -> str:
    """Return what the step of a reorder is for, as programs and profiles call it."""
    return f"{reorder.tensor}: {reorder.source} -> {reorder.target}"


def piece_label(node: str, value: str) -> str:
    """Return the name of the copy of an input that a node places in its output."""
    return f"{node} (piece {value})"


def operand_label(node: str, value: str) -> str:
    """Return the name of the copy of an operand that a node overwrites."""
    return f"{node} (operand {value})"


def caller_label(value: str) -> str:
    """Return the name of the copy of a value into the array of the caller."""
    return f"{value} (to the caller)"


def constant_label(value: str) -> str:
    """Return the name of the copy of a constant into the array of the caller."""
    return f"{value} (constant)"


def update_label(value: str) -> str:
    """Return the name of the copy of a value into the parameter or state that takes it."""
    return f"{value} (update)"


def copy_labels(node: Node) -> tuple[str, ...]:
    """Return what programs and profiles call the copies that a node may need beside its kernel."""
    names = dict.fromkeys(name for name in node.inputs if name)
    return tuple(label(node.name, name) for name in names for label in (piece_label, operand_label))


def output_labels(value: str) -> tuple[str, ...]:
    """Return what programs and profiles call the copies that may bring a value to the caller."""
    return caller_label(value), constant_label(value)
