"""Nodes in channels-last as their kernels see them: in canonical order.

Kernels know canonical order only. Values are turned for them, and options are turned back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from stridewise.formats import Format
from stridewise.graph import Node, Refusal, Value
from stridewise.ops.data_format import (
    CHANNELS_FIRST,
    canonical_type,
    data_format,
    is_turned,
)
from stridewise.ops.geometry import user_format
from stridewise.targets.kernels import KernelContext, KernelOption
from stridewise.targets.onednn.context_view import ContextView
from stridewise.targets.onednn.family import refused

__all__ = ["CanonicalContext", "fitted", "misread"]


def _operands(node: Node) -> tuple[str, ...]:
    return tuple(node.inputs[post.operand] for post in node.post_ops if post.operand is not None)


class CanonicalContext(ContextView):
    """What kernels of an anchor see of a node that is not in canonical order.

    Storage formats are over named axes, so they are the same whatever the user's order.
    """

    def __init__(self, inner: KernelContext) -> None:
        """Wrap the context of an anchor with a data format."""
        super().__init__(inner)
        node = inner.node
        images = (node.inputs[0], *node.outputs)
        self._maps = frozenset((*images, *_operands(node)))
        rank = len(inner.value(images[0]).shape)
        values = [inner.value(name) for name in images if not inner.is_constant(name)]
        self._has_nd = any(v.origin is None and len(v.shape) == rank for v in values)

    def value(self, name: str) -> Value:
        """Return a value; feature maps in canonical order, with its Origin."""
        value = self.inner.value(name)
        if name not in self._maps or len(value.shape) not in CHANNELS_FIRST:
            return value
        type_ = canonical_type(self.node, value.type)
        return dataclasses.replace(value, type=type_, origin=CHANNELS_FIRST[len(type_.shape)])

    def formats(self, name: str) -> Mapping[str, Format]:
        """Return the storage formats of a value by kind.

        Where one of the images is ND, all have the user's order alone: kernels take a kind to be
        the same order of bytes in all of them.
        """
        value = self.inner.value(name)
        if name not in self._maps or (value.origin is not None and not self._has_nd):
            return self.inner.formats(name)
        users = data_format(self.node, len(value.shape))
        if users is None:
            raise AssertionError("inference has checked the data format")
        return {"plain": users, "channels-last": users}

    def ahead(self) -> KernelContext | None:
        """Return None: what lies between two nodes would have to be in canonical order, too."""
        return None

    def behind(self) -> KernelContext | None:
        """Return None, as above."""
        return None


def fitted(context: KernelContext, option: KernelOption) -> KernelOption | Refusal:
    """Return an option with its formats over the axes that each value really has.

    Values that two anchors disagree about are ND, and operands of post-ops may have axes other than
    the result. The bytes of both are in the user's order, so only options in that order fit them.
    """
    node = context.node
    operands = {post.operand for post in node.post_ops if post.operand is not None}
    if not operands and not is_turned(node):
        return option
    x, y = (context.value(name) for name in (node.inputs[0], node.outputs[0]))
    users = user_format(y)
    inputs, outputs = list(option.inputs), list(option.outputs)
    if is_turned(node):
        users = data_format(node, len(y.shape)) or users
        inputs[0] = inputs[0] if x.origin is not None else user_format(x)
        outputs[0] = outputs[0] if y.origin is not None else user_format(y)
    for index in operands:
        value, fmt = context.value(node.inputs[index]), option.inputs[index]
        if fmt is None or (value.origin == y.origin and y.origin is not None):
            continue
        if fmt != users:
            reason = f"{option.algorithm}: the axes of {value.name!r} are not those of the result"
            return refused(node, reason)
        inputs[index] = user_format(value)
    return dataclasses.replace(option, inputs=tuple(inputs), outputs=tuple(outputs))


def misread(node: Node) -> Refusal | None:
    """Return why a node that reads one value in two orders has no kernels."""
    own = len(node.inputs) - len(_operands(node))
    if node.inputs[0] not in node.inputs[1:own]:
        return None
    return refused(node, "its input is also one of its parameters")
