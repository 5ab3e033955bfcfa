"""Nodes with tensors of integers: their elements, and post-ops on the real numbers of a result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf

from stridewise.classes import dataclass
from stridewise.dtypes import DType, dtype_of
from stridewise.graph import PostOp, Value
from stridewise.ops.activation import SNAPS
from stridewise.targets.kernels import (
    Arg,
    Call,
    Element,
    KernelContext,
    KernelOption,
    MemorySpec,
    Operand,
    PostOpSpec,
    input_of,
)
from stridewise.targets.onednn.activation import eltwise_steps
from stridewise.targets.onednn.post_ops import BINARY_ALGORITHMS
from stridewise.tensor import Grid, Quantization

__all__ = [
    "Chain",
    "Typed",
    "corrected_bias",
    "element_of",
    "grid_named",
    "stored_as",
    "stored_grid",
    "weights_grid",
    "with_types",
]

_POST = "post"
"""What the roles of arguments of post-ops begin with."""

_SIGNED = {"s8": 0, "u8": 128}
"""Zero points of weights that are whole numbers of 8 bits with a sign when it is taken off."""


def grid_named(context: KernelContext, name: str) -> Grid | None:
    """Return the grid of a value, None for one without, and for scales along an axis."""
    grid = context.value(name).grid if name else None
    return grid if grid is not None and grid.axis is None else None


def weights_grid(context: KernelContext, kind: str) -> Grid | None:
    """Return the grid of weights that are signed integers of 8 bits, with scales for results.

    Args:
        context: of a convolution or a matrix product.
        kind: ``"convolution"``, ``"deconvolution"`` or ``"matmul"``.
    """
    node = context.node
    name = node.inputs[1]
    grid = context.value(name).grid
    if grid is None or not context.is_constant(name):
        return None
    if set(grid.zero_points) != {_SIGNED[grid.dtype]}:
        return None
    rank = len(context.value(name).shape)
    results = 0 if kind == "convolution" or node.int_attr("trans_b", 0) else rank - 1
    if kind == "deconvolution":
        return grid if grid.axis is None else None
    return grid if grid.axis in (None, results) else None


def corrected_bias(weights: Value) -> Arg | None:
    """Return the bias with what rounding the weights subtracts from it; None where nothing is."""
    if weights.offer is None or not weights.bias:
        return None
    return Arg("bias", Operand("numbers", 0, weights.bias))


def stored_as(grid: Grid) -> tuple[DType, Quantization | None]:
    """Return the type of the integers of a grid, and what they stand for."""
    return dtype_of(grid.dtype), grid.quantization


def element_of(grid: Grid | None) -> Element:
    """Return the stored elements of a value on a grid; without one, its own."""
    return Element() if grid is None else Element(*stored_as(grid))


class Chain:
    """Post-ops on the real numbers of a result; linear ones next to each other become one."""

    def __init__(self, specs: Iterable[PostOpSpec] = ()) -> None:
        """Start with the post-ops of a kernel, whose operands are its own."""
        self.specs = list(specs)
        self.args: list[Arg] = []

    def eltwise(self, algorithm: str, alpha: float, beta: float) -> None:
        """Apply a function of the result."""
        last = self.specs[-1] if self.specs else None
        if algorithm == "linear" and last is not None and last.algorithm == "linear":
            alpha, beta = alpha * last.alpha, alpha * last.beta + beta
            self.specs.pop()
        self.specs.append(PostOpSpec("eltwise", algorithm, alpha, beta))

    def binary(self, post: PostOp, operand: MemorySpec, grid: Grid | None) -> None:
        """Apply a function of two operands, of which the second may be integers."""
        algorithm = BINARY_ALGORITHMS[post.op]
        scale, zero = (1.0, 0) if grid is None else (grid.scales[0], grid.zero_points[0])
        if grid is not None and algorithm != "mul":
            # The sum of v and (q - zero) * scale is (v / scale - zero + q) * scale.
            self.eltwise("linear", 1 / scale, -zero if algorithm == "add" else zero)
        self._append(algorithm, operand, Arg("", input_of(post.operand or 0)))
        if grid is not None:
            self.eltwise("linear", scale, -zero * scale if algorithm in ("max", "min") else 0.0)

    def store(self, grid: Grid) -> None:
        """Give integers of a grid, which the kernel rounds half to even and saturates.

        Bounds that saturation has, too, need no step of their own.
        """
        bounds = _bounds(self.specs[-1]) if self.specs else None
        if bounds is not None and grid.saturates(*bounds):
            self.specs.pop()
        self.eltwise("linear", 1 / grid.scales[0], 0.0)
        if grid.zero_points[0] % 2:
            # ONNX rounds before it adds the zero point; of odd ones halves go the other way.
            self.eltwise("round", 0.0, 0.0)
        self.eltwise("linear", 1.0, grid.zero_points[0])

    def taken_linear(self, *, has_term: bool) -> tuple[float, float]:
        """Take the linear function that comes first, as a factor and a term; else 1 and 0.

        Args:
            has_term: whether the term is taken as well; if not, a post-op still adds it.
        """
        first = self.specs[0] if self.specs else None
        if first is None or first.algorithm != "linear" or first.alpha <= 0:
            return 1.0, 0.0
        if first.beta and not has_term:
            self.specs[0] = replace(first, alpha=1.0)
            return first.alpha, 0.0
        self.specs.pop(0)
        # Arguments are named by the places of their post-ops.
        places = (int(arg.role.removeprefix(_POST)) for arg in self.args)
        self.args = [
            replace(arg, role=f"{_POST}{place - 1}")
            for arg, place in zip(self.args, places, strict=True)
        ]
        return first.alpha, first.beta

    def taken_last(self) -> float:
        """Take the factor that comes last; 1 where another function does."""
        last = self.specs[-1] if self.specs else None
        if last is None or last.algorithm != "linear" or last.beta:
            return 1.0
        self.specs.pop()
        return last.alpha

    def second(self, algorithm: str, operand: MemorySpec, arg: Arg, grid: Grid | None) -> None:
        """Apply a function of two operands with an argument of the kernel; no zero point."""
        self._append(algorithm, replace(operand, dtype=grid.dtype if grid else "f32"), arg)
        if grid is not None:
            self.eltwise("linear", grid.scales[0], 0.0)

    def _append(self, algorithm: str, operand: MemorySpec, arg: Arg) -> None:
        self.specs.append(PostOpSpec("binary", algorithm, operand=operand))
        self.args.append(replace(arg, role=f"{_POST}{len(self.specs) - 1}"))


def _before_storing(posts: tuple[PostOp, ...]) -> tuple[PostOp, ...]:
    """Return post-ops without the last rounding: what follows it are functions that keep its grid.

    These may as well come first: they are monotonic, and their bounds are on the grid.
    """
    last = max(index for index, post in enumerate(posts) if post.op in SNAPS)
    return (*posts[:last], *posts[last + 1 :])


def _bounds(spec: PostOpSpec) -> tuple[float, float] | None:
    """Return the least and the greatest result of a clip or a ReLU, which leave others as they are.

    Leaky ReLU is the library's ReLU with a factor.
    """
    if spec.algorithm == "clip":
        return spec.alpha, spec.beta
    return (0.0, inf) if spec.algorithm == "relu" and not spec.alpha else None


@dataclass(frozen=True, slots=True)
class Typed:
    """A node whose tensors are stored as integers or as real numbers.

    Attributes:
        context: of the node.
        sources: the grid of each input that is stored as integers.
        result: that of the result.
    """

    context: KernelContext
    sources: tuple[Grid | None, ...]
    result: Grid | None

    def posts(self, chain: Chain, destination: MemorySpec) -> None:
        """Add the post-ops of the node."""
        posts = self.context.node.post_ops
        for post in posts if self.result is None else _before_storing(posts):
            if post.operand is None:
                for step in eltwise_steps(post.op, post.alpha, post.beta):
                    chain.eltwise(*step)
                continue
            grid = self.sources[post.operand]
            dtype = "f32" if grid is None else grid.dtype
            chain.binary(post, replace(destination, dtype=dtype), grid)

    def option(self, option: KernelOption, call: Call, name: str) -> KernelOption:
        """Return an option with another call, on elements of the grids."""
        elements = (*map(element_of, self.sources), element_of(self.result))
        return replace(
            option, algorithm=name, calls=(call,), aliases=(), elements=elements, packed=()
        )


def stored_grid(context: KernelContext) -> Grid | None:
    """Return the grid by which the last post-op of a node rounds, or an operator after that."""
    node = context.node
    has_snap = any(post.op in SNAPS for post in node.post_ops)
    return grid_named(context, node.outputs[0]) if has_snap else None


def with_types(
    memories: Iterable[tuple[str, MemorySpec]], types: dict[str, str]
) -> list[tuple[str, MemorySpec]]:
    """Return memories with element types by role; float32 where a role has none."""
    return [(role, replace(item, dtype=types.get(role, "f32"))) for role, item in memories]
