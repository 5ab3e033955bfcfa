"""What a call of a compiled module costs beside the plan itself, in microseconds of CPU time.

    python benchmarks/torch_calls.py

Modules are tiny, so that calls consist of overhead. For each there are a whole call; the run of its
program alone; the difference; a call of the same graph whose compiled function returns a kept
tensor, which is the part of Dynamo; and the rest, which is that of Stridewise. All are the least of
many rounds of CPU time of one thread, in which other processes hardly count. Needs torch.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

import stridewise.torch  # noqa: F401 (registers the backend)
from stridewise.torch.region import REGIONS
from stridewise.torch.steps import NativeStep

CALLS, ROUNDS = 200, 60


def block(channels: int) -> Any:
    """Return a convolution with batch norm and ReLU."""
    layers = [torch.nn.Conv2d(channels, channels, 1), torch.nn.BatchNorm2d(channels)]
    return torch.nn.Sequential(*layers, torch.nn.ReLU())


MODULES = {
    "ReLU": (torch.nn.ReLU(), (1, 8, 2, 2)),
    "1 block (6 parameters)": (block(8), (1, 8, 2, 2)),
    "20 blocks (120 parameters)": (
        torch.nn.Sequential(*[block(8) for _ in range(20)]),
        (1, 8, 2, 2),
    ),
}


def microseconds(function: Callable[[], object]) -> float:
    """Return the least CPU time of a call."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.thread_time_ns()
        for _ in range(CALLS):
            function()
        best = min(best, (time.thread_time_ns() - start) / CALLS)
    return best / 1e3


def returning(_module: Any, _inputs: Any) -> Callable[..., Any]:
    """Compile a graph to a function that returns a kept tensor."""
    kept = [torch.empty(1)]
    return lambda *_: kept


def measured(module: Any, shape: tuple[int, ...]) -> tuple[float, float, float]:
    """Return the times of a call, of the plan, and of a call that does nothing."""
    x = torch.randn(shape)
    torch._dynamo.reset()
    before = set(REGIONS)
    options = {"fallback": "error", "threads": 1}
    compiled = torch.compile(module, backend="stridewise", options=options)
    y = compiled(x)
    (region,) = set(REGIONS) - before
    (step,) = [s for p in region.programs() for s in p.steps if isinstance(s, NativeStep)]
    whole = microseconds(lambda: compiled(x))
    plan = microseconds(lambda: step.model.run_tensors([x], [y]))
    torch._dynamo.reset()
    empty = torch.compile(module, backend=returning)
    empty(x)
    return whole, plan, microseconds(lambda: empty(x))


def main() -> None:
    """Print a table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    print("| module | call | plan | over the plan | of that: PyTorch | Stridewise |")
    print("|---|---|---|---|---|---|")
    with torch.inference_mode():
        for name, (module, shape) in MODULES.items():
            whole, plan, empty = measured(module.eval(), shape)
            over = whole - plan
            print(f"| {name} | {whole:.1f} | {plan:.1f} | {over:.1f} | {empty:.1f} "
                  f"| {over - empty:.1f} |")  # fmt: skip


if __name__ == "__main__":
    main()
