"""Post-ops of kernels: which operators may be one, and from the graph's form to the library's.

The pass ``fuse_post_ops`` asks for :func:`all_post_ops`. Operands have the format of the result.
"""

from __future__ import annotations

from stridewise.classes import dataclass
from stridewise.errors import GraphError
from stridewise.formats import Format
from stridewise.graph import Node
from stridewise.ops.activation import SNAPS
from stridewise.targets.kernels import Alias, Arg, MemorySpec, PostOpSpec, input_of
from stridewise.targets.onednn.activation import ELTWISE, eltwise_steps

__all__ = [
    "BINARY_ALGORITHMS",
    "Fused",
    "all_post_ops",
    "fused",
    "input_formats",
    "takes_snap",
    "unknown_post_op",
]

BINARY_ALGORITHMS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "maximum": "max",
    "minimum": "min",
}

_OWN_ELTWISE = frozenset(
    {"abs", "clip", "elu", "exp", "gelu_erf", "hardsigmoid", "hardswish", "linear"}
    | {"logistic", "pow", "relu", "sqrt", "swish", "tanh"}
)
_OWN_BINARY = frozenset({"add", "sub", "mul", "div", "max", "min"})
"""What the core's kernels apply, with ``_OWN_ELTWISE``: see ``native/post_ops/parse.cpp``."""


@dataclass(frozen=True, slots=True)
class Fused:
    """The translated post-ops of one node.

    Attributes:
        specs: for the kernel.
        args: the operands of binary post-ops.
        aliases: the operand that the destination starts from, where one is summed in place.
        operands: which inputs of the node are operands; they have the output's format.
    """

    specs: tuple[PostOpSpec, ...]
    args: tuple[Arg, ...]
    aliases: tuple[Alias, ...]
    operands: tuple[int, ...]


def all_post_ops(_node: Node) -> frozenset[str]:
    """Return the post-ops of convolutions and matrix products, which take any number."""
    return frozenset((*ELTWISE, *BINARY_ALGORITHMS))


def fused(node: Node, memory: MemorySpec, *, accumulate: bool) -> Fused:
    """Translate the post-ops of a node whose output is described by ``memory``.

    Args:
        node: that applies them.
        memory: its destination.
        accumulate: add a leading ``add`` operand in place (oneDNN's ``sum``) instead of reading
            it from a buffer of its own (``binary_add``).

    Raises:
        GraphError: a post-op is a function that the library does not have.
    """
    specs: list[PostOpSpec] = []
    args: list[Arg] = []
    aliases: list[Alias] = []
    operands: list[int] = []
    for position, post in enumerate(node.post_ops):
        if post.operand is None:
            steps = eltwise_steps(post.op, post.alpha, post.beta)
            if not steps:
                where = f"node {node.name!r} ({node.op})"
                raise GraphError.at(where, expected="post-ops of the library", found=post.op)
            specs += (PostOpSpec("eltwise", *step) for step in steps)
            continue
        operands.append(post.operand)
        if accumulate and position == 0 and post.op == "add":
            specs.append(PostOpSpec("sum"))
            aliases.append(Alias(post.operand, 0, 0, "accumulate"))
            continue
        specs.append(PostOpSpec("binary", BINARY_ALGORITHMS[post.op], operand=memory))
        args.append(Arg(f"post{len(specs) - 1}", input_of(post.operand)))
    return Fused(tuple(specs), tuple(args), tuple(aliases), tuple(operands))


def takes_snap(node: Node) -> frozenset[str]:
    """Return the post-ops of kernels that take no others: a rounding to a grid, and then relu."""
    if not node.post_ops:
        return frozenset(SNAPS)
    return frozenset({"relu"}) if node.post_ops[-1].op in SNAPS else frozenset()


def input_formats(
    node: Node, own: tuple[Format | None, ...], post: Fused, result: Format
) -> tuple[Format | None, ...]:
    """Return the formats of all inputs of a node: its own ones, then its post-ops' operands."""
    formats = list(own) + [None] * (len(node.inputs) - len(own))
    for index in post.operands:
        formats[index] = result
    return tuple(formats)


def unknown_post_op(post_ops: tuple[PostOpSpec, ...], *, rounds: bool = False) -> str:
    """Return a post-op that the core's kernels cannot apply, or ``""``.

    Args:
        post_ops: of a kernel.
        rounds: whether the kernel may round to a grid. Those whose sums differ from direct ones do
            not, because a sum next to a half would be rounded to the other side.
    """
    for post in post_ops:
        known = {"eltwise": _OWN_ELTWISE, "binary": _OWN_BINARY}.get(post.kind)
        if (
            known is not None
            and not (rounds and post.algorithm == "round")
            and post.algorithm not in known
        ):
            return post.algorithm
    return ""
