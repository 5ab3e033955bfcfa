"""Kernels as data: the ways to compute a node, without any native code.

A target offers a :class:`KernelOption` for every way to compute a node: the storage formats that it
takes and gives, and the calls of kernels. The planner asks an oracle what the calls cost, and the
runtime makes executable kernels of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from math import prod
from typing import Literal, Protocol

from stridewise.classes import dataclass
from stridewise.dtypes import DType, dtype_of
from stridewise.formats import Format
from stridewise.graph import Attr, Node, Value
from stridewise.tensor import Grid, Quantization, Storage

__all__ = [
    "HOST",
    "SCALING",
    "SMALL_FLOPS",
    "SMALL_NBYTES",
    "Alias",
    "Arg",
    "Call",
    "Element",
    "Fill",
    "KernelContext",
    "KernelOption",
    "KernelSpec",
    "MemorySpec",
    "Operand",
    "Packed",
    "PostOpSpec",
    "behind_ahead",
    "from_ahead",
    "input_of",
    "output_of",
    "scale_args",
    "scale_memories",
]

HOST = "host"
"""The kind of kernels that are functions of NumPy arrays."""

SMALL_FLOPS, SMALL_NBYTES = 2e6, 4e5
"""Up to so many operations and bytes, a kernel runs on one thread (:attr:`KernelSpec.is_small`)."""

SMALL_WEIGHTS = 32 << 10
"""Up to so many bytes of weights, too: several threads read weights from memory faster."""

_EXPONENTIAL = frozenset(
    {"elu", "exp", "gelu_erf", "gelu_tanh", "logistic", "mish", "pow", "swish", "tanh"}
)
"""Post-ops that take more time than the arithmetic of a light kernel."""

SCALING = "scaling"
"""A parameter of reorders: zero point and scale of the source, scale and zero point of the result.

Times do not depend on these numbers, so the text of a kernel leaves them out.
"""


@dataclass(frozen=True, slots=True)
class MemorySpec:
    """Shape and format of one argument of a kernel.

    Attributes:
        dims: extents in canonical order.
        dtype: the short name.
        tag: the target's name of the format, ``"any"`` where the kernel chooses (constants only),
            ``"dense"`` for the row-major arguments of fallback kernels.
        strides: instead of a tag, the stride of each dimension in elements.
    """

    dims: tuple[int, ...]
    tag: str = ""
    strides: tuple[int, ...] | None = None
    dtype: str = "f32"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return dtype_of(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, without padding."""
        return self.itemsize * prod(self.dims)

    def __str__(self) -> str:
        layout = self.tag if self.strides is None else "s" + "x".join(map(str, self.strides))
        return f"{self.dtype}:{'x'.join(map(str, self.dims))}:{layout}"


