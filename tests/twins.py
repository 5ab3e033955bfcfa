"""Random networks built twice, in NCHW and in NHWC, by rules that the package knows nothing of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests.networks import Net, Random

from stridewise.graph import Graph
from stridewise.ops import OPS, GraphBuilder

__all__ = ["TO_LAST", "Twins", "twins"]

TO_LAST = {4: (0, 2, 3, 1), 5: (0, 3, 4, 1, 2)}
"""From NCHW to NHWC; five axes are those of channels split in two."""


def back(rank: int) -> tuple[int, ...]:
    return tuple(TO_LAST[rank].index(axis) for axis in range(rank))


@dataclass(frozen=True)
class Twins:
    """One network in both data formats.

    Attributes:
        first: in NCHW.
        last: in NHWC, inputs and outputs included.
        framed: in NHWC between inputs and outputs in NCHW.
    """

    first: Graph
    last: Graph
    framed: Graph


class TwinNet(Net):
    """Builds in NCHW; each call is repeated in NHWC by two other builders."""

    def __init__(self, name: str = "random") -> None:
        super().__init__(name)
        self.last = GraphBuilder(name, data_format="NHWC")
        self.framed = GraphBuilder(name, data_format="NHWC")
        self.others: dict[str, tuple[str, str]] = {}

    def turned(self, name: str) -> bool:
        return len(self.type(name).shape) in TO_LAST and self.data(name) is None

    def both(self, op: str, pairs: Sequence[tuple[str, str]], attrs: Any = None) -> tuple[str, str]:
        lasts, frameds = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return self.last.op(op, lasts, attrs), self.framed.op(op, frameds, attrs)

    def transposed(self, pair: tuple[str, str], perm: tuple[int, ...]) -> tuple[str, str]:
        return self.both("transpose", [pair], {"perm": perm})

    def input(self, name: str, shape: Sequence[int], dtype: Any = "float32") -> str:
        super().input(name, shape, dtype)
        outer = self.framed.input(name, shape, dtype)
        inner = self.framed.op("transpose", [outer], {"perm": TO_LAST[4]})
        self.others[name] = (self.last.input(name, [shape[axis] for axis in TO_LAST[4]]), inner)
        return name

    def operand(self, name: str, rank: int) -> tuple[str, str]:
        """A constant beside values of a rank, in their order."""
        data = self.data(name)
        assert data is not None
        full = data.reshape((1,) * (rank - data.ndim) + data.shape)
        turned = full.transpose(TO_LAST[rank]) if rank in TO_LAST else full
        return self.last.constant(turned), self.framed.constant(turned)

    def op(self, op: str, inputs: Sequence[str], attrs: Any = None, **names: str) -> str:
        result = super().op(op, inputs, attrs, **names)
        self.others[result] = self.repeated(op, inputs, dict(attrs or {}), result)
        return result

    def repeated(
        self, op: str, inputs: Sequence[str], attrs: dict[str, Any], result: str
    ) -> tuple[str, str]:
        x, rank = inputs[0], len(self.type(result).shape)
        if op == "reshape":
            return self.reshaped(x, attrs["shape"], self.others.get(x) or self.plain(x))
        if OPS[op].origin == "anchor":
            rest = [self.plain(name) for name in inputs[1:]]
            return self.both(op, [self.others[x], *rest], attrs)
        pairs = [self.others.get(name) or self.operand(name, rank) for name in inputs]
        return self.both(op, pairs, self.moved(op, attrs, rank) if rank in TO_LAST else attrs)

    def plain(self, name: str) -> tuple[str, str]:
        data = self.data(name)
        assert data is not None
        return self.last.constant(data), self.framed.constant(data)

    def moved(self, op: str, attrs: Mapping[str, Any], rank: int) -> dict[str, Any]:
        """The attributes of an operator on axes in the other order."""
        order, found = TO_LAST[rank], dict(attrs)
        if op == "transpose":
            found["perm"] = tuple(order.index(attrs["perm"][axis]) for axis in order)
        elif op == "pad":
            begins, ends = attrs["pads"][:rank], attrs["pads"][rank:]
            found["pads"] = tuple(side[axis] for side in (begins, ends) for axis in order)
        elif op == "slice":
            found |= {key: tuple(attrs[key][axis] for axis in order) for key in attrs}
        elif "axis" in attrs:
            found["axis"] = order.index(attrs["axis"])
        elif "axes" in attrs:
            found["axes"] = tuple(sorted(order.index(axis) for axis in attrs["axes"]))
        return found

    def reshaped(self, x: str, shape: tuple[int, ...], pair: tuple[str, str]) -> tuple[str, str]:
        before = self.type(x).shape
        split = sorted((len(before), len(shape))) == [4, 5] and before[-2:] == shape[-2:]
        if split and before[0] == shape[0] and self.turned(x):
            other = tuple(shape[axis] for axis in TO_LAST[len(shape)])
            return self.both("reshape", [pair], {"shape": other})
        if self.turned(x):
            pair = self.transposed(pair, back(len(before)))
        pair = self.both("reshape", [pair], {"shape": shape})
        return self.transposed(pair, TO_LAST[len(shape)]) if len(shape) in TO_LAST else pair

    def twins(self, outputs: Sequence[str]) -> Twins:
        lasts, frameds = zip(*(self.others[name] for name in outputs), strict=True)
        ends = [
            self.framed.op("transpose", [name], {"perm": back(4)}, name=f"end{index}")
            for index, name in enumerate(frameds)
        ]
        return Twins(self.build(outputs), self.last.build(lasts), self.framed.build(ends))


@st.composite
def twins(draw: Any) -> Twins:
    net = TwinNet()
    grown = Random(draw, net)
    # Without an operator that names axes, the data format is unknown.
    grown.values = [grown.conv(grown.values[0])]
    for _ in range(draw(st.integers(2, 9))):
        grown.values.append(grown.step())
    asked = [grown.values[-1], *draw(st.lists(st.sampled_from(grown.values), max_size=2))]
    return net.twins(asked)


def to_last(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array.transpose(TO_LAST[4]))
