"""What to keep in memory between two parts of a graph, and what to compute again.

Nodes run in the order of the graph. While the node at position ``split`` runs, the values that
earlier nodes made and later ones read are in memory, except those that are computed again. For each
value there is a choice: it is kept, or the node that makes it runs again, for which the inputs of
this node must be there. The cheapest choice at a price of memory is a minimum cut:

    cost = sum of the times of nodes that run again + price * bytes of kept values

All prices together give the lower convex hull of time against bytes. A hull is found from its ends:
the slope of the line between two of its points is the price at which a point below it shows itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stridewise.classes import dataclass
from stridewise.ops.geometry import stored
from stridewise.planner.plan import PlanData
from stridewise.planner.problem.candidates import Candidate
from stridewise.planner.recompute.cut import Network

__all__ = ["Kept", "Passage"]

_NEAR = 3
"""Values whose next reader is at most so many nodes away are kept: to free them saves nothing."""
_LAUNCH_NS = 1000.0
"""Time of a step beside its kernel, so that what is free is not run again without a reason."""
_SAME = 1e-9
_INFINITY = float("inf")
_MOST_PRICE = 1e6
"""Nanoseconds for each byte: more than any kernel takes."""
_STEPS = 16
"""Steps of the search for the price of the best bound; each removes a third of the interval."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One choice of what is kept.

    Attributes:
        again: the nodes that run again.
        nbytes: of the kept values, those that could be computed again.
        cost_ns: time of the nodes that run again.
    """

    again: frozenset[str]
    nbytes: int
    cost_ns: float


class Passage:
    """The values that pass from the nodes before a position to those from there on."""

    def __init__(self, plan: PlanData, split: int, *, every: bool = False) -> None:
        """Find the values.

        Args:
            plan: the plan.
            split: position of the first node of the later part.
            every: whether nodes have the least time and values the fewest bytes of all candidates,
                for a lower bound, instead of those that the plan chose.
        """
        self.plan, self.split = plan, split
        nodes = plan.graph.nodes
        self._early = {node.name: node for node in nodes[:split]}
        makers = {name: node.name for node in nodes[:split] for name in node.outputs}
        self._makers: Mapping[str, str] = makers
        self._firsts: dict[str, int] = {}
        for position in range(len(nodes) - 1, split - 1, -1):
            known = {name: position for name in nodes[position].inputs if name in makers}
            self._firsts |= known
        self._free = {name for name, first in self._firsts.items() if first < split + _NEAR}
        self._free.update(plan.graph.sinks)
        self._ways: Mapping[str, tuple[Candidate, ...]] = (
            plan.candidates.nodes if every else {d.node: (d.chosen,) for d in plan.decisions}
        )
        self._sizes = {name: self._size(name) for name in makers}

    def _size(self, name: str) -> int:
        """Return the bytes that keeping a value costs; none of a view of another value."""
        if name in self._free:
            return 0
        node, value = self._early[self._makers[name]], self.plan.graph.values[name]
        index, sizes = node.outputs.index(name), set[int]()
        for way in self._ways[node.name]:
            option = way.option
            is_view = any(a.kind == "view" and a.output == index for a in option.aliases)
            sizes.add(0 if is_view else stored(value, option.makes[index]).nbytes)
        return min(sizes)

    def _time(self, node: str) -> float:
        """Return the time to run a node again; without an end if it cannot."""
        ways = self._ways[node]
        if any(way.option.held or way.option.ahead is not None for way in ways):
            return _INFINITY if len(ways) == 1 else 0.0
        return min(way.cost_ns for way in ways) + (_LAUNCH_NS if len(ways) == 1 else 0.0)

    def kept(self, price: float) -> Kept:
        """Return the cheapest choice at a price of memory.

        Args:
            price: in nanoseconds for each byte.
        """
        values = {name: 2 + index for index, name in enumerate(self._makers)}
        repeats = {name: 2 + len(values) + index for index, name in enumerate(self._early)}
        network = Network(2 + len(values) + len(repeats))
        for name, vertex in values.items():
            if name in self._firsts:
                network.add(0, vertex, _INFINITY)
            network.add(vertex, repeats[self._makers[name]], price * self._sizes[name])
        for name, vertex in repeats.items():
            network.add(vertex, 1, self._time(name))
            for source in dict.fromkeys(self._early[name].inputs):
                if source in values:
                    network.add(vertex, values[source], _INFINITY)
        side = network.cut(0, 1)
        again = frozenset(name for name, vertex in repeats.items() if side[vertex])
        nbytes = sum(
            self._sizes[name]
            for name, vertex in values.items()
            if side[vertex] and self._makers[name] not in again
        )
        return Kept(again, nbytes, sum(map(self._time, again)))

    def hull(self, most: int) -> list[Kept]:
        """Return choices on the lower convex hull of time against bytes, most bytes first.

        Args:
            most: number of choices after which no more are searched for.
        """
        whole, least = self.kept(0.0), self.kept(_MOST_PRICE)
        found = {item.again: item for item in (whole, least)}
        spans = [(whole, least)]
        while spans and len(found) < most:
            spans.sort(key=lambda span: span[0].nbytes - span[1].nbytes)
            for middle, span in self._between(*spans.pop()):
                found[middle.again] = middle
                spans += span
        return sorted(found.values(), key=lambda item: (-item.nbytes, item.cost_ns))

    def _between(self, left: Kept, right: Kept) -> Iterator[tuple[Kept, list[tuple[Kept, Kept]]]]:
        """Yield the choice below the line between two choices, if there is one."""
        if left.nbytes <= right.nbytes:
            return
        price = (right.cost_ns - left.cost_ns) / (left.nbytes - right.nbytes)
        middle = self.kept(price)
        line = left.cost_ns + price * left.nbytes
        if middle.cost_ns + price * middle.nbytes < line * (1 - _SAME):
            yield middle, [(left, middle), (middle, right)]

    def bound(self, nbytes: int) -> float:
        """Return a time that running nodes again takes at least, if so many bytes may be kept.

        This is the Lagrangian bound: at any price, no choice within the limit costs less than the
        cheapest one, of which the limit's price is taken off. It is concave in the price.

        Args:
            nbytes: of kept values.
        """

        def value(price: float) -> float:
            found = self.kept(price)
            return found.cost_ns + price * (found.nbytes - nbytes)

        low, high = 0.0, 1.0
        while value(2 * high) > value(high) and high < _MOST_PRICE:
            high *= 2
        high *= 2
        for _ in range(_STEPS):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (left, high) if value(left) < value(right) else (low, right)
        return max(value(high), 0.0)
