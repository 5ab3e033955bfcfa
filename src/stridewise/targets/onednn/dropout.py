"""The core's kernel of dropout, in the user's order of axes."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.formats import nd
from stridewise.graph import Refusal
from stridewise.ops.geometry import user_format
from stridewise.targets.kernels import (
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.family import Family, KernelKind, Offer, other_than_float32
from stridewise.targets.onednn.memory import plain_memory
from stridewise.targets.views import view

__all__ = ["FAMILY"]


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if len(node.inputs) < 2:
        yield view(user_format(x), user_format(y))
        return
    refusal = other_than_float32(context)
    if refusal is not None:
        yield refusal
        return
    memory = plain_memory((prod(x.shape),))
    spec = KernelSpec(
        "dropout",
        (("src", memory), ("src1", MemorySpec((4,), "a")), ("dst", memory)),
        (("share", node.float_attr("share", 0.5)), ("stream", node.int_attr("stream", 0))),
        flops=16.0 * prod(x.shape),
    )
    args = (Arg("src", input_of(0)), Arg("src1", input_of(1)), Arg("dst", output_of()))
    aliases = (Alias(0, 0, 0, "in place"),)
    formats = (user_format(x), nd(1))
    yield KernelOption("dropout", formats, (user_format(y),), (Call(spec, args),), aliases)


FAMILY = Family(
    {"dropout": Offer(_kernels)},
    {"dropout": KernelKind(dict.fromkeys(("plain", "channels-last", "blocked"), 0.2))},
)
