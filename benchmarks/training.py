"""Training: formats, gradients of single operators, and a race with PyTorch.

Run it on a quiet machine::

    .venv/bin/python benchmarks/training.py formats     # plain, channels-last, blocked, planned
    .venv/bin/python benchmarks/training.py operators   # gradients in NHWC against NCHW
    .venv/bin/python benchmarks/training.py race        # a training step against PyTorch
    .venv/bin/python benchmarks/training.py memory      # planning, and limits of memory
    .venv/bin/python benchmarks/training.py profile     # a step by kinds of kernels

All but ``operators`` need torchvision, whose networks are trained; ``race`` runs each contender in
a process of its own. Rounds run all contenders once, in rotating order. Raw samples are added to
``benchmarks/results/training-<command>.json`` after each network, and a table of all of them is
printed and written to ``training-<command>.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from functools import partial
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import stridewise as sw
from stridewise.graph import Graph
from stridewise.runtime.machine.machine import this_machine

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from training_formats import KINDS, batch_of, different, steps_of, undisturbed, used  # noqa: E402
from training_profile import shares  # noqa: E402
from training_race import NETWORKS, Worker, network  # noqa: E402

RESULTS = Path(__file__).parent / "results"
SEEDS = ("resnet50", "resnext101_32x8d")
"""The networks of the seeds."""
_PAUSE_S = 0.05
"""Between two runs, so that the threads of the run before are asleep."""

Run = Callable[[], object]
Samples = dict[str, list[float]]
Records = Mapping[str, Mapping[str, Any]]
"""What was measured: the samples of each contender, in milliseconds, and facts, by what ran."""
Found = Iterator[tuple[str, dict[str, Any]]]


def interleaved(runs: Mapping[str, Run], rounds: int) -> Samples:
    """Return milliseconds of each run in each round, after one round that does not count."""
    names, found = list(runs), {name: list[float]() for name in runs}
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            time.sleep(_PAUSE_S)
            begin = time.perf_counter()
            runs[name]()
            if number:
                found[name].append(1e3 * (time.perf_counter() - begin))
    return found


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


# --- formats ------------------------------------------------------------------------------------


def _evaluated(graph: Graph) -> Graph:
    from stridewise.training import evaluation_graph  # noqa: PLC0415

    values = {name: item.array for name, item in (*graph.parameters.items(), *graph.states.items())}
    return evaluation_graph(graph, values)


def formats(options: argparse.Namespace) -> Found:
    """Measure training, throughput and latency in each kind of format."""
    given = {"threads": options.threads, "tune": options.tune}
    for name in options.networks or SEEDS:
        large = network(name, options.batch, options.size).graph
        small = network(name, 1, options.size).graph
        parts = {
            "training": (options.batch, lambda graph=large: steps_of(graph, given)),
            "inference": (options.batch, lambda graph=large: used(_evaluated(graph), given)),
            "latency": (1, lambda graph=small: used(_evaluated(graph), given)),
        }
        for part, (batch, runs) in parts.items():
            found = dict(runs())
            record = {
                "samples_ms": interleaved({k: c.run for k, c in found.items()}, options.rounds),
                "undisturbed_ms": undisturbed(found, options.rounds),
                "different_nodes": different(found),
                "images": batch,
            }
            yield f"{name}, {part}, batch {batch}", record


def formats_table(records: Records) -> str:
    """Return the table of ``formats``."""
    rows: list[list[str]] = []
    for key, record in records.items():
        ms = {kind: median(found) for kind, found in record["samples_ms"].items()}
        times = [f"{ms[kind]:.1f}" for kind in (*KINDS, "planned")]
        ratio = ms["blocked"] / ms["channels-last"]
        rate = f"{1e3 * record['images'] / ms['planned']:.1f}"
        best = min(ms[kind] for kind in KINDS) / ms["planned"]
        cells = [key, *times, rate, f"**{ratio:.2f}**", f"**{best:.2f}**", "-", "-"]
        if "undisturbed_ms" in record:
            alone = record["undisturbed_ms"]
            uniform = min(KINDS, key=lambda kind: alone[kind])
            cells[-2] = f"**{alone[uniform] / alone['planned']:.3f}**"
            cells[-1] = f"{record['different_nodes'][uniform]} from {uniform}"
        rows.append(cells)
    heads = ["network", *(f"{kind}, ms" for kind in KINDS), "planned, ms", "images/s, planned"]
    heads += ["channels-last / blocked, speed", "planned / best uniform, speed"]
    return _table([*heads, "the same of undisturbed steps", "nodes that differ"], rows)


# --- operators ----------------------------------------------------------------------------------


def _operators(b: sw.GraphBuilder, x: str) -> dict[str, Callable[[], str]]:
    """Return the five operators, each as a function that adds it."""
    return {
        "convolution": lambda: b.conv2d(x, 128, 3, padding=1, bias=False),
        "transposed convolution": lambda: b.op(
            "conv_transpose",
            [x, b.parameter(np.full((128, 64, 3, 3), 0.01, np.float32), "w")],
            {"strides": (2, 2), "pads": (1, 1, 1, 1)},
        ),
        "max pooling": lambda: b.max_pool2d(x, 3, strides=2, padding=1),
        "average pooling": lambda: b.avg_pool2d(x, 3, strides=2, padding=1),
        "LRN": lambda: b.op("lrn", [x], {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}),
        "batch norm": lambda: b.batch_norm(x),
    }


def _gradients(name: str, data_format: str, batch: int) -> Graph:
    """Return the graph of the gradients of an operator, without its result."""
    b = sw.GraphBuilder(name, data_format, training=True)
    shape = (batch, 128, 56, 56) if data_format == "NCHW" else (batch, 56, 56, 128)
    x = b.input("x", shape)
    y = _operators(b, x)[name]()
    dy = b.input("dy", b.type(y).shape)
    axes = tuple(range(len(shape)))
    loss = b.op("reduce_sum", [b.mul(y, dy)], {"axes": axes, "keepdims": 0}, output="loss")
    graph = b.build([loss])
    learned = [name for name in graph.parameters if name not in graph.updates]
    found = sw.grad(replace(graph, updates={}), "loss", [x, *learned])
    return replace(found, outputs=found.outputs[1:])


def operators(options: argparse.Namespace) -> Found:
    """Measure gradients in NHWC against NCHW."""
    given: dict[str, Any] = {"threads": options.threads, "tune": options.tune}
    b = sw.GraphBuilder("names")
    for name in _operators(b, b.input("x", (1, 1, 1, 1))):
        runs: dict[str, Run] = {}
        for data_format, kind in (("NCHW", "plain"), ("NHWC", "channels-last")):
            graph = _gradients(name, data_format, options.batch)
            plan = sw.plan(graph, **given)
            model = sw.compile(graph, plan=plan.uniform(kind), **given)
            rng = np.random.default_rng(0)
            arrays = {n: rng.standard_normal(graph.value(n).shape, np.float32)
                      for n in graph.inputs}  # fmt: skip
            runs[data_format] = partial(model.run, arrays)
        yield name, {"samples_ms": interleaved(runs, options.rounds)}


def operators_table(records: Records) -> str:
    """Return the table of ``operators``."""
    rows: list[list[str]] = []
    for name, record in records.items():
        plain, last = (median(record["samples_ms"][key]) for key in ("NCHW", "NHWC"))
        rows.append([name, f"{plain:.2f}", f"{last:.2f}", f"**{plain / last:.2f}**"])
    return _table(["gradients of", "NCHW, ms", "NHWC, ms", "speed of NHWC to NCHW"], rows)


# --- race ---------------------------------------------------------------------------------------

CONTENDERS = ("ours", "half", "compiled", "eager", "inductor")
PYTORCH = ("eager", "inductor")


def race(options: argparse.Namespace) -> Found:
    """Measure training steps against those of PyTorch."""
    for name in options.networks or NETWORKS:
        workers: dict[str, Worker] = {}
        for contender in options.contenders:
            worker = Worker(contender, name, options)
            if worker.error:
                print(f"{name}, {contender}: {worker.error}", flush=True)
            else:
                workers[contender] = worker
        samples = interleaved({key: item.step for key, item in workers.items()}, options.rounds)
        peaks = {key: worker.stop() for key, worker in workers.items()}
        yield f"{name}, batch {options.batch}", {"samples_ms": samples, "peak_nbytes": peaks}


def race_table(records: Records) -> str:
    """Return the table of ``race``, and the geometric means of the ratios."""
    rows, gains = list[list[str]](), dict[str, list[float]]()
    for name, record in records.items():
        ms = {key: median(found) for key, found in record["samples_ms"].items()}
        peaks, peers = record["peak_nbytes"], [ms[key] for key in PYTORCH if key in ms]
        cells = [name, *(f"{ms[key]:.0f}" if key in ms else "-" for key in CONTENDERS)]
        for key in ("ours", "compiled"):
            if key in ms and peers:
                gains.setdefault(key, []).append(min(peers) / ms[key])
            cells.append(f"**{min(peers) / ms[key]:.2f}**" if key in ms and peers else "-")
        cells += [f"{peaks[key] / 1e6:.0f}" if key in peaks else "-" for key in CONTENDERS]
        rows.append(cells)
    heads = ["network", *(f"{key}, ms" for key in CONTENDERS), "best of PyTorch / ours"]
    heads += ["best of PyTorch / compiled", *(f"{key}, MB" for key in CONTENDERS)]
    means = [f"{key}: geometric mean {exp(sum(map(log, found)) / len(found)):.2f}"
             for key, found in gains.items()]  # fmt: skip
    return "\n".join([_table(heads, rows), "", *means])


# --- memory -------------------------------------------------------------------------------------


def memory(options: argparse.Namespace) -> Found:
    """Measure how long planning takes, and what steps take within limits of memory."""
    rule, given = sw.SGD(lr=1e-3, momentum=0.9), {"threads": options.threads, "tune": options.tune}
    for name in options.networks or ("resnet50",):
        graph = network(name, options.batch, options.size).graph
        x, labels = batch_of(graph)
        limits: list[int | None] = [None]
        runs: dict[str, Run] = {}
        facts: dict[str, dict[str, Any]] = {}
        while limits:
            limit = limits.pop(0)
            begin = time.perf_counter()
            key = "unlimited" if limit is None else f"{limit / 1e6:.0f} MB"
            try:
                found = sw.Trainer(graph, optimizer=rule, memory_limit=limit, **given)
            except sw.errors.MemoryLimitError as error:
                print(f"{name}, {key}: {error}", flush=True)
                continue
            plan, runs[key] = found.model.plan, partial(found.step, x, labels)
            facts[key] = {
                "planning_s": time.perf_counter() - begin,
                "gap": plan.gap,
                "nbytes": found.nbytes,
                "predicted_ms": plan.cost_ns / 1e6,
                "repeats": len(plan.repeats),
            }
            if limit is None:
                limits = [found.nbytes * 3 // 4, found.nbytes // 2]
        yield name, {"samples_ms": interleaved(runs, options.rounds), "facts": facts}


def memory_table(records: Records) -> str:
    """Return the table of ``memory``."""
    rows: list[list[str]] = []
    for name, record in records.items():
        base = median(record["samples_ms"]["unlimited"])
        for key, fact in record["facts"].items():
            ms = median(record["samples_ms"][key])
            cells = [f"{fact['planning_s']:.1f}", f"{fact['gap']:.2%}"]
            cells += [f"{fact['nbytes'] / 1e6:.0f}", str(fact["repeats"])]
            rows.append([name, key, *cells, f"{ms:.0f}", f"**{ms / base:.2f}**"])
    heads = ["network", "limit", "planned and compiled in, s", "gap", "needs, MB", "nodes again"]
    return _table([*heads, "ms", "to unlimited"], rows)


# --- profile ------------------------------------------------------------------------------------


def profile(options: argparse.Namespace) -> Found:
    """Measure which kinds of kernels the time of a step goes to."""
    rule, given = sw.SGD(lr=1e-3, momentum=0.9), {"threads": options.threads, "tune": options.tune}
    for name in options.networks or NETWORKS:
        graph = network(name, options.batch, options.size).graph
        trainer = sw.Trainer(graph, optimizer=rule, **given, dtype=options.dtype)
        found = shares(trainer, *batch_of(graph), options.rounds)
        yield f"{name}, batch {options.batch}", {"kinds": [asdict(share) for share in found]}


def profile_table(records: Records) -> str:
    """Return the tables of ``profile``."""
    tables: list[str] = []
    for name, record in records.items():
        total = sum(share["ms"] for share in record["kinds"])
        rows = [
            [share["kind"], str(share["count"]), f"{share['ms']:.1f}",
             f"{share['ms'] / total:.1%}", f"{share['gflops']:.0f}"]
            for share in record["kinds"]
            if share["ms"] > 0.005 * total
        ]  # fmt: skip
        tables.append(_table([name, "kernels", "ms", "share", "GFLOP/s"], rows))
    return "\n\n".join(tables)


COMMANDS = {
    "formats": (formats, formats_table),
    "operators": (operators, operators_table),
    "race": (race, race_table),
    "memory": (memory, memory_table),
    "profile": (profile, profile_table),
}


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("networks", nargs="*", help="networks of torchvision; a list by default")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=224, help="pixels a side")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tune", default="auto", help="as for sw.compile")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder")
    options = parser.parse_args()
    name = f"training-{options.command}"
    if options.dtype != "float32":
        name += f"-{options.dtype}"
    target = options.results / f"{name}.json"
    records: dict[str, Any] = json.loads(target.read_text()) if target.is_file() else {}
    measure, text_of = COMMANDS[options.command]
    conditions = ("size", "rounds", "threads", "tune", "dtype")
    shared = {key: getattr(options, key) for key in conditions} | {
        "machine": str(this_machine(options.threads))
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    for key, record in measure(options):
        records[key] = {"date": date.today().isoformat(), **shared, **record}
        target.write_text(json.dumps(records, indent=1) + "\n")
        print(text_of({key: records[key]}).splitlines()[2], flush=True)
    table = text_of(records)
    target.with_suffix(".md").write_text(table + "\n")
    print("\n" + table)


if __name__ == "__main__":
    main()
