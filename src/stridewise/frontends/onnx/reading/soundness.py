"""Checks of a model file as a whole, before nodes and tensors are read.

A model is untrusted input. All names must be text, each name must be defined once, and local
functions must not call themselves or expand to more nodes than the size of the file justifies. Each
node and tensor is checked when it is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from stridewise.classes import dataclass
from stridewise.errors import ModelError

__all__ = ["check_functions", "check_model"]

_DAMAGED = "export or download the model again"
_UNFOLDED = 20_000
_GROWTH = 100
"""Limits of the expansion of local functions: nodes, and multiple of the nodes in the file."""


def check_model(model: ModelProto, where: str) -> None:
    """Check names and definitions.

    Raises:
        ModelError: a name is not UTF-8, or an input or initializer is listed twice. Outputs may
            be: the call then returns the value twice.
    """
    for place, texts in _texts(model):
        for text in texts:
            # Protocol buffers return names that are not UTF-8 as bytes.
            if not isinstance(text, str):
                raise ModelError.at(
                    f"{where}, {place}",
                    expected="names in UTF-8",
                    found=repr(text),
                    fix=f"the file is damaged; {_DAMAGED}",
                )
    graph = model.graph
    stored = (*graph.initializer, *(item.values for item in graph.sparse_initializer))
    for what, names in (
        ("input", [item.name for item in graph.input]),
        ("output", [item.name for item in graph.output]),
        ("initializer", [item.name for item in stored]),
    ):
        name, count = next(iter(Counter(names).most_common(1)), ("", 0))
        if count > 1 and what != "output":
            raise ModelError.at(
                f"{where}, {what} {name!r}",
                expected="one definition",
                found=f"{count} of the same name",
                fix=f"give each {what} a name of its own",
            )
        if "" in names:
            raise ModelError.at(
                f"{where}, {what}s", expected="a name for each", found="one without"
            )


def _texts(model: ModelProto) -> Iterator[tuple[str, Iterable[object]]]:
    """Yield all names with the place of each."""
    yield "opsets", (item.domain for item in model.opset_import)
    yield (
        "local functions",
        (text for item in model.functions for text in (item.name, item.domain, item.overload)),
    )
    for function in model.functions:
        yield f"function {function.name!r}", _function_texts(function)
        for node in function.node:
            yield f"function {function.name!r}, {_label(node)}", _node_texts(node)
            yield from _subgraph_texts(node)
    yield from _graph_texts(model.graph)


def _function_texts(function: FunctionProto) -> Iterator[object]:
    yield from (*function.input, *function.output, *function.attribute)
    yield from (item.domain for item in function.opset_import)
    yield from (item.name for item in function.attribute_proto)


def _graph_texts(graph: GraphProto) -> Iterator[tuple[str, Iterable[object]]]:
    yield "graph", (graph.name,)
    for info in (*graph.input, *graph.output):
        yield f"value {info.name!r}", _value_texts(info)
    sparse = [part for item in graph.sparse_initializer for part in (item.values, item.indices)]
    for tensor in (*graph.initializer, *sparse):
        yield f"initializer {tensor.name!r}", _tensor_texts(tensor)
    for node in graph.node:
        yield _label(node), _node_texts(node)
        yield from _subgraph_texts(node)


def _subgraph_texts(node: NodeProto) -> Iterator[tuple[str, Iterable[object]]]:
    for item in node.attribute:
        for graph in (item.g, *item.graphs):
            for place, texts in _graph_texts(graph):
                yield f"{_label(node)}, {place}", texts


def _value_texts(info: ValueInfoProto) -> Iterator[object]:
    yield info.name
    yield from (dim.dim_param for dim in info.type.tensor_type.shape.dim)


def _tensor_texts(tensor: TensorProto) -> Iterator[object]:
    yield tensor.name
    for entry in tensor.external_data:
        yield from (entry.key, entry.value)


def _label(node: NodeProto) -> str:
    return f"node {node.name!r} ({node.op_type})"


def _node_texts(node: NodeProto) -> Iterator[object]:
    yield from (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output)
    for item in node.attribute:
        yield from (item.name, item.ref_attr_name)
        yield from _tensor_texts(item.t)


# --- local functions ------------------------------------------------------------------------------

_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Body:
    """The number of nodes, subgraphs included, and the functions that they call."""

    nodes: int
    calls: Counter[_Key]


def _body(nodes: Iterable[NodeProto], known: frozenset[_Key]) -> _Body:
    count, calls = 0, Counter[_Key]()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        count += 1
        key = (node.domain, node.op_type, node.overload)
        if key in known:
            calls[key] += 1
        for item in node.attribute:
            for graph in (item.g, *item.graphs):
                stack.extend(graph.node)
    return _Body(count, calls)


def check_functions(model: ModelProto, where: str) -> None:
    """Check that local functions expand to a graph of a size that the file justifies.

    Raises:
        ModelError: a function is defined twice or calls itself, or the expansion is too large.
    """
    keys = [(item.domain, item.name, item.overload) for item in model.functions]
    key, count = Counter(keys).most_common(1)[0]
    if count > 1:
        raise _unsound(where, key, "one definition", f"{count} of the same name")
    known = frozenset(keys)
    bodies = {key: _body(item.node, known) for key, item in zip(keys, model.functions, strict=True)}
    main = _body(model.graph.node, known)
    sizes = _unfolded(bodies, where)
    total = main.nodes + sum(count * sizes[key] for key, count in main.calls.items())
    written = main.nodes + sum(body.nodes for body in bodies.values())
    limit = max(_UNFOLDED, _GROWTH * written)
    if total > limit:
        largest = max(sizes, key=lambda key: sizes[key])
        raise _unsound(where, largest, f"a model of at most {limit} nodes", f"{total} nodes inside")


def _unfolded(bodies: dict[_Key, _Body], where: str) -> dict[_Key, int]:
    """Return the number of nodes of each function after expansion, which may be very large."""
    sizes: dict[_Key, int] = {}
    open_calls: dict[_Key, None] = {}
    for start in bodies:
        stack = [start]
        while stack:
            key = stack[-1]
            missing = [called for called in bodies[key].calls if called not in sizes]
            if not missing:
                calls = bodies[key].calls.items()
                sizes[key] = bodies[key].nodes + sum(n * sizes[called] for called, n in calls)
                open_calls.pop(stack.pop(), None)
                continue
            open_calls[key] = None
            again = next((called for called in missing if called in open_calls), None)
            if again is not None:
                raise _unsound(where, again, "functions that do not call themselves", "a cycle")
            stack.append(missing[0])
    return sizes


def _unsound(where: str, key: _Key, expected: str, found: str) -> ModelError:
    domain, name, _ = key
    place = f"{where}, function {name!r} of domain {domain!r}"
    fix = "inline the functions first, with onnx.inliner"
    return ModelError.at(place, expected=expected, found=found, fix=fix)
