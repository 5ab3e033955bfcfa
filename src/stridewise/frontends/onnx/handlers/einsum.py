"""Einsum: contractions as matrix products, for which targets have kernels.

Operands are combined in pairs, from the left. An axis is *kept* if the result or a later operand
has it. Axes of both operands that are kept become the batch of a matrix product, together with the
axes of one operand in front of them. Axes of both operands that are not kept are summed over by the
product. Axes of one operand that are kept become its rows or columns; those that are not kept are
summed first. An operand with a diagonal (a letter twice) stays an ``einsum`` of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from stridewise.classes import dataclass
from stridewise.errors import GraphError
from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Attr, Node
from stridewise.ops.einsum import Terms, parse_equation

__all__ = ["EXPORTERS", "HANDLERS"]

_PRODUCTS = frozenset(
    {"float64", "float32", "float16", "bfloat16", "int64", "int32", "uint64", "uint32"}
)
"""Element types for which ONNX has both matrix products and sums."""


@dataclass(frozen=True, slots=True)
class _Term:
    """A value, and a letter for each of its axes."""

    name: str
    letters: str


class _Contraction:
    """Writes one Einsum as nodes; each step takes terms and returns one."""

    def __init__(self, imp: Importer, node: OnnxNode) -> None:
        self.imp, self.node = imp, node
        self._steps = 0

    def _step(self, op: str, names: Sequence[str], letters: str, **attrs: Attr) -> _Term:
        self._steps += 1
        return _Term(self.imp.step(self.node, f"{op}{self._steps}", op, names, attrs), letters)

    def _extent(self, term: _Term, letter: str) -> int:
        return (
            self.imp.shape(term.name)[term.letters.index(letter)] if letter in term.letters else 1
        )

    def summed(self, term: _Term, keep: frozenset[str]) -> _Term:
        """Sum over the axes that are not kept."""
        gone = tuple(axis for axis, item in enumerate(term.letters) if item not in keep)
        if not gone:
            return term
        left = "".join(item for item in term.letters if item in keep)
        return self._step("reduce_sum", [term.name], left, axes=gone, keepdims=0)

    def ordered(self, term: _Term, letters: str) -> _Term:
        """Transpose a term; letters that it does not have are ignored."""
        wanted = "".join(item for item in letters if item in term.letters)
        if wanted == term.letters:
            return term
        perm = tuple(term.letters.index(item) for item in wanted)
        return self._step("transpose", [term.name], wanted, perm=perm)

    def shaped(self, term: _Term, shape: Sequence[int], letters: str) -> _Term:
        """Reshape a term."""
        if tuple(shape) == self.imp.shape(term.name):
            return _Term(term.name, letters)
        return self._step("reshape", [term.name], letters, shape=tuple(shape))

    def _multiplied(self, a: _Term, b: _Term) -> _Term:
        """Multiply element by element with broadcasting, as no axis is summed over."""
        letters = a.letters + "".join(item for item in b.letters if item not in a.letters)
        sides = [
            self.shaped(
                self.ordered(term, letters),
                [self._extent(term, item) for item in letters],
                letters,
            )
            for term in (a, b)
        ]
        return self._step("mul", [side.name for side in sides], letters)

    def _leading(self, term: _Term, other: _Term, inner: str) -> str:
        """Return the possible batch: all axes up to the last one that both operands keep."""
        common = [
            axis
            for axis, item in enumerate(term.letters)
            if item in other.letters and item not in inner
        ]
        front = term.letters[: max(common, default=-1) + 1]
        return "".join(item for item in front if item not in inner)

    def contracted(self, a: _Term, b: _Term, keep: frozenset[str]) -> _Term:
        """Multiply two terms and sum over the axes of both that are not kept."""
        shared = [item for item in a.letters if item in b.letters]
        inner = "".join(item for item in shared if item not in keep)
        if any(self._extent(a, item) != self._extent(b, item) for item in inner):
            product = self._multiplied(a, b)  # an axis of extent 1 counts as often as the other
            return self.summed(product, keep)
        if not inner:
            return self._multiplied(a, b)
        if self.imp.const(a.name) is not None:
            a, b = b, a  # the library packs weights on the right
        batch = max(self._leading(a, b, inner), self._leading(b, a, inner), key=len)
        rows = "".join(item for item in a.letters if item not in b.letters + batch)
        columns = "".join(item for item in b.letters if item not in a.letters + batch)
        left = self.ordered(a, batch + rows + inner)
        right = self.ordered(b, batch + inner + columns)

        def extents(term: _Term, letters: str) -> tuple[int, ...]:
            return tuple(self._extent(term, item) for item in letters)

        whole = (prod(extents(a, rows)), prod(extents(a, inner)), prod(extents(b, columns)))
        left = self.shaped(left, (*extents(a, batch), *whole[:2]), left.letters)
        right = self.shaped(right, (*extents(b, batch), *whole[1:]), right.letters)
        result = self._step("matmul", [left.name, right.name], batch + rows + columns)
        shared_extents = tuple(
            max(pair) for pair in zip(extents(a, batch), extents(b, batch), strict=True)
        )
        shape = (*shared_extents, *extents(a, rows), *extents(b, columns))
        return self.shaped(result, shape, result.letters)

    def diagonal(self, term: _Term) -> _Term:
        """Take the diagonal of axes that have the same letter."""
        letters = "".join(dict.fromkeys(term.letters))
        if letters == term.letters:
            return term
        return self._step("einsum", [term.name], letters, equation=f"{term.letters}->{letters}")

    def run(self, terms: Terms) -> str:
        """Write the nodes and return the name of the result."""
        operands = [
            self.diagonal(_Term(self.node.required(index), letters))
            for index, letters in enumerate(terms.inputs)
        ]
        total: _Term | None = None
        for index, operand in enumerate(operands):
            later = "".join(item.letters for item in operands[index + 1 :])
            keep = frozenset(terms.output + later)
            before = total.letters if total is not None else ""
            own = self.summed(operand, keep | frozenset(before))
            if total is None:
                total = own
            else:
                total = self.summed(total, keep | frozenset(own.letters))
                total = self.contracted(total, own, keep)
        if total is None:
            raise self.node.error("operands", "none")
        return self.ordered(total, terms.output).name


def _einsum(imp: Importer, node: OnnxNode) -> None:
    names = [node.required(index) for index in range(max(len(node.inputs), 1))]
    equation = node.text("equation")
    shapes = tuple(imp.shape(name) for name in names)
    try:
        terms = parse_equation(equation, tuple(len(shape) for shape in shapes))
        terms.extents(shapes)
    except ValueError as error:
        raise node.error(f"operands that fit {equation!r}", error) from error
    if imp.type(names[0]).dtype.name not in _PRODUCTS or any(0 in shape for shape in shapes):
        imp.emit(node, "einsum", names, {"equation": equation})
        return
    try:
        imp.alias(node.outputs[0], _Contraction(imp, node).run(terms))
    except GraphError as error:
        raise node.error("operands of one element type", error) from error


def _write_einsum(writer: Writer, node: Node) -> None:
    writer.emit(node, "Einsum", node.inputs, {"equation": node.str_attr("equation")})


HANDLERS: dict[str, Handler] = {"Einsum": _einsum}

EXPORTERS: dict[str, Exporter] = {"einsum": _write_einsum}
