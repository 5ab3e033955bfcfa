"""The share of naive steps of models: the library's reference loops, and NumPy fallbacks.

    .venv/bin/python benchmarks/naive_steps.py MODEL.onnx ...

Without arguments, all models of the zoo are compiled. Each model is compiled without measured costs
(``--tune measure`` measures them), and runs a few times with the times of its steps. The report has
one line for each model and one for each kind of naive step. The exit status is 1 where the naive
steps of a model take more than ``--limit`` of its time.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import stridewise as sw
from stridewise.program import KernelStep
from stridewise.runtime.binding.primitives import create
from stridewise.targets.cost import is_reference
from stridewise.targets.kernels import HOST

THREADS = 2


def models(paths: list[Path]) -> Iterator[tuple[str, Callable[[], sw.Graph]]]:
    """Yield names and what makes the graphs: of the files, of the zoo where there are none."""
    for path in paths:
        yield path.stem, lambda path=path: sw.load(path)
    for name in () if paths else sw.zoo.models():
        yield name, lambda name=name: sw.zoo.build(name)


@dataclass(frozen=True, slots=True)
class Timed:
    """One step of a model.

    Attributes:
        what: operator, kernel, implementation and formats.
        ns: the median time.
        is_naive: whether it is a function of NumPy or a loop over single elements.
    """

    what: str
    ns: float
    is_naive: bool


def _has_loops(step: object, implementation: str) -> bool:
    """Return whether a deconvolution applies what follows it to one element at a time."""
    if not (isinstance(step, KernelStep) and step.spec.kind.endswith("deconvolution")):
        return False
    has_more = bool(step.spec.post_ops) or step.spec.memory("bias") is not None
    return has_more and implementation.startswith("conv:")


def timed(model: sw.CompiledModel) -> list[Timed]:
    """Return the times of the steps of a model for normal inputs."""
    rng = np.random.default_rng(0)
    values = [model.interface.values[name] for name in model.input_names]
    inputs = {
        value.name: rng.standard_normal(value.shape).astype(value.dtype.numpy) for value in values
    }
    ops = {node.name: node.op for node in model.plan.graph.nodes}
    threads = model.plan.machine.threads
    found: list[Timed] = []
    for step, row in zip(model.program.steps, model.profile(inputs, runs=3).rows, strict=True):
        name = ""
        if isinstance(step, KernelStep) and step.spec.kind != HOST:
            # Without measured costs, it is the library's first choice, which plans don't name.
            name = create(step.spec, step.implementation, threads).impl
        what = f"{ops.get(row.node, 'reorder')} {row.kernel.partition(' ')[0]} [{name}]"
        is_naive = row.kernel.startswith(HOST) or is_reference(name) or _has_loops(step, name)
        found.append(Timed(f"{what} {row.formats}", row.measured_ns, is_naive))
    return found


def report(name: str, steps: list[Timed]) -> float:
    """Print what is naive among steps, and return its share of the time."""
    whole = sum(step.ns for step in steps)
    found: Counter[str] = Counter()
    for step in steps:
        if step.is_naive:
            found[step.what] += round(step.ns)
    share = found.total() / whole
    print(f"{share:7.2%}  {whole / 1e6:9.2f} ms  {name}", flush=True)
    for what, nanoseconds in found.most_common():
        print(f"{nanoseconds / whole:17.2%}  {what}", flush=True)
    return share


def main() -> int:
    """Print the shares; return 1 where one is above the limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--tune", choices=("model", "measure"), default="model")
    parser.add_argument("--limit", type=float, default=0.01)
    args = parser.parse_args()
    shares: list[float] = []
    for name, make in models(args.models):
        with sw.compile(make(), tune=args.tune, threads=THREADS) as model:
            shares.append(report(name, timed(model)))
    return int(any(share > args.limit for share in shares))


if __name__ == "__main__":
    raise SystemExit(main())
