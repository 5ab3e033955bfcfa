"""Which foreign nodes run together: the maximal convex clusters of a graph.

A node is *foreign* if another runtime has to compute it. Neighboring foreign nodes become one
cluster, to limit the transfers between runtimes, unless a path leaves the cluster and returns
through other nodes: such a cluster could not run in one piece. The *tail* runs last.

Nodes are numbers in topological order.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from stridewise.classes import dataclass

__all__ = ["Part", "PartKind", "partition"]

PartKind = Literal["native", "fallback", "tail"]


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes that run in one piece, in order; each native node is a separate part."""

    kind: PartKind
    nodes: tuple[int, ...]


class _Quotient:
    """The graph of groups of nodes; the name of a group is its first member."""

    def __init__(self, before: Sequence[Collection[int]]) -> None:
        self.before = {node: set(sources) for node, sources in enumerate(before)}
        self.after: dict[int, set[int]] = {node: set() for node in self.before}
        for node, sources in self.before.items():
            for source in sources:
                self.after[source].add(node)
        self.members = {node: [node] for node in self.before}
        self._owners = list(self.before)

    def owner(self, node: int) -> int:
        """Return the group of a node."""
        while self._owners[node] != node:
            self._owners[node] = self._owners[self._owners[node]]
            node = self._owners[node]
        return node

    def merge(self, one: int, other: int) -> int:
        """Merge two groups and return the name of the result."""
        kept, gone = sorted((self.owner(one), self.owner(other)))
        if kept == gone:
            return kept
        self._owners[gone] = kept
        self.members[kept] += self.members.pop(gone)
        for links, back in ((self.before, self.after), (self.after, self.before)):
            for neighbor in links[gone]:
                back[neighbor].discard(gone)
                back[neighbor].add(kept)
            links[kept] |= links.pop(gone)
        for links in (self.before, self.after):
            links[kept] -= {kept, gone}
        return kept

    def order(self) -> list[int]:
        """Return the groups in topological order, independent ones by their names.

        Groups on a cycle, and those that depend on one, are omitted.
        """
        waiting = {group: len(sources) for group, sources in self.before.items()}
        ready = [group for group, count in waiting.items() if not count]
        heapq.heapify(ready)
        found: list[int] = []
        while ready:
            group = heapq.heappop(ready)
            found.append(group)
            for reader in self.after[group]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(ready, reader)
        return found

    def reachable(self, start: Iterable[int], links: dict[int, set[int]]) -> set[int]:
        """Return the groups that are reachable along links, including the start."""
        stack = list(start)
        seen = set(stack)
        while stack:
            for neighbor in links[stack.pop()]:
                if neighbor not in seen:
                    seen.add(neighbor)
                    stack.append(neighbor)
        return seen

    def untangle(self, group: int) -> int:
        """Merge a group with all groups on paths from it to itself."""
        ahead = self.reachable(self.after[group], self.after)
        back = self.reachable(self.before[group], self.before)
        for between in ahead & back:
            group = self.merge(group, between)
        return group

    def has_detour(self, source: int, target: int) -> bool:
        """Return whether a path leads from one group to a later one through a third."""
        return target in self.reachable(self.after[source] - {target}, self.after)


def _unite(graph: _Quotient, pairs: Iterable[tuple[int, int]], tail: Collection[int]) -> set[int]:
    """Merge inseparable nodes and all nodes between them; return the groups."""
    links = [*pairs, *((first, second) for first in tail for second in list(tail)[:1])]
    for one, other in links:
        graph.merge(one, other)
    for one, _ in links:
        graph.untangle(graph.owner(one))
    return {graph.owner(one) for one, _ in links}


def _levels(graph: _Quotient, foreign: Collection[int]) -> dict[int, int]:
    """Return the most changes between foreign and native on a path to each group.

    Foreign neighbors of one level can always be merged: a path that leaves them through a native
    node returns at a higher level.
    """
    levels: dict[int, int] = {}
    for group in graph.order():
        levels[group] = max(
            (
                levels[source] + ((source in foreign) != (group in foreign))
                for source in graph.before[group]
            ),
            default=0,
        )
    return levels


def _grow(graph: _Quotient, foreign: set[int], tail: int | None) -> None:
    """Merge foreign neighbors until no pair is left that can be merged."""
    levels = _levels(graph, foreign)
    for group in sorted(foreign):
        for reader in list(graph.after.get(group, ())):
            same = reader in foreign and levels[reader] == levels[group]
            if same and tail not in (reader, group):
                _merge(graph, foreign, group, reader)
    changed = True
    while changed:
        changed = False
        for group in sorted(foreign):
            if group not in foreign:
                continue  # merged in this pass
            for reader in sorted(graph.after[group] & foreign):
                if _can_merge(graph, group, reader, tail):
                    _merge(graph, foreign, group, reader)
                    changed = True
                    break


def _can_merge(graph: _Quotient, group: int, reader: int, tail: int | None) -> bool:
    if tail is not None and reader == graph.owner(tail):
        return graph.after[group] == {reader}  # all other groups run before the tail
    return not graph.has_detour(group, reader)


def _merge(graph: _Quotient, foreign: set[int], one: int, other: int) -> None:
    one, other = graph.owner(one), graph.owner(other)
    kept = graph.merge(one, other)
    foreign -= {one, other}
    foreign.add(kept)


def partition(
    before: Sequence[Collection[int]],
    foreign: Collection[int],
    inseparable: Iterable[tuple[int, int]] = (),
    tail: Collection[int] = (),
) -> tuple[Part, ...]:
    """Return the parts of a graph in an order in which they can run.

    Every cluster is convex, no two neighboring clusters can be merged, and the tail runs last.

    Args:
        before: for each node the nodes that it reads, all of them earlier ones.
        foreign: the nodes that another runtime has to compute.
        inseparable: pairs of nodes with a value between them that only that runtime can hold. Nodes
            on a path between them join their cluster, foreign or not.
        tail: nodes that run last, with all that reads them.

    >>> partition([[], [0], [0], [1, 2]], foreign={1, 3})
    (Part(kind='native', nodes=(0,)), Part(kind='native', nodes=(2,)), \
Part(kind='fallback', nodes=(1, 3)))
    """
    graph = _Quotient(before)
    united = _unite(graph, inseparable, sorted(tail))
    last = min(tail, default=None)
    taken = {graph.owner(node) for node in foreign} | {graph.owner(node) for node in united}
    _grow(graph, taken, None if last is None else graph.owner(last))
    final = None if last is None else graph.owner(last)
    parts: list[Part] = []
    for group in graph.order():
        nodes = tuple(sorted(graph.members[group]))
        if group != final:
            parts.append(Part("fallback" if group in taken else "native", nodes))
    if final is not None:
        parts.append(Part("tail", tuple(sorted(graph.members[final]))))
    return tuple(parts)
