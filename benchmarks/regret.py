"""How much slower plans by calibrated costs are than plans by measured ones.

Run it on a quiet machine, with a folder of ONNX files that no calibration has seen::

    .venv/bin/python benchmarks/regret.py networks/                  # a quarter of an hour
    .venv/bin/python benchmarks/regret.py networks/                  # goes on where that ended
    .venv/bin/python benchmarks/regret.py networks/ --only resnet --again --rounds 50

The machine is calibrated once for each instruction set, into cost caches that later runs use again
(``--caches``). Then every model is compiled in a process of its own: with ``tune="auto"`` and a
copy of that cache, so that networks learn nothing from each other; with ``tune="measure"`` and an
empty cache; and with ``tune="model"``. All three run in turn, in rotating order. The regret is the
lower quartile of the times of one plan over that of the measured plan, minus 1; two plans with the
same kernels and formats have none. Open extents of inputs are the least that the model allows.

Instruction sets are those of the machine, and AVX2 by ``ONEDNN_MAX_CPU_ISA``. Each model is
measured with both, one after the other, so a run that ends early has as much of each. Models that
have rows of this machine already are left out, unless ``--again`` is given. Raw samples are written
to ``benchmarks/results/regret.json`` after each model, the table to ``regret.md`` beside it, and
its summary into ``docs/calibration.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import stridewise as sw
from stridewise.frontends.registry import open_model
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.tuning.timing import undisturbed

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "regret.json"
PAGE = ROOT / "docs" / "calibration.md"
BEGIN, END = "<!-- regret: made by benchmarks/regret.py -->\n", "<!-- end of regret -->"
TUNES = ("auto", "measure", "model")
ISAS = {"all": None, "AVX2": "AVX2"}


@dataclass(frozen=True, slots=True)
class Row:
    """One model with one instruction set.

    Attributes:
        model: name of the file.
        isa: limit of the instruction set, or ``"all"``.
        machine: description of the machine.
        date: of the measurement.
        same: whether a plan has the kernels and formats of the measured one, by ``tune``.
        compile_s: seconds of compilation, by ``tune``.
        measured: kernels that ``tune="auto"`` measured.
        samples: nanoseconds of all runs, by ``tune``.
    """

    model: str
    isa: str
    machine: str
    date: str
    same: Mapping[str, bool]
    compile_s: Mapping[str, float]
    measured: int
    samples: Mapping[str, Sequence[int]]

    def regret(self, tune: str) -> float:
        """Return by which part plans of a way to tune are slower than measured ones."""
        if self.same[tune]:
            return 0.0
        return undisturbed(self.samples[tune]) / undisturbed(self.samples["measure"]) - 1


# --- one model, in a process of its own -----------------------------------------------------------


def _choices(plan: sw.Plan) -> list[Any]:
    found: list[Any] = [plan.split]
    found += [d.chosen.option for d in plan.decisions]
    found += [tuple(cost.implementation for cost in d.chosen.costs) for d in plan.decisions]
    return [*found, *((r.tensor, r.source, r.target) for r in plan.reorders)]


def look_at(options: argparse.Namespace) -> Row:
    """Compile a model in all ways, and run them in turn."""
    models: dict[str, sw.CompiledModel] = {}
    seconds: dict[str, float] = {}
    measured: dict[str, int] = dict.fromkeys(TUNES, 0)
    shapes = open_model(options.model).signature.default()
    with TemporaryDirectory() as scratch:
        for tune in TUNES:
            folder = Path(scratch) / tune
            folder.mkdir()
            if tune == "auto":
                shutil.copytree(options.cache, folder, dirs_exist_ok=True)

            def count(done: int, _total: int, _kind: str, tune: Any = tune) -> None:
                measured[tune] = max(measured[tune], done)

            begin = time.perf_counter()
            model = sw.compile(
                options.model, threads=options.threads, shapes=shapes,
                tune=tune, tune_seconds=options.tune_seconds,
                cache_dir=folder, store_limit=0, progress=count,
            )  # fmt: skip
            assert isinstance(model, sw.CompiledModel)  # its shapes are fixed
            seconds[tune] = time.perf_counter() - begin
            models[tune] = model
    plans = {tune: _choices(model.plan) for tune, model in models.items()}
    same = {tune: found == plans["measure"] for tune, found in plans.items()}
    samples = _in_turn(models, options.rounds)
    return Row(
        Path(options.model).stem, options.isa, str(this_machine(options.threads)),
        date.today().isoformat(), same, seconds, measured["auto"], samples,
    )  # fmt: skip


def _in_turn(models: Mapping[str, sw.CompiledModel], rounds: int) -> dict[str, list[int]]:
    samples: dict[str, list[int]] = {tune: [] for tune in models}
    rng, order = np.random.default_rng(0), list(models)
    values = next(iter(models.values())).call_signature.graph
    inputs = {
        name: rng.standard_normal(values.values[name].shape).astype(np.float32)
        for name in values.inputs
    }
    for turn in range(rounds + 1):
        for tune in (*order[turn % len(order) :], *order[: turn % len(order)]):
            begin = time.perf_counter_ns()
            models[tune].run(inputs)
            if turn:  # the first run touches memory for the first time
                samples[tune].append(time.perf_counter_ns() - begin)
    return samples


# --- all models -----------------------------------------------------------------------------------


def started(isa: str, *arguments: str) -> str:
    """Run this script with a limit of the instruction set, and return what it prints."""
    environment = {k: v for k, v in os.environ.items() if k != "ONEDNN_MAX_CPU_ISA"}
    limit = ISAS[isa]
    environment |= {} if limit is None else {"ONEDNN_MAX_CPU_ISA": limit}
    command = [sys.executable, __file__, "--isa", isa, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return done.stdout


def summary(rows: Sequence[Row]) -> list[str]:
    """Return for each machine and way to tune the mean and the worst regret."""
    lines: list[str] = []
    for machine in sorted({row.machine for row in rows}):
        own = [row for row in rows if row.machine == machine]
        for tune in ("auto", "model"):
            mean = fmean(row.regret(tune) for row in own)
            worst = max(own, key=lambda row: row.regret(tune))
            lines.append(
                f'- {machine}, `tune="{tune}"`: regret {mean:.1%} in the mean of {len(own)} '
                f"networks, at worst {worst.regret(tune):.1%} ({worst.model})"
            )
    return lines


def table(rows: Sequence[Row]) -> str:
    """Return the report of all rows."""
    lines = ["# Regret of calibrated plans", "", *summary(rows), ""]
    for machine in sorted({row.machine for row in rows}):
        heads = ("model", "measured, ms", "regret, auto", "regret, model", "kernels measured",
                 "compile auto, s", "compile measure, s")  # fmt: skip
        lines += [f"## {machine}", "", "| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
        for row in sorted(rows, key=lambda row: -row.regret("auto")):
            if row.machine != machine:
                continue
            cells = [
                row.model, f"{undisturbed(row.samples['measure']) / 1e6:.2f}",
                *(f"{row.regret(tune):.1%}" for tune in ("auto", "model")), str(row.measured),
                *(f"{row.compile_s[tune]:.2f}" for tune in ("auto", "measure")),
            ]  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def save(rows: Sequence[Row], results: Path) -> None:
    """Write the rows and their table, and the summary of the project's own into its page."""
    fresh = results.with_suffix(".new")
    fresh.write_text(json.dumps([asdict(item) for item in rows], indent=1) + "\n", "utf-8")
    fresh.replace(results)
    results.with_suffix(".md").write_text(table(rows), encoding="utf-8")
    if results == RESULTS:
        before, begin, rest = PAGE.read_text("utf-8").partition(BEGIN)
        after = END + rest.partition(END)[2]
        PAGE.write_text(before + begin + "\n".join([*summary(rows), after]), "utf-8")


