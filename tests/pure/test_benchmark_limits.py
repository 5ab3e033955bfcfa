"""Arithmetic of the benchmarks of limits and growth: work, bounds, charts, verdicts."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from stridewise.program import Binding, CopyStep, FillStep, KernelStep, Program, Ref
from stridewise.targets.kernels import KernelSpec, MemorySpec, PostOpSpec

ROOM = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOM))


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def limits():
    """A machine of round numbers: 100 operations, and 40, 20 or 10 bytes a nanosecond."""
    machine = module("machine")
    levels = (
        machine.Level("L2", 1000, {"read": 40.0, "write": 20.0}),
        machine.Level("L3", 100_000, {"read": 20.0, "write": 20.0}),
        machine.Level("memory", None, {"read": 10.0, "streamed write": 12.0}),
    )
    return machine.Limits(2, 100.0, 90.0, levels)


def step(spec: KernelSpec, node: str = "n") -> KernelStep:
    bindings = tuple(
        Binding(role, Ref("constant" if role in ("weights", "bias") else "arena", 0, 0))
        for role, _ in spec.memories
    )
    return KernelStep(node, spec, "", bindings, 0, 0.0)


def convolution(window: int = 3, stride: int = 1, kind: str = "convolution", **more) -> KernelSpec:
    pad, side = window // 2, 8 // stride
    weights = MemorySpec((16, 4, window, window), "any")
    memories = (
        ("src", MemorySpec((2, 4, 8, 8), "acdb")),
        ("weights", weights if kind == "convolution" else MemorySpec((36 * 8 * 16,), "a")),
        ("bias", MemorySpec((16,), "a")),
        ("dst", MemorySpec((2, 16, side, side), "acdb")),
    )
    params = (
        ("begins", (pad, pad)), ("dilations", (1, 1)), ("ends", (pad, pad)),
        ("strides", (stride, stride)),
    )  # fmt: skip
    flops = 2.0 * 2 * 16 * side * side * 4 * window**2
    return KernelSpec(kind, memories, params, flops=flops, **more)


def winograd(window: tuple[int, int] = (3, 3), groups: int = 1) -> KernelSpec:
    spec = convolution(kind="winograd")
    return dataclasses.replace(spec, params=(*spec.params, ("groups", groups), ("window", window)))


def program(*steps) -> Program:
    return Program(("x",), ("y",), tuple(steps), 0, 0, ())


def work_of(spec: KernelSpec):
    return module("work").works(program(step(spec)))[0]


# --- work -----------------------------------------------------------------------------------------


def test_a_window_of_three_can_be_computed_in_four_ways():
    found = work_of(convolution())
    images = 2 * 8 * 8
    assert found.kind == "direct, larger windows"
    assert found.operations == found.executed == 2 * 9 * 4 * 16 * images
    assert found.activation_nbytes == 4 * (images * 4 + images * 16)
    ways = {way.name: way for way in found.ways}
    assert ways["definition"].weight_nbytes == 4 * (9 * 4 * 16 + 16)
    # Four results take 16 products, sixteen results 36.
    assert ways["winograd F(2x2)"].operations == pytest.approx(found.operations * 4 / 9)
    assert ways["winograd F(4x4)"].operations == pytest.approx(found.operations / 4)
    # Four tiles of 6x6 cover images of 8x8.
    assert ways["winograd F(6x6)"].operations == pytest.approx(found.operations * 4 / 9)
    assert ways["winograd F(4x4)"].weight_nbytes == 4 * (36 * 4 * 16 + 16)


def test_a_winograd_kernel_is_told_by_the_definition_of_the_convolution():
    direct, found = work_of(convolution()), work_of(winograd())
    assert found.kind == "Winograd"
    assert found.ways == direct.ways


def test_strides_of_a_winograd_kernel_count_as_channels():
    strided = dataclasses.replace(
        winograd((7, 7)), kind="strided_winograd",
        params=(("groups", 1), ("window", (7, 7)), ("strides", (2, 2))),
    )  # fmt: skip
    found = work_of(strided)
    assert found.kind == "Winograd"
    ways = {way.name: way.operations for way in found.ways}
    assert set(ways) == {"definition", "winograd F(5x5)"}
    # Four tiles of 5x5, each of 64 products of four times the channels, cover an image of 8x8.
    assert ways["winograd F(5x5)"] / ways["definition"] == pytest.approx(4 * 64 * 4 / (49 * 64))


def test_groups_and_taps_of_a_winograd_kernel_count():
    whole, halves = work_of(winograd()), work_of(winograd(groups=2))
    assert [2 * way.operations for way in halves.ways] == [way.operations for way in whole.ways]
    row = {way.name: way for way in work_of(winograd(window=(1, 7))).ways}
    assert row["definition"].operations == pytest.approx(whole.operations * 7 / 9)
    # Four results of a row take ten products instead of 28; two tiles cover a row of eight.
    assert row["winograd F(1x4)"].operations == pytest.approx(
        row["definition"].operations * 10 / 28
    )


@pytest.mark.parametrize(("window", "stride"), [(1, 1), (3, 2), (5, 1)])
def test_other_convolutions_have_one_way(window: int, stride: int):
    spec = convolution(window, stride)
    found = work_of(spec)
    assert [way.name for way in found.ways] == ["definition"]
    assert found.operations == spec.flops
    assert found.kind == ("direct, 1x1" if window == 1 else "direct, larger windows")


def test_groups_are_a_kind_of_their_own():
    spec = convolution()
    memories = tuple(
        (role, MemorySpec((4, 4, 1, 3, 3), "any") if role == "weights" else memory)
        for role, memory in spec.memories
    )
    found = work_of(dataclasses.replace(spec, memories=memories))
    assert found.kind == "direct, groups"
    assert len(found.ways) == 1


def test_sums_read_the_destination_and_operands_count():
    plain = work_of(convolution())
    added = work_of(convolution(post_ops=(PostOpSpec("sum"),)))
    operand = MemorySpec((2, 16, 8, 8), "acdb")
    multiplied = work_of(convolution(post_ops=(PostOpSpec("binary", "mul", operand=operand),)))
    result = 4 * 2 * 16 * 8 * 8
    assert (
        added.activation_nbytes == multiplied.activation_nbytes == plain.activation_nbytes + result
    )


def test_copies_read_and_write_and_fills_write():
    place = Ref("arena", 0, 0)
    copied, filled = module("work").works(
        program(CopyStep("a", place, place, 100), FillStep("b", place, 25, 0.0))
    )
    assert (copied.kind, copied.activation_nbytes) == ("moves", 200)
    assert (filled.kind, filled.activation_nbytes) == ("moves", 100)


# --- bounds ---------------------------------------------------------------------------------------


def test_a_bound_takes_what_is_slower_of_each_step_and_the_fastest_way():
    work = module("work")
    ways = (work.Way("definition", 1000.0, 400), work.Way("winograd F(4x4)", 250.0, 1600))
    item = work.StepWork("n", "Winograd", 300.0, 800, ways)
    # 400 bytes of weights fit into the first level: 10 ns, as 800 of activations take 20.
    small = work.bound([item], limits(), 0)
    assert small == work.Bound(10.0, 2.5, 30.0, 30.0, 30.0)
    # With a large arena weights come from memory: 40 ns, or 160 of those that are transformed.
    large = work.bound([item], limits(), 200_000)
    assert large == work.Bound(10.0, 2.5, 60.0, 60.0, 60.0)
    heavy = dataclasses.replace(
        item, ways=tuple(dataclasses.replace(w, operations=100 * w.operations) for w in ways)
    )
    assert work.bound([heavy], limits(), 200_000).roofline == 250.0
    assert work.bound([heavy], limits(), 200_000).direct == 1000.0


def test_bounds_of_steps_add_up():
    work = module("work")
    items = work.works(program(step(convolution()), step(convolution(1)), step(convolution(5))))
    # The arena stands in for the weights of the steps that are left out.
    parts = [
        work.bound([item], limits(), sum(i.ways[0].weight_nbytes for i in items if i is not item))
        for item in items
    ]
    whole, added = work.bound(items, limits(), 0), sum(parts[1:], parts[0])
    assert dataclasses.astuple(whole) == pytest.approx(dataclasses.astuple(added))
    assert whole.roofline <= whole.direct
    assert whole.direct >= max(whole.arithmetic, whole.memory)


def test_levels_hold_what_fits():
    found = limits()
    names = [found.level(nbytes).name for nbytes in (0, 1000, 1001, 100_000, 100_001)]
    assert names == ["L2", "L2", "L3", "L3", "memory"]
    assert found.level(1e9).best == 12.0


def test_the_better_of_two_measurements_counts():
    machine, one = module("machine"), limits()
    slower = dataclasses.replace(one, peak=90.0, product=95.0)
    levels = (dataclasses.replace(one.levels[0], gbytes_per_s={"read": 50.0, "write": 1.0}),)
    other = dataclasses.replace(slower, levels=levels + one.levels[1:])
    machines = [machine.Machine("a machine", "2026-01-31", (each,)) for each in (one, other)]
    found = machines[0].better(machines[1])
    assert (found.of(2).peak, found.of(2).product) == (100.0, 95.0)
    assert found.of(2).levels[0].gbytes_per_s == {"read": 50.0, "write": 20.0}
    assert found == machines[1].better(machines[0])
    assert "L3, write" in machine.table(found)
    assert "L3, write" not in machine.table(found, ["read"])


# --- reports --------------------------------------------------------------------------------------


def roofline_row():
    roofline, work = module("roofline"), module("work")
    items = work.works(program(step(winograd()), step(convolution(1))))
    times = [2000.0, 500.0]
    steps = tuple(map(roofline.Timed, items, times))
    return roofline.Row("resnet50", 1, 2, 0, 2600.0, steps)


def test_rows_survive_json_and_replace_older_ones(tmp_path: Path):
    roofline, machine = module("roofline"), module("machine")
    row = roofline_row()
    whole = machine.Machine("a machine", "2026-01-31", (limits(),))
    path = tmp_path / "roofline.json"
    other = dataclasses.replace(row, model="vgg16")
    roofline.save([row, other], whole, path)
    assert machine.Machine.from_json(json.loads(path.read_text())["machine"]) == whole
    faster = dataclasses.replace(row, call_ns=2550.0)
    assert roofline.merged([faster], path) == [other, faster]
    page = path.with_suffix(".md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("| resnet50, batch 1"))
    least = row.bound(limits()).roofline
    assert f"**{least / 2600:.0%}**" in line


def test_shares_add_up_to_the_call():
    roofline, machine = module("roofline"), module("machine")
    whole = machine.Machine("a machine", "2026-01-31", (limits(),))
    line = roofline.share_table([roofline_row()], whole).splitlines()[-1]
    shares = [int(part) for part in re.findall(r"\| (\d+)%", line)]
    assert shares == [77, 19, 4]


def test_growth_is_judged_by_the_time_of_an_operation():
    growth = module("growth")
    points = tuple(
        growth.Point(size, 100.0 * size, 0, 0, 0, (ns, ns, ns))
        for size, ns in ((1, 10), (2, 18), (4, 44))
    )
    sweep = growth.Sweep("resnet50", "batch", "model", "2026-01-31", "a machine", points)
    assert sweep.relative() == pytest.approx((1.0, 0.9, 1.1))
    assert not sweep.is_linear
    assert "**more than linear** at 4, where one operation takes 1.10 times" in growth.verdicts(
        [sweep]
    )
    linear = dataclasses.replace(sweep, points=points[:2])
    assert linear.is_linear
    assert linear.exponent < 1
    assert "more than" not in growth.verdicts([linear])


def test_sweeps_survive_json_and_are_drawn(tmp_path: Path):
    growth = module("growth")
    points = tuple(growth.Point(n, 1.0 * n, 4, 0, 0, (n, n + 1)) for n in (1, 2, 64))
    sweep = growth.Sweep("resnet50", "batch", "model", "2026-01-31", "a machine", points)
    path = tmp_path / "growth.json"
    growth.save([sweep], path)
    other = dataclasses.replace(sweep, over="side")
    growth.save([other], path)
    kept = [growth.Sweep.from_json(found) for found in json.loads(path.read_text())]
    assert kept == [sweep, other]
    assert "| resnet50 | side | 64 |" in path.with_suffix(".md").read_text()
    root = ET.fromstring(path.with_suffix(".svg").read_text())
    circles = root.findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == 2 * len(points) + 1  # and one in the legend


def test_the_best_change_of_blocks_is_found():
    blocking = module("blocking")
    times = {1: [1.0, 1.0, 9.0], 4: [3.0, 2.0, 2.0]}
    change = blocking.best_change(times, ("a", "b", "c"))
    assert change == blocking.Change(1, "b", 4, 4.0)


def test_rows_of_blocks_survive_json(tmp_path: Path):
    blocking = module("blocking")
    samples = {"1": [30, 20, 25], "4": [50, 50, 60], blocking.APART: [10, 10, 10]}
    change = blocking.Change(1, "b", 4, 4.0)
    row = blocking.Row(
        "resnet50", 4, "a machine", samples, {"1": 4, "4": 9}, {"4": 8.0}, change, 2.0
    )
    path = tmp_path / "blocking.json"
    blocking.save([row], path)
    other = dataclasses.replace(row, batch=8, samples_ns={"8": [5, 5]}, steps_ns={"8": 8.0})
    blocking.save([other], path)
    assert [blocking.Row.from_json(found) for found in json.loads(path.read_text())] == [row, other]
    assert row.gain("1") == 2.0
    page = path.with_suffix(".md").read_text()
    assert "| resnet50, batch 4 | 1 at a time | 0.000 | **2.00** |" in page
    assert "1 up to `b`, then 4 | 0.000 | 2.00 |" in page


# --- charts ---------------------------------------------------------------------------------------


def luminance(color: str) -> float:
    """Relative luminance by WCAG 2.1."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", ["LIGHT", "DARK"])
