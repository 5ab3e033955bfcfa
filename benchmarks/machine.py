"""Limits of this machine: arithmetic rate, and bandwidth of each level of memory.

Run it on a quiet machine; it takes ten seconds::

    .venv/bin/python benchmarks/machine.py

The loops of ``assembly.py`` run on one thread and on all threads at the same time, each with its
own data. The result is the best of many runs, because it is an upper bound for kernels and other
load only reduces it. The rate of oneDNN's matrix product is listed beside the arithmetic peak. The
bandwidth of copies includes reads and writes, but not the cache lines that cached stores read
before they write.

Results are written to ``benchmarks/results/machine.json`` and ``machine.md``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import assembly
import numpy as np

import stridewise as sw
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.primitives import create
from stridewise.runtime.machine.cpus import available_cpus
from stridewise.runtime.machine.machine import cache_nbytes, this_machine
from stridewise.targets.kernels import KernelSpec
from stridewise.targets.onednn.memory import plain_memory

__all__ = ["Level", "Limits", "Machine", "measure", "table"]

RESULTS = Path(__file__).parent / "results" / "machine.json"
ACCESSES: Mapping[str, tuple[Callable[[], assembly.Code], int]] = {
    "read": (assembly.read, 1),
    "write": (lambda: assembly.write(stream=False), 1),
    "copy": (lambda: assembly.copy(stream=False), 2),
    "streamed write": (lambda: assembly.write(stream=True), 1),
    "streamed copy": (lambda: assembly.copy(stream=True), 2),
}
"""Memory loops, and the number of arrays of each."""
_RUNS, _RUN_S = 15, 0.01
_PRODUCT = 1536
_MEMORY_CACHES = 8
"""Size of arrays in memory, of all threads together, relative to the last-level cache."""


@dataclass(frozen=True, slots=True)
class Level:
    """A level of memory.

    Attributes:
        name: ``"L2"``, ``"L3"`` or ``"memory"``.
        nbytes: size available to all threads together; None for memory.
        gbytes_per_s: bytes per nanosecond by access, a key of :data:`ACCESSES`.
    """

    name: str
    nbytes: int | None
    gbytes_per_s: Mapping[str, float]

    @property
    def best(self) -> float:
        """The fastest access in bytes per nanosecond, an upper bound for kernels."""
        return max(self.gbytes_per_s.values())


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a number of threads together.

    Attributes:
        threads: the number of threads.
        peak: float32 multiplications and additions in registers, in operations per nanosecond.
        product: rate of oneDNN's matrix product, in operations per nanosecond.
        levels: levels of memory, from the nearest to the farthest.
    """

    threads: int
    peak: float
    product: float
    levels: tuple[Level, ...]

    def level(self, nbytes: float) -> Level:
        """Return the nearest level that can hold ``nbytes`` bytes."""
        for level in self.levels:
            if level.nbytes is not None and nbytes <= level.nbytes:
                return level
        return self.levels[-1]

    def better(self, other: Limits) -> Limits:
        """Return the larger of two measurements of each limit, made at two times."""
        levels = tuple(
            Level(
                one.name,
                one.nbytes,
                {key: max(rate, two.gbytes_per_s[key]) for key, rate in one.gbytes_per_s.items()},
            )
            for one, two in zip(self.levels, other.levels, strict=True)
        )
        peak, product = max(self.peak, other.peak), max(self.product, other.product)
        return Limits(self.threads, peak, product, levels)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Limits:
        """Return what :func:`dataclasses.asdict` took apart."""
        levels = tuple(Level(**level) for level in found["levels"])
        return cls(found["threads"], found["peak"], found["product"], levels)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine and its limits for several numbers of threads."""

    name: str
    date: str
    limits: tuple[Limits, ...]

    def of(self, threads: int) -> Limits:
        """Return the limits of a number of threads.

        Raises:
            KeyError: they were not measured.
        """
        for limits in self.limits:
            if limits.threads == threads:
                return limits
        raise KeyError(threads)

    def better(self, other: Machine) -> Machine:
        """Return the larger of two measurements of each limit, made at two times."""
        pairs = zip(self.limits, other.limits, strict=True)
        return Machine(self.name, self.date, tuple(one.better(two) for one, two in pairs))

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Machine:
        """Return what :func:`dataclasses.asdict` took apart."""
        limits = tuple(map(Limits.from_json, found["limits"]))
        return cls(found["name"], found["date"], limits)


def elapsed(work: Sequence[Callable[[], None]]) -> float:
    """Run functions concurrently, one per thread, and return the total time in nanoseconds."""
    barrier = Barrier(len(work))
    times: list[tuple[int, int]] = []

    def run(task: Callable[[], None]) -> None:
        barrier.wait()
        start = time.perf_counter_ns()
        task()
        times.append((start, time.perf_counter_ns()))

    threads = [Thread(target=run, args=(task,)) for task in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(end for _, end in times) - min(start for start, _ in times)


def best(tasks: Callable[[int], Sequence[Callable[[], None]]]) -> float:
    """Return the nanoseconds of one pass: the best of many runs of some milliseconds.

    Args:
        tasks: returns the functions of the threads for a number of passes.
    """
    passes = 1
    while (taken := elapsed(tasks(passes))) < 1e9 * _RUN_S:
        passes = max(2 * passes, int(passes * 1e9 * _RUN_S / max(taken, 1.0)))
    return min(elapsed(tasks(passes)) for _ in range(_RUNS)) / passes


def aligned(nbytes: int) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], int]:
    """Return an initialized array, and an aligned address in it with ``nbytes`` bytes."""
    array = np.full(nbytes + 64, 1, np.uint8)
    return array, -(-array.ctypes.data // 64) * 64


def arithmetic_peak(threads: int, wide: bool) -> float:
    """Return operations per nanosecond in registers."""
    code = assembly.multiply_add(wide)
    taken = best(lambda passes: threads * [lambda: code(0, 0, 1, passes)])
    return threads * code.flops / taken


def bandwidth(access: str, threads: int, nbytes: int) -> float:
    """Return bytes per nanosecond of an access to ``nbytes`` bytes, summed over threads."""
    make, arrays = ACCESSES[access]
    code = make()
    lines = max(nbytes // (threads * arrays * assembly.LINE), 1)
    places = [
        (aligned(lines * assembly.LINE), aligned(lines * assembly.LINE)) for _ in range(threads)
    ]

    def tasks(passes: int) -> list[Callable[[], None]]:
        return [
            lambda to=to, source=source: code(to[1], source[1], lines, passes)
            for to, source in places
        ]

    return threads * arrays * lines * assembly.LINE / best(tasks)


def product_rate(threads: int) -> float:
    """Return operations per nanosecond of oneDNN's product of square matrices."""
    square = plain_memory((_PRODUCT, _PRODUCT))
    memories = (("src", square), ("weights", square), ("dst", square))
    core = load_core()
    primitive = create(KernelSpec("matmul", memories), "", threads)
    samples, _ = core.Measurement(primitive).run(min_runs=_RUNS, max_runs=_RUNS, budget_ns=0)
    return 2.0 * _PRODUCT**3 / min(samples)


