"""Nodes against the schemas of ONNX: attributes, and numbers of inputs and outputs."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import NamedTuple

from onnx import defs

from stridewise.frontends.onnx.reading.proto import OnnxNode

__all__ = ["check_schema"]


class _Form(NamedTuple):
    attributes: Collection[str]
    inputs: int
    outputs: int


@cache
def _form(op_type: str, opset: int) -> _Form | None:
    """Return what ONNX defines, None where the installed version does not know the operator."""
    if not defs.has(op_type) or opset > defs.onnx_opset_version():
        return None
    try:
        schema = defs.get_schema(op_type, opset)
    except defs.SchemaError:
        return None
    return _Form(tuple(schema.attributes), schema.max_input, schema.max_output)


def check_schema(node: OnnxNode) -> None:
    """Check that a node has only attributes, inputs and outputs that its operator has.

    Handlers read what they know. Anything else would be ignored.

    Raises:
        DamageError: it has another one.
    """
    form = _form(node.op_type, node.opset)
    if form is None:
        return
    for key in node.attrs:
        if key not in form.attributes:
            names = ", ".join(sorted(form.attributes)) or "none"
            raise node.damage(f"attributes of opset {node.opset} among: {names}", repr(key))
    for what, given, most in (
        ("inputs", node.inputs, form.inputs),
        ("outputs", node.outputs, form.outputs),
    ):
        if len(given) > most:
            raise node.damage(f"at most {most} {what}", len(given))
