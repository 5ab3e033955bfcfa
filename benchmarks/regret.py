"""How much slower plans by calibrated costs are than plans by measured ones.

Run it on a quiet machine, with a folder of ONNX files that no calibration has seen::

    .venv/bin/python benchmarks/regret.py networks/
    .venv/bin/python benchmarks/regret.py networks/ --only resnet --rounds 50

The machine is calibrated once for each instruction set, into an empty cost cache. Then every model
is compiled in a process of its own: with ``tune="auto"`` and a copy of that cache, so that networks
learn nothing from each other; with ``tune="measure"`` and an empty cache; and with
``tune="model"``. All three run in turn, in rotating order. The regret is the lower quartile of the
times of one plan over that of the measured plan, minus 1; two plans with the same kernels and
formats have none. Open extents of inputs are the least that the model allows.

Instruction sets are those of the machine, and AVX2 by ``ONEDNN_MAX_CPU_ISA``. Raw samples are
written to ``benchmarks/results/regret.json`` after each model; rows of other models are kept. The
table is written to ``regret.md``.
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
from stridewise.api import open_model
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.tuning.timing import undisturbed

RESULTS = Path(__file__).parent / "results" / "regret.json"
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
                options.model, threads=options.threads, tune=tune, tune_seconds=600.0,
                shapes=shapes,
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


def table(rows: Sequence[Row]) -> str:
    """Return the report of all rows."""
    lines = ["# Regret of calibrated plans", ""]
    for isa in ISAS:
        own = sorted((row for row in rows if row.isa == isa), key=lambda row: row.model)
        if not own:
            continue
        lines += [f"## {own[0].machine}", ""]
        for tune in ("auto", "model"):
            regrets = [row.regret(tune) for row in own]
            lines.append(
                f'- `tune="{tune}"`: regret {fmean(regrets):.1%} in the mean of {len(own)} '
                f"networks, at worst {max(regrets):.1%}"
            )
        heads = ("model", "measured, ms", "regret, auto", "regret, model", "kernels measured",
                 "compile auto, s", "compile measure, s")  # fmt: skip
        lines += ["", "| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
        for row in own:
            cells = [
                row.model, f"{undisturbed(row.samples['measure']) / 1e6:.2f}",
                *(f"{row.regret(tune):.1%}" for tune in ("auto", "model")), str(row.measured),
                *(f"{row.compile_s[tune]:.2f}" for tune in ("auto", "measure")),
            ]  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _all(options: argparse.Namespace) -> None:
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else []
    rows = {(row.model, row.isa): row for row in (Row(**item) for item in known)}
    threads = ("--threads", str(options.threads))
    with TemporaryDirectory() as scratch:
        for isa in options.isas:
            cache = Path(scratch) / isa
            seconds = ("--seconds", str(options.seconds))
            print(started(isa, "--calibrate", *threads, *seconds, "--cache", str(cache)))
            for path in sorted(options.folder.glob("*.onnx")):
                if options.only and options.only not in path.stem:
                    continue
                common = ("--rounds", str(options.rounds), "--cache", str(cache))
                row = Row(**json.loads(started(isa, "--model", str(path), *threads, *common)))
                print(f"{row.model}: {row.regret('auto'):.1%}, model {row.regret('model'):.1%}")
                rows[row.model, row.isa] = row
                found = sorted(rows.values(), key=lambda item: (item.isa, item.model))
                document = json.dumps([asdict(item) for item in found], indent=1)
                RESULTS.write_text(document + "\n", encoding="utf-8")
                RESULTS.with_suffix(".md").write_text(table(found), encoding="utf-8")


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="ONNX files")
    parser.add_argument("--only", help="part of a model's name")
    parser.add_argument("--isas", nargs="+", choices=ISAS, default=list(ISAS))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=45.0, help="of calibration")
    for name in ("--isa", "--model", "--cache"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--calibrate", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.calibrate:
        found = sw.calibrate(
            threads=options.threads, seconds=options.seconds, cache_dir=options.cache
        )
        print(found)
    elif options.model:
        print(json.dumps(asdict(look_at(options))))
    elif options.folder:
        _all(options)
    else:
        parser.error("give a folder")


if __name__ == "__main__":
    main()
