"""Functions as regions: captured as aten graphs without Dynamo, and compared with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from stridewise.frontends.torch.table import decompositions
from stridewise.torch.options import Options
from stridewise.torch.region import Region

TOLERANCE = 2e-5


def listed(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple | list) else [found]


def region_of(function: Callable[..., Any], *inputs: Any, fallback: str = "error") -> Region:
    """Return a function as a region; its tensors in closures become constants."""
    tracer = make_fx(
        functionalize(lambda *args: listed(function(*args)), remove="mutations"),
        decomposition_table=decompositions(),
        tracing_mode="fake",
        _allow_non_fake_inputs=True,
    )
    with torch.no_grad():
        module = tracer(*inputs)
    return Region("test", module, (), Options(fallback=fallback))


def check(function: Callable[..., Any], *inputs: Any, tolerance: float = TOLERANCE) -> Region:
    """Compare what a region gives with PyTorch: values, and the strides that tracing promises."""
    region = region_of(function, *inputs)
    with torch.no_grad():
        wanted = listed(function(*inputs))
        found = region(inputs)
    promised = [node.meta["val"] for node in region._outputs]
    for a, b, promise in zip(wanted, found, promised, strict=True):
        assert a.shape == b.shape
        assert b.stride() == promise.stride()
        assert a.dtype == b.dtype
        assert torch.allclose(
            a, b, rtol=tolerance, atol=tolerance * max(1.0, float(a.float().abs().max()))
        )
    for program in region.programs():
        assert [name for step in program.steps for name in step.fallback_nodes()] == []
    return region
