"""The work of the steps of a compiled model: operations and bytes, independent of the kernel.

Every step has one or more ways to compute it: the definition of the operator, and for 3x3
convolutions and large windows with strides also Winograd's algorithms with fewer multiplications
and larger weights. The measured
limits of the machine give a lower bound of the time of each way. The sums over the steps of a model
are lower bounds for any implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, cast

from machine import Limits

from stridewise.dtypes import dtype_of
from stridewise.program import CopyStep, KernelStep, Program, Step
from stridewise.targets.kernels import KernelSpec, MemorySpec
from stridewise.targets.onednn.conv1x1 import KIND as CONV1X1
from stridewise.targets.onednn.depthwise import ALONE, GROUPS, VOLUMES
from stridewise.targets.onednn.depthwise import KIND as EXPANSION
from stridewise.targets.onednn.winograd import KIND as WINOGRAD
from stridewise.targets.onednn.winograd import MOST_FOLDED, STRIDED, TILES, folded_window

__all__ = ["CLASSES", "Bound", "StepWork", "Way", "bound", "works"]

CLASSES = (
    "Winograd", "direct, larger windows", "direct, 1x1", "direct, groups",
    "matrix products", "pooling", "moves", "other",
)  # fmt: skip
"""Kinds of steps in tables and charts."""

_TILES = (2, 4, 6)
_WINDOW = 3
_MOVES = frozenset({"reorder", "concat", "shuffle"})
_PRODUCTS = frozenset({"matmul", "inner_product"})


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute a step.

    Attributes:
        name: ``"definition"``, ``"winograd F(2x2)"`` and so on.
        operations: multiplications and additions; for Winograd only those of the products.
        weight_nbytes: constants that are read.
    """

    name: str
    operations: float
    weight_nbytes: int


@dataclass(frozen=True, slots=True)
class StepWork:
    """The work of a step.

    Attributes:
        node: the node or tensor of the step.
        kind: one of :data:`CLASSES`.
        executed: operations of the chosen kernel, including those on padding.
        activation_nbytes: bytes of the tensors that are read and written, each counted once.
        ways: the known ways to compute it; the definition is the first.
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
    """Lower bounds of the time of a step or a model, in nanoseconds.

    Attributes:
        arithmetic: operations by definition over the peak.
        fewest: the fewest known operations over the peak.
        memory: bytes over the bandwidth of the levels that hold them.
        direct: the larger of arithmetic and memory; for a model, the sum over its steps.
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
    """Return whether Winograd's algorithm can compute a convolution."""
    if spec.kind in (WINOGRAD, STRIDED):
        return True
    weights, params = spec.memory("weights"), dict(spec.params)
    if spec.kind != "convolution" or weights is None or len(dst.dims) != 4:
        return False
    if len(weights.dims) != 4 or params["dilations"] != (1, 1):
        return False
    window, strides = weights.dims[2:], params["strides"]
    return window == (_WINDOW, _WINDOW) if strides == (1, 1) else bool(_folded(window, strides)[1])


def _folded(window: Any, strides: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the window of a convolution when s x s pixels are the channels of one, and its tiles.

    The tiles of windows without strides are those of 3x3 windows, whether there are kernels or not.
    """
    taps = folded_window(window, strides)
    return taps, _TILES if set(strides) == {1} else TILES.get(taps, ())


def _ways(spec: KernelSpec, constant_nbytes: int) -> Iterator[Way]:
    """Yield the ways to compute the operation of a kernel.

    Winograd's algorithm is counted with whole tiles and without padding of channels: F(m x m, r x
    s) takes (m + r - 1)(m + s - 1) multiplications for m x m results (Lavin and Gray,
    arXiv:1509.09308). A window with a single row of taps has no transform along the other axis.
    """
    src, dst = spec.memory("src"), spec.memory("dst")
    if src is None or dst is None or not _is_dense_window(spec, dst):
        yield Way("definition", spec.flops, constant_nbytes)
        return
    images, outputs, height, width = dst.dims
    params, weights = dict(spec.params), spec.memory("weights")
    pool, groups = (cast("int", params.get(name, 1)) for name in ("pool", "groups"))
    height, width = height * pool, width * pool
    given = params.get("window", () if weights is None else weights.dims[2:])
    whole, strides = cast("tuple[int, int]", given), params.get("strides", (1, 1))
    pairs = src.dims[1] * outputs // groups
    others = constant_nbytes - (0 if weights is None else _nbytes(weights))
    taps = prod(whole)
    direct = 2.0 * taps * pairs * images * height * width
    yield Way("definition", direct, others + 4 * taps * pairs)
    most = direct if set(cast("tuple[int, int]", strides)) == {1} else MOST_FOLDED * direct
    window, tile_sizes = _folded(whole, strides)
    pairs *= prod(cast("tuple[int, int]", strides))
    for tile in tile_sizes:
        high, wide = (tile if extent > 1 else 1 for extent in window)
        points = (high + window[0] - 1) * (wide + window[1] - 1)
        tiles = images * -(-height // high) * -(-width // wide)
        operations = 2.0 * points * pairs * tiles
        if operations < most:
            yield Way(f"winograd F({high}x{wide})", operations, others + 4 * points * pairs)


def _kind(spec: KernelSpec) -> str:
    """Return the class of a kernel."""
    if spec.kind in (WINOGRAD, STRIDED):
        return "Winograd"
    if spec.kind in (CONV1X1, EXPANSION):  # nearly all operations belong to the 1x1 convolution
        return "direct, 1x1"
    if spec.kind in (ALONE, GROUPS, VOLUMES):
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
    """Yield the memory of all arguments of a kernel, by role."""
    yield from spec.memories
    for index, post in enumerate(spec.post_ops):
        if post.operand is not None:
            yield f"post{index}", post.operand
        if post.kind == "sum":  # the previous content of the destination is read
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
    """Return a lower bound of the time of the memory accesses of a step.

    Weights are reused once per run, so they are in the nearest level that can hold the whole model.
    Activations are in the nearest level that can hold the tensors of the step.
    """
    weights = way.weight_nbytes / limits.level(resident).gbytes_per_s["read"]
    near = limits.level(step.activation_nbytes)
    return weights + step.activation_nbytes / near.best


def bound(steps: Iterable[StepWork], limits: Limits, arena_nbytes: int) -> Bound:
    """Return lower bounds of the time of steps that run one after the other.

    Args:
        steps: all or some steps of a model.
        limits: limits of the machine.
        arena_nbytes: bytes of the activations of the model, which share the caches with its
            weights.
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
