"""Channel shuffle: channels seen as [groups, C / groups] are transposed.

Source: ShuffleNet (Zhang et al. 2017). Exporters write it as Reshape, Transpose, Reshape; the pass
``recognize_shuffle`` turns that into this operator, so that blocked formats can flow through.
"""

from __future__ import annotations

from stridewise.graph import Node, TensorType
from stridewise.ops.backward import rule_of_term
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, groups = tensor(node, types, 0), node.int_attr("groups")
    needs(node, len(x.shape) >= 2, "an input with a channel axis", x)
    needs(node, groups > 0 and x.shape[1] % groups == 0, "groups that divide the channels", groups)
    return (x,)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x, groups = array(operands, 0), node.int_attr("groups")
    split = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    return (split.swapaxes(1, 2).reshape(x.shape),)


_vjp = rule_of_term(
    lambda node, x, _y, dy: dy.of("channel_shuffle", groups=x.shape[1] // node.int_attr("groups"))
)

register(
    "channel_shuffle",
    (1, 1),
    _infer,
    _evaluate,
    "anchor",
    vjp=_vjp,
    attributes={"groups": "integer"},
)
