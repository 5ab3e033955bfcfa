"""The work in the steps of a compiled model: operations and bytes, whatever computes them.

Every step is described by the ways in which it could be done: the one that the definition of the
operator says, and for convolutions of 3x3 also Winograd's with fewer multiplications and larger
weights. From the measured limits of the machine follows the least time that each way takes; no
kernel is faster, so the sums over a model's steps are bounds that hold for anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import cast

from machine import Limits

from stridewise.dtypes import dtype_of
from stridewise.program import CopyStep, KernelStep, Program, Step
from stridewise.targets.kernels import KernelSpec, MemorySpec
from stridewise.targets.onednn.depthwise import ALONE
from stridewise.targets.onednn.depthwise import KIND as EXPANSION
from stridewise.targets.onednn.winograd import KIND as WINOGRAD

__all__ = ["CLASSES", "Bound", "StepWork", "Way", "bound", "works"]

CLASSES = (
    "Winograd", "direct, larger windows", "direct, 1x1", "direct, groups",
    "matrix products", "pooling", "moves", "other",
)  # fmt: skip
"""Kinds of steps that tables and pictures tell apart."""

_TILES = (2, 4, 6)
_WINDOW = 3
_MOVES = frozenset({"reorder", "concat", "shuffle"})
_PRODUCTS = frozenset({"matmul", "inner_product"})


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute a step.

    Attributes:
        name: ``"definition"``, ``"winograd F(2x2)"`` and so on.
        operations: multiplications and additions; of Winograd's ways those of the products alone.
        weight_nbytes: constants that are read.
    """

    name: str
    operations: float
    weight_nbytes: int


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a step has to do.

    Attributes:
        node: the node or tensor that it is for.
        kind: one of :data:`CLASSES`.
        executed: operations of the kernel that was chosen, those on padding included.
        activation_nbytes: tensors read and written, each once.
        ways: what is known to compute it, the definition first.
    """

    node: str
    kind: str
    executed: float
    activation_nbytes: int
    ways: tuple[Way, ...]

    @property
    def operations(self) -> float:
        """Operations by the definition of the operator."""
        return self.ways[0].operations

    @property
    def nbytes(self) -> int:
        """Bytes by the definition of the operator."""
        return self.activation_nbytes + self.ways[0].weight_nbytes


@dataclass(frozen=True, slots=True)
class Bound:
    """The least time of a step or of a model, in nanoseconds.

    Attributes:
        arithmetic: operations by definition over the peak.
        fewest: the fewest known operations over the peak.
        memory: bytes over the bandwidth of the levels that hold them.
        direct: arithmetic or memory, whichever takes longer; the sum over the steps of a model.
        roofline: the same for the fastest of all ways.
    """

    arithmetic: float
    fewest: float
    memory: float
    direct: float
    roofline: float

    def __add__(self, other: Bound) -> Bound:
        return Bound(
            self.arithmetic + other.arithmetic,
            self.fewest + other.fewest,
            self.memory + other.memory,
            self.direct + other.direct,
            self.roofline + other.roofline,
        )


def _nbytes(memory: MemorySpec) -> int:
    return dtype_of(memory.dtype).itemsize * prod(memory.dims)


def _is_dense_window(spec: KernelSpec, dst: MemorySpec) -> bool:
    """Return whether a convolution is one that Winograd's algorithm is for."""
    if spec.kind == WINOGRAD:
        return True
    weights, params = spec.memory("weights"), dict(spec.params)
    if spec.kind != "convolution" or weights is None or len(dst.dims) != 4:
        return False
    once = (params["strides"], params["dilations"]) == ((1, 1), (1, 1))
    return once and weights.dims[2:] == (_WINDOW, _WINDOW)


