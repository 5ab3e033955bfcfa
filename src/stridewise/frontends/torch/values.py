"""What every node of an aten graph gives: its type, or its value if it is constant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from stridewise.frontends.torch.library import submodule, torch
from stridewise.ops.geometry import row_major

__all__ = [
    "OF_SHAPES",
    "UNSET",
    "UnknownExtentError",
    "Values",
    "constants_of",
    "depends_on_data",
    "has_symbols",
    "is_check",
    "is_impure",
    "is_symbolic",
    "listed",
    "resolved",
    "solution",
    "tensors_of",
    "values_of",
]

Values = Mapping[Any, Any]
"""By node of a ``torch.fx`` graph: a tensor, a number, a tuple of such, or None."""


class UnknownExtentError(Exception):
    """A number of a graph is not determined by the arguments of a call."""


def is_symbolic(value: Any) -> bool:
    """Return whether a value of a graph has extents, strides or numbers that are open."""
    if isinstance(value, tuple | list):
        return any(map(is_symbolic, cast("Sequence[Any]", value)))
    if isinstance(value, torch.Tensor):
        kind = torch.SymInt
        return any(isinstance(number, kind) for number in (*value.shape, *value.stride()))
    return isinstance(value, _symbolic())


def has_symbols(graph: Any) -> bool:
    """Return whether shapes of a graph differ from call to call."""
    return any(is_symbolic(node.meta.get("val")) for node in graph.nodes)


def values_of(module: Any, args: Sequence[Any]) -> Values:
    """Return the type of every node's result, as fake tensors, for arguments of a call.

    Args:
        module: a ``GraphModule`` of aten operators.
        args: tensors and numbers, one for each placeholder. Only their types count.

    Raises:
        UnknownExtentError: an extent or a number depends on what no argument tells.
    """
    if not has_symbols(module.graph):
        return {node: node.meta.get("val") for node in module.graph.nodes}
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    extents = _Extents(zip((node.meta.get("val") for node in nodes), args, strict=True))
    fake = submodule("torch._subclasses.fake_tensor").FakeTensorMode(allow_non_fake_inputs=True)
    with fake:
        return {node: extents.substituted(node.meta.get("val")) for node in module.graph.nodes}


def solution(expression: Any, number: int) -> tuple[Any, int] | None:
    """Return the only symbol of an expression such as ``2*s``, and its value for a number.

    Args:
        expression: of sympy.
        number: what the expression is.

    Returns:
        None if there are several symbols or none, or if it is not linear, or if no whole number
        solves it.
    """
    symbols = tuple(expression.free_symbols)
    if len(symbols) != 1:
        return None
    (symbol,) = symbols
    start, step = expression.subs(symbol, 0), expression.diff(symbol)
    if not (start.is_Integer and step.is_Integer and step):
        return None
    value, rest = divmod(number - int(start), int(step))
    return None if rest else (symbol, value)


class _Extents:
    """The numbers that the symbols of a graph stand for in one call."""

    def __init__(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Find them out.

        Args:
            pairs: of each argument what it was traced with, and what it is.
        """
        self._known: dict[Any, Any] = {}
        self._numbers: dict[Any, Any] = {}
        for traced, given in pairs:
            if isinstance(traced, torch.Tensor):
                for symbol, number in zip(traced.shape, given.shape, strict=True):
                    self._learn(symbol, number)
                for symbol, number in zip(traced.stride(), given.stride(), strict=True):
                    self._learn(symbol, number)
            else:
                self._learn(traced, given)

    def _learn(self, traced: Any, number: Any) -> None:
        if not isinstance(traced, _symbolic()):
            return
        expression = traced.node.expr
        if not expression.is_Symbol:  # an extent such as 2 * s, where no extent is s
            if not expression.free_symbols:
                return
            solved = solution(expression.xreplace(self._known), int(number))
            if solved is None:
                return
            expression, number = solved
        self._known.setdefault(expression, submodule("sympy").sympify(number))

    def number(self, traced: Any) -> Any:
        """Return the number for one that may be symbolic.

        Raises:
            UnknownExtentError: it depends on symbols that are in no argument.
        """
        if not isinstance(traced, _symbolic()):
            return traced
        expression = traced.node.expr
        if expression not in self._numbers:
            found = expression.xreplace(self._known)
            if found.free_symbols:
                raise UnknownExtentError(f"no argument tells {expression}")
            self._numbers[expression] = traced.node.pytype(found)
        return self._numbers[expression]

    def _strides(self, value: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the strides of a tensor; those of a dense one where no argument tells them.

        A backward graph may have results with the strides of inputs of the forward graph.
        """
        try:
            return tuple(map(self.number, value.stride()))
        except UnknownExtentError:
            return row_major(shape)

    def substituted(self, value: Any) -> Any:
        """Return a result of a node with numbers in place of symbols."""
        if isinstance(value, tuple | list):
            return [self.substituted(item) for item in cast("Sequence[Any]", value)]
        if not isinstance(value, torch.Tensor) or not is_symbolic(value):
            return self.number(value)
        shape = tuple(map(self.number, value.shape))
        strides = self._strides(value, shape)
        return torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)


def _symbolic() -> tuple[Any, ...]:
    return (torch.SymInt, torch.SymFloat, torch.SymBool)


def is_impure(node: Any) -> bool:
    """Return whether a node's result differs from call to call, or it does more than compute."""
    if node.op != "call_function":
        return False
    if isinstance(node.target, submodule("torch._ops").HigherOrderOperator):
        return True  # it draws with a state of the generator
    if not hasattr(node.target, "_schema"):
        return False
    return node.target._schema.is_mutable or _is_random(node)


def is_check(node: Any) -> bool:
    """Return whether a node only raises an error, or not, for what a tensor holds."""
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    if schema is None or schema.returns or schema.is_mutable:
        return False
    return any(tensors_of(read.meta.get("val")) for read in node.all_input_nodes)


def _is_random(node: Any) -> bool:
    """Return whether an operator draws numbers; attention does if it has dropout."""
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    names = [argument.name for argument in node.target._schema.arguments]
    if "dropout_p" not in names:
        return True
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    return given.get("dropout_p", 0.0) != 0


def depends_on_data(node: Any) -> bool:
    """Return whether the shape of a node's result is not known before a run."""
    found = submodule("torch.fx.experimental.symbolic_shapes").has_free_unbacked_symbols
    return bool(found(node.meta.get("val")))


def constants_of(module: Any, known: Values, values: Values) -> dict[Any, Any]:
    """Return the values of all nodes that depend on parameters alone, computed by PyTorch.

    Args:
        module: a ``GraphModule`` of aten operators.
        known: tensors of the placeholders that are parameters or buffers.
        values: the type of every node's result.
    """
    found = dict(known)
    for node in module.graph.nodes:
        if node.op == "get_attr":
            found[node] = _attribute(module, node.target)
        elif node.op == "call_function" and not is_impure(node):
            # Numbers count as known: they are the same in all calls with these shapes.
            reads = [n for n in node.all_input_nodes if tensors_of(values[n])]
            if str(node.target) in UNSET:
                continue
            if str(node.target) in OF_SHAPES:
                found[node] = _of_shape(node, values)
            elif all(n in found for n in reads) and tensors_of(values[node]):
                args, options = resolved((node.args, node.kwargs), found, values)
                with torch.no_grad():
                    found[node] = node.target(*args, **options)
    return found


OF_SHAPES = frozenset(
    f"aten.{name}.default"
    for name in (
        *("empty_like", "full_like", "new_empty", "new_full", "new_ones", "new_zeros"),
        *("ones_like", "zeros_like"),
    )
)
"""Operators that read of their operand no more than its type."""


UNSET = frozenset(
    f"aten.{name}"
    for name in (
        "empty.memory_format",
        "empty_like.default",
        "empty_strided.default",
        "new_empty.default",
    )
)
"""Operators whose results have no values yet; as constants they would only hold memory."""


def _of_shape(node: Any, values: Values) -> Any:
    """Return the result of an operator of :data:`OF_SHAPES`."""
    read = values[node.args[0]]
    stand_in = torch.empty_strided(read.shape, read.stride(), dtype=read.dtype)
    args, options = resolved((node.args, node.kwargs), {node.args[0]: stand_in}, values)
    return node.target(*args, **options)


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def tensors_of(value: Any) -> list[Any]:
    """Return the tensors among the results of a node."""
    return [item for item in listed(value) if isinstance(item, torch.Tensor)]


def listed(value: Any) -> list[Any]:
    """Return the results of a node, one or several, as a list."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, tuple | list) else [value]


def resolved(args: Any, replaced: Values, values: Values) -> Any:
    """Return arguments of a node with other things in place of nodes.

    Args:
        args: arguments of a ``torch.fx`` node.
        replaced: what stands for a node.
        values: what stands for the others: numbers that depend on shapes.
    """

    def one(node: Any) -> Any:
        return replaced[node] if node in replaced else values[node]

    return submodule("torch.fx").map_arg(args, one)
