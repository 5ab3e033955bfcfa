"""Gradient operators of aten, by the gradient rules that operators of graphs have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf
from typing import Any

import numpy as np

from stridewise.dtypes import dtype_of
from stridewise.frontends.torch.handlers.conv import conv_attrs
from stridewise.frontends.torch.handlers.matmul import (
    attention_weights,
    for_each_head,
    scale_of,
    scaled,
)
from stridewise.frontends.torch.handlers.pool import (
    adaptive_windows,
    averaged,
    avg_windows,
    windows,
)
from stridewise.frontends.torch.handlers.resize import RESIZES
from stridewise.frontends.torch.reader import Handler, Operand, Reader, Results, Traced
from stridewise.graph import Attr, Node, TensorType
from stridewise.ops.backward import Term, input_gradients
from stridewise.ops.registry import Array

__all__ = ["HANDLERS"]


class _Shaped:
    """A graph in which some names stand for values of which a rule reads no more than the type."""

    def __init__(self, r: Reader, shapes: Mapping[str, Sequence[int]]) -> None:
        self._builder = r.builder
        self._types = {n: TensorType(dtype_of("float32"), tuple(s)) for n, s in shapes.items()}

    def type(self, name: str) -> TensorType:
        return self._types.get(name) or self._builder.type(name)

    def op(self, op: str, inputs: Sequence[str], attrs: Mapping[str, Attr] | None = None) -> str:
        return self._builder.op(op, inputs, attrs)

    def node(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Attr] | None = None
    ) -> tuple[str, ...]:
        return self._builder.node(op, inputs, attrs)

    def constant(self, array: Array, name: str = "constant") -> str:
        return self._builder.constant(array, name)


_X, _Y = "x of the rule", "y of the rule"


def _gradients(
    r: Reader,
    op: str,
    gradient: Operand,
    inputs: Sequence[Operand],
    output: Operand | None = None,
    *,
    attrs: Mapping[str, Attr] | None = None,
    shape: Sequence[int] = (),
) -> tuple[Traced | None, ...]:
    """Return the gradients of the inputs of an operator.

    Args:
        r: the graph.
        op: the operator in the forward graph.
        gradient: of its result.
        inputs: its inputs; None for a first one whose elements the rule does not read.
        output: its result, if the rule reads it.
        attrs: of the operator.
        shape: of the input that is None.
    """
    names = tuple(_X if x is None else r.value(x) for x in inputs)
    made = _Y if output is None else r.value(output)
    node = Node(op, op, names, (made,), tuple(sorted((attrs or {}).items())))
    graph = _Shaped(r, {_X: shape})
    found = input_gradients(node, [r.value(gradient)], graph)
    like = [gradient if x is None else x for x in inputs] + [inputs[-1]] * len(found)
    return tuple(_typed(r, x, name) if name else None for x, name in zip(like, found, strict=False))


def _typed(r: Reader, x: Operand, name: str) -> Traced:
    """Return a value with the element type of an operand."""
    return r.like(x, name) if isinstance(x, Traced) else r.traced(name)


def _gradient(r: Reader, op: str, gradient: Operand, *inputs: Any, **options: Any) -> Traced:
    """Return the gradient of the first input; see :func:`_gradients`."""
    found = _gradients(r, op, gradient, *inputs, **options)[0]
    if found is None:
        raise r.refuse("an operand without a gradient")
    return found


def _masked(found: Sequence[Traced | None], mask: Sequence[bool]) -> Results:
    """Return the gradients that PyTorch asks for."""
    return tuple(x if wanted else None for x, wanted in zip(found, mask, strict=True))


def _term(r: Reader, x: Operand) -> Term:
    return Term(r.builder, r.value(x))


# --- activations ----------------------------------------------------------------------------------


def _of_input(op: str, **attrs: Attr) -> Handler:
    """Return the handler of a gradient that PyTorch computes from the operand."""

    def handler(r: Reader, gradient: Operand, x: Operand) -> Traced:
        return _gradient(r, op, gradient, [x], attrs=attrs)

    return handler


def _of_result(op: str) -> Handler:
    """Return the handler of a gradient that PyTorch computes from the result."""

    def handler(r: Reader, gradient: Operand, y: Operand) -> Traced:
        return _gradient(r, op, gradient, [None], y, shape=r.shape(y))

    return handler


def _kept(
    r: Reader, gradient: Operand, x: Operand, low: float | None, high: float | None = None
) -> Traced:
    """Return the gradient where x is above one bound and below another, and 0 elsewhere."""
    found = _term(r, gradient)
    for comparison, bound in (("greater", low), ("less", high)):
        if bound is not None:
            inside = _term(r, x).of(comparison, float(bound))
            found = inside.of("where", found, found.like(0.0))
    return _typed(r, gradient, found.name)


def _hardtanh(r: Reader, gradient: Operand, x: Operand, low: float, high: float) -> Traced:
    return _kept(r, gradient, x, low, high)


def _hardsigmoid(r: Reader, gradient: Operand, x: Operand) -> Traced:
    return r.emit("mul", [_kept(r, gradient, x, -3.0, 3.0), 1 / 6])


def _gelu(r: Reader, gradient: Operand, x: Operand, *, approximate: str = "none") -> Traced:
    op = "gelu_tanh" if approximate == "tanh" else "gelu"
    return _gradient(r, op, gradient, [x])


def _leaky_relu(r: Reader, gradient: Operand, x: Operand, slope: float, is_result: bool) -> Traced:
    if is_result and slope < 0:
        raise r.refuse("the result of a negative slope")  # x and its result have one sign else
    return _gradient(r, "leaky_relu", gradient, [x], attrs={"alpha": float(slope)})


def _elu(
    r: Reader,
    gradient: Operand,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    x: Operand,
) -> Traced:
    if is_result or input_scale != 1:
        raise r.refuse("a gradient from the result of elu, or with input_scale")
    attrs = {"alpha": float(alpha), "beta": float(scale)}
    return _gradient(r, "selu", gradient, [x], attrs=attrs)


def _softplus(r: Reader, gradient: Operand, x: Operand, beta: float, threshold: float) -> Traced:
    if beta != 1 or threshold < 15:  # from there on softplus and the identity are the same
        raise r.refuse(f"softplus with beta {beta} and threshold {threshold}")
    return _gradient(r, "softplus", gradient, [x])


def _softmax(op: str) -> Handler:
    def handler(
        r: Reader, gradient: Operand, y: Operand, axis: int, _dtype: object = None
    ) -> Traced:
        if not r.shape(y):
            raise r.refuse("a tensor without axes")
        attrs = {"axis": r.axis(y, axis)}
        return _gradient(r, op, gradient, [None], y, attrs=attrs, shape=r.shape(y))

    return handler


def _prelu(r: Reader, gradient: Operand, x: Operand, slopes: Operand) -> Results:
    """PyTorch adds the gradients of the slopes up afterwards."""
    dx = _gradient(r, "prelu", gradient, [x, slopes])
    below = _term(r, r.emit("mul", [gradient, x]))
    positive = _term(r, x).of("greater", 0.0)
    return dx, _typed(r, gradient, positive.of("where", below.like(0.0), below).name)


def _dropout(r: Reader, gradient: Operand, mask: Operand, scale: float) -> Traced:
    return r.emit("mul", [gradient, r.emit("mul", [mask, float(scale)])])


# --- convolution and pooling ----------------------------------------------------------------------


def _convolution(
    r: Reader,
    gradient: Operand,
    x: Operand,
    weight: Operand,
    _bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> Results:
    attrs = conv_attrs(r, x, weight, stride, padding, dilation, transposed, output_padding, groups)
    op = "conv_transpose" if transposed else "conv"
    return _masked(_gradients(r, op, gradient, [x, weight], attrs=attrs), mask)


def _window_axes(r: Reader, x: Operand, kernel: Sequence[int]) -> int:
    """Return over how many axes windows extend; one number may stand for all of them."""
    return max(len(kernel), len(r.shape(x)) - 2)


def _max_pool(
    r: Reader,
    gradient: Operand,
    x: Operand,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
) -> Traced:
    attrs = windows(r, x, _window_axes(r, x, kernel), kernel, stride, padding, dilation, ceil)
    return _gradient(r, "max_pool", gradient, [x], attrs=attrs)


def _avg_pool(
    r: Reader,
    gradient: Operand,
    x: Operand,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil: bool,
    count_padding: bool,
    divisor: int | None,
) -> Traced:
    count = _window_axes(r, x, kernel)
    window = (kernel, stride, padding, ceil, count_padding, divisor)
    attrs, factors = avg_windows(r, x, *window, count=count)
    for factor in factors:
        gradient = r.emit("mul", [gradient, factor])
    return _gradient(r, "avg_pool", gradient, [None], attrs=attrs, shape=r.shape(x))


def _adaptive_avg_pool(r: Reader, gradient: Operand, x: Operand) -> Traced:
    shape, wanted = r.shape(x), r.shape(gradient)[2:]
    if len(shape) != len(wanted) + 2:
        raise r.refuse("an image without a batch axis")
    even = adaptive_windows(shape, wanted)
    if isinstance(even, dict):
        return _gradient(r, "avg_pool", gradient, [None], attrs=even, shape=shape)
    return averaged(r, gradient, [matrix.T for matrix in even])


# --- attention ------------------------------------------------------------------------------------


def _attention(
    r: Reader,
    gradient: Operand,
    query: Operand,
    key: Operand,
    value: Operand,
    result: Operand,
    mask: Operand | None,
    causal: bool,
    scale: float | None,
) -> Results:
    """Source: Dao, Fu, Ermon, Rudra and Re, FlashAttention (2022), algorithm 4, without tiles."""
    factor = scale_of(r, query, scale)
    wide, shared = scaled(r, query, factor), r.shape(key)
    key, value = (for_each_head(r, x, query) for x in (key, value))
    weights = attention_weights(r, wide, key, mask, causal)
    of_weights = r.emit("matmul", [gradient, value], trans_b=1)
    row = (_term(r, gradient) * _term(r, result)).sum((len(of_weights.shape) - 1,))
    of_scores = _term(r, weights) * (_term(r, of_weights) - row)
    scores = _typed(r, query, of_scores.name)
    return (
        scaled(r, r.emit("matmul", [scores, key]), factor),
        _of_all_heads(r, r.emit("matmul", [scores, wide], trans_a=1), shared),
        _of_all_heads(r, r.emit("matmul", [weights, gradient], trans_a=1), shared),
    )


def _of_all_heads(r: Reader, gradient: Traced, shared: tuple[int, ...]) -> Traced:
    """Return the sums of gradients over the heads of queries that share keys and values."""
    if gradient.shape == shared:
        return gradient
    *batch, heads, rows, columns = gradient.shape
    count = shared[-3]
    apart = r.reshape(gradient, (*batch, count, heads // count, rows, columns))
    return r.emit("reduce_sum", [apart], axes=(len(batch) + 1,), keepdims=0)


# --- norms ----------------------------------------------------------------------------------------


def _row(r: Reader, x: Operand, rank: int) -> Traced:
    """Return a number for each channel, shaped so that it broadcasts to images."""
    return r.reshape(x, (r.shape(x)[0], *(1,) * (rank - 2)))


def _batch_norm(
    r: Reader,
    gradient: Operand,
    x: Operand,
    weight: Operand | None,
    mean: Operand,
    variance: Operand,
    epsilon: float,
    mask: Sequence[bool],
    *,
    bias: Operand | None = None,
    bounds: Sequence[float] = (),
) -> Results:
    weights = np.ones(r.shape(x)[1], np.float32)
    scale = r.builder.constant(weights) if weight is None else r.value(weight)
    operands = (r.value(x), r.value(gradient), scale, r.value(mean), r.value(variance))
    given = {"epsilon": epsilon}
    if bias is not None:
        operands = (*operands, r.value(bias))
        named = zip(("low", "high"), bounds, strict=True)
        given |= {key: bound for key, bound in named if not isinf(bound)}
    found = r.builder.node("batch_norm_gradient", operands, given)
    first, *rest = found
    return _masked([_typed(r, x, first), *map(r.traced, rest)], mask)


def _masked_batch_norm(
    r: Reader,
    gradient: Operand,
    x: Operand,
    weight: Operand,
    bias: Operand,
    mean: Operand,
    variance: Operand,
    epsilon: float,
    bounds: Sequence[float],
    mask: Sequence[bool],
) -> Results:
    given = (gradient, x, weight, mean, variance, epsilon, mask)
    return _batch_norm(r, *given, bias=bias, bounds=bounds)


def _known_batch_norm(
    r: Reader,
    gradient: Operand,
    x: Operand,
    weight: Operand | None,
    running_mean: Operand | None,
    running_variance: Operand | None,
    _mean: Operand | None,
    _inverse: Operand | None,
    training: bool,
    epsilon: float,
    mask: Sequence[bool],
) -> Results:
    """Return the gradients of a batch norm in evaluation mode."""
    if training:
        raise r.refuse("a batch norm of another graph")
    rank = len(r.shape(x))
    axes = (0, *range(2, rank))
    inverse = r.emit("power", [r.emit("add", [running_variance, epsilon])], alpha=-0.5)
    factor = inverse if weight is None else r.emit("mul", [inverse, weight])
    centered = r.emit("sub", [x, _row(r, running_mean, rank)])
    products = r.emit("mul", [gradient, centered])
    total = r.emit("reduce_sum", [products], axes=axes, keepdims=0)
    of_scale = r.emit("mul", [total, inverse])
    of_shift = r.emit("reduce_sum", [gradient], axes=axes, keepdims=0)
    of_x = r.emit("mul", [gradient, _row(r, factor, rank)])
    return _masked([of_x, of_scale, of_shift], mask)


def _layer_norm(
    r: Reader,
    gradient: Operand,
    x: Operand,
    normalized: Sequence[int],
    weight: Operand | None,
    epsilon: float,
    mask: Sequence[bool],
) -> Results:
    rank = len(r.shape(x))
    attrs = {"axes": tuple(range(rank - len(normalized), rank)), "epsilon": epsilon}
    operands = [x] if weight is None else [x, weight]
    found = _gradients(r, "layer_norm", gradient, operands, attrs=attrs)
    return _masked(found, mask)


def _group_norm(
    r: Reader,
    gradient: Operand,
    x: Operand,
    weight: Operand | None,
    groups: int,
    epsilon: float,
    mask: Sequence[bool],
) -> Results:
    attrs = {"groups": groups, "epsilon": epsilon}
    operands = [x] if weight is None else [x, weight]
    return _masked(_gradients(r, "group_norm", gradient, operands, attrs=attrs), mask)


# --- shapes ---------------------------------------------------------------------------------------


def _slice(
    r: Reader,
    gradient: Operand,
    sizes: Sequence[int],
    dim: int,
    start: int | None,
    end: int | None,
    step: int,
) -> Traced:
    axis, rank = dim % len(sizes), len(sizes)
    bounds = slice(start, end).indices(sizes[axis])
    starts, stops, steps = [0] * rank, list(sizes), [1] * rank
    starts[axis], stops[axis], steps[axis] = *bounds[:2], step
    attrs = {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}
    return _gradient(r, "slice", gradient, [None], attrs=attrs, shape=sizes)


def _select(r: Reader, gradient: Operand, sizes: Sequence[int], dim: int, index: int) -> Traced:
    axis = dim % len(sizes)
    at = index % sizes[axis]
    whole = r.reshape(gradient, (*sizes[:axis], 1, *sizes[axis + 1 :]))
    return _padded(r, whole, axis, at, sizes[axis] - at - 1)


def _padded(r: Reader, x: Operand, axis: int, begin: int, end: int) -> Traced:
    rank = len(r.shape(x))
    pads = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = begin, end
    return r.emit(
        "pad" if any(pads) else "identity", [x], **({"pads": tuple(pads)} if any(pads) else {})
    )


def _resize(forward: str) -> Handler:
    """Return the handler of the gradient of a resize.

    Args:
        forward: the resize, in the form that takes a size.
    """

    def handler(
        r: Reader, gradient: Operand, size: Sequence[int], shape: Sequence[int], *rest: Any
    ) -> Traced:
        attrs = RESIZES[forward](r, tuple(shape), size, *rest)
        return _gradient(r, "resize", gradient, [None], attrs=attrs, shape=shape)

    return handler


HANDLERS: dict[str, Handler] = {
    "aten._adaptive_avg_pool2d_backward.default": _adaptive_avg_pool,
    "aten._adaptive_avg_pool3d_backward.default": _adaptive_avg_pool,
    "aten._log_softmax_backward_data.default": _softmax("log_softmax"),
    "aten._prelu_kernel_backward.default": _prelu,
    "aten._softmax_backward_data.default": _softmax("softmax"),
    "aten.avg_pool2d_backward.default": _avg_pool,
    "aten.avg_pool3d_backward.default": _avg_pool,
    "aten.convolution_backward.default": _convolution,
    "aten.elu_backward.default": _elu,
    "aten.gelu_backward.default": _gelu,
    "aten.hardsigmoid_backward.default": _hardsigmoid,
    "aten.hardswish_backward.default": _of_input("hard_swish"),
    "aten.hardtanh_backward.default": _hardtanh,
    "aten.leaky_relu_backward.default": _leaky_relu,
    "aten.mish_backward.default": _of_input("mish"),
    "aten.native_batch_norm_backward.default": _known_batch_norm,
    "aten.native_dropout_backward.default": _dropout,
    "aten.select_backward.default": _select,
    "aten.sigmoid_backward.default": _of_result("sigmoid"),
    "aten.silu_backward.default": _of_input("swish"),
    "aten.slice_backward.default": _slice,
    "aten.softplus_backward.default": _softplus,
    "aten.tanh_backward.default": _of_result("tanh"),
    "aten.threshold_backward.default": _kept,
    "stridewise.attention_backward.default": _attention,
    "stridewise.batch_norm_backward.default": _batch_norm,
    "stridewise.group_norm_backward.default": _group_norm,
    "stridewise.layer_norm_backward.default": _layer_norm,
    "stridewise.masked_batch_norm_backward.default": _masked_batch_norm,
    "stridewise.max_pool_backward.default": _max_pool,
    **{name.replace(".default", "_backward.default"): _resize(name) for name in RESIZES},
}
