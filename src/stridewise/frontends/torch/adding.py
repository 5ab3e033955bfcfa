"""Adding calls to graphs that AOT Autograd traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stridewise.frontends.torch.library import submodule
from stridewise.frontends.torch.values import resolved

__all__ = ["Types", "called", "fake_mode"]


def fake_mode() -> Any:
    """Return the mode in which tensors have types alone."""
    return submodule("torch._guards").TracingContext.get().fake_mode


class Types(dict[Any, Any]):
    """By node, the type of its result."""

    def __missing__(self, node: Any) -> Any:
        return node.meta["val"]


def called(
    node: Any, target: Any, args: tuple[Any, ...], options: Mapping[str, Any] | None = None
) -> Any:
    """Add a call beside a node, with the type of its result."""
    found = node.graph.call_function(target, args, dict(options or {}))
    found.meta = dict(node.meta)
    known, given = resolved((args, found.kwargs), {}, Types())
    with fake_mode():
        found.meta["val"] = target(*known, **given)
    return found
