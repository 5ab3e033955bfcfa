"""How an exported program is called: from PyTorch's arguments to dense arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from numpy.typing import NDArray

from stridewise.errors import InputError
from stridewise.frontends.torch.graphs import memory_order
from stridewise.frontends.torch.library import submodule, torch
from stridewise.frontends.torch.reader import array_of, tensor_of
from stridewise.frontends.torch.values import solution
from stridewise.graph import Shapes

__all__ = ["Argument", "Limits", "ProgramCalls", "least", "most", "order_of"]

Array = NDArray[Any]


def order_of(traced: Any) -> tuple[int, ...]:
    """Return the axes of a traced tensor from the outermost to the innermost in memory."""
    extents = [n if isinstance(n, int) else n.node.hint for n in traced.shape]
    steps = [n if isinstance(n, int) else n.node.hint for n in traced.stride()]
    return memory_order(extents, steps)


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a program, flattened.

    Attributes:
        name: of the argument.
        traced: the tensor that it was exported with; a value of another type stands for itself.
        order: axes of a tensor in the order of the arrays, outermost first.
    """

    name: str
    traced: Any
    order: tuple[int, ...] = ()

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return isinstance(self.traced, torch.Tensor)

    def array(self, given: Any, limits: Limits) -> Array:
        """Return an argument of a call as a dense array in the order of the program.

        Raises:
            InputError: it does not fit.
        """
        if not isinstance(given, torch.Tensor):
            raise self._unfit(type(given).__name__, limits)
        if (
            given.dtype != self.traced.dtype
            or given.device.type != "cpu"
            or given.layout != torch.strided
            or not limits.fit(given.shape, self.traced.shape)
        ):
            kind = "" if given.layout == torch.strided else f" of layout {given.layout}"
            found = f"{given.dtype} and shape {tuple(given.shape)} on {given.device}{kind}"
            raise self._unfit(found, limits)
        return array_of(given.permute(self.order).contiguous())

    def _unfit(self, found: str, limits: Limits) -> InputError:
        shape = limits.shown(self.traced.shape)
        expected = f"a tensor of {self.traced.dtype} and shape {shape} on cpu"
        fix = "compile with such example inputs, or with shapes= that leave extents open"
        where = f"argument {self.name!r}"
        return InputError.at(where, expected=expected, found=found, fix=fix)


class Limits:
    """The extents of one call, checked against those of a program."""

    def __init__(self, ranges: Mapping[Any, Any]) -> None:
        """Start a call.

        Args:
            ranges: what each symbol may be.
        """
        self._ranges = ranges
        self._symbols: dict[Any, int] = {}

    def fit(self, shape: Sequence[int], wanted: Sequence[Any]) -> bool:
        """Return whether a shape is what was exported."""
        return len(shape) == len(wanted) and all(map(self._fits, shape, wanted))

    def shown(self, wanted: Sequence[Any]) -> str:
        """Return a shape for messages: symbols with what they may be, such as ``b: 1..16``."""
        known = {
            str(symbol): f"{least(limits)}..{most(limits)}"
            for symbol, limits in self._ranges.items()
            if most(limits) is not None
        }
        texts = [f"{n}: {known[str(n)]}" if str(n) in known else str(n) for n in wanted]
        return f"({', '.join(texts)})"

    def _fits(self, extent: int, wanted: Any) -> bool:
        if not isinstance(wanted, torch.SymInt):
            return extent == wanted
        expression = wanted.node.expr
        if expression.is_Symbol and expression not in self._symbols:
            return self._learns(expression, extent)
        found = expression.subs(self._symbols)
        if found.is_number:
            return int(found) == extent
        solved = solution(found, extent)
        return solved is not None and self._learns(*solved)

    def _learns(self, symbol: Any, extent: int) -> bool:
        self._symbols[symbol] = extent
        limits = self._ranges.get(symbol)
        return limits is None or least(limits) <= extent <= limits.upper


def least(limits: Any) -> int:
    """Return the least extent of a symbol; PyTorch writes 2 for all that have no limit."""
    low = int(limits.lower)
    return 0 if low == 2 else low


