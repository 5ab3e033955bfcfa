"""The core's kernel of the positions of greatest and least elements along an axis."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.graph import Refusal
from stridewise.ops.geometry import user_format
from stridewise.targets.kernels import (
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.family import Family, KernelKind, refused
from stridewise.targets.onednn.memory import plain_memory

__all__ = ["FAMILY"]

_WORDS = 2
"""Words of 32 bits of a position; the library has no wider integers."""

_ROWS = 0.17
"""The speed where the axis is innermost in memory, so that elements are compared one by one."""


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if x.dtype.name != "float32" or not prod(x.shape):
        yield refused(node, f"kernels find positions of float32, with elements; {x.name!r} is {x}")
        return
    axis = node.int_attr("axis")
    outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    shapes = {user_format(x): (outer, x.shape[axis], inner)}
    last = context.formats(x.name).get("channels-last")
    if last is not None and last.order == user_format(x).order and axis == 1:
        # The results have no channels, so they are in the order of pixels as well.
        shapes[last] = (outer * inner, x.shape[axis], 1)
    params = (("what", node.op), ("last", node.int_attr("last", 0)))
    for fmt, shape in shapes.items():
        result = MemorySpec((shape[0], shape[2], _WORDS), "abc", dtype="s32")
        memories = (("src", plain_memory(shape)), ("dst", result))
        spec = KernelSpec("positions", memories, params, flops=float(prod(x.shape)))
        call = Call(spec, (Arg("src", input_of(0)), Arg("dst", output_of())))
        yield KernelOption("positions", (fmt,), (user_format(y),), (call,))


def _share(spec: KernelSpec) -> float:
    """Return how fast a kernel is beside one that compares whole vectors."""
    source = spec.memory("src")
    return _ROWS if source is not None and source.dims[-1] == 1 else 1.0


FAMILY = Family(
    kinds={"positions": KernelKind({"plain": 0.45}, share=_share)},
    typed={"arg_max": _kernels, "arg_min": _kernels},
)
