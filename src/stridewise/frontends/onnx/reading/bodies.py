"""Nodes that stand for several nodes: local functions, ONNX's own functions, constant conditions.

ONNX defines some operators by a graph of others, such as Attention. A node of such an operator is
imported as the nodes of its definition, if it has no handler. So are an ``If`` whose condition is a
constant, and a local function of another opset than the model. ONNX's inliner expands the other
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    TensorProto,
    TypeProto,
    defs,
)

from stridewise.classes import dataclass
from stridewise.frontends.onnx.reading.importer import Importer
from stridewise.frontends.onnx.reading.proto import (
    DEFAULT_DOMAINS,
    OnnxNode,
    decode_node,
    reads_of,
    subgraphs_of,
)
from stridewise.frontends.onnx.writing.initializers import declare

__all__ = ["Body", "body_of_branch", "body_of_function", "body_of_operator", "import_body"]


@dataclass(frozen=True, slots=True)
class Body:
    """Nodes that compute the results of a node.

    Attributes:
        nodes: the nodes, with the names of the body.
        inputs: the values of the model that names of the body stand for; ``""`` for an absent one.
        results: the names in the body of the node's outputs.
        constants: tensors of the body.
        opset: the version of the default domain.
        is_closed: whether it reads nothing but its inputs. A branch also reads values of the model.
    """

    nodes: tuple[NodeProto, ...]
    inputs: Mapping[str, str]
    results: tuple[str, ...]
    constants: tuple[TensorProto, ...]
    opset: int
    is_closed: bool


def body_of_function(importer: Importer, node: OnnxNode) -> Body | None:
    """Return the body of a local function that the inliner left; None for other nodes."""
    function = importer.functions.get((node.proto.domain, node.op_type, node.proto.overload))
    return None if function is None else _function(node, function, function.attribute_proto)


def body_of_branch(importer: Importer, node: OnnxNode) -> Body | None:
    """Return the branch that an ``If`` takes; None for other nodes and computed conditions.

    Raises:
        DamageError: the branch does not give the results of the node.
    """
    if (node.domain, node.op_type) != ("", "If"):
        return None
    taken = importer.const(node.required(0))
    if taken is None:
        return None
    if taken.size != 1 or taken.dtype.kind != "b":
        raise node.damage("one boolean as condition", f"{taken.dtype} of {taken.shape}")
    name = "then_branch" if taken.item() else "else_branch"
    graph = next((item.g for item in node.proto.attribute if item.name == name), GraphProto())
    results = tuple(item.name for item in graph.output)
    if len(results) != len(node.outputs) or graph.input or graph.sparse_initializer:
        raise node.damage(
            f"{name} with {len(node.outputs)} outputs, and without inputs",
            f"{len(results)} outputs, {len(graph.input)} inputs",
        )
    return Body(tuple(graph.node), {}, results, tuple(graph.initializer), node.opset, False)


def body_of_operator(importer: Importer, node: OnnxNode) -> Body | None:
    """Return the nodes by which ONNX defines a node of its own; None if it does not."""
    # An operator of a later opset than the model's has no schema there.
    if node.domain or node.opset > defs.onnx_opset_version():
        return None
    if not defs.has(node.op_type, node.opset):
        return None
    schema = cast("Any", defs.get_schema(node.op_type, node.opset))  # stubs lack these methods
    version = _version(schema.function_opset_versions, node.opset)
    if version:
        content = schema.get_function_with_opset_version(version)
    else:
        version = _version(schema.context_dependent_function_opset_versions, node.opset)
        content = _definition_for(importer, node, schema, version) if version else b""
    if not content:
        return None
    absent = (item.default_value for item in schema.attributes.values())
    return _function(
        node, FunctionProto.FromString(content), (item for item in absent if item.name)
    )


def _definition_for(importer: Importer, node: OnnxNode, schema: Any, version: int) -> bytes:
    """Return the definition for attributes and types of inputs, empty if there is none."""
    types = [
        declare(name, importer.type(name)).type if name else TypeProto() for name in node.inputs
    ]
    try:
        return schema.get_context_dependent_function_with_opset_version(
            version, node.proto.SerializeToString(), [item.SerializeToString() for item in types]
        )
    except Exception:  # native code with undocumented exceptions, for types that it does not know
        return b""


def _version(known: Iterable[int], opset: int) -> int:
    return max((item for item in known if item <= opset), default=0)


def _function(node: OnnxNode, function: FunctionProto, absent: Iterable[AttributeProto]) -> Body:
    """Return the body of a function for the inputs and attributes of a node.

    Raises:
        DamageError: the node has more inputs or outputs than the function.
    """
    if len(node.inputs) > len(function.input) or len(node.outputs) > len(function.output):
        raise node.damage(
            f"{len(function.input)} inputs and {len(function.output)} outputs at most",
            f"{len(node.inputs)} and {len(node.outputs)}",
        )
    given = {item.name: item for item in (*absent, *node.proto.attribute)}
    versions = [item.version for item in function.opset_import if item.domain in DEFAULT_DOMAINS]
    inputs = {name: node.input(index) for index, name in enumerate(function.input)}
    return Body(
        tuple(_with_attributes(item, given) for item in function.node),
        inputs,
        tuple(function.output[: len(node.outputs)]),
        (),
        max(versions, default=node.opset),
        True,
    )


def _with_attributes(proto: NodeProto, given: Mapping[str, AttributeProto]) -> NodeProto:
    """Return a node of a function whose references to the function's attributes are replaced."""
    found = NodeProto()
    found.CopyFrom(proto)
    del found.attribute[:]
    for item in proto.attribute:
        if item.ref_attr_name and item.ref_attr_name not in given:
            continue  # without a value, the operator's own default holds
        copied = found.attribute.add()
        copied.CopyFrom(given[item.ref_attr_name] if item.ref_attr_name else item)
        copied.name = item.name
        for graph in subgraphs_of(copied):
            changed = [_with_attributes(inner, given) for inner in graph.node]
            del graph.node[:]
            graph.node.extend(changed)
    return found


