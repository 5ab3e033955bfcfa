"""Bias and post-ops apart from their kernel: an expression on its result, in the same place.

That is for kernels of the library which apply them in naive loops, or wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from stridewise.ops.pointwise import MOST_INPUTS, MOST_STEPS, OPERANDS, Step
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
from stridewise.targets.onednn.memory import memory_of
from stridewise.targets.onednn.pointwise import expanded, flops_of

__all__ = ["apart"]

_Read = tuple[MemorySpec, Arg]


def apart(context: KernelContext, option: KernelOption) -> Iterator[KernelOption]:
    """Yield the option that does the same in two calls, if there is anything to apply.

    None is there for what expressions cannot compute, and for sums in place.

    Args:
        context: of the node.
        option: one call, which applies bias and post-ops itself.
    """
    (call,) = option.calls
    dst = call.spec.memory("dst")
    if dst is None or option.aliases:
        return
    biases = [_row(context, option, dst, arg) for arg in call.args if arg.role == "bias"]
    operands = [post.operand for post in context.node.post_ops if post.operand is not None]
    read = [(dst, Arg("", output_of())), *biases, *((dst, Arg("", input_of(i))) for i in operands)]
    found = expanded(_steps(context, has_bias=bool(biases)))
    is_known = all(step.op in OPERANDS for step in found)
    if not (is_known and 0 < len(found) <= MOST_STEPS and len(read) <= MOST_INPUTS):
        return
    memories = tuple((f"src{at}", memory) for at, (memory, _) in enumerate(read))
    spec = KernelSpec(
        "pointwise",
        (*memories, ("dst", dst)),
        (("expression", tuple(map(str, found))),),
        flops=flops_of(found) * prod(dst.dims),
    )
    args = tuple(replace(arg, role=f"src{at}") for at, (_, arg) in enumerate(read))
    behind = Call(spec, (*args, Arg("dst", output_of())))
    yield replace(option, algorithm=f"{option.algorithm}, expression", calls=(_bare(call), behind))


def _bare(call: Call) -> Call:
    """Return a call without bias and post-ops."""
    memories = tuple(item for item in call.spec.memories if item[0] != "bias")
    args = tuple(a for a in call.args if a.role != "bias" and not a.role.startswith("post"))
    return Call(replace(call.spec, memories=memories, post_ops=()), args)


def _row(context: KernelContext, option: KernelOption, dst: MemorySpec, bias: Arg) -> _Read:
    """Return the bias as an operand beside the result: an element for each channel."""
    ones = (1,) * (len(dst.dims) - 2)
    row = (1, dst.dims[1], *ones)
    if context.is_constant(context.node.inputs[bias.operand.index]):
        return memory_of(option.outputs[0], row), replace(bias, reshape=row)
    return MemorySpec(row, strides=(dst.dims[1], 1, *ones)), bias


def _steps(context: KernelContext, *, has_bias: bool) -> list[Step]:
    """Return the steps on ``x0``, the result; then come the bias and the post-ops' operands."""
    found = [Step("add", ("x0", "x1"))] if has_bias else []
    read = 1 + has_bias
    for post in context.node.post_ops:
        last = f"t{len(found) - 1}" if found else "x0"
        if post.op == "linear":  # which expressions have no step for
            found += Step("mul", (last, post.alpha)), Step("add", (f"t{len(found)}", post.beta))
        elif post.operand is None:
            found.append(Step(post.op, (last,), post.alpha, post.beta))
        else:
            found.append(Step(post.op, (last, f"x{read}")))
            read += 1
    return found