def levels(threads: int) -> tuple[Level, ...]:
    """Measure each cache with data of half its size, and memory with a multiple of the caches."""
    last = cache_nbytes(3)
    sizes: list[tuple[str, int | None, int]] = []
    for number, shared in ((2, 1), (3, 0)):
        nbytes = cache_nbytes(number) * (threads if shared else 1)
        sizes.append((f"L{number}", nbytes, nbytes // 2))
    sizes.append(("memory", None, _MEMORY_CACHES * last))
    return tuple(
        Level(
            name,
            capacity,
            {access: bandwidth(access, threads, used) for access in _accesses(capacity)},
        )
        for name, capacity, used in sizes
    )


def _accesses(capacity: int | None) -> list[str]:
    """Return the accesses to measure; streaming stores are measured only for memory."""
    return [name for name in ACCESSES if capacity is None or not name.startswith("streamed")]


def measure(counts: Sequence[int] | None = None) -> Machine:
    """Measure the limits of this machine.

    Args:
        counts: numbers of threads; by default one and the default number of models.
    """
    wanted = sorted({1, available_cpus()} if counts is None else set(counts))
    machine = this_machine(wanted[-1])
    wide = machine.has_avx512
    found = tuple(
        Limits(count, arithmetic_peak(count, wide), product_rate(count), levels(count))
        for count in wanted
    )
    return Machine(str(machine), date.today().isoformat(), found)


def table(machine: Machine, accesses: Collection[str] = tuple(ACCESSES)) -> str:
    """Return the limits as a Markdown table, for memory only the given accesses."""
    counts = [limits.threads for limits in machine.limits]
    heads = ["", *(f"{count} thread{'s' if count > 1 else ''}" for count in counts)]
    rows = [
        ["multiply and add, GFLOP/s", *(f"{limits.peak:.0f}" for limits in machine.limits)],
        ["oneDNN's matrix product, GFLOP/s", *(f"{each.product:.0f}" for each in machine.limits)],
    ]
    for index, level in enumerate(machine.limits[0].levels):
        for access in (name for name in level.gbytes_per_s if name in accesses):
            rates = [limits.levels[index].gbytes_per_s[access] for limits in machine.limits]
            rows.append([f"{level.name}, {access}, GB/s", *(f"{rate:.0f}" for rate in rates)])
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, nargs="*", help="numbers of them")
    options = parser.parse_args()
    machine = measure(options.threads)
    RESULTS.write_text(json.dumps(asdict(machine), indent=1) + "\n")
    text = f"# Limits\n\nMade by `benchmarks/machine.py`; {machine.name}; {machine.date}.\n\n"
    text += f"{table(machine)}\n"
    RESULTS.with_suffix(".md").write_text(text)
    print(f"{machine.name}, Stridewise {sw.__version__}\n\n{table(machine)}")


if __name__ == "__main__":
    main()
