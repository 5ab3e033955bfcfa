"""Windows that slide over spatial axes: explicit padding from ``auto_pad`` and ``ceil_mode``."""

from __future__ import annotations

from stridewise.classes import dataclass
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import OnnxValue
from stridewise.graph import Attr, Node

__all__ = ["Window", "check_rank", "extend_to_ceil", "read_window", "write_window"]

_MOST_AXES = 3
"""Spatial axes of the operators with windows."""


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window with all its parameters explicit, one for each spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def attrs(self) -> dict[str, Attr]:
        """The attributes of window operators, without the kernel."""
        pads = self.begins + self.ends
        return {"strides": self.strides, "dilations": self.dilations, "pads": pads}


def read_window(node: OnnxNode, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> Window:
    """Return the window of a node over an input of the given spatial extents.

    Raises:
        ModelError: the parameters don't have one entry for each spatial axis, or are invalid.
    """
    rank = len(sizes)
    strides = node.integers("strides", (1,) * rank)
    dilations = node.integers("dilations", (1,) * rank)
    pads = node.integers("pads", (0,) * (2 * rank))
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        found = f"kernel {kernel}, strides {strides}, dilations {dilations}, pads {pads}"
        raise node.error(f"parameters for {rank} spatial axes", found)
    if min((*kernel, *strides, *dilations), default=1) < 1 or min(pads, default=0) < 0:
        found = f"kernel {kernel}, strides {strides}, dilations {dilations}, pads {pads}"
        raise node.error("positive kernel, strides and dilations, pads of 0 or more", found)
    mode = node.text("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        begins, ends = _same(sizes, kernel, strides, dilations, lower=mode == "SAME_LOWER")
    elif mode == "VALID":
        begins = ends = (0,) * rank
    elif mode == "NOTSET":
        begins, ends = pads[:rank], pads[rank:]
    else:
        raise node.error("auto_pad NOTSET, SAME_UPPER, SAME_LOWER or VALID", mode)
    check_rank(node, rank)
    return Window(kernel, strides, dilations, begins, ends)


def check_rank(node: OnnxNode, rank: int) -> None:
    """Refuse windows over more spatial axes than the operators have.

    Raises:
        UnsupportedError: there are more.
    """
    if rank > _MOST_AXES:
        expected, reason = f"up to {_MOST_AXES} spatial axes", f"it has {rank} spatial axes"
        raise node.unsupported(expected, str(rank), "", reason)


def _same(
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    *,
    lower: bool,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return pads for ceil(size / stride) outputs; an odd one goes to one side."""
    small: list[int] = []
    large: list[int] = []
    for size, extent, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        reach = (extent - 1) * dilation + 1
        total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        small.append(total // 2)
        large.append(total - total // 2)
    return (tuple(large), tuple(small)) if lower else (tuple(small), tuple(large))


def extend_to_ceil(window: Window, sizes: tuple[int, ...]) -> Window:
    """Return the window with end pads that give the output size of ``ceil_mode``.

    A window that would start in the padding at the end is dropped (source: ONNX, MaxPool).
    """
    ends: list[int] = []
    for axis, size in enumerate(sizes):
        reach = (window.kernel[axis] - 1) * window.dilations[axis] + 1
        stride, begin, end = window.strides[axis], window.begins[axis], window.ends[axis]
        count = -(-(size + begin + end - reach) // stride) + 1
        if (count - 1) * stride >= size + begin:
            count -= 1
        if count != (size + begin + end - reach) // stride + 1:
            end = (count - 1) * stride + reach - size - begin
        ends.append(end)
    return Window(window.kernel, window.strides, window.dilations, window.begins, tuple(ends))


def write_window(node: Node, kernel: tuple[int, ...]) -> dict[str, OnnxValue]:
    """Return the ONNX attributes of a node's window; pads are always explicit."""
    ones = (1,) * len(kernel)
    attrs: dict[str, OnnxValue] = {
        "kernel_shape": kernel,
        "strides": node.ints_attr("strides", ones),
        "pads": node.ints_attr("pads", (0,) * (2 * len(kernel))),
    }
    dilations = node.ints_attr("dilations", ones)
    return attrs if dilations == ones else {**attrs, "dilations": dilations}
