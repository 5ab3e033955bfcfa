"""The text form of a graph: printed and parsed back identically.

::

    graph "net" (%x: f32[1,3,8,8] @NCHW) {
      const %w: f32[4,3,3,3] sha 0f3a...
      const %b: f32[4] = [0.0, 1.0, 2.0, 3.0]
      %y: f32[1,4,8,8] @NCHW = conv(%x, %w, %b) {pads=[1, 1, 1, 1]} post [relu(0.0, 0.0)] "conv1"
      return %y
    }

Parameters and states are lines ``param`` and ``state`` like those of constants. After the nodes,
``update %mean = %new`` says which value a state or parameter has after a run.

A tail is a line ``tail {inputs=["y"], ...} foreign 0f3a...`` before the last.

Constants of up to eight elements are written out. Larger ones, those with NaN, and foreign parts
appear as their digests. The parser takes them from the constants and parts that it is given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np

from stridewise.dtypes import dtype_of
from stridewise.errors import GraphError
from stridewise.formats import Format, parse
from stridewise.graph.constant import Constant
from stridewise.graph.foreign import ForeignPart
from stridewise.graph.graph import TAIL_LISTS, Attr, Graph, Node, PostOp, TensorType, Value
from stridewise.graph.partition import Tail

__all__ = ["from_text"]

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<ref>%(?:"(?:[^"\\]|\\.)*"|[A-Za-z_][\w./-]*))
    | (?P<number>-?(?:inf|nan|\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w]))
    | (?P<word>\w+)
    | (?P<mark>[()\[\]{},:=@])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)


class _Parser:
    """A recursive-descent parser; each method reads one construct of the grammar above."""

    def __init__(
        self, text: str, constants: Iterable[Constant], parts: Iterable[ForeignPart]
    ) -> None:
        self.text = text
        self.position = 0
        self.store = {constant.digest: constant for constant in constants}
        self.parts = {part.digest: part for part in parts}
        self.values: dict[str, Value] = {}

    def fail(self, expected: str) -> GraphError:
        line = self.text.count("\n", 0, self.position) + 1
        rest = self.text[self.position :].strip().split("\n")[0][:30]
        return GraphError.at(f"graph text, line {line}", expected=expected, found=repr(rest))

    def peek(self) -> tuple[str, str]:
        match = _TOKEN.match(self.text, self.position)
        if match is None or match.lastgroup is None:
            raise self.fail("a token")
        return match.lastgroup, match[match.lastgroup]

    def take(self, kind: str, exact: str | None = None) -> str:
        found_kind, found = self.peek()
        if found_kind != kind or (exact is not None and found != exact):
            raise self.fail(exact or f"a {kind}")
        match = _TOKEN.match(self.text, self.position)
        assert match is not None  # peek() has just matched it
        self.position = match.end()
        return found

    def maybe(self, kind: str, exact: str) -> bool:
        if self.peek() == (kind, exact):
            self.take(kind, exact)
            return True
        return False

    def string(self) -> str:
        text: str = json.loads(self.take("string"))
        return text

    def ref(self) -> str:
        if self.maybe("word", "_"):
            return ""
        name = self.take("ref")[1:]
        unquoted: str = json.loads(name) if name.startswith('"') else name
        return unquoted

    def number(self) -> int | float:
        text = self.take("number")
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)

    def items(self, opening: str, closing: str) -> Iterable[None]:
        """Yield once for each element of a comma-separated list; the caller reads it."""
        self.take("mark", opening)
        if self.maybe("mark", closing):
            return
        while True:
            yield
            if self.maybe("mark", closing):
                return
            self.take("mark", ",")

    def define(self) -> Value:
        name = self.ref()
        self.take("mark", ":")
        dtype = dtype_of(self.take("word"))
        shape = tuple(int(self.number()) for _ in self.items("[", "]"))
        origin: Format | None = None
        if self.maybe("mark", "@"):
            origin = parse(self.take("word"))
        value = Value(name, TensorType(dtype, shape), origin)
        if name in self.values:
            raise self.fail(f"a new name instead of {name!r}")
        self.values[name] = value
        return value

    def constant(self, value: Value) -> Constant:
        if self.maybe("word", "sha"):
            return self.stored()
        self.take("mark", "=")
        items = [self.scalar() for _ in self.items("[", "]")]
        return Constant(np.array(items, dtype=value.dtype.numpy).reshape(value.shape))

    def stored(self) -> Constant:
        digest = self.take(self.peek()[0])
        if digest not in self.store:
            raise self.fail(f"constants=... with the constant of digest {digest}")
        return self.store[digest]

    def part(self) -> ForeignPart:
        digest = self.take(self.peek()[0])
        if digest not in self.parts:
            raise self.fail(f"parts=... with the foreign part of digest {digest}")
        return self.parts[digest]

    def attrs(self) -> tuple[tuple[str, Attr], ...]:
        found: list[tuple[str, Attr]] = []
        for _ in self.items("{", "}"):
            key = self.take("word")
            self.take("mark", "=")
            found.append((key, self.attr()))
        return tuple(found)

    def tail(self) -> Tail | None:
        if not self.maybe("word", "tail"):
            return None
        found = dict(self.attrs())
        lists = {
            key: tuple(str(item) for item in value)
            for key, value in found.items()
            if key in TAIL_LISTS and isinstance(value, tuple)
        }
        if len(lists) != len(TAIL_LISTS):
            raise self.fail(f"a tail with {', '.join(TAIL_LISTS)}")
        return Tail(self.part() if self.maybe("word", "foreign") else None, **lists)

    def scalar(self) -> int | float | bool:
        if self.peek()[0] == "word":
            return self.take("word") == "True"
        return self.number()

    def attr(self) -> Attr:
        kind, text = self.peek()
        if kind == "string":
            return self.string()
        if (kind, text) == ("mark", "["):
            # Elements have one type; the union of tuples cannot be told apart while reading.
            return tuple(self.attr() for _ in self.items("[", "]"))  # type: ignore[return-value]
        if self.maybe("word", "foreign"):
            return self.part()
        return self.number()

    def post_op(self) -> PostOp:
        op = self.take("word")
        numbers = [self.number() for _ in self.items("(", ")")]
        operand = int(numbers[2]) if len(numbers) > 2 else None
        return PostOp(op, float(numbers[0]), float(numbers[1]), operand)

    def node(self) -> Node:
        outputs = [self.define().name]
        while self.maybe("mark", ","):
            outputs.append(self.define().name)
        self.take("mark", "=")
        op = self.take("word")
        inputs = tuple(self.ref() for _ in self.items("(", ")"))
        attrs = self.attrs() if self.peek() == ("mark", "{") else ()
        post: tuple[PostOp, ...] = ()
        if self.maybe("word", "post"):
            post = tuple(self.post_op() for _ in self.items("[", "]"))
        return Node(self.string(), op, inputs, tuple(outputs), attrs, post)

    def data(self, kind: str) -> Mapping[str, Constant]:
        found: dict[str, Constant] = {}
        while self.maybe("word", kind):
            value = self.define()
            found[value.name] = self.constant(value)
        return MappingProxyType(found)

    def updates(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        while self.maybe("word", "update"):
            name = self.ref()
            self.take("mark", "=")
            found[name] = self.ref()
        return MappingProxyType(found)

    def graph(self) -> Graph:
        self.take("word", "graph")
        name = self.string()
        inputs = tuple(self.define().name for _ in self.items("(", ")"))
        self.take("mark", "{")
        constants, parameters, states = map(self.data, ("const", "param", "state"))
        nodes: list[Node] = []
        while self.peek()[0] == "ref":
            nodes.append(self.node())
        updates = self.updates()
        tail = self.tail()
        self.take("word", "return")
        outputs = [self.ref()] if self.peek() != ("mark", "}") else []
        while self.maybe("mark", ","):
            outputs.append(self.ref())
        self.take("mark", "}")
        self.take("end")
        return Graph(
            name,
            inputs,
            tuple(outputs),
            tuple(nodes),
            MappingProxyType(self.values),
            constants,
            tail,
            parameters,
            states,
            updates,
        )


def from_text(
    text: str,
    constants: Mapping[str, Constant] | None = None,
    parts: Iterable[ForeignPart] = (),
) -> Graph:
    """Return the graph that a text describes.

    Args:
        text: what :func:`~stridewise.graph.graph.to_text` printed.
        constants: the constants that appear as digests; the keys don't matter.
        parts: the foreign parts, which appear as digests.

    Raises:
        GraphError: the text does not parse, or names a constant or part that is not given.
    """
    return _Parser(text, (constants or {}).values(), parts).graph()
