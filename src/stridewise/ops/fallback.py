"""Parts of a model that another runtime computes: whole clusters of foreign nodes.

The cluster is a serialized model, kept as the last operand, a constant of bytes. What runs it is
handed in by ``runtime/execution/onnx_runtime.py``; nothing here knows which runtime that is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from stridewise.dtypes import dtype_of
from stridewise.errors import StridewiseError
from stridewise.graph import Node, TensorType
from stridewise.ops.registry import Array, Operands, OpSpec, Types, array, needs, register, tensor

__all__ = ["FALLBACK", "OP", "RUNNER", "parse_type"]

OP = "fallback"
"""The operator's name."""

_TYPE = re.compile(r"(\w+)\[([\d,]*)\]")

Run = Callable[[Array, Sequence[Array], str], Sequence[Array]]
"""From a serialized model, its inputs in order and what messages call it, to its outputs."""


class Runner:
    """What runs clusters; there is none before the runtime hands one in."""

    def __init__(self) -> None:
        """Start without one."""
        self._run: Run | None = None

    def run_with(self, run: Run) -> None:
        """Set what runs clusters from now on."""
        self._run = run

    def __call__(self, model: Array, inputs: Sequence[Array], where: str) -> Sequence[Array]:
        """Run a cluster once."""
        if self._run is None:
            raise StridewiseError(
                "no runtime for clusters; import stridewise.runtime.execution.onnx_runtime"
            )
        return self._run(model, inputs, where)


RUNNER = Runner()


def parse_type(text: str) -> TensorType | None:
    """Return the type that a text like ``f32[1,3]`` spells, None where it is not one.

    >>> str(parse_type("s64[2,4]")), parse_type("f32")
    ('s64[2,4]', None)
    """
    match = _TYPE.fullmatch(text)
    if match is None:
        return None
    shape = tuple(int(extent) for extent in match[2].split(",") if extent)
    return TensorType(dtype_of(match[1]), shape)


def _strings(node: Node, key: str) -> tuple[str, ...]:
    found = node.get(key)
    items = found if isinstance(found, tuple) else ()
    texts = tuple(item for item in items if isinstance(item, str))
    needs(node, bool(texts) and len(texts) == len(items), f"{key}, a list of texts", found)
    return texts


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    model = tensor(node, types, len(types) - 1)
    needs(node, model.dtype.name == "uint8" and len(model.shape) == 1, "a model as bytes", model)
    for key in ("nodes", "operators", "reasons"):
        _strings(node, key)
    texts = _strings(node, "types")
    found = tuple(parse_type(text) for text in texts)
    known = tuple(item for item in found if item is not None)
    needs(node, len(known) == len(texts), "types like 'f32[1,3]'", texts)
    return known


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    *inputs, model = (array(operands, index) for index in range(len(operands)))
    return tuple(RUNNER(model, inputs, f"node {node.name!r} ({node.op})"))


FALLBACK = register(
    OpSpec(
        name=OP,
        arity=(1, None),
        infer=_infer,
        evaluate=_evaluate,
        origin="interrupt",
    )
)
"""Attributes: ``nodes`` and ``operators``, what is in the cluster; ``reasons``, why; ``types`` of
the outputs. Inputs: those of the cluster, then its model as bytes."""
