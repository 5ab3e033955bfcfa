"""Graphs of Stridewise as PyTorch modules, so that PyTorch runs the same model.

A graph becomes one ``torch.fx`` module: the generated code calls PyTorch's functions one after
another and drops each tensor behind its last use. Batch norms are folded and what is dead is gone
beforehand, by the passes of Stridewise; fused post-ops become calls of their own. Weights, like
feature maps, are kept channels-last. The table has the operators of the zoo and no others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stridewise.errors import UnsupportedError, describe
from stridewise.graph import Graph, Node, PostOp
from stridewise.ops import OPS
from stridewise.ops.data_format import canonical_order, inverse, is_turned
from stridewise.passes import passes_for, simplify
from stridewise.targets.onednn.resize import is_resampling
from stridewise.targets.onednn.target import ABILITY

__all__ = ["FUNCTIONS", "channels_last", "to_torch"]

Args = Sequence[Any]
"""Nodes of the ``torch.fx`` graph, None for absent inputs."""


class _Tracer:
    """Emits the calls of a module; shapes come from the graph of Stridewise."""

    def __init__(self, graph: Graph) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.functions: Any = self.torch.nn.functional
        self.fx: Any = importlib.import_module("torch.fx").Graph()
        self.graph = graph

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self.fx.call_function(function, args, options)

    def method(self, name: str, *args: Any) -> Any:
        return self.fx.call_method(name, args)

    def shape(self, node: Node) -> tuple[int, ...]:
        """Return the shape of the first input, channels-first where the operator needs it so."""
        shape = self.graph.value(node.inputs[0]).shape
        if not _turns(node):
            return shape
        return tuple(shape[axis] for axis in canonical_order(node, len(shape)))

    def padded(self, x: Any, node: Node, value: float = 0.0) -> tuple[Any, tuple[int, ...]]:
        """Return the input and its symmetric pads, padded beforehand where they are not."""
        spatial = len(self.shape(node)) - 2
        pads = node.ints_attr("pads", (0,) * (2 * spatial))
        begins, ends = pads[:spatial], pads[spatial:]
        if begins == ends:
            return x, begins
        both = [pad for axis in reversed(range(spatial)) for pad in (begins[axis], ends[axis])]
        return self.call(self.functions.pad, x, both, value=value), (0,) * spatial


def _turns(node: Node) -> bool:
    return OPS[node.op].origin == "anchor" and is_turned(node)


def _unknown(node: Node, what: str) -> UnsupportedError:
    return UnsupportedError(
        describe(
            f"node {node.name!r} ({node.op})",
            expected="what the conversion to PyTorch knows",
            found=what,
            fix="compare with other runtimes",
        )
    )


def _conv(tracer: _Tracer, node: Node, args: Args) -> Any:
    x, pads = tracer.padded(args[0], node)
    spatial = len(pads)
    return tracer.call(
        getattr(tracer.functions, f"conv{spatial}d"),
        x,
        args[1],
        args[2] if len(args) > 2 else None,
        stride=node.ints_attr("strides", (1,) * spatial),
        padding=pads,
        dilation=node.ints_attr("dilations", (1,) * spatial),
        groups=node.int_attr("groups", 1),
    )


def _conv_transpose(tracer: _Tracer, node: Node, args: Args) -> Any:
    spatial = len(tracer.shape(node)) - 2
    pads = node.ints_attr("pads", (0,) * (2 * spatial))
    more = tuple(begin - end for begin, end in zip(pads[:spatial], pads[spatial:], strict=True))
    if min(more) < 0:
        raise _unknown(node, f"pads {pads}")
    return tracer.call(
        getattr(tracer.functions, f"conv_transpose{spatial}d"),
        args[0],
        args[1],
        args[2] if len(args) > 2 else None,
        stride=node.ints_attr("strides", (1,) * spatial),
        padding=pads[:spatial],
        output_padding=more,
        groups=node.int_attr("groups", 1),
        dilation=node.ints_attr("dilations", (1,) * spatial),
    )


def _max_pool(tracer: _Tracer, node: Node, args: Args) -> Any:
    kernel = node.ints_attr("kernel")
    x, pads = tracer.padded(args[0], node, float("-inf"))
    if any(2 * pad > taps for pad, taps in zip(pads, kernel, strict=True)):
        raise _unknown(node, f"pads {pads} of more than half the window")
    return tracer.call(
        getattr(tracer.functions, f"max_pool{len(kernel)}d"),
        x,
        kernel,
        node.ints_attr("strides", (1,) * len(kernel)),
        pads,
        node.ints_attr("dilations", (1,) * len(kernel)),
    )


def _avg_pool(tracer: _Tracer, node: Node, args: Args) -> Any:
    kernel = node.ints_attr("kernel")
    spatial = len(kernel)
    pads = node.ints_attr("pads", (0,) * (2 * spatial))
    counted = bool(node.int_attr("count_include_pad", 0))
    dilated = node.ints_attr("dilations", (1,) * spatial) != (1,) * spatial
    if dilated or (pads[:spatial] != pads[spatial:] and not counted):
        raise _unknown(node, "dilations" if dilated else f"pads {pads}")
    x, begins = tracer.padded(args[0], node)
    strides = node.ints_attr("strides", (1,) * spatial)
    function = getattr(tracer.functions, f"avg_pool{spatial}d")
    return tracer.call(function, x, kernel, strides, begins, count_include_pad=counted)


def _matmul(tracer: _Tracer, node: Node, args: Args) -> Any:
    a, b, *rest = args
    bias = rest[0] if rest else None
    a = tracer.method("transpose", a, -1, -2) if node.int_attr("trans_a", 0) else a
    weights = node.inputs[1] in tracer.graph.constants
    if (
        node.int_attr("trans_b", 0)
        and weights
        and len(tracer.graph.value(node.inputs[1]).shape) == 2
    ):
        return tracer.call(tracer.functions.linear, a, b, bias)
    b = tracer.method("transpose", b, -1, -2) if node.int_attr("trans_b", 0) else b
    product = tracer.call(tracer.torch.matmul, a, b)
    return product if bias is None else tracer.call(tracer.torch.add, product, bias)


def _scale_shift(tracer: _Tracer, node: Node, args: Args) -> Any:
    x, *rows = args
    shape = (-1, *(1,) * (len(tracer.shape(node)) - 2))
    scale, shift = (tracer.method("reshape", row, shape) for row in rows)
    return tracer.call(tracer.torch.addcmul, shift, x, scale)


def _resize(tracer: _Tracer, node: Node, args: Args) -> Any:
    shape = tracer.graph.value(node.inputs[0]).shape
    mode = node.str_attr("mode")
    modes = {"nearest": "nearest-exact", "linear": {3: "linear", 4: "bilinear", 5: "trilinear"}}
    known = modes.get(mode)
    name = known.get(len(shape)) if isinstance(known, dict) else known
    wanted = node.ints_attr("shape")
    if name is None or wanted[:2] != shape[:2] or not is_resampling(node, shape):
        raise _unknown(node, f"mode {mode} from {shape} to {wanted}")
    align = None if mode == "nearest" else False
    return tracer.call(
        tracer.functions.interpolate, args[0], wanted[2:], mode=name, align_corners=align
    )


def _interpolate(tracer: _Tracer, node: Node, args: Args) -> Any:
    axis = node.int_attr("axis")
    moved = tracer.method("movedim", args[0], axis, -1)
    return tracer.method("movedim", tracer.call(tracer.functions.linear, moved, args[1]), -1, axis)


def _slice(tracer: _Tracer, node: Node, args: Args) -> Any:
    bounds = zip(*(node.ints_attr(key) for key in ("starts", "stops", "steps")), strict=True)
    result, shape = args[0], tracer.graph.value(node.inputs[0]).shape
    for axis, (start, stop, step) in enumerate(bounds):
        if step < 0:
            raise _unknown(node, f"step {step}")
        if (start, stop, step) != (0, shape[axis], 1):
            key = (slice(None),) * axis + (slice(start, stop, step),)
            result = tracer.call(_item, result, key)
    return result


def _item(x: Any, key: tuple[slice, ...]) -> Any:
    return x[key]


def _layer_norm(tracer: _Tracer, node: Node, args: Args) -> Any:
    x, *rows = args
    shape = tracer.graph.value(node.inputs[0]).shape
    axes = tuple(sorted(axis % len(shape) for axis in node.ints_attr("axes")))
    if axes != tuple(range(axes[0], axes[0] + len(axes))):
        raise _unknown(node, f"axes {axes}")
    last = tuple(range(len(shape) - len(axes), len(shape)))
    x = x if axes == last else tracer.method("movedim", x, axes, last)
    extents = tuple(shape[axis] for axis in axes)
    epsilon = node.float_attr("epsilon", 1e-5)
    result = tracer.call(tracer.functions.layer_norm, x, extents, *rows, eps=epsilon)
    return result if axes == last else tracer.method("movedim", result, last, axes)


def _lrn(tracer: _Tracer, node: Node, args: Args) -> Any:
    numbers = (node.float_attr("alpha", 1e-4), node.float_attr("beta", 0.75))
    bias, size = node.float_attr("bias", 1.0), node.int_attr("size")
    if size % 2 == 0:
        raise _unknown(node, f"size {size}")
    return tracer.call(tracer.functions.local_response_norm, args[0], size, *numbers, bias)


def _hard(tracer: _Tracer, node: Node, args: Args) -> Any:
    if not np.allclose(
        (node.float_attr("alpha", 1 / 6), node.float_attr("beta", 0.5)), (1 / 6, 0.5)
    ):
        raise _unknown(node, str(node.attrs))
    name = "hardswish" if node.op == "hard_swish" else "hardsigmoid"
    return tracer.call(getattr(tracer.functions, name), args[0])


def _swish(tracer: _Tracer, node: Node, args: Args) -> Any:
    if node.float_attr("alpha", 1.0) != 1:
        raise _unknown(node, str(node.attrs))
    return tracer.call(tracer.functions.silu, args[0])


def _clip(tracer: _Tracer, node: Node, args: Args) -> Any:
    bounds = node.float_attr("alpha", float("-inf")), node.float_attr("beta", float("inf"))
    return tracer.call(tracer.torch.clamp, args[0], *bounds)


def _reduce_mean(tracer: _Tracer, node: Node, args: Args) -> Any:
    keep = bool(node.int_attr("keepdims", 1))
    return tracer.call(tracer.torch.mean, args[0], node.ints_attr("axes"), keep)


def _gelu(tracer: _Tracer, node: Node, args: Args) -> Any:
    how = "tanh" if node.op == "gelu_tanh" else "none"
    return tracer.call(tracer.functions.gelu, args[0], approximate=how)


def _plain(name: str) -> Callable[[_Tracer, Node, Args], Any]:
    """Return the conversion of an operator that is a function of ``torch`` without options."""
    return lambda tracer, _node, args: tracer.call(getattr(tracer.torch, name), *args)


FUNCTIONS: Mapping[str, Callable[[_Tracer, Node, Args], Any]] = {
    "add": _plain("add"),
    "avg_pool": _avg_pool,
    "channel_shuffle": lambda tracer, node, args: tracer.call(
        tracer.torch.channel_shuffle, args[0], node.int_attr("groups")
    ),
    "clip": _clip,
    "concat": lambda tracer, node, args: tracer.call(
        tracer.torch.cat, list(args), node.int_attr("axis")
    ),
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "div": _plain("div"),
    "gelu": _gelu,
    "gelu_tanh": _gelu,
    "hard_sigmoid": _hard,
    "hard_swish": _hard,
    "interpolate": _interpolate,
    "layer_norm": _layer_norm,
    "lrn": _lrn,
    "matmul": _matmul,
    "max_pool": _max_pool,
    "maximum": _plain("maximum"),
    "minimum": _plain("minimum"),
    "mul": _plain("mul"),
    "reduce_mean": _reduce_mean,
    "relu": _plain("relu"),
    "reshape": lambda tracer, node, args: tracer.method(
        "reshape", args[0], node.ints_attr("shape")
    ),
    "resize": _resize,
    "scale_shift": _scale_shift,
    "sigmoid": _plain("sigmoid"),
    "slice": _slice,
    "softmax": lambda tracer, node, args: tracer.call(
        tracer.torch.softmax, args[0], node.int_attr("axis", -1)
    ),
    "sub": _plain("sub"),
    "swish": _swish,
    "tanh": _plain("tanh"),
    "transpose": lambda tracer, node, args: tracer.method(
        "permute", args[0], node.ints_attr("perm")
    ),
}
"""The function that emits each operator."""


def _post(node: Node, post: PostOp) -> Node:
    attrs = (("alpha", post.alpha), ("beta", post.beta))
    return Node(f"{node.name}+{post.op}", post.op, node.outputs[:1], node.outputs[:1], attrs)


def _emit(tracer: _Tracer, node: Node, args: Args) -> Any:
    """Emit one node with its post-ops and return its result."""
    own = [post.operand for post in node.post_ops if post.operand is not None]
    operands = [arg for index, arg in enumerate(args) if index not in own]
    for op in (node.op, *(post.op for post in node.post_ops)):
        if op not in FUNCTIONS:
            raise _unknown(node, op)
    turned = canonical_order(node, len(tracer.shape(node))) if _turns(node) else None
    if turned:
        operands[0] = tracer.method("permute", operands[0], turned)
    result = FUNCTIONS[node.op](tracer, node, operands)
    if turned:
        result = tracer.method("permute", result, inverse(turned))
    for post in node.post_ops:
        inputs = [result] if post.operand is None else [result, args[post.operand]]
        result = FUNCTIONS[post.op](tracer, _post(node, post), inputs)
    return result


def channels_last(tensor: Any) -> Any:
    """Return a tensor of four or five axes stored channels-last, others as they are."""
    torch: Any = importlib.import_module("torch")
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    wanted = formats.get(tensor.ndim)
    return tensor if wanted is None else tensor.contiguous(memory_format=wanted)


def to_torch(graph: Graph) -> Any:
    """Return a ``torch.nn.Module`` that computes a graph, for inference.

    It takes the inputs of the graph in their order as tensors of their shapes, and returns a tuple
    of its outputs. Tensors of four axes are best given channels-last, as its weights are.

    Raises:
        ImportError: PyTorch is not installed.
        UnsupportedError: the conversion does not know an operator, or some form of it.
    """
    simple = simplify(graph, passes_for(ABILITY)).graph
    tracer = _Tracer(simple)
    found: dict[str, Any] = {
        name: tracer.fx.placeholder(f"x{i}") for i, name in enumerate(simple.inputs)
    }
    root = tracer.torch.nn.Module()
    for index, (name, item) in enumerate(simple.constants.items()):
        root.register_buffer(
            f"c{index}", channels_last(tracer.torch.from_numpy(np.array(item.array)))
        )
        found[name] = tracer.fx.get_attr(f"c{index}")
    for node in simple.nodes:
        args = [found[name] if name else None for name in node.inputs]
        if len(node.outputs) != 1:
            raise _unknown(node, f"{len(node.outputs)} outputs")
        found[node.outputs[0]] = _emit(tracer, node, args)
    if simple.tail is not None:
        raise _unknown(simple.nodes[-1], "a tail of operators behind it")
    tracer.fx.output(tuple(found[name] for name in simple.outputs))
    tracer.fx.eliminate_dead_code()
    module = importlib.import_module("torch.fx").GraphModule(root, tracer.fx)
    return module.eval()
