"""Options of nodes that read a constant where their kernels usually read a tensor of the run.

Families describe operands such as images as tensors with a format. A constant has none: it is
packed as the kernel reads it, and nothing is computed in its place.
"""

from __future__ import annotations

from dataclasses import replace

from stridewise.formats import Format
from stridewise.graph import Refusal
from stridewise.ops.data_format import data_format, is_turned
from stridewise.ops.geometry import user_format
from stridewise.targets.kernels import Arg, Call, KernelContext, KernelOption
from stridewise.targets.onednn.family import refused
from stridewise.targets.onednn.memory import memory_of, plain_memory

__all__ = ["with_constants"]


def with_constants(context: KernelContext, option: KernelOption) -> KernelOption | Refusal:
    """Return an option that reads constants packed, or why it cannot.

    Args:
        context: of the node, in the user's order of axes.
        option: may need formats of constants.
    """
    node = context.node
    fixed = {i for i, name in enumerate(node.inputs) if name and context.is_constant(name)}
    wanted = {i: fmt for i in fixed if (fmt := option.inputs[i]) is not None}
    kept = tuple(alias for alias in option.aliases if alias.input not in fixed)
    shares = any(a.input in fixed and a.kind != "in place" for a in option.aliases)
    if shares or (wanted and option.is_joint):
        reason = f"{option.algorithm}: it shares the bytes of an operand that is a constant"
        return refused(node, reason)
    if not wanted and kept == option.aliases:
        return option
    calls = tuple(_packed(context, call, wanted) for call in option.calls)
    found = tuple(call for call in calls if call is not None)
    if len(found) < len(calls):
        reason = f"{option.algorithm}: it reads a constant that cannot be packed for it"
        return refused(node, reason)
    inputs = tuple(None if i in wanted else fmt for i, fmt in enumerate(option.inputs))
    return replace(option, inputs=inputs, calls=found, aliases=kept)


def _packed(context: KernelContext, call: Call, wanted: dict[int, Format]) -> Call | None:
    args: list[Arg] = []
    for arg in call.args:
        index = arg.operand.index
        if arg.operand.side != "in" or index not in wanted:
            args.append(arg)
            continue
        found = _argument(context, call, arg, wanted[index])
        if found is None:
            return None
        args.append(found)
    return replace(call, args=tuple(args))


def _argument(context: KernelContext, call: Call, arg: Arg, fmt: Format) -> Arg | None:
    memory, value = (
        call.spec.memory(arg.role),
        context.value(context.node.inputs[arg.operand.index]),
    )
    if memory is None or arg.offset:
        return None
    users = user_format(value)
    if arg.operand.index == 0 and value.origin is None and is_turned(context.node):
        users = data_format(context.node, len(value.shape)) or users
    if set(fmt.axes) != set(users.order):
        return None
    if memory == plain_memory(memory.dims) and fmt.order == users.order:
        return replace(arg, reshape=memory.dims)
    order = tuple(users.order.index(axis) for axis in fmt.axes)
    shape = tuple(value.shape[axis] for axis in order)
    return replace(arg, permute=order) if memory == memory_of(fmt, shape) else None
