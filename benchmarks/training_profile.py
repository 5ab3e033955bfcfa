"""Where the time of a training step goes, by kinds of kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import stridewise as sw
from stridewise.profile import ProfileRow
from stridewise.program import KernelStep, Step
from stridewise.targets.kernels import KernelSpec

__all__ = ["Share", "shares"]


@dataclass(frozen=True, slots=True)
class Share:
    """All kernels of one kind.

    Attributes:
        kind: the kernel, its window, stride, tile and groups.
        count: how many there are.
        ms: time of all of them.
        gflops: operations a nanosecond; of Winograd kernels, those of their products.
    """

    kind: str
    count: int
    ms: float
    gflops: float


def _window(spec: KernelSpec) -> str:
    """Return window, stride, tile and groups of a convolution or a gradient; "" of all else."""
    params, src = dict(spec.params), spec.memory("src")
    weights = spec.memory("weights") or spec.memory("depthwise_weights")
    if spec.kind.endswith("weight_gradient"):
        weights = spec.memory("dst")
    if weights is None or src is None or len(src.dims) < 4 or len(weights.dims) < len(src.dims):
        return ""
    window: Any = params.get("window", weights.dims[2 - len(src.dims) :])
    text = "x".join(map(str, window))
    strides: Any = params.get("strides", (1,))
    text += f" by {max(strides)}" if max(strides) > 1 else ""
    text += f" F({params['tile']})" if "tile" in params else ""
    text += ", of the source" if params.get("transposed") else ""
    groups = weights.dims[0] if len(weights.dims) > len(src.dims) else 1
    return text + ("" if groups == 1 else ", depthwise" if groups == src.dims[1] else ", groups")


def _timed(steps: Sequence[Step], rows: Sequence[ProfileRow]) -> Iterator[tuple[str, float, float]]:
    """Yield kind, nanoseconds and operations of each step."""
    for step, row in zip(steps, rows, strict=True):
        if isinstance(step, KernelStep):
            kind = f"{step.spec.kind} {_window(step.spec)}".strip()
            yield kind, row.measured_ns, step.spec.flops
        else:
            yield row.kernel, row.measured_ns, 0.0


def shares(trainer: sw.Trainer, x: Any, labels: Any, runs: int) -> list[Share]:
    """Return the kinds of kernels of a step, the one that takes most time first."""
    totals: dict[str, list[float]] = {}
    rows = trainer.profile(x, labels, runs).rows
    for kind, ns, flops in _timed(trainer.model.program.steps, rows):
        total = totals.setdefault(kind, [0.0, 0.0, 0.0])
        total[:] = [old + new for old, new in zip(total, (1, ns, flops), strict=True)]
    found = [
        Share(kind, int(count), ns / 1e6, flops / max(ns, 1.0))
        for kind, (count, ns, flops) in totals.items()
    ]
    return sorted(found, key=lambda share: -share.ms)
