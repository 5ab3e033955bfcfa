"""Kernels of operators that change the order of axes or nothing: views where the bytes agree."""

from __future__ import annotations

from collections.abc import Iterable

from stridewise.graph import Refusal
from stridewise.ops.geometry import user_format
from stridewise.targets.kernels import KernelContext, KernelOption, input_of, output_of
from stridewise.targets.onednn.family import Family, Offer
from stridewise.targets.onednn.memory import elementwise_formats
from stridewise.targets.views import reshape_views, transpose_views, transposed_memories, view
from stridewise.targets.walks import copy_call

__all__ = ["FAMILY"]


def _kernels_transpose(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    views = tuple(transpose_views(context))
    yield from views
    if not views:
        node = context.node
        x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
        source, result = transposed_memories(context)
        call = copy_call((source, 0), (result, 0), input_of(0), output_of())
        yield KernelOption("copy", (user_format(x),), (user_format(y),), (call,))


def _kernels_identity(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    for source, result, _ in elementwise_formats(context, x, y):
        yield view(source, result)


FAMILY = Family(
    {
        "reshape": Offer(reshape_views),
        "transpose": Offer(_kernels_transpose),
        "identity": Offer(_kernels_identity),
    }
)