@dataclass(frozen=True, slots=True)
class PostOpSpec:
    """A post-op of a kernel.

    Attributes:
        kind: ``"eltwise"``, ``"sum"`` (add what the destination holds) or ``"binary"``.
        algorithm: for eltwise and binary.
        alpha: for eltwise.
        beta: for eltwise.
        operand: for binary, the second operand.
    """

    kind: Literal["eltwise", "sum", "binary"]
    algorithm: str = ""
    alpha: float = 0.0
    beta: float = 0.0
    operand: MemorySpec | None = None

    def __str__(self) -> str:
        if self.kind == "eltwise":
            return f"{self.algorithm}({self.alpha!r},{self.beta!r})"
        return "sum" if self.kind == "sum" else f"{self.algorithm}({self.operand})"


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One kernel, fully described; its text is the key of the cost cache.

    Attributes:
        kind: a key of the runtime's table of factories.
        memories: the arguments by role (``src``, ``weights``, ``bias``, ``dst``, ``src1``, ...).
        params: what else the factory needs, sorted by name.
        post_ops: applied in order.
        flops: arithmetic operations of one execution, for the analytic cost model.
        transformed_nbytes: bytes of weights that the kernel transforms before the run.
    """

    kind: str
    memories: tuple[tuple[str, MemorySpec], ...]
    params: tuple[tuple[str, Attr], ...] = ()
    post_ops: tuple[PostOpSpec, ...] = ()
    flops: float = field(default=0.0, compare=False)
    transformed_nbytes: int = field(default=0, compare=False)

    def memory(self, role: str) -> MemorySpec | None:
        """Return the argument of that role, or None."""
        for name, memory in self.memories:
            if name == role:
                return memory
        return None

    @property
    def nbytes(self) -> int:
        """Bytes that one execution touches at least, for the analytic cost model."""
        operands = [p.operand for p in self.post_ops if p.operand is not None]
        total = 0
        for memory in [*(m for _, m in self.memories), *operands]:
            total += memory.nbytes
        return total

    @property
    def function_values(self) -> int:
        """Values of exponential functions that post-ops compute."""
        src, dst, filters = map(self.memory, ("src", "dst", "depthwise_weights"))
        if dst is None:
            return 0
        between = dict(self.params).get("between", 0)
        inner = prod(src.dims if src is not None else dst.dims)
        if src is not None and filters is not None:
            inner = prod((src.dims[0], filters.dims[0], *src.dims[2:]))
        return sum(
            inner if isinstance(between, int) and index < between else prod(dst.dims)
            for index, post in enumerate(self.post_ops)
            if post.algorithm in _EXPONENTIAL
        )

    @property
    def matrices(self) -> int:
        """Matrices that a product of matrices computes; 1 for other kernels."""
        dst = self.memory("dst") if self.kind == "matmul" else None
        return 1 if dst is None else prod(dst.dims[:-2])

    @property
    def is_small(self) -> bool:
        """Whether the kernel runs on one thread, however many threads its program has.

        Between two kernels, about half of the operands move from the caches of one core to those
        of another one. For a small kernel this takes longer than its work on one thread. Packed
        weights do not move between cores.
        """
        return (
            self.flops <= SMALL_FLOPS
            and self.nbytes <= SMALL_NBYTES
            and self._packed_nbytes <= SMALL_WEIGHTS
        )

    @property
    def _packed_nbytes(self) -> int:
        """Bytes of weights in an order of the kernel's own."""
        weights = self.memory("weights")
        is_packed = weights is not None and (weights.tag == "any" or not weights.tag.isalpha())
        return weights.nbytes if weights is not None and is_packed else 0

    def __str__(self) -> str:
        memories = " ".join(f"{role}={memory}" for role, memory in self.memories)
        shown = [key if key == SCALING else f"{key}={value}" for key, value in self.params]
        params = " ".join(shown)
        post = " ".join(f"+{post}" for post in self.post_ops)
        return " ".join(part for part in (self.kind, memories, params, post) if part)


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor of the node, or one that the runtime makes.

    Attributes:
        side: ``"in"`` and ``"out"`` for inputs and outputs; ``"fill"`` for a constant tensor whose
            elements all are ``index``; ``"numbers"`` for a constant tensor of given elements;
            ``"ahead"`` for inputs of the node that computes input 0, where one kernel computes
            both.
        index: which input or output; the element for ``"fill"``.
        numbers: the elements for ``"numbers"``.
    """

    side: Literal["in", "out", "fill", "numbers", "ahead"]
    index: int
    numbers: tuple[float, ...] = ()


def scale_args(role: str, quantization: Quantization | None) -> tuple[Arg, ...]:
    """Return the arguments with the scale and the zero point of a quantized tensor, if it is one.

    Args:
        role: of the tensor; those of its numbers are ``<role>_scale`` and ``<role>_zero``. A zero
            point of 0 has no argument.
        quantization: with one scale; None for a tensor of real numbers.
    """
    if quantization is None:
        return ()
    return tuple(
        Arg(f"{role}_{name}", Operand("numbers", 0, tuple(map(float, numbers))))
        for name, numbers in (("scale", quantization.scales), ("zero", quantization.zero_points))
        if name == "scale" or any(numbers)
    )


def scale_memories(args: Iterable[Arg]) -> tuple[tuple[str, MemorySpec], ...]:
    """Return the memories of arguments of scales and zero points, by role."""
    return tuple(
        (
            arg.role,
            MemorySpec((len(arg.operand.numbers),), "a", dtype=_NUMBERS[arg.role.split("_")[1]]),
        )
        for arg in args
    )


_NUMBERS = {"scale": "f32", "zero": "s32"}


def input_of(index: int) -> Operand:
    """Return the operand that is input ``index`` of the node."""
    return Operand("in", index)


def output_of(index: int = 0) -> Operand:
    """Return the operand that is output ``index`` of the node."""
    return Operand("out", index)


@dataclass(frozen=True, slots=True)
class Arg:
    """What a role of a kernel is bound to.

    Attributes:
        role: a role of the :class:`KernelSpec`, or ``post0``, ``post1``, ... for the operands of
            binary post-ops.
        operand: the tensor of the node.
        offset: elements from the start of its storage.
        reshape: for constants, the shape to give the array (in the user's order) first.
        permute: for constants, the permutation to canonical order after that.
        grid: for constants that are read as integers, what these stand for.
        affine: for constants of real numbers, a factor and a term to apply to each element.
    """

    role: str
    operand: Operand
    offset: int = 0
    reshape: tuple[int, ...] | None = None
    permute: tuple[int, ...] | None = None
    grid: Grid | None = None
    affine: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One execution of a kernel on tensors of the node."""

    spec: KernelSpec
    args: tuple[Arg, ...]


@dataclass(frozen=True, slots=True)
class Fill:
    """Fill an output with a value before the calls.

    Attributes:
        count: number of float32 elements.
        value: what to store.
    """

    count: int
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class Alias:
    """Bytes shared between an input and an output, so that nothing moves.

    Attributes:
        input: index of the input.
        output: index of the output.
        offset: elements between the start of the smaller and of the larger tensor's storage.
        kind: ``"view"``: the output lies inside the input. ``"place"``: the input is produced
            inside the output. ``"accumulate"``: the output starts as the input's bytes, which are
            overwritten (a copy is made first where another reader still needs them).
            ``"in place"``: the output may overwrite the input after its last reader.
    """

    input: int
    output: int
    offset: int
    kind: Literal["view", "place", "accumulate", "in place"]


@dataclass(frozen=True, slots=True)
class Packed:
    """A constant input as it is stored before the run, where a target says which format it takes.

    Attributes:
        input: which input of the node.
        format: its storage.
        reshape: the shape to give the array (in the user's order) first.
        permute: the permutation to the order of ``format.axes`` after that.
    """

    input: int
    format: Format
    reshape: tuple[int, ...]
    permute: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of ``format.axes``."""
        return tuple(self.reshape[axis] for axis in self.permute)


@dataclass(frozen=True, slots=True)
class Element:
    """What the stored elements of a tensor are, where they are not of the tensor's own type."""

    dtype: DType | None = None
    quantization: Quantization | None = None


_OWN = Element()


@dataclass(frozen=True, slots=True)
class KernelOption:
    """One way to compute a node.

    Formats and elements are apart, as kernels are described by formats first and by elements
    second. What plans choose from are both together: :attr:`needs` and :attr:`makes`.

    Attributes:
        algorithm: its name in reports: ``"direct"``, ``"view"``, ``"in place"``, ``"copy"``, ...
        inputs: the storage format that each input must have; None for constants and absent ones.
        outputs: the storage format of each output.
        calls: the kernels to run, in order.
        aliases: shared bytes.
        fill: a fill of output 0 before the calls.
        packed: constant inputs whose format the option knows; others are chosen by the kernel.
        approximate: whether rounding errors are those of another algorithm than the definition.
        held: not empty where nothing runs, nothing is stored, and the only reader's kernel computes
            the outputs as well; names the kind of kernel that does.
        ahead: where this kernel computes input 0, too, the option of the node that makes it.
        elements: the stored elements of each input and output, in this order; empty where all
            tensors are stored in their own type.
    """

    algorithm: str
    inputs: tuple[Format | None, ...]
    outputs: tuple[Format, ...]
    calls: tuple[Call, ...] = ()
    aliases: tuple[Alias, ...] = ()
    fill: Fill | None = None
    packed: tuple[Packed, ...] = ()
    approximate: bool = False
    held: str = ""
    ahead: KernelOption | None = None
    elements: tuple[Element, ...] = ()

    @property
    def needs(self) -> tuple[Storage | None, ...]:
        """The storage that each input must have; None for constants and absent ones."""
        elements = self.elements[: len(self.inputs)] or (_OWN,) * len(self.inputs)
        return tuple(
            [
                None if fmt is None else Storage(fmt, element.dtype, element.quantization)
                for fmt, element in zip(self.inputs, elements, strict=True)
            ]
        )

    @property
    def makes(self) -> tuple[Storage, ...]:
        """The storage of each output."""
        elements = self.elements[len(self.inputs) :] or (_OWN,) * len(self.outputs)
        return tuple(
            [
                Storage(fmt, element.dtype, element.quantization)
                for fmt, element in zip(self.outputs, elements, strict=True)
            ]
        )

    @property
    def is_joint(self) -> bool:
        """Whether it goes only together with a certain option of another node."""
        return bool(self.held) or self.ahead is not None

    @property
    def transformed_nbytes(self) -> int:
        """Bytes of weights that its kernels transform before the run."""
        return sum(call.spec.transformed_nbytes for call in self.calls)

    @property
    def is_view(self) -> bool:
        """Whether nothing runs, as the results lie in bytes that are there."""
        return not self.calls and self.fill is None and not self.held


def behind_ahead(
    ahead: KernelOption,
    held: str,
    *,
    algorithm: str,
    outputs: tuple[Format, ...],
    calls: tuple[Call, ...],
    inputs: tuple[Format | None, ...] = (),
) -> KernelOption:
    """Return an option that computes a node together with the one ahead of it.

    Args:
        ahead: an option of the node ahead; its results are stored nowhere.
        held: names the kind of kernel.
        algorithm: of both nodes.
        outputs: the storage format of each output.
        calls: what computes both nodes; see :func:`from_ahead`.
        inputs: the formats of further inputs than the one that is computed.
    """
    first = KernelOption(
        f"by its reader, {held}",
        ahead.inputs,
        ahead.outputs,
        approximate=ahead.approximate,
        held=held,
    )
    return KernelOption(
        algorithm,
        (*ahead.outputs, *inputs),
        outputs,
        calls,
        approximate=ahead.approximate,
        ahead=first,
    )


def from_ahead(arg: Arg) -> Arg:
    """Return an argument of a producer as an argument of its consumer."""
    if arg.operand.side != "in":
        return arg
    return replace(arg, operand=Operand("ahead", arg.operand.index))


class KernelContext(Protocol):
    """What a target may ask about a node that it offers kernels for."""

    @property
    def node(self) -> Node:
        """The node."""
        ...

    def value(self, name: str) -> Value:
        """Return a value of the graph."""
        ...

    def is_constant(self, name: str) -> bool:
        """Return whether a value is known before the run."""
        ...

    def formats(self, name: str) -> Mapping[str, Format]:
        """Return the storage formats that the target offers for a value, by kind.

        ``"plain"`` is always among the kinds; values without known axes have no other.
        """
        ...

    def may_place(self, index: int) -> bool:
        """Return whether input ``index`` may be produced inside an output of this node."""
        ...

    def ahead(self) -> KernelContext | None:
        """Return the context of the node whose result one kernel could compute with this node's.

        That is the one that makes input 0, where no other node reads it, and the target joins
        this node's operator with that of the other one.
        """
        ...

    def behind(self) -> KernelContext | None:
        """Return the context of the node of which this one is ahead."""
        ...
