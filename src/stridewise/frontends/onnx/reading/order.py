"""Nodes in an order in which each comes after those that it reads."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import onnx

from stridewise.frontends.onnx.reading.proto import reads_of

__all__ = ["in_order"]


def in_order(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose nodes are sorted, the model itself if they are.

    ONNX demands sorted nodes, but converters such as ONNX Runtime's to float16 write others, and
    ONNX Runtime sorts them. Nodes stay in their order as far as possible. If there is a cycle, the
    order is that of the model.
    """
    nodes = model.graph.node
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    before = [{makers[name] for name in reads_of(node) if name in makers} for node in nodes]
    if all(max(own, default=-1) < index for index, own in enumerate(before)):
        return model
    readers: dict[int, list[int]] = {}
    for index, own in enumerate(before):
        for maker in own:
            readers.setdefault(maker, []).append(index)
    ready = [index for index, own in enumerate(before) if not own]
    heapify(ready)
    order: list[int] = []
    while ready:
        index = heappop(ready)
        order.append(index)
        for reader in readers.get(index, ()):
            before[reader].discard(index)
            if not before[reader]:
                heappush(ready, reader)
    if len(order) < len(nodes):
        return model
    found = onnx.ModelProto()
    found.CopyFrom(model)
    del found.graph.node[:]
    found.graph.node.extend(nodes[index] for index in order)
    return found
