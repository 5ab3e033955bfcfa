"""Each operator for itself: the cost of a graph without planning.

Every node takes the candidate that is cheapest when its inputs come in the user's format and its
outputs leave in it, and pays for every reorder that this needs. That is what a library does that is
called operator by operator; the difference to a plan is what planning saves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stridewise.classes import dataclass
from stridewise.graph import Graph, Node
from stridewise.ops.geometry import stored
from stridewise.planner.problem.candidates import Candidate, Candidates, Move, user_moves

__all__ = ["Alone", "each_for_itself"]


@dataclass(frozen=True, slots=True)
class Alone:
    """The plan in which no two operators agree on a format.

    Attributes:
        picks: for each node, the index of its candidate.
        moves: the reorders of each node: (value, from, to).
        cost_ns: kernels and reorders.
        nbytes: bytes written by the reorders.
    """

    picks: Mapping[str, int]
    moves: Mapping[str, tuple[Move, ...]]
    cost_ns: float
    nbytes: int

    @property
    def reorders(self) -> int:
        """How many reorders there are."""
        return sum(map(len, self.moves.values()))


def _cheapest(
    graph: Graph, candidates: Candidates, node: Node, group: Iterable[Candidate]
) -> tuple[float, int, tuple[Move, ...]] | None:
    """Return cost, index and reorders of the best candidate; None where no reorder is possible."""
    found: list[tuple[float, int, tuple[Move, ...]]] = []
    for index, candidate in enumerate(group):
        if candidate.option.is_joint:
            continue
        moves = tuple(user_moves(graph, candidates.storages, node, candidate.option))
        costs = [candidates.user_reorders.get(move) for move in moves]
        priced = [cost.cost_ns for cost in costs if cost is not None]
        if len(priced) == len(moves):
            found.append((candidate.cost_ns + sum(priced), index, moves))
    return min(found, default=None)


def each_for_itself(graph: Graph, candidates: Candidates) -> Alone | None:
    """Return what every operator would choose for itself.

    Returns:
        None where a node has no candidate that could be reached from the user's formats.
    """
    picks: dict[str, int] = {}
    moves: dict[str, tuple[Move, ...]] = {}
    total, nbytes = 0.0, 0
    for node in graph.nodes:
        best = _cheapest(graph, candidates, node, candidates.nodes[node.name])
        if best is None:
            return None
        cost, picks[node.name], moves[node.name] = best
        total += cost
        for name, _, goal in moves[node.name]:
            nbytes += stored(graph.values[name], candidates.storages.storage(name, goal)).nbytes
    return Alone(picks, moves, total, nbytes)
