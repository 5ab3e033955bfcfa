"""Write reading and writing by known indices as slices, or by rows along one axis.

Exporters write ``x[:, a:b]`` and ``x[:, a:b] = y`` with the place of each element as a constant.
"""

from __future__ import annotations

import dataclasses
from math import gcd, prod
from types import MappingProxyType

import numpy as np

from stridewise.dtypes import dtype_of
from stridewise.errors import ExecutionError
from stridewise.graph import Attr, Constant, Graph, Node, Refusal, TensorType, Value
from stridewise.graph.constant import Array
from stridewise.graph.names import Names
from stridewise.ops.gather import checked_indices, element_index, nd_index

__all__ = ["place_indices"]

_OPS = frozenset({"gather", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd"})
_MOST_ROWS = np.iinfo(np.int32).max
Box = tuple[tuple[int, int, int], ...]
"""The start, the count and the step along each axis."""


class _Placer:
    """The graph as it grows: values and constants are added beside those that are there."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values, self.constants = dict(graph.values), dict(graph.constants)
        self._fresh = Names(graph).fresh

    def place(self, node: Node) -> list[Node] | str:
        """Return the nodes that do what a node does, or why there are none."""
        data, indices = (self.values[name] for name in node.inputs[:2])
        if indices.name not in self.constants:
            return "the indices are computed in the run"
        if not prod(data.shape) or not prod(indices.shape):
            return "a tensor has no elements"
        try:
            return self._placed(node, data, self.constants[indices.name].array)
        except ExecutionError:
            return "an index lies outside of its axis"

    def _placed(self, node: Node, data: Value, indices: Array) -> list[Node]:
        if node.op == "gather":
            return self._gather(node, data, indices)
        if node.op.endswith("_elements"):
            found, lead = element_index(node, indices, data.shape), len(data.shape)
        else:
            batch = node.int_attr("batch_dims", 0) if node.op == "gather_nd" else 0
            found, lead = nd_index(node, indices, data.shape, batch), batch + indices.shape[-1]
        places = np.ravel_multi_index(np.broadcast_arrays(*found), data.shape[:lead])
        box = _box(places, data.shape[:lead])
        rest = tuple((0, extent, 1) for extent in data.shape[lead:])
        if node.op.startswith("gather"):
            return self._read(node, data, places, lead, None if box is None else (*box, *rest))
        plain = node.str_attr("reduction", "none") == "none"
        if plain and box is not None and all(step == 1 for _, _, step in box):
            return self._put(node, data, (*box, *rest))
        if node.op == "scatter_elements":
            return [node]  # its kernel shares the elements out by the axes before, not by rows
        return self._write(node, data, places, lead)

    # --- reading ---

    def _gather(self, node: Node, data: Value, indices: Array) -> list[Node]:
        axis = node.int_attr("axis", 0)
        places = checked_indices(node, indices, data.shape[axis])
        box = _box(places, (data.shape[axis],))
        if box is None:
            table = self._constant(f"{node.outputs[0]}/rows", places.astype(np.int32))
            return [dataclasses.replace(node, inputs=(data.name, table))]
        full = [(0, extent, 1) for extent in data.shape]
        return self._slice(node, data, (*full[:axis], *box, *full[axis + 1 :]))

    def _read(
        self, node: Node, data: Value, places: Array, lead: int, box: Box | None
    ) -> list[Node]:
        if box is not None:
            return self._slice(node, data, box)
        result = self.values[node.outputs[0]]
        rows, shape = _rows(places, data.shape, lead)
        if shape[0] > _MOST_ROWS:
            return [node]
        table = self._constant(f"{result.name}/rows", rows)
        nodes: list[Node] = []
        flat = self._step(nodes, node, "flat", "reshape", (data.name,), shape, {"shape": shape})
        read = (len(rows), shape[1])
        part = self._step(nodes, node, "part", "gather", (flat, table), read, {"axis": 0})
        nodes.append(_last(node, "reshape", (part,), {"shape": result.shape}))
        return nodes

    def _slice(self, node: Node, data: Value, box: Box) -> list[Node]:
        result = self.values[node.outputs[0]]
        shape = tuple(count for _, count, _ in box)
        nodes: list[Node] = []
        part = self._step(nodes, node, "part", "slice", (data.name,), shape, _bounds(box))
        nodes.append(_last(node, "reshape", (part,), {"shape": result.shape}))
        return nodes

    # --- writing ---

    def _put(self, node: Node, data: Value, box: Box) -> list[Node]:
        """Return slices of what stays and concats with the updates, from the last axis on."""
        updates = node.inputs[2]
        nodes: list[Node] = []
        shape = [count for _, count, _ in box]
        attrs: dict[str, Attr] = {"shape": tuple(shape)}
        part = self._step(nodes, node, "updates", "reshape", (updates,), tuple(shape), attrs)
        for axis in reversed(range(len(box))):
            start, count, _ = box[axis]
            extent = data.shape[axis]
            if count == extent:
                continue
            pieces = [part]
            for place, begin, length in ((0, 0, start), (2, start + count, extent - start - count)):
                if length:
                    kept = (*box[:axis], (begin, length, 1), *_full(data.shape[axis + 1 :]))
                    piece = self._step(
                        nodes, node, f"kept{axis}", "slice", (data.name,),
                        tuple(size for _, size, _ in kept), _bounds(kept),
                    )  # fmt: skip
                    pieces.insert(min(place, len(pieces)), piece)
            shape[axis] = extent
            part = self._step(
                nodes, node, f"joined{axis}", "concat", tuple(pieces), tuple(shape), {"axis": axis}
            )
        nodes.append(_last(node, "identity", (part,), {}))
        return nodes

    def _write(self, node: Node, data: Value, places: Array, lead: int) -> list[Node]:
        rows, shape = _rows(places, data.shape, lead)
        if shape[0] > _MOST_ROWS:
            return [node]
        nodes: list[Node] = []
        table = self._constant(f"{node.outputs[0]}/rows", rows.reshape(-1, 1))
        size = (len(rows), shape[1])
        flat = self._step(nodes, node, "flat", "reshape", (data.name,), shape, {"shape": shape})
        new = self._step(
            nodes, node, "updates", "reshape", (node.inputs[2],), size, {"shape": size}
        )
        how: dict[str, Attr] = {"reduction": node.str_attr("reduction", "none")}
        y = self._step(nodes, node, "written", "scatter_nd", (flat, table, new), shape, how)
        nodes.append(_last(node, "reshape", (y,), {"shape": data.shape}))
        return nodes

    # --- building ---

    def _constant(self, hint: str, data: Array) -> str:
        name = self._fresh(hint)
        self.constants[name] = Constant(data)
        self.values[name] = Value(name, TensorType(dtype_of(data.dtype), data.shape))
        return name

    def _step(
        self,
        nodes: list[Node],
        node: Node,
        hint: str,
        op: str,
        inputs: tuple[str, ...],
        shape: tuple[int, ...],
        attrs: dict[str, Attr],
    ) -> str:
        name = self._fresh(f"{node.outputs[0]}/{hint}")
        dtype = self.values[node.outputs[0]].dtype
        self.values[name] = Value(name, TensorType(dtype, shape))
        nodes.append(Node(name, op, inputs, (name,), tuple(sorted(attrs.items()))))
        return name


def _last(node: Node, op: str, inputs: tuple[str, ...], attrs: dict[str, Attr]) -> Node:
    """Return a node with the name and the result of another one."""
    return Node(node.name, op, inputs, node.outputs, tuple(sorted(attrs.items())))


def _full(shape: tuple[int, ...]) -> Box:
    return tuple((0, extent, 1) for extent in shape)


def _bounds(box: Box) -> dict[str, Attr]:
    """Return the attributes of a slice."""
    stops = tuple(start + (count - 1) * step + 1 for start, count, step in box)
    return {
        "starts": tuple(start for start, _, _ in box),
        "stops": stops,
        "steps": tuple(step for _, _, step in box),
    }


def _box(places: Array, shape: tuple[int, ...]) -> Box | None:
    """Return the box that places in a shape enumerate in its order, None if they do not."""
    flat = places.reshape(-1)
    ends: list[list[int]] = [
        [int(place[0]) for place in np.unravel_index([int(flat[at])], shape)] for at in (0, -1)
    ]
    first, last = ends
    # The count along an axis is that of the run of its coordinate, from the last axis on.
    found: list[tuple[int, int, int]] = []
    left, stride = len(flat), 1
    for axis in reversed(range(len(shape))):
        start, stop = first[axis], last[axis]
        span = stop - start
        block = len(flat) // left
        step = 1
        if span > 0 and left > 1:
            step = int(flat[block] - flat[0]) // stride if block < len(flat) else 1
        if span < 0 or step < 1 or span % step:
            return None
        count = span // step + 1
        if left % count:
            return None
        found.insert(0, (start, count, step))
        left //= count
        stride *= shape[axis]
    if left != 1:
        return None
    lines = [np.arange(count) * step + start for start, count, step in found]
    expected = np.ravel_multi_index(np.ix_(*lines), shape).reshape(-1)
    return tuple(found) if np.array_equal(expected, flat) else None


def _rows(places: Array, shape: tuple[int, ...], lead: int) -> tuple[Array, tuple[int, int]]:
    """Return the numbers of the rows that places mean, and the tensor as rows.

    Rows are as long as neighbors in the table are neighbors in the tensor everywhere.
    """
    flat = places.reshape(-1)
    begins = np.flatnonzero(np.diff(flat, prepend=flat[0] - 2) != 1)
    run = gcd(len(flat), prod(shape[:lead]), *np.unique(begins), *np.unique(flat[begins]))
    rows = (flat[::run] // run).astype(np.int32)
    return rows, (prod(shape[:lead]) // run, run * prod(shape[lead:]))


def place_indices(graph: Graph) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with known indices as slices, or as numbers of rows."""
    if not any(node.op in _OPS for node in graph.nodes):
        return graph, ()
    placer = _Placer(graph)
    nodes: list[Node] = []
    refusals: list[Refusal] = []
    for node in graph.nodes:
        found = placer.place(node) if node.op in _OPS and not node.post_ops else [node]
        if isinstance(found, str):
            refusals.append(Refusal("place_indices", node.name, found))
            found = [node]
        nodes += found
    changed = dataclasses.replace(
        graph,
        nodes=tuple(nodes),
        values=MappingProxyType(placer.values),
        constants=MappingProxyType(placer.constants),
    )
    return changed, tuple(refusals)
