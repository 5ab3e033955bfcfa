"""Convolutions over one and three axes as convolutions of images, for which the core has kernels.

A tensor with one spatial axis is an image of one row. A volume is an image, or a batch of images,
where the window has one tap along axes that lie beside others in memory: with one along height and
width, these are the columns; with one along the depth and channels last, each slice is an image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod

from stridewise.formats import Block, Format
from stridewise.graph import Attr, Node, Refusal, TensorType, Value
from stridewise.ops.conv import geometry
from stridewise.ops.data_format import CHANNELS_FIRST
from stridewise.ops.geometry import canonical_shape, user_format
from stridewise.targets.kernels import KernelContext, KernelOption
from stridewise.targets.onednn.context_view import ContextView
from stridewise.targets.onednn.precision import OWN

__all__ = ["over_two_axes"]

_Groups = tuple[tuple[int, ...], ...]
"""For each axis of an image, the axes of the tensor that it stands for; none for a single row."""

_IMAGE = CHANNELS_FIRST[4]
_VIEWS: Mapping[int, tuple[_Groups, ...]] = {
    3: (((0,), (1,), (), (2,)),),
    5: (((0,), (1,), (2,), (3, 4)), ((0, 2), (1,), (3,), (4,))),
}
"""By the number of axes of a tensor, the ways to see it as an image."""


def over_two_axes(
    context: KernelContext,
    kernels: Callable[[KernelContext], Iterable[KernelOption | Refusal]],
) -> Iterator[KernelOption]:
    """Yield the core's kernels of a convolution over one or three axes.

    Args:
        context: the node, with weights as input 1.
        kernels: yields those of convolutions over two axes.
    """
    x, y = (context.value(name) for name in (context.node.inputs[0], context.node.outputs[0]))
    if x.origin is None or y.origin is None:
        return
    for groups in _VIEWS.get(len(x.shape), ()):
        if not _is_image(context, groups):
            continue
        view = _Image(context, groups)
        for option in kernels(view):
            if isinstance(option, Refusal) or option.is_joint:
                continue
            if all(call.spec.kind in OWN for call in option.calls):
                yield from view.restored(option)


def _is_image(context: KernelContext, groups: _Groups) -> bool:
    """Return whether the window has one tap, and nothing to skip, along axes that are joined."""
    node, taps = context.node, context.value(context.node.inputs[1]).shape
    strides, _, begins, ends = geometry(node, len(taps) - 2)
    joined = (axis - 2 for group in groups if len(group) > 1 for axis in group if axis > 1)
    return all(
        (taps[axis + 2], strides[axis], begins[axis], ends[axis]) == (1, 1, 0, 0) for axis in joined
    )


def _as_image(fmt: Format, *, has_slices: bool) -> Format | None:
    """Return the format of an image with the same bytes; None where there is none.

    Args:
        fmt: of a tensor with one or three spatial axes.
        has_slices: whether slices of a volume are images of their own.
    """
    _, channel, *spatial = fmt.axes
    size = fmt.multiple(channel)
    blocks = (Block("C", size),) if size > 1 else ()
    if fmt == Format(fmt.axes, (fmt.axes[0], *spatial, channel)):
        return Format(_IMAGE.axes, ("N", "H", "W", "C"))
    known = Format(fmt.axes, (*fmt.axes, *(Block(channel, block.size) for block in blocks)))
    # Slices are apart where channels are outside of the depth.
    return None if has_slices or fmt != known else Format(_IMAGE.axes, (*_IMAGE.axes, *blocks))


class _Image(ContextView):
    """What kernels of images see of a convolution over one or three axes."""

    def __init__(self, inner: KernelContext, groups: _Groups) -> None:
        super().__init__(inner)
        node = inner.node
        self._groups = groups
        operands = (node.inputs[post.operand] for post in node.post_ops if post.operand is not None)
        self._images = frozenset((node.inputs[0], *node.outputs, *operands))
        self._node = replace(node, attrs=tuple(sorted(self._attrs().items())))

    @property
    def node(self) -> Node:
        """The node, with a window over two axes."""
        return self._node

    def _attrs(self) -> dict[str, Attr]:
        node, rank = self.inner.node, len(self.inner.value(self.inner.node.inputs[0]).shape)
        strides, dilations, begins, ends = geometry(node, rank - 2)

        def along(numbers: tuple[int, ...], absent: int) -> tuple[int, ...]:
            return tuple(numbers[group[0] - 2] if group else absent for group in self._groups[2:])

        return {
            **dict(node.attrs),
            "dilations": along(dilations, 1),
            "pads": (*along(begins, 0), *along(ends, 0)),
            "strides": along(strides, 1),
        }

    def value(self, name: str) -> Value:
        """Return a value: images in canonical order, and weights with taps along two axes."""
        value = self.inner.value(name)
        if name == self.node.inputs[1]:
            extents = (*value.shape[:2], *self._extents(value.shape)[2:])
            return replace(value, type=TensorType(value.dtype, extents))
        if name not in self._images or value.origin is None:
            return value
        extents = self._extents(canonical_shape(value, CHANNELS_FIRST[len(value.shape)]))
        return replace(value, type=TensorType(value.dtype, extents), origin=_IMAGE)

    def _extents(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(prod(shape[axis] for axis in group) for group in self._groups)

    def formats(self, name: str) -> Mapping[str, Format]:
        """Return formats of images by kind; :meth:`restored` drops those of other bytes.

        Kernels ask for all kinds: blocks tell them the lanes of vectors.
        """
        offered = self.inner.formats(name).items()
        return {kind: _as_image(fmt, has_slices=False) or _IMAGE for kind, fmt in offered}

    def ahead(self) -> KernelContext | None:
        """Return None: the node ahead has other axes."""
        return None

    def behind(self) -> KernelContext | None:
        """Return None, as above."""
        return None

    def restored(self, option: KernelOption) -> Iterator[KernelOption]:
        """Yield an option with the tensors' own formats, if they have the same bytes."""
        node = self.inner.node
        offered = (self.inner.formats(name) for name in (node.inputs[0], node.outputs[0]))
        has_slices = len(self._groups[0]) > 1
        own = {
            _as_image(fmt, has_slices=has_slices): fmt
            for formats in offered
            for fmt in formats.values()
        }
        weights = user_format(self.inner.value(node.inputs[1]))
        inputs = [
            fmt if fmt is None or fmt.rank == 1 else weights if index == 1 else own.get(fmt)
            for index, fmt in enumerate(option.inputs)
        ]
        outputs = [own.get(fmt) for fmt in option.outputs]
        is_same = all(
            (a is None) == (b is None) for a, b in zip(inputs, option.inputs, strict=True)
        )
        found = tuple(fmt for fmt in outputs if fmt is not None)
        if is_same and len(found) == len(outputs):
            name = f"{option.algorithm}, as images"
            yield replace(option, algorithm=name, inputs=tuple(inputs), outputs=found)
