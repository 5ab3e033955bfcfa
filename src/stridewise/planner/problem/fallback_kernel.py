"""Fallback kernels: nodes without a kernel of the target run their NumPy reference.

A fallback kernel takes and gives dense tensors in the user's own axis order, of any dtype, rank and
shape, and is a step of the program like any other. It is offered only where the target has nothing
else, so planning never weighs it against a kernel; what it costs still counts in the plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from stridewise.errors import ModelError
from stridewise.graph import Attr, ForeignPart, Node, Refusal, Value
from stridewise.ops.effort import effort
from stridewise.ops.geometry import user_format
from stridewise.planner.problem.context import NodeContext
from stridewise.targets.kernels import (
    HOST,
    Arg,
    Call,
    KernelOption,
    KernelSpec,
    MemorySpec,
    input_of,
    output_of,
)

__all__ = ["host_option", "host_refusal", "is_host"]

_MOST_OPERATIONS = 10**13
"""The most that one fallback kernel may take: hours of NumPy. Beyond it a model is damaged."""


def _dense(value: Value) -> MemorySpec:
    return MemorySpec(value.shape, "dense", dtype=value.dtype.short)


def _post_ops(node: Node) -> tuple[str, ...]:
    return tuple(f"{post.op}({post.alpha!r},{post.beta!r})" for post in node.post_ops)


def _param(value: Attr) -> Attr:
    """Return an attribute as a parameter of a kernel; for a foreign part, its runtime's name."""
    return value.runtime if isinstance(value, ForeignPart) else value


def host_option(context: NodeContext) -> KernelOption:
    """Return the one way to compute a node on the host.

    Constants are no arguments: the function has them from the graph. Parameters are.

    Raises:
        ModelError: it would take hours.
    """
    node = context.node
    inputs = [(index, context.value(name)) for index, name in enumerate(node.inputs) if name]
    outputs = [context.value(name) for name in node.outputs]
    computed = [(index, value) for index, value in inputs if not context.is_constant(value.name)]
    taken = {index: user_format(value) for index, value in computed}
    kept = [item for item in inputs if context.is_parameter(item[1].name)]
    read = sorted({index for index, _ in (*computed, *kept)})
    types = {index: value.type for index, value in inputs}
    memories = (
        *((f"in{index}", _dense(value)) for index, value in inputs),
        *((f"out{index}", _dense(value)) for index, value in enumerate(outputs)),
        *(
            (key, MemorySpec((value.nbytes,), "dense", dtype="u8"))
            for key, value in node.attrs
            if isinstance(value, ForeignPart)
        ),
    )
    post = _post_ops(node)
    attrs = ((key, _param(value)) for key, value in node.attrs)
    params = (("op", node.op), *attrs, *((("post_ops", post),) if post else ()))
    wanted = effort(
        node,
        tuple(types.get(index) for index in range(len(node.inputs))),
        tuple(value.type for value in outputs),
    )
    if wanted.operations > _MOST_OPERATIONS:
        raise ModelError.at(
            f"node {node.name!r} ({node.op})",
            expected=f"at most {_MOST_OPERATIONS:.0e} operations for NumPy",
            found=f"{wanted.operations:.1e}",
            fix="give smaller shapes, or write it as a matrix product",
        )
    args = (
        *(Arg(f"in{index}", input_of(index)) for index in read),
        *(Arg(f"out{index}", output_of(index)) for index in range(len(outputs))),
    )
    return KernelOption(
        HOST,
        tuple(taken.get(index) for index in range(len(node.inputs))),
        tuple(map(user_format, outputs)),
        (Call(KernelSpec(HOST, memories, params, flops=float(wanted.operations)), args),),
    )


def host_refusal(node: Node, reasons: Sequence[str]) -> Refusal:
    """Return the refusal that says why a node runs on the host."""
    why = "; ".join(dict.fromkeys(reasons)) or f"the target has no kernel for {node.op}"
    return Refusal(HOST, node.name, why)


def is_host(option: KernelOption) -> bool:
    """Return whether an option runs on the host."""
    return any(call.spec.kind == HOST for call in option.calls)
