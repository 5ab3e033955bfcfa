"""Minimum cuts of networks.

The method is Dinic's (1970): shortest augmenting paths, all of one length at a time.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Network"]

_EPSILON = 1e-12
"""Capacity that counts as none, relative to the largest finite one."""


class Network:
    """A directed graph with capacities.

    >>> network = Network(3)
    >>> network.add(0, 1, 5.0)
    >>> network.add(1, 2, 2.0)
    >>> network.cut(0, 2)
    [True, True, False]
    """

    def __init__(self, count: int) -> None:
        """Start without edges.

        Args:
            count: number of vertices.
        """
        self._edges: list[list[int]] = [[] for _ in range(count)]
        self._goals: list[int] = []
        self._left: list[float] = []

    def add(self, source: int, goal: int, capacity: float) -> None:
        """Add an edge."""
        for begin, end, amount in ((source, goal, capacity), (goal, source, 0.0)):
            self._edges[begin].append(len(self._goals))
            self._goals.append(end)
            self._left.append(amount)

    def cut(self, source: int, goal: int) -> list[bool]:
        """Return for each vertex whether it is on the side of the source in a minimum cut.

        Among several minimum cuts it is the one with the fewest vertices on that side. Capacities
        are used up, so a network has one cut. The capacity of paths must be finite.
        """
        finite = [amount for amount in self._left if amount < float("inf")]
        least = _EPSILON * max(finite, default=0.0)
        while True:
            levels = self._levels(source, least)
            if levels[goal] < 0:
                return [level >= 0 for level in levels]
            begin = [0] * len(self._edges)
            while self._augment(source, goal, levels, begin, least):
                pass

    def _levels(self, source: int, least: float) -> list[int]:
        levels = [-1] * len(self._edges)
        levels[source] = 0
        queue = deque([source])
        while queue:
            vertex = queue.popleft()
            for edge in self._edges[vertex]:
                goal = self._goals[edge]
                if self._left[edge] > least and levels[goal] < 0:
                    levels[goal] = levels[vertex] + 1
                    queue.append(goal)
        return levels

    def _augment(
        self, source: int, goal: int, levels: list[int], begin: list[int], least: float
    ) -> bool:
        """Use the capacity of one path up; return whether there was one."""
        path: list[int] = []
        vertex = source
        while vertex != goal:
            edges = self._edges[vertex]
            while begin[vertex] < len(edges):
                edge = edges[begin[vertex]]
                if self._left[edge] > least and levels[self._goals[edge]] == levels[vertex] + 1:
                    break
                begin[vertex] += 1
            else:
                if not path:
                    return False
                vertex = self._goals[path.pop() ^ 1]
                begin[vertex] += 1
                continue
            path.append(edge)
            vertex = self._goals[edge]
        amount = min(self._left[edge] for edge in path)
        for edge in path:
            self._left[edge] -= amount
            self._left[edge ^ 1] += amount
        return True
