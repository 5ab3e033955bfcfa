"""Other work on the machine: seen while measuring, measured again, and told."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import log
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.runtime.binding.library import load_core
from stridewise.runtime.machine.cpus import usable_cpus
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.tuning import calibrate, kernel_times
from stridewise.runtime.tuning.calibrate import Calibration, _Queue, kernels_of
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.disturbance import Stopwatch, Waits
from stridewise.runtime.tuning.kernel_times import KernelTimes, Sampled
from stridewise.runtime.tuning.layers import layers
from stridewise.runtime.tuning.oracle import CalibratedOracle
from stridewise.runtime.tuning.windows import WINDOWS, Entrant, paired_costs, take_turns
from stridewise.targets.kernels import KernelSpec, MemorySpec
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
            measurement = load_core().Measurement(relu)
            _, waited = measurement.run(min_runs=1, max_runs=10**6, budget_ns=300_000_000)
            desc = load_core().MemoryDesc((32, 64, 112, 112), "f32", "abcd")
            relu = load_core().eltwise("relu", desc, desc, threads=1).create()
            long = [
                load_core().Measurement(relu).run(min_runs=1, max_runs=1, budget_ns=0)[1]
                for _ in range(3)
            ]
            other.kill()
    finally:
        os.sched_setaffinity(0, before)
    assert seen
    assert waited > 0.05
    assert max(long) > 0.05, "of a long kernel, the first run is the only one"


@pytest.mark.skipif(usable_cpus() < 2, reason="with one processor, threads wait for each other")
def test_threads_that_have_work_wait_and_those_without_do_not():
    desc = load_core().MemoryDesc((1, 64, 112, 112), "f32", "abcd")
    wide, narrow = (
        load_core().Measurement(load_core().eltwise("relu", desc, desc, threads=n).create())
        for n in (2, 1)
    )

    def waited(measurement: Any, budget_ns: int) -> float:
        return measurement.run(min_runs=1, max_runs=10**6, budget_ns=budget_ns)[1]

    # Other tests on the same processors take turns with this one, for some milliseconds each.
    assert any(waited(narrow, 500_000) < 0.05 for _ in range(1000)), "one of two threads sleeps"
    script = "import time; until = time.monotonic() + 20\nwhile time.monotonic() < until: pass"
    others = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(usable_cpus())]
    try:
        time.sleep(0.5)
        assert any(waited(wide, 20_000_000) > 0.05 for _ in range(20))
    finally:
        for other in others:
            other.kill()
            other.wait()


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
    waits = Waits(usable_cpus() + 1)
    waits.add(1.0)
    assert not waits.is_disturbed


@dataclass(eq=False)
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

    def pace(self) -> float:
        return float(len(self.calls) % 3)


def named(*names: object) -> list[Any]:
    """Return what stands for kernels: the queue knows nothing of them but their keys."""
    return [str(name) for name in names]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), max_size=40))
def test_disturbed_kernels_are_measured_once_more_and_counted_if_that_did_not_help(
    jobs: list[tuple[int, int]],
):
    often = {str(number): count for number, count in reversed(jobs)}
    times: Any = Times(dict(often))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibrate, "_TOGETHER", 1)
        queue = _Queue(0.0)
        for number, _ in jobs:
            queue.add(times, named(number))
        for extra in range(len(jobs)):
            queue.add(times, named(f"other {extra}"))
    for spec, count in often.items():
        assert times.calls.count(spec) == (1 if count == 0 else 2)
        assert (spec in queue.disturbed) == (count == 2)


def times(folder: Path) -> KernelTimes:
    return KernelTimes(THIS, TARGET, CostCache(THIS, folder))


def sample(ratio: float, *, disturbed: bool) -> Sample:
    return Sample(Traits("k", "f", "w", (1.0,)), ratio, f"jit {ratio}", disturbed)


@given(st.integers(1, 200))
def test_many_kernels_are_measured_at_once_and_all_in_the_end(count: int):
    times: Any = Times({})
    queue = _Queue(0.0)
    for number in range(count):
        queue.add(times, named(number))
        assert len(times.calls) % calibrate._TOGETHER == 0
    queue.finish()
    assert times.calls == [str(number) for number in range(count)]
    assert len(queue.seen) == count


def test_a_calibration_keeps_the_pace_of_the_machine(tmp_path: Path):
    own = times(tmp_path)
    assert own.pace() > 0
    own.record_pace([])
    assert slowness(own, 1.0, [9.0]) == 1
    own.record_pace([300.0, 100.0, 200.0])
    assert slowness(own, 500.0, [9.0]) == 2.5
    assert slowness(own, 100.0, [0.1]) == 0.5
    assert slowness(own, 230.0, [9.0]) == slowness(own, 170.0, [0.1]) == 1
    assert own._slowness({}, {}, ()) == own._slowness({}, {}, None) == 1


def slowness(own: KernelTimes, probed: float, ratios: Sequence[float]) -> float | None:
    """Return what a probe tells beside kernels that took ``ratios`` of their predicted times."""
    specs = kernels_of(next(layers()), own, TARGET)
    while len(specs) < len(ratios):
        specs = [*specs, replace(specs[-1], flops=specs[-1].flops + 1)]
    named = dict(zip(specs, ratios, strict=False))
    measured = {spec: (("slower", 2e3 * r), ("jit", 1e3 * r)) for spec, r in named.items()}
    return own._slowness(measured, dict.fromkeys(named, 1e3), (("one", probed + 1), ("", probed)))


@given(st.floats(40.0, 250.0), st.lists(st.floats(0.1, 10.0), min_size=1, max_size=9), st.randoms())
def test_costs_are_scaled_by_no_more_than_both_the_probe_and_the_kernels_tell(
    tmp_path_factory: pytest.TempPathFactory, probed: float, ratios: list[float], random: Any
):
    own = times(tmp_path_factory.mktemp("pace"))
    own.record_pace([100.0])
    found, told, agreed = slowness(own, probed, ratios), probed / 100, median(ratios)
    assert found is not None
    assert min(1.0, told) <= found <= max(1.0, told)
    assert min(1.0, agreed) - 1e-9 <= found <= max(1.0, agreed) + 1e-9
    assert found in (1.0, told) or found == pytest.approx(agreed)
    random.shuffle(ratios)
    assert slowness(own, probed, ratios) == pytest.approx(found)


def beside_probe(
    folder: Path, monkeypatch: pytest.MonkeyPatch, now: float
) -> tuple[KernelTimes, KernelSpec]:
    """Return a kernel whose times are 1000 ns, beside a probe that takes ``now`` and took 100."""
    own, spec = times(folder), kernels_of(next(layers()), times(folder), TARGET)[0]
    own.record_pace([100.0])
    entries = {spec: (("jit", 1000.0),), kernel_times._PROBE: (("jit", now),)}
    group = kernel_times._Group
    monkeypatch.setattr(group, "entries", property(lambda _: dict(entries)))
    monkeypatch.setattr(group, "disturbed", property(lambda _: set()))
    return own, spec


@pytest.mark.parametrize(("now", "cost"), [(200.0, 500.0), (110.0, 1000.0), (50.0, 2000.0)])
def test_costs_beside_predictions_are_those_at_the_pace_of_the_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: float, cost: float
):
    own, spec = beside_probe(tmp_path, monkeypatch, now)
    (found,) = own.measure([spec], predicted={spec: cost})[spec]
    assert found.cost_ns == pytest.approx(cost)
    (kept,) = times(tmp_path).known([spec])[spec]
    assert kept.cost_ns == found.cost_ns
    assert own.known([kernel_times._PROBE]) == {}


@pytest.mark.parametrize("now", [300.0, 6000.0, 30.0])
def test_nothing_is_kept_of_kernels_beside_a_probe_that_had_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: float
):
    own, spec = beside_probe(tmp_path, monkeypatch, now)
    assert own.measure([spec], predicted={spec: 1000.0}) == {}
    assert times(tmp_path).known([spec]) == {}
    (kept,) = own.samples(spec.kind).rows(spec.kind)
    assert kept.is_disturbed
    assert kept.ratio == pytest.approx(log(1000.0 / own.estimate(spec)))


def test_no_prediction_of_a_product_is_faster_than_the_machine(tmp_path: Path):
    own, plain = times(tmp_path), MemorySpec((1, 64, 9, 9), "abcd")
    images = (("src", plain), ("dst", plain))
    specs = [
        KernelSpec("convolution", (*images, ("weights", weights)), flops=1e9)
        for weights in (MemorySpec((64, 64, 1, 1), "any"), MemorySpec((64, 64, 3, 3), "any"))
    ]
    reorder = KernelSpec("reorder", images)
    assert own.least_ns([*specs, reorder]) == {}
    own.record_pace([kernel_times._PROBE.flops / 100])  # 100 operations a nanosecond
    least = own.least_ns([*specs, reorder])
    assert least.keys() == {specs[0]}
    assert least[specs[0]] == pytest.approx(1e9 / 105)
    found = CalibratedOracle(own).predicted(specs)
    assert found[specs[0]][0].cost_ns >= least[specs[0]]


ROUNDS = ((True, 0.1, 0.1), (True, 0.2, 0.2), (False, 1.0, 1.0), (False, 2.0, 2.0),
          (True, 0.1, 2.0), (False, 0.5, 0.5))  # fmt: skip
"""Whether a sample is disturbed, its ratio, and that of the sample that is kept then."""


def test_of_repeated_samples_the_last_undisturbed_one_stays():
    cache = CostCache(HERE, Path(os.devnull) / "no folder")  # what it stored itself counts
    for disturbed, ratio, expected in ROUNDS:
        item = sample(ratio, disturbed=disturbed)
        cache.store_samples({"kernel": item}, keeps_undisturbed=True)
        (kept,) = cache.samples("k").rows("k")
        assert kept.ratio == expected


def test_of_repeated_samples_the_last_undisturbed_one_stays_in_the_file(tmp_path: Path):
    for disturbed, ratio, expected in ROUNDS:
        item = sample(ratio, disturbed=disturbed)
        CostCache(HERE, tmp_path).store_samples({"kernel": item}, keeps_undisturbed=True)
        (kept,) = CostCache(HERE, tmp_path).samples("k").rows("k")
        assert (kept.ratio, kept.implementation) == (expected, f"jit {expected}")


@dataclass
class Windows:
    """Stands for a measurement whose windows take given times; those above 100 are disturbed."""

    times: list[int]

    def run(self, **_: int) -> tuple[list[int], float]:
        taken = self.times.pop(0) if len(self.times) > 1 else self.times[0]
        return [taken], float(taken > 100)


def entrant(
    times: list[int], window_ns: int = 1000, windows: int = WINDOWS, *, is_slow: bool = False
) -> Entrant:
    measurement: Any = Windows(times)
    return Entrant("", measurement, window_ns, windows, is_slow)


def turns(kernels: list[list[Entrant]]) -> None:
    for one in (one for rivals in kernels for one in rivals):
        one.run(bool)
    take_turns(kernels, bool, lambda: False)


@given(st.lists(st.integers(40, 60), min_size=1, max_size=8), st.integers(0, 7))
def test_the_median_of_undisturbed_windows_counts(times: list[int], disturbed: int):
    one = entrant([*times[: len(times) // 2], *[10**6] * disturbed, *times[len(times) // 2 :]])
    turns([[one]])
    windows = [*times, *[times[-1]] * WINDOWS][:WINDOWS]
    assert one.cost_ns == median(windows)
    assert len(one.disturbed) == disturbed


def test_windows_that_are_all_disturbed_end_and_the_least_counts():
    one = entrant([500, 300, 400])
    turns([[one]])
    assert (one.cost_ns, one.times, len(one.disturbed)) == (300, [], 2 * WINDOWS)


def test_kernels_take_turns_and_only_rivals_run_again():
    fast, close, far = entrant([50]), entrant([90]), entrant([101 - 1])
    other = entrant([100])
    turns([[fast, close, far], [other]])
    assert [len(one.times) for one in (fast, close, far, other)] == [WINDOWS] * 4
    fast, far = entrant([40]), entrant([90])
    turns([[fast, far]])
    assert [len(one.times) for one in (fast, far)] == [WINDOWS, 1]


@given(
    st.lists(st.sampled_from([1.0, 1.4, 3.0]), min_size=WINDOWS, max_size=WINDOWS),
    st.lists(st.floats(1.0, 1.9), min_size=1, max_size=3),
    st.integers(0, 2),
)
def test_phases_of_the_machine_do_not_change_the_order_of_implementations(
    phases: list[float], factors: list[float], first: int
):
    rivals = [entrant([50]), *(entrant([50]) for _ in factors)]
    for at, (one, factor) in enumerate(zip(rivals, (1.0, *factors), strict=True)):
        # One of them ran alone once, as in a turn that disturbed the others.
        one.turns, one.times = list(range(WINDOWS)), [30.0 * factor * phase for phase in phases]
        if at == first:
            one.turns.append(WINDOWS)
            one.times.append(900.0)
    costs = paired_costs(rivals)
    least = min(costs)
    assert costs == pytest.approx([least * factor for factor in (1.0, *factors)])


def test_implementations_with_few_turns_in_common_have_medians_of_their_own():
    one, other = entrant([50]), entrant([50])
    one.turns, one.times = [0, 1, 2, 3], [30.0, 31.0, 32.0, 33.0]
    other.turns, other.times = [0, 5], [60.0, 62.0]
    assert paired_costs([one, other]) == [31.5, 61.0]
    assert paired_costs([]) == []


@pytest.mark.parametrize(("window_ns", "count"), [(50, WINDOWS), (25, 4), (10, 3), (1, 3)])
def test_long_runs_need_fewer_windows(window_ns: int, count: int):
    one, slow = entrant([50], window_ns), entrant([50], window_ns, is_slow=True)
    turns([[one], [slow]])
    assert (len(one.times), len(slow.times)) == (count, 1)


def test_a_short_measurement_has_fewer_windows():
    one = entrant([50], windows=4)
    turns([[one]])
    assert len(one.times) == 4


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
        Busy.left = disturbed if disturbed < 4 else 10**6
        found = times(tmp_path / str(disturbed)).measure(specs)
        kept = times(tmp_path / str(disturbed))
        assert kept.known(specs).keys() == found.keys() == set(specs)
        assert kept.cache.is_provisional == (disturbed == 4)


@pytest.mark.usefixtures("busy")
def test_predictions_replace_costs_of_disturbed_measurements(tmp_path: Path):
    own, spec = times(tmp_path), kernels_of(next(layers()), times(tmp_path), TARGET)[0]
    Busy.left = 10**6
    assert own.measure([spec], predicted={spec: 1000.0}) == {}
    assert own.known([spec]) == {}
    assert own.samples(spec.kind).disturbed.tolist() == [True]