def _ways(spec: KernelSpec, constant_nbytes: int) -> Iterator[Way]:
    """Yield the ways to compute what a kernel computes.

    Those of Winograd's algorithm are counted with whole tiles and no padding of channels:
    F(m x m, r x s) takes (m + r - 1)(m + s - 1) multiplications for m x m results (Lavin and Gray,
    arXiv:1509.09308), and one of a single row of taps does nothing along the other axis.
    """
    src, dst = spec.memory("src"), spec.memory("dst")
    if src is None or dst is None or not _is_dense_window(spec, dst):
        yield Way("definition", spec.flops, constant_nbytes)
        return
    images, outputs, height, width = dst.dims
    window, groups = (_WINDOW, _WINDOW), 1
    if spec.kind == WINOGRAD:
        params = dict(spec.params)
        pool = cast("int", params.get("pool", 1))
        height, width = height * pool, width * pool
        window, groups = cast("tuple[int, int]", params["window"]), cast("int", params["groups"])
    pairs = src.dims[1] * outputs // groups
    weights = spec.memory("weights")
    others = constant_nbytes - (0 if weights is None else _nbytes(weights))
    taps = prod(window)
    yield Way("definition", 2.0 * taps * pairs * images * height * width, others + 4 * taps * pairs)
    for tile in _TILES:
        high, wide = (tile if extent > 1 else 1 for extent in window)
        points = (high + window[0] - 1) * (wide + window[1] - 1)
        tiles = images * -(-height // high) * -(-width // wide)
        name = f"winograd F({high}x{wide})"
        yield Way(name, 2.0 * points * pairs * tiles, others + 4 * points * pairs)


def _kind(spec: KernelSpec) -> str:
    """Return the class of a kernel."""
    if spec.kind == WINOGRAD:
        return "Winograd"
    if spec.kind == EXPANSION:  # nearly all of its operations are those of the 1x1
        return "direct, 1x1"
    if spec.kind == ALONE:
        return "direct, groups"
    weights, dst = spec.memory("weights"), spec.memory("dst")
    if spec.kind in ("convolution", "deconvolution") and weights is not None and dst is not None:
        if len(weights.dims) > len(dst.dims):
            return "direct, groups"
        return "direct, 1x1" if prod(weights.dims[2:]) == 1 else "direct, larger windows"
    if spec.kind in _PRODUCTS:
        return "matrix products"
    return "pooling" if spec.kind == "pooling" else "moves" if spec.kind in _MOVES else "other"


def _arguments(spec: KernelSpec) -> Iterator[tuple[str, MemorySpec]]:
    """Yield all memory that a kernel goes through, by role."""
    yield from spec.memories
    for index, post in enumerate(spec.post_ops):
        if post.operand is not None:
            yield f"post{index}", post.operand
        if post.kind == "sum":  # what the destination holds is read first
            yield from ((role, memory) for role, memory in spec.memories if role == "dst")


def _kernel_work(step: KernelStep) -> StepWork:
    constant = {bound.role for bound in step.bindings if bound.ref.space == "constant"}
    packed = moving = 0
    for role, memory in _arguments(step.spec):
        if role in constant:
            packed += _nbytes(memory)
        else:
            moving += _nbytes(memory)
    ways = tuple(_ways(step.spec, packed))
    return StepWork(step.node, _kind(step.spec), step.spec.flops, moving, ways)


def _work(step: Step) -> StepWork:
    if isinstance(step, KernelStep):
        return _kernel_work(step)
    moved = 2 * step.nbytes if isinstance(step, CopyStep) else 4 * step.count
    return StepWork(step.node, "moves", 0.0, moved, (Way("definition", 0.0, 0),))


def works(program: Program) -> tuple[StepWork, ...]:
    """Return the work of every step of a program, in order."""
    return tuple(map(_work, program.steps))


def _memory_ns(step: StepWork, way: Way, limits: Limits, resident: float) -> float:
    """Return the least time that the bytes of a step take.

    Weights come back once a run, so they lie in the nearest level that holds all of the model.
    Activations may be as near as one step's tensors can be.
    """
    weights = way.weight_nbytes / limits.level(resident).gbytes_per_s["read"]
    near = limits.level(step.activation_nbytes)
    return weights + step.activation_nbytes / near.best


def bound(steps: Iterable[StepWork], limits: Limits, arena_nbytes: int) -> Bound:
    """Return the least time that steps take, one after the other.

    Args:
        steps: those of a model, or some of them.
        limits: of the machine.
        arena_nbytes: activations of the model, which share the caches with its weights.
    """
    steps = tuple(steps)
    resident = arena_nbytes + sum(step.ways[0].weight_nbytes for step in steps)
    total = Bound(0.0, 0.0, 0.0, 0.0, 0.0)
    for step in steps:
        pairs = [
            (way.operations / limits.peak, _memory_ns(step, way, limits, resident))
            for way in step.ways
        ]
        total += Bound(
            pairs[0][0],
            min(arithmetic for arithmetic, _ in pairs),
            pairs[0][1],
            max(pairs[0]),
            min(map(max, pairs)),
        )
    return total
