"""Join local response normalizations that exporters write as several nodes.

PyTorch has no operator for them: the mean of squares over a window of channels is a pooling of the
image with one more axis.
"""

from __future__ import annotations

from stridewise.graph import Attr, Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.data_format import is_turned

__all__ = ["recognize_lrn"]

_IMAGE = 4
"""Axes of the tensors that have fast kernels: the library's others are loops over elements."""


def _made(rewriter: Rewriter, name: str, op: str) -> Node | None:
    """Return the node of one operator that gives a value to one other node."""
    node = rewriter.producer(name)
    fits = node is not None and node.op == op and not node.post_ops
    return node if fits and rewriter.only_reader(name, once=False) is not None else None


def _with_number(rewriter: Rewriter, name: str, op: str) -> tuple[str, float] | None:
    """Match a sum or product with a number, and return the other operand and the number."""
    node = _made(rewriter, name, op)
    for value, other in (node.inputs, node.inputs[::-1]) if node else ():
        number = rewriter.scalar(other)
        if number is not None:
            return value, number
    return None


def _is_over_channels(rewriter: Rewriter, pool: Node, shape: tuple[int, ...]) -> bool:
    """Return whether a mean is that of a window around each channel of an image of a shape."""
    inner, kernel = rewriter.value(pool.inputs[0]).shape, pool.ints_attr("kernel")
    rank, size = len(kernel), kernel[0]
    half = (size // 2, *(0,) * (rank - 1))
    return (
        len(shape) == _IMAGE
        and not is_turned(pool)
        and inner[:3] == (shape[0], 1, shape[1])
        and size % 2 == 1
        and set(kernel[1:]) <= {1}
        and set(pool.ints_attr("strides", (1,))) == {1}
        and set(pool.ints_attr("dilations", (1,))) == {1}
        and pool.ints_attr("pads", (0,) * (2 * rank)) == half * 2
        and (size == 1 or pool.int_attr("count_include_pad", 0) == 1)
    )


def _squares(rewriter: Rewriter, name: str) -> tuple[str, int] | None:
    """Match the mean of squares over a window of channels; return the image and the size."""
    back = _made(rewriter, name, "reshape")
    pool = _made(rewriter, back.inputs[0], "avg_pool") if back else None
    view = _made(rewriter, pool.inputs[0], "reshape") if pool else None
    square = _made(rewriter, view.inputs[0], "mul") if view else None
    if pool is None or square is None or square.inputs[0] != square.inputs[1]:
        return None
    x = square.inputs[0]
    shape = rewriter.value(x).shape
    same = rewriter.value(name).shape == shape
    fits = same and _is_over_channels(rewriter, pool, shape)
    return (x, pool.ints_attr("kernel")[0]) if fits else None


def _matched(rewriter: Rewriter, node: Node) -> Node | None:
    """Match ``x / (bias + alpha * mean(x * x)) ** beta``."""
    root = _made(rewriter, node.inputs[1], "power") if node.op == "div" else None
    raised = _with_number(rewriter, root.inputs[0], "add") if root else None
    scaled = _with_number(rewriter, raised[0], "mul") if raised else None
    found = _squares(rewriter, scaled[0]) if scaled else None
    if root is None or raised is None or scaled is None or found is None:
        return None
    x, size = found
    numbers = {"alpha": scaled[1], "beta": root.float_attr("alpha", 1.0), "bias": raised[1]}
    if node.post_ops or node.inputs[0] != x or numbers["bias"] <= 0 or numbers["alpha"] < 0:
        return None
    attrs: dict[str, Attr] = {**numbers, "size": size}
    return Node(node.name, "lrn", (x,), node.outputs, tuple(sorted(attrs.items())))


def recognize_lrn(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with local response normalizations as single nodes; it refuses nothing."""
    rewriter = Rewriter(graph)
    for node in rewriter.nodes():
        found = _matched(rewriter, node)
        if found is not None:
            rewriter.replace(node, found)
    return rewriter.finish(), ()