def test_colors_stand_out_from_the_paper(name: str):
    theme = getattr(module("charts"), name)
    assert len(set(theme.series)) == len(theme.series) >= len(module("work").CLASSES)
    assert all(contrast(color, theme.paper) >= 3 for color in theme.series)
    assert all(contrast(color, theme.paper) >= 4.5 for color in (theme.ink, theme.faint))


def test_axes_place_values():
    axis = module("charts").Axis("x", 1.0, 100.0, (1.0, 10.0, 100.0))
    assert [axis.at(value) for value in (0.0, 1.0, 10.0, 100.0, 1e6)] == pytest.approx(
        [0, 0, 0.5, 1, 1]
    )
    places = [axis.at(1.5**k) for k in range(11)]
    assert all(b > a for a, b in pairwise(places))
    linear = dataclasses.replace(axis, low=0.0, logarithmic=False)
    assert linear.at(25.0) == pytest.approx(0.25)


def test_names_are_escaped():
    charts = module("charts")
    axis = charts.Axis("<x>", 1.0, 10.0, (1.0,))
    panel = charts.Panel("a & b", axis, axis, (charts.Series("<s>", ((2.0, 3.0, 9.0),), 0),))
    root = ET.fromstring(charts.chart([panel], "<picture>"))
    texts = {element.text for element in root.iter() if element.tag.endswith("text")}
    assert {"a & b", "<x>", "<s>"} <= texts


def test_the_table_says_in_how_many_rows_a_peer_ran():
    tables = module("model_tables")
    found = tables.Found((1.0,), 0.0)

    def row(model: str, batch: int, *names: str):
        peers = dict.fromkeys(("fast", "exact", *names), found)
        return tables.Row(model, batch, None, "2025-01-31", 2, "warm", 0.0, "", {}, peers)

    rows = [
        row("a", 1, "openvino", "torch"),
        row("b", 1, "openvino", "torch"),
        row("a", 16, "openvino", "torch"),
        row("b", 16, "openvino"),
    ]
    assert module("performance")._peers(rows).splitlines()[-1] == (
        "Compared with: at batch 1 OpenVINO, PyTorch; "
        "at batch 16 OpenVINO, PyTorch (in 1 of 2 rows)."
    )


def test_the_pages_have_the_figures_of_the_results():
    for path, page in module("performance").generated().items():
        assert path.read_text(encoding="utf-8") == page, "run python benchmarks/performance.py"
