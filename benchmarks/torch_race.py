"""Networks in PyTorch: Stridewise's backend beside eager channels-last and Inductor with freezing.

    python benchmarks/torch_race.py --out build/race.jsonl --table docs/torch-race.md

Each network runs in a process of its own, with random weights and channels-last images, under
``torch.inference_mode()``. All contestants compile first; then they run in turns, a few runs at a
time, until the time is over. The score of a contestant is the median over the turns of its least
time in a turn. Without a C++ compiler, Inductor has no result. First calls have tracing and
compilation, but not what PyTorch imports for the first compilation of a process, whatever the
backend. ``--out`` collects lines of JSON with all samples; networks that it has already are left
out. Needs torch, torchvision and timm.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch_networks import build, difference, tensors

NETWORKS = (
    "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121", "vgg11",
    "squeezenet1_1", "googlenet", "inception_v3", "mobilenet_v2", "mobilenet_v3_small",
    "mobilenet_v3_large", "mnasnet1_0", "shufflenet_v2_x1_0", "efficientnet_b0",
    "efficientnet_v2_s", "regnet_x_400mf", "regnet_y_400mf", "convnext_tiny", "swin_t",
    "segmentation.lraspp_mobilenet_v3_large", "segmentation.fcn_resnet50", "timm:resnest14d",
    "timm:seresnet50", "timm:hrnet_w18_small", "timm:ghostnet_100", "timm:repvgg_a0",
    "timm:convnext_atto", "timm:mobilevit_xxs", "timm:efficientvit_b0",
)  # fmt: skip
EAGER, INDUCTOR, OURS = "eager channels-last", "Inductor, freezing", "Stridewise"
RUNS = 5
"""Runs of one contestant in a turn."""


def contestants(model: Any, options: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    """Return what is compared: a function of an image for each name."""
    found = {EAGER: model, OURS: torch.compile(model, backend="stridewise", options=options)}
    if shutil.which("g++") or shutil.which("clang++"):
        found[INDUCTOR] = torch.compile(model, backend="inductor", options={"freezing": True})
    return found


def turn(function: Callable[..., Any], x: Any) -> float:
    """Return the least time of a few runs in milliseconds."""
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        function(x)
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def race(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Return the row of one network."""
    torch.set_num_threads(given.threads)
    model, side = build(name, given.side)
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(given.batch, 3, side, side).contiguous(memory_format=torch.channels_last)
    options = {"threads": given.threads, "tune": given.tune}
    row: dict[str, Any] = {"name": name, "side": side, "batch": given.batch, "first_s": {}}
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compile(torch.nn.Conv2d(3, 3, 1), backend="eager")(x)
        racing = contestants(model, options)
        wanted = tensors(model(x))
        row["error"] = 0.0
        for key, function in racing.items():
            start = time.perf_counter()
            found = tensors(function(x))
            row["first_s"][key] = round(time.perf_counter() - start, 3)
            if key == OURS:
                row["error"] = difference(wanted, found)
            turn(function, x)  # warms up
        samples: dict[str, list[float]] = {key: [] for key in racing}
        end = time.perf_counter() + given.seconds
        while time.perf_counter() < end or len(samples[OURS]) < 3:
            for key, function in racing.items():
                samples[key].append(round(turn(function, x), 4))
    row["samples_ms"] = samples
    row["ms"] = {key: median(times) for key, times in samples.items()}
    return row


def ratio(row: dict[str, Any]) -> float:
    """Return how much faster Stridewise is than the better of the others."""
    return min(time for key, time in row["ms"].items() if key != OURS) / row["ms"][OURS]


_PAGE = """\
# Speed beside eager channels-last and Inductor with freezing

<!-- Made by benchmarks/torch_race.py --table. -->

Milliseconds per run of batches of {batch}, float32, {threads} threads, PyTorch {version}, on
{machine}. *ratio* is the better of the other two over Stridewise. First calls are in seconds and
have tracing and compilation, but not what PyTorch imports for the first one of a process.

{summary}

| network | side | eager | Inductor | Stridewise | ratio | first: Inductor | first: Stridewise |
| --- | --- | --- | --- | --- | --- | --- | --- |
{rows}
"""


def page(rows: list[dict[str, Any]], given: argparse.Namespace) -> str:
    """Return the rows as a page in Markdown."""
    lines: list[str] = []
    for row in rows:
        if "failure" in row:
            lines.append(f"| {row['name']} | | {row['failure']} | | | | | |")
            continue
        ms, first = row["ms"], row["first_s"]
        cells = [f"{ms[key]:.2f}" if key in ms else "-" for key in (EAGER, INDUCTOR, OURS)]
        firsts = [f"{first[key]:.1f}" if key in first else "-" for key in (INDUCTOR, OURS)]
        cells = [row["name"], str(row["side"]), *cells, f"{ratio(row):.2f}", *firsts]
        lines.append(f"| {' | '.join(cells)} |")
    ratios = [ratio(row) for row in rows if "failure" not in row]
    summary = "No network has a result."
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        summary = (
            f"Geometric mean of {len(ratios)} networks: {mean:.2f}; the least {min(ratios):.2f}, "
            f"the greatest {max(ratios):.2f}."
        )
    cpu = next(
        (line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), "this machine"
    )  # fmt: skip
    return _PAGE.format(
        batch=given.batch,
        threads=given.threads,
        version=torch.__version__,
        machine=cpu,
        summary=summary,
        rows="\n".join(lines),
    )


def apart(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Race one network in a process of its own and return its row, or why there is none."""
    command = [sys.executable, __file__, "--one", name, "--seconds", str(given.seconds)]
    for key in ("batch", "side", "threads", "tune"):
        command += [f"--{key}", str(getattr(given, key))]
    try:
        # What Inductor compiled before would make its first call shorter.
        with TemporaryDirectory() as folder:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=given.timeout,
                check=False,
                env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder},
            )
    except subprocess.TimeoutExpired:
        return {"name": name, "failure": f"more than {given.timeout} s"}
    if done.returncode:
        last = (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]
        return {"name": name, "failure": last[:200]}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Race the networks of the command line, or the selection."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--side", type=int, default=224, help="of images, where networks allow")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tune", default="model", help="option of the backend")
    parser.add_argument("--seconds", type=float, default=15, help="of timing for a network")
    parser.add_argument("--timeout", type=int, default=400, help="seconds for a network in all")
    parser.add_argument("--out", type=Path, default=Path("build/race.jsonl"))
    parser.add_argument("--table", type=Path, help="also write a page with all rows in --out")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(race(given.one, given)))
        return
    given.out.parent.mkdir(parents=True, exist_ok=True)
    text = given.out.read_text() if given.out.exists() else ""
    rows = {row["name"]: row for row in map(json.loads, text.splitlines())}
    for name in given.names:
        if name not in rows or "failure" in rows[name]:
            rows[name] = apart(name, given)
            with given.out.open("a") as file:
                file.write(json.dumps(rows[name]) + "\n")
            print({k: v for k, v in rows[name].items() if k != "samples_ms"}, flush=True)
    made = page(list(rows.values()), given)
    if given.table is not None:
        given.table.write_text(made)
    print(made)


if __name__ == "__main__":
    main()
