"""The storage formats of a plan: their numbers in the page, sizes and pictures."""

from __future__ import annotations

from stridewise.errors import FormatError
from stridewise.formats import Block, Format
from stridewise.formats.picture import svg
from stridewise.ops.geometry import stored
from stridewise.planner.plan import PlanData
from stridewise.report.data import FormatUse
from stridewise.tensor import Storage

__all__ = ["Formats"]


def _picture(fmt: Format) -> str:
    """Return the picture of a small tensor in a format, "" if none is small enough."""
    blocks: dict[str, int] = {}
    for digit in fmt.digits:
        if isinstance(digit, Block):
            blocks[digit.axis] = blocks.get(digit.axis, 1) * digit.size
    usual = {"N": 1, "C": 5, "a": 1 if len(fmt.axes) > 2 else 2, "b": 5}
    for spatial in (3, 2, 1):
        # With a quarter more than a block, the picture shows padding.
        shape = tuple(
            blocks[axis] + max(blocks[axis] // 4, 1) if axis in blocks else usual.get(axis, spatial)
            for axis in fmt.axes
        )
        try:
            return svg(fmt, shape)
        except FormatError:
            continue
    return ""


class Formats:
    """The format of every stored tensor, and its number in the page."""

    def __init__(self, plan: PlanData) -> None:
        self._plan = plan
        self._sizes: dict[str, list[int]] = {}
        self.known: dict[str, Storage] = {}
        self._meet_all()

    def _meet(self, value: str, way: Storage) -> None:
        """Count a stored tensor."""
        self.known.setdefault(str(way), way)
        self._sizes.setdefault(str(way), []).append(self.nbytes(value, way))

    def nbytes(self, value: str, way: Storage) -> int:
        """Return the bytes of a value that is stored in one way, padding included."""
        return stored(self._plan.graph.values[value], way).nbytes

    def _meet_all(self) -> None:
        graph = self._plan.graph
        for name in (*graph.inputs, *graph.stored):
            self._meet(name, self._plan.made(name))
        for node, decision in zip(graph.nodes, self._plan.decisions, strict=True):
            for name, made in zip(node.outputs, decision.chosen.option.makes, strict=True):
                self._meet(name, made)
        for reorder in self._plan.reorders:
            self._meet(reorder.tensor, reorder.target)
        used = tuple(self.known)
        for decision in self._plan.decisions:
            for candidate in (decision.chosen, *decision.rejected):
                for way in (*candidate.option.needs, *candidate.option.makes):
                    if way is not None:
                        self.known.setdefault(str(way), way)
        order = sorted(used, key=lambda name: -sum(self._sizes[name]))
        rest = [name for name in self.known if name not in self._sizes]
        self._index = {name: index for index, name in enumerate((*order, *rest))}

    def index(self, way: Storage) -> int:
        """Return the number of a storage."""
        return self._index.setdefault(str(way), len(self._index))

    def uses(self) -> tuple[FormatUse, ...]:
        """Return the use of each format, by number; formats of rejected candidates included."""
        found: list[FormatUse] = []
        for name in self._index:
            sizes = self._sizes.get(name, ())
            way = self.known.get(name)
            spelled = name if way is None else way.spelled(self._plan.target.spell)
            found.append(FormatUse(spelled, len(sizes), sum(sizes)))
        return tuple(found)

    def pictures(self) -> tuple[str, ...]:
        """Return the picture of each format, by number; "" for those that no tensor has."""
        return tuple(
            _picture(self.known[name].format) if name in self._sizes else "" for name in self._index
        )