# --- import ---------------------------------------------------------------------------------------


def _own_names(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """Yield the names that nodes and their subgraphs define."""
    for node in nodes:
        yield from (name for name in node.output if name)
        for attribute in node.attribute:
            for graph in subgraphs_of(attribute):
                yield from (item.name for item in (*graph.input, *graph.initializer))
                yield from (item.values.name for item in graph.sparse_initializer)
                yield from _own_names(graph.node)


def _renamed(proto: NodeProto, names: Mapping[str, str]) -> NodeProto:
    """Return a node with other names of values, in its subgraphs too."""
    found = NodeProto()
    found.CopyFrom(proto)
    found.input[:] = [names.get(name, name) for name in proto.input]
    found.output[:] = [names.get(name, name) for name in proto.output]
    for attribute in found.attribute:
        for graph in subgraphs_of(attribute):
            for item in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
                item.name = names.get(item.name, item.name)
            for sparse in graph.sparse_initializer:
                sparse.values.name = names.get(sparse.values.name, sparse.values.name)
            changed = [_renamed(inner, names) for inner in graph.node]
            del graph.node[:]
            graph.node.extend(changed)
    return found


def import_body(
    importer: Importer,
    node: OnnxNode,
    body: Body,
    import_one: Callable[[Importer, OnnxNode], None],
) -> None:
    """Import the nodes of a body in place of a node.

    Args:
        importer: of the model.
        node: the node.
        body: what it stands for.
        import_one: imports a node.

    Raises:
        ModelError: a node of the body is damaged or not supported.
    """
    label = next(name for name in node.outputs if name)
    own = dict.fromkeys((*(item.name for item in body.constants), *_own_names(body.nodes)))
    names = {name: importer.reserve(f"{label}/{name}") for name in own} | dict(body.inputs)
    if body.is_closed:
        for proto in body.nodes:
            outer = next((name for name in reads_of(proto) if name not in names), None)
            if outer is not None:
                raise node.damage("functions that read their own values", repr(outer))
    # The first name of a result is that of the model. A body may give a value twice, or an input.
    made = {name for proto in body.nodes for name in proto.output}
    direct: dict[str, str] = {}
    for name, result in zip(body.results, node.outputs, strict=True):
        if result and name in made:
            direct.setdefault(name, result)
    names |= direct
    nodes = [_renamed(proto, names) for proto in body.nodes]
    importer.note_reads(name for proto in nodes for name in reads_of(proto))
    importer.note_reads(names.get(name, name) for name in body.results)
    for tensor in body.constants:
        importer.add_tensor(names[tensor.name], tensor, node.where)
    for proto in nodes:
        inner = decode_node(proto, body.opset, importer.reader)
        import_one(
            importer, replace(inner, name=f"{node.name or label}/{proto.name or proto.output[0]}")
        )
    for name, result in zip(body.results, node.outputs, strict=True):
        inside = names.get(name, name)
        if result and inside != result:
            importer.check_names(node, [inside])
            importer.alias(result, inside)
