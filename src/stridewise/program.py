"""A program: ordered steps with addresses, and the constants to pack.

Plain, printable data; :mod:`stridewise.runtime.execution.executor` creates native objects from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from stridewise.classes import dataclass
from stridewise.graph import Node
from stridewise.graph.graph import quoted
from stridewise.planner.split import WHOLE, Split
from stridewise.targets.kernels import KernelSpec
from stridewise.tensor import Grid, TensorDesc

if TYPE_CHECKING:
    from stridewise.planner.plan import Reorder

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
    """An argument of a kernel and its memory."""

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
    """Execute a primitive, or call a Python function that computes the node.

    Attributes:
        node: the node or tensor of the step.
        spec: the kernel; its kind is ``HOST`` for Python functions.
        implementation: the library's name of it, "" for the library's choice.
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
        return f"{self.spec.kind} [{self.implementation or 'library choice'}]"


@dataclass(frozen=True, slots=True)
class CopyStep:
    """Copy bytes."""

    node: str
    source: Ref
    target: Ref
    nbytes: int
    written: tuple[Written, ...] = ()

    def __str__(self) -> str:
        return f"copy {self.nbytes} bytes from {self.source} to {self.target}"


@dataclass(frozen=True, slots=True)
class FillStep:
    """Fill float32 elements with one value."""

    node: str
    target: Ref
    count: int
    value: float
    written: tuple[Written, ...] = ()

    def __str__(self) -> str:
        return f"fill {self.count} float32 elements at {self.target} with {self.value!r}"


Step = KernelStep | CopyStep | FillStep


@dataclass(frozen=True, slots=True)
class PackedConstant:
    """A constant or parameter in the memory format that a kernel reads.

    Attributes:
        value: the constant or parameter of the graph; "" for one that has ``fill`` everywhere.
        fill: the element of made-up constants.
        reshape: shape to give the array first, None for its own.
        permute: permutation after that, None for none.
        spec: the kernel that reads it; None for the row-major bytes of the array.
        implementation: the implementation of the kernel.
        role: the role of that kernel.
        layout: the memory layout that the implementation selected: extents, strides, blocks and
            bytes, as text; "" for row-major bytes. A kernel that is created again must have the
            same layout.
        numbers: the elements of made-up constants that differ.
        grid: what the integers stand for that the kernel reads instead of real numbers.
        affine: a factor and a term that are applied to each element, None for neither.
    """

    value: str
    fill: float
    reshape: tuple[int, ...] | None
    permute: tuple[int, ...] | None
    spec: KernelSpec | None
    implementation: str
    role: str
    layout: str = ""
    numbers: tuple[float, ...] = ()
    grid: Grid | None = None
    affine: tuple[float, float] | None = None

    def __str__(self) -> str:
        made = f"numbers {_listed(self.numbers)}" if self.numbers else f"filled with {self.fill!r}"
        parts = [quoted(self.value) if self.value else made]
        parts += [f"as {self.grid.dtype}"] if self.grid is not None else []
        if self.affine is not None:
            parts.append(f"times {self.affine[0]!r} plus {self.affine[1]!r}")
        parts += [f"reshaped to {list(self.reshape)}"] if self.reshape is not None else []
        parts += [f"permuted by {list(self.permute)}"] if self.permute is not None else []
        if self.spec is None:
            return ", ".join((*parts, "row-major"))
        kernel = f"{self.spec.kind} [{self.implementation or 'library choice'}]"
        return ", ".join((*parts, f"{self.role} of {kernel}", f"layout {self.layout or 'dense'}"))


