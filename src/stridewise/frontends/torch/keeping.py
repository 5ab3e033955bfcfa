"""What a forward keeps for its backward, where PyTorch's partitioner should decide otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stridewise.frontends.torch.library import submodule, torch

__all__ = ["convert_early", "narrow_again"]

_CAST = "aten._to_copy.default"


def narrow_again(graph: Any, parameters: Sequence[int]) -> None:
    """Let the backward convert parameters to 16 bits again.

    They are in memory anyway, and kernels convert weights as they reorder them. A kept copy would
    be written and read in addition.

    Args:
        graph: forward and backward, before they are divided.
        parameters: positions of the parameters among the inputs.
    """
    again = submodule("torch.utils.checkpoint").CheckpointPolicy.MUST_RECOMPUTE
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    narrow = (torch.bfloat16, torch.float16)
    for index in parameters:
        for node in inputs[index].users:
            if str(node.target) == _CAST and node.meta["val"].dtype in narrow:
                node.meta.setdefault("recompute", again)


def convert_early(graph: Any) -> None:
    """Convert results to another type as soon as they are known.

    PyTorch converts gradients of parameters at the end of a backward, which would keep all of them
    until then.
    """
    output = next(node for node in graph.nodes if node.op == "output")
    for node in output.all_input_nodes:
        if str(node.target) == _CAST and node.args[0].op == "call_function":
            node.args[0].append(node)
