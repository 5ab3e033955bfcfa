"""Other work on the machine: seen while measuring, measured again, and told."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.runtime.binding.library import load_core
from stridewise.runtime.machine.cpus import available_cpus
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.tuning import kernel_times
from stridewise.runtime.tuning.calibrate import Calibration, _Queue, kernels_of
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.disturbance import Stopwatch, Waits
from stridewise.runtime.tuning.kernel_times import KernelTimes, Sampled
from stridewise.runtime.tuning.layers import layers
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import onednn_cpu
from stridewise.targets.rates import Sample, Traits

HERE = Machine("this CPU", "AVX2", 2, "oneDNN 3.2.0")
THIS = this_machine(1)
TARGET = onednn_cpu(THIS)


def test_work_of_another_process_on_the_same_processor_is_seen():
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel does not count how long threads wait")
    before = os.sched_getaffinity(0)
    script = "import time; until = time.monotonic() + 20\nwhile time.monotonic() < until: pass"
    try:
        os.sched_setaffinity(0, {min(before)})  # the child inherits it
        with subprocess.Popen([sys.executable, "-c", script]) as other:
            time.sleep(0.5)
            watch, until = Stopwatch(1), time.monotonic() + 0.5
            while time.monotonic() < until:
                pass
            seen = watch.is_disturbed
            desc = load_core().MemoryDesc((1, 64, 56, 56), "f32", "abcd")
            relu = load_core().eltwise("relu", desc, desc, threads=1).create()
            _, waited = load_core().measure(
                relu, threads=1, min_runs=1, max_runs=10**6, budget_ns=300_000_000
            )
            other.kill()
    finally:
        os.sched_setaffinity(0, before)
    assert seen
    assert waited > 0.05


def test_a_thread_that_sleeps_is_not_disturbed():
    def sleeps() -> bool:
        watch = Stopwatch(1)
        time.sleep(0.1)
        return watch.is_disturbed

    # Other tests on the same processors may delay a wake-up.
    assert not all(sleeps() for _ in range(20))


@given(st.lists(st.floats(0, 1)))
def test_runs_are_disturbed_if_any_waited(shares: list[float]):
    waits = Waits(1)
    for share in shares:
        waits.add(share)
    assert waits.is_disturbed == any(share > 0.05 for share in shares)


def test_waits_of_more_threads_than_processors_tell_nothing():
    waits = Waits(available_cpus() + 1)
    waits.add(1.0)
    assert not waits.is_disturbed


@dataclass
class Times:
    """Pretends to measure; of each kernel, the first measurements are disturbed."""

    disturbed: dict[str, int]
    calls: list[str] = field(default_factory=list)

    def key(self, spec: str) -> str:
        return spec

    def sample(self, specs: Sequence[str], until: float) -> Sampled:
        del until
        found: list[Any] = []
        for spec in specs:
            self.calls.append(spec)
            if self.disturbed.get(spec, 0) > 0:
                self.disturbed[spec] -= 1
                found.append(spec)
        return Sampled(tuple(specs), tuple(found))  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), max_size=40))
def test_disturbed_kernels_are_measured_once_more_and_counted_if_that_did_not_help(
    jobs: list[tuple[int, int]],
):
    often = {str(number): count for number, count in reversed(jobs)}
    times: Any = Times(dict(often))
    queue = _Queue(0.0)
    for number, _ in jobs:
        queue.measure(times, [str(number)])  # type: ignore[list-item]
    for extra in range(len(jobs)):
        queue.measure(times, [f"other {extra}"])  # type: ignore[list-item]
    for spec, count in often.items():
        assert times.calls.count(spec) == (1 if count == 0 else 2)
        assert (spec in queue.disturbed) == (count == 2)


def times(folder: Path) -> KernelTimes:
    return KernelTimes(THIS, TARGET, CostCache(THIS, folder))


def sample(ratio: float, *, disturbed: bool) -> Sample:
    return Sample(Traits("k", "f", "w", (1.0,)), ratio, f"jit {ratio}", disturbed)


@given(st.lists(st.tuples(st.booleans(), st.floats(-5, 5)), min_size=1, max_size=6))
def test_of_repeated_samples_the_fastest_undisturbed_one_stays(found: list[tuple[bool, float]]):
    cache = CostCache(HERE, Path(os.devnull) / "no folder")  # what it stored itself counts
    for disturbed, ratio in found:
        item = sample(ratio, disturbed=disturbed)
        cache.store_samples({"kernel": item}, is_least=True)
    (kept,) = cache.samples("k").rows("k")
    assert (kept.is_disturbed, kept.ratio) == min(found)


def test_of_repeated_samples_the_fastest_undisturbed_one_stays_in_the_file(tmp_path: Path):
    rounds = ((True, 0.1, 0.1), (True, 0.2, 0.1), (False, 1.0, 1.0), (False, 2.0, 1.0),
              (True, 0.1, 1.0), (False, 0.5, 0.5))  # fmt: skip
    for disturbed, ratio, least in rounds:
        item = sample(ratio, disturbed=disturbed)
        CostCache(HERE, tmp_path).store_samples({"kernel": item}, is_least=True)
        (kept,) = CostCache(HERE, tmp_path).samples("k").rows("k")
        assert (kept.ratio, kept.implementation) == (least, f"jit {least}")


@pytest.mark.parametrize(
    ("disturbed", "says"), [(0, ""), (10, ""), (60, "60% of the measurements")]
)
def test_a_busy_machine_is_named(disturbed: int, says: str):
    found = Calibration(HERE, 100, 1.0, disturbed, ())
    assert says in found.warning
    assert bool(found.warning) == bool(says)
    assert found.warning in str(found)


class Busy:
    """The waits while other work disturbs a number of measurements."""

    left = 0

    def __init__(self, threads: int) -> None:
        del threads

    def add(self, waited: float) -> None:
        del waited

    @property
    def is_disturbed(self) -> bool:
        Busy.left -= 1
        return Busy.left >= 0


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_times, "Waits", Busy)


@pytest.mark.usefixtures("busy")
def test_kernels_are_measured_until_nothing_disturbs_that(tmp_path: Path):
    specs = kernels_of(next(layers()), times(tmp_path), TARGET)[:1]
    for disturbed in range(5):
        Busy.left = disturbed
        found = times(tmp_path / str(disturbed)).measure(specs)
        kept = times(tmp_path / str(disturbed))
        assert kept.known(specs).keys() == found.keys() == set(specs)
        assert kept.cache.is_provisional == (disturbed > 2)


@pytest.mark.usefixtures("busy")
def test_predictions_replace_costs_of_disturbed_measurements(tmp_path: Path):
    own, spec = times(tmp_path), kernels_of(next(layers()), times(tmp_path), TARGET)[0]
    Busy.left = 9
    assert own.measure([spec], predicts=True) == {}
    assert own.known([spec]) == {}
    assert own.samples(spec.kind).disturbed.tolist() == [True]