@dataclass(frozen=True, slots=True)
class ArenaTensor:
    """A stored tensor in a block of the arena.

    Attributes:
        value: the value.
        desc: Origin and Storage.
        offset: bytes from the start of the arena.
        first: index of the first step that needs it.
        last: index of the last step that needs it.
    """

    value: str
    desc: TensorDesc
    offset: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ArenaBlock:
    """Bytes of the arena that are in use during some steps.

    Attributes:
        offset: bytes from the start of the arena.
        nbytes: its size.
        first: index of the first step that needs it.
        last: index of the last step that needs it.
        tensors: the stored tensors that share these bytes; none in a scratchpad.
        node: for a scratchpad, the node of the step; else "".
    """

    offset: int
    nbytes: int
    first: int
    last: int
    tensors: tuple[ArenaTensor, ...]
    node: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """All steps, addresses and constants of a run.

    Attributes:
        inputs: names of the inputs, in order.
        outputs: names of the outputs, in order.
        steps: in order of execution.
        arena_nbytes: size of the arena of one run.
        lower_bound_nbytes: lower bound for any arrangement of these tensors.
        constants: packed once, before the first run.
        blocks: the parts of the arena and their lifetimes.
        split: the steps compute one part of the caller's arrays and run once for each part.
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

    def text(self) -> str:
        """Return all of the program, to debug from; ``docs/stages/texts.md`` explains the lines.

        The text is the same for the same program.
        """
        return "\n".join(_program_lines(self)) + "\n"

    def __str__(self) -> str:
        return self.text()


# --- text -----------------------------------------------------------------------------------------


_MOST_NUMBERS = 8


def _listed(numbers: tuple[float, ...]) -> str:
    more = ", ..." if len(numbers) > _MOST_NUMBERS else ""
    return ", ".join(map(repr, numbers[:_MOST_NUMBERS])) + more


def _program_lines(program: Program) -> Iterator[str]:
    yield f"program of {len(program.steps)} steps"
    if program.split != WHOLE:
        yield f"split: {program.split}"
    yield f"arena: {program.arena_nbytes} bytes, lower bound {program.lower_bound_nbytes} bytes"
    for side, names in (("input", program.inputs), ("output", program.outputs)):
        yield from (f"{side} {index}: {quoted(name)}" for index, name in enumerate(names))
    yield from (f"constant {index}: {item}" for index, item in enumerate(program.constants))
    yield from (f"parameter {index}: {item}" for index, item in enumerate(program.parameters))
    yield from (f"state {index}: {quoted(name)}" for index, name in enumerate(program.states))
    for index, step in enumerate(program.steps):
        yield f"step {index}: {quoted(step.node)} {step}"
        if isinstance(step, KernelStep):
            yield from _kernel_lines(step, index, program.blocks)
        for item in step.written:
            place = f"at {item.ref}, {item.desc.nbytes} bytes"
            yield f"  writes {quoted(item.value)} {item.desc.summary} {place}"
    for block in program.blocks:
        end, steps = block.offset + block.nbytes, f"steps {block.first} to {block.last}"
        names = [f"{quoted(item.value)} at arena+{item.offset}" for item in block.tensors]
        what = ", ".join(names) or f"scratchpad of {quoted(block.node)}"
        yield f"block arena+{block.offset} to arena+{end}, {steps}: {what}"


def _kernel_lines(step: KernelStep, index: int, blocks: Iterable[ArenaBlock]) -> Iterator[str]:
    spec = step.spec
    live = [block for block in blocks if block.first <= index <= block.last]
    for binding in step.bindings:
        memory = spec.memory(binding.role)
        found = [
            quoted(tensor.value)
            for block in live
            for tensor in block.tensors
            if binding.ref.space == "arena" and binding.ref.offset == tensor.offset
        ]
        parts = (str(binding.ref), "" if memory is None else str(memory), " = ".join(found))
        yield f"  {binding.role}: {' '.join(filter(None, parts))}"
    for result, operand in step.in_place:
        yield f"  {result} overwrites {operand}"
    details = [f"{key}={value}" for key, value in spec.params]
    details += [f"+{post}" for post in spec.post_ops]
    if details:
        yield f"  with {' '.join(details)}"
    for block in live:
        if not block.tensors and block.offset == step.scratch:
            yield f"  scratchpad: arena+{block.offset}, {block.nbytes} bytes"
    yield f"  predicted: {step.cost_ns:.1f} ns"


def reorder_label(reorder: Reorder) -> str:
    """Return the name of the step of a reorder in programs and profiles."""
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
    """Return the names of the copies that a node may need, in programs and profiles."""
    names = dict.fromkeys(name for name in node.inputs if name)
    return tuple(label(node.name, name) for name in names for label in (piece_label, operand_label))


def output_labels(value: str) -> tuple[str, ...]:
    """Return the names of the copies of a value into the array of the caller."""
    return caller_label(value), constant_label(value)