def most(limits: Any) -> int | None:
    """Return the greatest extent of a symbol; None if it has no limit."""
    return int(limits.upper) if limits.upper.is_finite and limits.upper < 1 << 48 else None


class ProgramCalls:
    """The arguments and results of an exported program.

    It is the ``CallConvention`` of PyTorch.
    """

    def __init__(
        self,
        program: Any,
        arguments: Sequence[Argument],
        results: Sequence[tuple[int | None, Any]],
    ) -> None:
        """Describe the calls.

        Args:
            program: the exported program.
            arguments: its arguments, flattened.
            results: for each flat result the position of an output, and the permutation to its
                logical order; or None, and a value of its own.
        """
        self._in_spec, self._out_spec = program.call_spec.in_spec, program.call_spec.out_spec
        self._ranges = program.range_constraints
        self._arguments, self._results = tuple(arguments), tuple(results)
        tree = submodule("torch.utils._pytree")
        self._flatten, self._unflatten = tree.tree_flatten, tree.tree_unflatten

    def stored(self, shapes: Shapes) -> Shapes:
        """Return shapes in the order of the arrays for shapes in PyTorch's logical order."""
        orders = {item.name: item.order for item in self._arguments if item.is_tensor}

        def permuted(shape: Any, order: Sequence[int]) -> Any:
            if isinstance(shape, str) or len(shape) != len(order):
                return shape  # the signature refuses it
            return type(shape)(shape[axis] for axis in order)

        found: dict[str, Any] = {}
        for name, shape in shapes.items():
            order = orders.get(name, ())
            whole = isinstance(shape, list) and all(isinstance(item, tuple) for item in shape)
            found[name] = [permuted(s, order) for s in shape] if whole else permuted(shape, order)
        return found

    def arrays(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Array]:
        """Return the arrays of a call.

        Args:
            args: positional arguments of the module.
            kwargs: its keyword arguments.

        Raises:
            InputError: an argument does not fit what was exported.
        """
        given, spec = self._flatten((tuple(args), dict(kwargs)))
        if spec != self._in_spec:
            raise InputError.at(
                "compiled module",
                expected=f"arguments as exported: {self._in_spec}",
                found=str(spec),
            )
        limits = Limits(self._ranges)
        found: list[Array] = []
        for argument, item in zip(self._arguments, given, strict=True):
            if argument.is_tensor:
                found.append(argument.array(item, limits))
            elif item != argument.traced:
                raise InputError.at(
                    f"argument {argument.name!r}",
                    expected=repr(argument.traced),
                    found=repr(item),
                    fix="compile with this value among the example inputs",
                )
        return found

    def named(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments by name as arrays in the order of the program.

        Args:
            inputs: tensors or arrays in PyTorch's logical order; unknown names stay.

        Raises:
            InputError: they are no mapping, or one does not fit what was exported.
        """
        if not isinstance(cast("object", inputs), Mapping):
            names = ", ".join(f"{argument.name!r}: ..." for argument in self._arguments)
            raise InputError.at(
                "inputs of the module",
                expected="a mapping from names to tensors",
                found=type(inputs).__name__,
                fix=f"pass {{{names}}}",
            )
        limits, found = Limits(self._ranges), dict(inputs)
        for argument in self._arguments:
            if argument.name in found:
                tensor = torch.as_tensor(found[argument.name])
                found[argument.name] = argument.array(tensor, limits)
        return found

    def results(self, outputs: Sequence[Array]) -> Any:
        """Return what the module returns, for the outputs of the program."""
        found: list[Any] = []
        for position, rest in self._results:
            if position is not None:
                found.append(tensor_of(outputs[position]).permute(rest))
            else:  # the caller may write to it
                found.append(rest.clone() if isinstance(rest, torch.Tensor) else rest)
        return self._unflatten(found, self._out_spec)

    def output(self, position: int, array: Array) -> Any:
        """Return an output as a tensor in PyTorch's logical order.

        Args:
            position: of the output among those of the program.
            array: the output.
        """
        back = next(rest for at, rest in self._results if at == position)
        return tensor_of(array).permute(back)