def _calibrated(options: argparse.Namespace, isa: str) -> Path:
    """Return the folder of a calibrated cost cache; an earlier run may have made it."""
    folder: Path = options.caches / f"{isa}-{options.threads}"
    done = folder / "done"
    if not done.exists():
        arguments = ("--seconds", str(options.seconds), "--cache", str(folder))
        print(started(isa, "--calibrate", "--threads", str(options.threads), *arguments))
        done.touch()
    return folder


def _all(options: argparse.Namespace) -> None:
    begin, longest, results = time.monotonic(), 0.0, options.results
    known = json.loads(results.read_text(encoding="utf-8")) if results.is_file() else []
    rows = {(row.model, row.machine): row for row in (Row(**item) for item in known)}
    caches = {isa: _calibrated(options, isa) for isa in options.isas}
    machines = {isa: started(isa, "--machine", "--threads", str(options.threads)).strip()
                for isa in options.isas}  # fmt: skip
    for path in sorted(options.folder.glob("*.onnx")):
        for isa, cache in caches.items():
            is_known = (path.stem, machines[isa]) in rows and not options.again
            if is_known or (options.only and options.only not in path.stem):
                continue
            now = time.monotonic()
            if now - begin + longest > 60 * options.minutes:
                print(f"{path.stem} and what follows: left out; the same command goes on there")
                return
            arguments = ("--rounds", "--threads", "--tune-seconds")
            values = (options.rounds, options.threads, options.tune_seconds)
            common = [str(item) for pair in zip(arguments, values, strict=True) for item in pair]
            try:
                found = started(isa, "--model", str(path), "--cache", str(cache), *common)
            except subprocess.CalledProcessError:
                print(f"{path.stem}, {isa}: failed")
                continue
            row = Row(**json.loads(found))
            longest = max(longest, time.monotonic() - now)
            print(f"{row.model}, {isa}: {row.regret('auto'):.1%}, model {row.regret('model'):.1%}")
            rows[row.model, row.machine] = row
            save(sorted(rows.values(), key=lambda item: (item.isa, item.model)), results)


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="ONNX files")
    parser.add_argument("--only", help="part of a model's name")
    parser.add_argument(
        "--minutes", type=float, default=15.0, help="no network is begun that may end later"
    )
    parser.add_argument("--again", action="store_true", help="measure models that have rows, too")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--caches", type=Path, default=ROOT / "build" / "regret")
    parser.add_argument("--tune-seconds", type=float, default=20.0, help='of tune="measure"')
    parser.add_argument("--isas", nargs="+", choices=ISAS, default=list(ISAS))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=55.0, help="of calibration")
    for name in ("--isa", "--model", "--cache"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    for name in ("--calibrate", "--machine"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.calibrate:
        found = sw.calibrate(
            threads=options.threads, seconds=options.seconds, cache_dir=options.cache
        )
        print(found)
    elif options.machine:
        print(this_machine(options.threads))
    elif options.model:
        print(json.dumps(asdict(look_at(options))))
    elif options.folder:
        _all(options)
    else:
        parser.error("give a folder")


if __name__ == "__main__":
    main()
