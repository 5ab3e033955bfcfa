"""Nodes against the schemas of ONNX: attributes, inputs and outputs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from onnx import defs

from stridewise.frontends.onnx.reading.proto import OnnxNode, bare_node, subgraphs_of

__all__ = ["check_schema"]


class _Form(NamedTuple):
    """What an operator has; the last of ``optional`` holds for all further inputs."""

    attributes: Collection[str]
    optional: tuple[bool, ...]
    inputs: tuple[int, int]
    outputs: tuple[int, int]


@cache
def _form(op_type: str, opset: int) -> _Form | None:
    """Return what ONNX defines, None where the installed version does not know the operator."""
    if not defs.has(op_type) or opset > defs.onnx_opset_version():
        return None
    try:
        schema = defs.get_schema(op_type, opset)
    except defs.SchemaError:
        return None
    optional = defs.OpSchema.FormalParameterOption.Optional
    return _Form(
        tuple(schema.attributes),
        tuple(item.option == optional for item in schema.inputs),
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
    )


def check_schema(node: OnnxNode) -> None:
    """Check that a node has what its operator needs, and nothing that it does not have.

    Handlers read what they know, and would ignore the rest. ONNX Runtime ends the process when it
    runs some nodes without an input. The nodes of subgraphs are checked too.

    Raises:
        DamageError: an input is missing, or there is an attribute, input or output too many.
    """
    _check(node)
    for attribute in node.proto.attribute:
        for graph in subgraphs_of(attribute):
            for proto in graph.node:
                inner = bare_node(proto, node.opset)
                names = dict.fromkeys((item.name for item in proto.attribute), 0)
                if inner.domain == "":
                    check_schema(replace(inner, attrs=names))


def _check(node: OnnxNode) -> None:
    form = _form(node.op_type, node.opset)
    if form is None:
        return
    for key in node.attrs:
        if key not in form.attributes:
            names = ", ".join(sorted(form.attributes)) or "none"
            raise node.damage(f"attributes of opset {node.opset} among: {names}", repr(key))
    for what, given, (least, most) in (
        ("inputs", node.inputs, form.inputs),
        ("outputs", node.outputs, form.outputs),
    ):
        if not least <= len(given) <= most:
            expected = f"at least {least}" if len(given) < least else f"at most {most}"
            raise node.damage(f"{expected} {what}", len(given))
    for index, name in enumerate(node.inputs):
        if not name and not form.optional[min(index, len(form.optional) - 1)]:
            raise node.damage(f"input {index}", "none")
