"""Reorders compared with a copy, NumPy, PyTorch and oneDNN; two threads, float32 and quantized.

Run it on a quiet machine::

    .venv/bin/python benchmarks/reorders.py

Speed is relative to the bandwidth of a copy of the source by the same number of threads in the same
rounds. Bandwidth is bytes read plus bytes written (padding included) per second. Each round runs
every implementation once, in rotating order; slow ones stop after three rounds. The whole list is
repeated several times, so that no row depends on the load of the machine at one moment. Results are
medians of all rounds. Destinations are allocated once and reused. Engines are chosen with an empty
cost cache, so earlier measurements of other kernels have no effect. Raw samples are written to
``benchmarks/results/reorders.json``, the tables to ``reorders.md``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from functools import lru_cache
from itertools import pairwise, permutations
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

import stridewise as sw
from stridewise.formats import Format
from stridewise.runtime.machine.machine import this_machine

THREADS = 2
RESULTS = Path(__file__).parent / "results" / "reorders.json"
TABLES = RESULTS.with_suffix(".md")
_SLOW_ROUNDS = 3

IMAGES = ((8, 32, 64, 64), (32, 128, 56, 56), (32, 64, 112, 112), (16, 256, 128, 128))
WEIGHTS = ((512, 256, 3, 3), (1024, 1024, 3, 3), (4096, 1024, 3, 3))
FSV, BSV = "b_fs_yx_fsv16", "bs_fs_yx_bsv16_fsv16"
NAMED = [
    *((a, b, IMAGES) for a, b in permutations(["NCHW", "NHWC", "nChw16c"], 2)),
    *((a, b, IMAGES) for a, b in permutations(["nChw16c", "nChw8c"], 2)),
    *((a, b, IMAGES) for a, b in permutations([FSV, BSV], 2)),
    ("OIHW", "OIhw16i16o", WEIGHTS),
    ("NCHW", "FRACTAL_Z", WEIGHTS),
]
"""The pairs with a target of 0.8 of the bandwidth of a copy."""

OTHERS = {
    (16, 128, 56, 56): [
        "NCHW",
        "NHWC",
        "chwn",
        "byfx",
        "yxfb",
        "nChw4c",
        "nChw8c",
        "nChw16c",
        "b_fs_yx_fsv32",
        "fs_b_yx_fsv32",
        "NChw16n16c",
        "bs_fs_yx_bsv32_fsv16",
        "bs_fs_yx_bsv4_fsv2",
        "kHWC8",
        "miopenTensorCHWNc8",
        "N,C,H,W: walk N C H W 24*C",
        "N,C,H,W: walk N C |1024 H W",
    ],
    (512, 512, 3, 3): [
        "OIHW",
        "HWIO",
        "OHWI",
        "IOHW",
        "OIhw8i8o",
        "OIhw16i16o",
        "OIhw4i16o4i",
        "OIhw8i16o2i",
        "os_is_yx_osa4_isa8_osv8_isv4",
        "os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4",
        "is_o32_yx_isv32_swizzled_by_4",
        "OhwI16i64o",
        "os_iyx_osv32__ai32",
    ],
}
"""All ordered pairs of these have a target of 0.4."""


@dataclass(frozen=True)
class Case:
    """One reorder."""

    src: str
    dst: str
    shape: tuple[int, ...]
    dtype: str = "f32"
    group: str = "named"


@dataclass
class Result:
    """Samples in nanoseconds, by implementation."""

    case: Case
    moved_nbytes: int
    copied_nbytes: int
    engine: str
    samples: dict[str, list[int]] = field(default_factory=dict)

    def add(self, other: Result) -> None:
        """Add the samples of another pass over the same reorder."""
        for name, samples in other.samples.items():
            self.samples.setdefault(name, []).extend(samples)

    def fraction(self, name: str) -> float:
        """Return the speed relative to the copy."""
        ours = self.moved_nbytes / median(self.samples[name])
        return ours / (self.copied_nbytes / median(self.samples["copy"]))


def cases(group: str) -> list[Case]:
    """Return the reorders of one table."""
    if group == "others":
        return [
            Case(a, b, shape, group=group)
            for shape, names in OTHERS.items()
            for a, b in permutations(names, 2)
        ]
    dtypes = ["f32"] if group == "named" else ["bf16", "s8"]
    return [
        Case(src, dst, shape, dtype, group)
        for src, dst, shapes in NAMED
        for dtype in dtypes
        for shape in (shapes if group == "named" else shapes[1:3])
    ]


def descriptions(case: Case) -> tuple[sw.TensorDesc, sw.TensorDesc]:
    """Return both sides of a reorder."""
    src = Format.parse(case.src)
    dst = Format.parse(case.dst, block=16 if case.dst == "FRACTAL_Z" else None)
    meant = Format(src.axes, src.axes)
    return (
        sw.TensorDesc(case.shape, "f32", meant, src),
        sw.TensorDesc(case.shape, case.dtype, meant, dst),
    )


def peers(case: Case, array: Any) -> dict[str, Callable[[], object]]:
    """Return equivalent functions of other libraries, if they exist."""
    src, dst = Format.parse(case.src), Format.parse(case.dst, block=16)
    found: dict[str, Callable[[], object]] = {}
    if not (src.is_plain and dst.is_plain and case.dtype == "f32"):
        return found
    order = [src.order.index(axis) for axis in dst.order]
    found["numpy"] = lambda: np.ascontiguousarray(array.transpose(order))
    try:
        import torch  # noqa: PLC0415 (the benchmark runs without it, too)
    except ImportError:
        return found
    memory = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
    if case.src in memory and case.dst in memory:
        torch.set_num_threads(THREADS)
        seen = array.transpose([src.order.index(axis) for axis in src.axes])
        tensor = torch.from_numpy(seen)
        found["torch"] = lambda: tensor.contiguous(memory_format=memory[case.dst])
    return found


def copier(array: Any) -> Callable[[], object]:
    """Return a function that copies an array with the same number of threads."""
    source, target = array.reshape(-1), np.empty_like(array).reshape(-1)
    pool = ThreadPoolExecutor(THREADS - 1)
    cuts = [len(source) * part // THREADS for part in range(THREADS + 1)]
    parts = [(target[a:b], source[a:b]) for a, b in pairwise(cuts)]

    def copy() -> None:
        others = [pool.submit(np.copyto, *part) for part in parts[1:]]
        np.copyto(*parts[0])
        for other in others:
            other.result()

    return copy


@lru_cache(maxsize=1)
def source(shape: tuple[int, ...]) -> Any:
    """Return a source array, which is cached by shape."""
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def run(case: Case, rounds: int, engines: Sequence[str], cache: Path) -> Result:
    """Measure one reorder and its peers; engines are chosen with an empty cache."""
    src, dst = descriptions(case)
    array = source(src.storage.shape)
    ours = sw.Reorder(src, dst, threads=THREADS, cache_dir=cache)
    out = ours(array)
    contestants: dict[str, Callable[[], object]] = {
        "ours": lambda: ours(array, out),
        "copy": copier(array),
        **peers(case, array),
    }
    for engine in engines:
        try:
            one = sw.Reorder(src, dst, threads=THREADS, engine=engine)  # type: ignore[arg-type]
        except sw.FormatError:
            continue
        contestants[engine] = lambda one=one: one(array, out)
    result = Result(case, src.nbytes + dst.nbytes, 2 * array.nbytes, ours.engine)
    names = list(contestants)
    for turn in range(rounds + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if name not in ("ours", "copy", *engines) and turn > _SLOW_ROUNDS:
                continue
            start = time.perf_counter_ns()
            contestants[name]()
            if turn:
                result.samples.setdefault(name, []).append(time.perf_counter_ns() - start)
    return result


def table(results: Sequence[Result]) -> list[str]:
    """Return the Markdown table of the reorders with the highest targets."""
    heads = ["from", "to", "dtype", "shape", "MB", "engine", "ms", "of a copy", "NumPy / ours"]
    heads += ["PyTorch / ours", "oneDNN / ours"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for result in results:
        case = result.case
        ours = median(result.samples["ours"])
        ratios = [
            f"{median(result.samples[name]) / ours:.2f}" if name in result.samples else ""
            for name in ("numpy", "torch", "onednn")
        ]
        cells = [name.replace("|", "\\|") for name in (case.src, case.dst)]
        cells += [case.dtype, "x".join(map(str, case.shape))]
        cells += [f"{result.copied_nbytes / 2e6:.0f}", result.engine, f"{ours / 1e6:.2f}"]
        cells += [f"**{result.fraction('ours'):.2f}**", *ratios]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def summary(results: Sequence[Result]) -> list[str]:
    """Return a summary of many pairs: the distribution, and the slowest ones."""
    if not results:
        return []
    found = sorted(results, key=lambda result: result.fraction("ours"))
    fractions = [result.fraction("ours") for result in found]
    lines = [
        f"{len(found)} ordered pairs: slowest {fractions[0]:.2f} of a copy, "
        f"tenth percentile {fractions[len(found) // 10]:.2f}, median {median(fractions):.2f}, "
        f"{sum(f < 0.4 for f in fractions)} below 0.4.",
        "",
    ]
    return [*lines, "The slowest:", "", *table(found[:12])]


def small(rounds: int = 2000) -> list[int]:
    """Return samples of a call of a reused reorder on 4 kB, Python to Python, in nanoseconds."""
    src = sw.TensorDesc((1, 16, 8, 8), "f32", "NCHW", "NCHW")
    ours = sw.Reorder(src, src.stored_as("NHWC"))
    array = np.ones(src.storage.shape, np.float32)
    out = ours(array)
    samples: list[int] = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        ours(array, out)
        samples.append(time.perf_counter_ns() - start)
    return samples


def report(results: Sequence[Result], calls: Sequence[int]) -> str:
    """Return the document of all tables."""
    groups = {name: [r for r in results if r.case.group == name] for name in GROUPS}
    return "\n".join(
        [
            "# Reorders",
            "",
            f"Made by `benchmarks/reorders.py`, {THREADS} threads, {this_machine(THREADS)}. Of a",
            "copy: bytes moved per second as a fraction of a copy's in the same rounds.",
            "",
            "## float32",
            "",
            *table(groups["named"]),
            "",
            "## Converted on the way",
            "",
            *table(groups["converted"]),
            "",
            "## Every pair of many formats",
            "",
            *summary(groups["others"]),
            "",
            "## Small tensors",
            "",
            f"A reused `Reorder` of 4 kB takes {median(calls) / 1000:.1f} us, Python to Python.",
            "",
        ]
    )


GROUPS = ("named", "converted", "others")


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="of a pass")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--only", choices=GROUPS, help="one table, which is not saved")
    options = parser.parse_args()
    todo = [case for group in GROUPS if options.only in (None, group) for case in cases(group)]
    found: dict[Case, Result] = {}
    with TemporaryDirectory() as cache:
        several = todo * options.passes
        for case in track(several, "reorders", console=Console(stderr=True), transient=True):
            rounds = options.rounds if case.group != "others" else max(5, options.rounds // 2)
            engines = ("onednn",) if case.group != "converted" else ()
            result = run(case, rounds, engines, Path(cache))
            found.setdefault(case, replace(result, samples={})).add(result)
    results = list(found.values())
    calls = small()
    text = report(results, calls)
    if options.only is None:
        document = {
            "date": date.today().isoformat(),
            "machine": asdict(this_machine(THREADS)),
            "results": [asdict(result) for result in results],
            "small": calls,
        }
        RESULTS.write_text(json.dumps(document) + "\n")
        TABLES.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
