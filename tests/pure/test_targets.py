"""Targets as tables: what the shipped ones decide, what files may say, and what they may not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.networks import networks

import stridewise as sw
from stridewise.errors import InputError, TargetError
from stridewise.formats import parse
from stridewise.graph import Graph
from stridewise.ops import OPS
from stridewise.planner import derive
from stridewise.planner.plan import Comparison
from stridewise.planner.problem.alone import each_for_itself
from stridewise.planner.problem.candidates import enumerate_candidates
from stridewise.planning import Plan, make_plan
from stridewise.targets.tables import load as reading
from stridewise.targets.tables.load import SHIPPED, load_target, shipped
from stridewise.targets.tables.table import TableTarget

DTYPES = ("float16", "float32")
TARGETS = tuple(SHIPPED)


def chain(
    dtype: str = "float32", between: str = "relu", size: int = 14, channels: int = 20
) -> Graph:
    """Return two convolutions with an operator between that no pass fuses."""
    b = sw.GraphBuilder("chain")
    x = b.input("x", (1, channels, size, size), dtype)
    y = conv(b, x, 24)
    if between == "relu":
        y = b.op("relu", [y], name="relu")
    elif between == "reshape":
        y = b.op("reshape", [y], {"shape": (1, 12, 2 * size, size)}, name="reshape")
    return b.build([conv(b, y, 40)])


def conv(b: sw.GraphBuilder, x: str, outputs: int, kernel: int = 3, **attrs: Any) -> str:
    groups = attrs.get("groups", 1)
    shape = (outputs, b.type(x).shape[1] // groups, kernel, kernel)
    w = np.random.default_rng(0).normal(size=shape).astype(b.type(x).dtype.numpy)
    return b.op("conv", [x, b.constant(w, "w")], {"pads": (kernel // 2,) * 4, **attrs})


def planned(graph: Graph, target: TableTarget) -> Plan:
    """Plan without passes, so that every operator stays a node."""
    return make_plan(derive(graph), target, target.machine, target)


def comparison(plan: Plan, name: str) -> Comparison:
    return next(item for item in plan.compare() if item.name == name)


def weights(plan: Plan, node: str) -> list[str]:
    target = plan.target
    assert isinstance(target, TableTarget)
    packed = plan.decision(node).chosen.option.packed
    dtype = sorted(target.dtypes)[0]
    return [
        kind
        for item in packed
        for kind in target.weights
        if item.input == 1
        and item.format in [parse(n, target.dialect, target.parameters(dtype, item.format.rank))
                            for n in target.weights[kind].names]
    ]  # fmt: skip


# --- ascend -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_chain_on_ascend_keeps_its_format_between_one_transdata_in_and_one_out(dtype: str):
    plan = planned(chain(dtype), shipped("ascend"))
    c0 = parse("NC1HWC0", "ascend", shipped("ascend").parameters(dtype, 4))
    assert c0 == parse("nChw16c")
    for name in ("conv", "relu"):
        assert plan.decision(name).chosen.option.outputs == (c0,)
    moves = {(r.tensor, r.source.format.name, r.target.format.name) for r in plan.reorders}
    assert moves == {("x", "NCHW", "nChw16c"), (plan.graph.outputs[0], "nChw16c", "NCHW")}
    assert {r.implementation for r in plan.reorders} == {"TransData"}
    assert plan.gap <= 1e-9
    for node in ("conv", "conv.1"):
        packed = plan.decision(node).chosen.option.packed
        expected = parse("FRACTAL_Z", "ascend", shipped("ascend").parameters(dtype, 4))
        assert [item.format for item in packed] == [expected]
        # Weights are stored before the run, so no run pays for them.
        assert plan.decision(node).chosen.option.inputs[1] is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_operator_for_itself_pays_for_more_transdata(dtype: str):
    plan = planned(chain(dtype), shipped("ascend"))
    own, alone = plan.compare()[0], comparison(plan, "each operator for itself")
    size = np.dtype(dtype).itemsize * 14 * 14
    # Channels 20, 24 and 40 are padded to 32, 32 and 48 on the way in, and not on the way out.
    assert (own.reorders, own.nbytes) == (2, (32 + 40) * size)
    # ReLU alone stays in the user's order.
    assert (alone.reorders, alone.nbytes) == (4, (32 + 24 + 32 + 40) * size)
    assert alone.cost_ns > own.cost_ns
    text = plan.explain()
    assert f"4 TransData of {alone.nbytes} bytes" in text
    assert f"2 TransData of {own.nbytes} bytes, used" in text
    assert "NC1HWC0, weights FRACTAL_Z [ascend; model]" in text
    assert "TransData x: NCHW -> NC1HWC0, " in text


def test_a_reshape_interrupts_between_convolutions():
    plan = planned(chain(between="reshape"), shipped("ascend"))
    assert len(plan.reorders) == 4
    reshape = plan.decision("reshape").chosen
    assert reshape.algorithm == "view"
    assert reshape.cost_ns == 0
    assert reshape.option.outputs == (parse("NCHW"),)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("trans_b", [0, 1])
def test_weights_of_products_become_fractals_before_the_run(dtype: str, trans_b: int):
    b = sw.GraphBuilder("product")
    x = b.input("x", (3, 40), dtype)
    w = np.ones((10, 40) if trans_b else (40, 10), dtype)
    graph = b.build([b.op("matmul", [x, b.constant(w)], {"trans_b": trans_b}, name="fc")])
    plan = planned(graph, shipped("ascend"))
    assert plan.reorders == ()
    assert weights(plan, "fc") == ["FRACTAL_NZ"]
    (packed,) = plan.decision("fc").chosen.option.packed
    assert packed.shape == w.shape
    # OpenVINO's weights are outputs by inputs, however the product is written.
    (packed,) = planned(graph, shipped("openvino-gpu")).decision("fc").chosen.option.packed
    assert packed.format.axes == ("O", "I")
    assert packed.shape == (10, 40)


def test_weights_that_are_no_constants_and_weights_in_groups_stay_as_they_are():
    b = sw.GraphBuilder("g")
    x, w = b.input("x", (1, 16, 6, 6)), b.input("w", (16, 16, 1, 1))
    graph = b.build([b.op("conv", [x, w], name="open"), conv(b, x, 16, groups=16)])
    plan = planned(graph, shipped("ascend"))
    for node in ("open", "conv"):
        assert plan.decision(node).chosen.option.outputs[0].name == "nChw16c"
        assert weights(plan, node) == []
    reasons = {refusal.subject: str(refusal) for refusal in plan.refusals}
    assert "NC1HWC0, weights FRACTAL_Z: the weights are no constant" in reasons["open"]
    assert "filled along the diagonal" in reasons["conv"]


def test_hints_and_answers_speak_the_targets_names() -> None:
    """What the hint says can be given as it stands."""
    b = sw.GraphBuilder("g")
    x = b.input("x", (1, 32, 8, 8))
    graph = b.build([conv(b, b.op("relu", [x], name="r"), 32)])
    plan = sw.plan(graph, target="ascend")
    hint = "giving 'x' as NC1HWC0 would save 2.0 us (see input_formats)\n"
    assert hint in plan.explain()
    assert "nChw16c" not in plan.explain()
    better = sw.plan(graph, target="ascend", input_formats={"x": ["NCHW", "NC1HWC0"]})
    assert better.cost_ns < plan.cost_ns
    assert plan.why("r").alternatives
    assert "nChw16c" not in str(plan.why("r"))
    assert plan.regrets()
    assert "nChw16c" not in "".join(map(str, plan.regrets()))
    pinned = plan.what_if({"r": "NC1HWC0"})
    assert "given: r in NC1HWC0\n" in pinned.explain()
    with pytest.raises(sw.PlanError, match=r"NC1HWC0.*found 'byxf'"):
        plan.what_if({"r": "byxf"})
    dot = plan.to_dot()
    assert "TransData NCHW -> NC1HWC0" in dot
    assert "nChw16c" not in dot


def test_uniform_plans_leave_nodes_without_such_a_kernel_what_they_have() -> None:
    b = sw.GraphBuilder("g")
    graph = b.build([conv(b, b.input("x", (1, 32, 8, 8)), 32)])
    plan = sw.plan(graph, target="ascend")
    assert "NC1HWC0, weights FRACTAL_Z" in plan.uniform("ND").explain()
    assert comparison(plan, "all ND").cost_ns == comparison(plan, "all NC1HWC0").cost_ns


# --- openvino-gpu -----------------------------------------------------------------------------


def test_first_layers_depthwise_and_large_batches_on_openvino():
    target = shipped("openvino-gpu")
    b = sw.GraphBuilder("g")
    y = conv(b, b.input("x", (32, 3, 112, 112), "float16"), 64, 7)
    plan = planned(b.build([conv(b, y, 128)]), target)
    assert [d.chosen.algorithm for d in plan.decisions] == [
        "bfyx to bs_fs_yx_bsv16_fsv16, weights os_is_yx_isv16_osv16",
        "bs_fs_yx_bsv16_fsv16, weights os_is_yx_isv16_osv16",
    ]
    assert "bs_fs_yx_bsv16_fsv16 -> bfyx" in plan.explain()
    b = sw.GraphBuilder("g")
    y = conv(b, b.input("x", (1, 3, 112, 112), "float16"), 64, 7)
    plan = planned(b.build([conv(b, conv(b, y, 64, groups=64), 128)]), target)
    assert [d.chosen.algorithm for d in plan.decisions] == [
        "bfyx to b_fs_yx_fsv16, weights os_is_yx_isv16_osv16",
        "b_fs_yx_fsv16, weights gs_oiyx_gsv16",
        "b_fs_yx_fsv16, weights os_is_yx_isv16_osv16",
    ]
    assert any("it is for at most 4 channels, and there are 64" in str(r) for r in plan.refusals)


# --- views and blocks ---------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_transposes_whose_axes_are_known_are_views_in_every_format(target: str):
    b = sw.GraphBuilder("g")
    x = b.input("x", (1, 12, 12, 32))
    y = b.op("transpose", [x], {"perm": (0, 3, 1, 2)}, name="t")
    plan = planned(b.build([conv(b, b.op("identity", [y], name="i"), 32)]), shipped(target))
    for name in ("t", "i"):
        chosen = plan.decision(name).chosen
        assert (chosen.algorithm, chosen.cost_ns) == ("view", 0)
        assert chosen.option.inputs == chosen.option.outputs


def test_a_transpose_that_moves_bytes_is_paid_for_and_one_that_does_not_is_free():
    b = sw.GraphBuilder("g")
    x = b.input("x", (1, 4, 6))
    moved = b.op("transpose", [x], {"perm": (2, 0, 1)}, name="moved")
    free = b.op("transpose", [x], {"perm": (1, 0, 2)}, name="free")
    plan = planned(b.build([moved, free]), shipped("ascend"))
    assert plan.decision("moved").chosen.cost_ns > 0
    assert plan.decision("free").chosen.cost_ns == 0


@pytest.mark.parametrize(("first", "fits"), [(16, True), (32, True), (8, False), (20, False)])
@pytest.mark.parametrize("op", ["concat", "slice", "pad"])
def test_blocks_are_not_cut(op: str, first: int, fits: bool):
    b = sw.GraphBuilder("g")
    x = b.input("x", (1, 64, 8, 8))
    left, right = conv(b, x, first), conv(b, x, 48)
    if op == "concat":
        y = b.op("concat", [left, right], {"axis": 1}, name="it")
    elif op == "slice":
        attrs = {"starts": (0, first, 0, 0), "stops": (1, 48, 8, 8), "steps": (1,) * 4}
        y = b.op("slice", [right], attrs, name="it")
    else:
        y = b.op("pad", [right], {"pads": (0, first, 0, 0, 0, 16, 0, 0)}, name="it")
    target = shipped("ascend")
    graph = derive(b.build([conv(b, y, 16), left])).graph
    found = enumerate_candidates(graph, target, target)
    outputs = {candidate.option.outputs[0].name for candidate in found.nodes["it"]}
    assert ("nChw16c" in outputs) == fits
    refused = [str(r) for r in found.refusals if r.subject == "it"]
    assert refused == ([] if fits else [refused[0]])
    assert fits or f"ascend: it: NC1HWC0: the {op} cuts a block of" in refused[0]


# --- every operator for itself ------------------------------------------------------------------


@settings(max_examples=20)
@given(networks(), st.sampled_from(TARGETS))
def test_each_for_itself_is_the_sum_of_graphs_of_one_operator(graph: Graph, name: str):
    """Every operator in a graph of its own, planned by the solver, costs as much."""
    target = shipped(name)
    derived = derive(graph)
    found = enumerate_candidates(derived.graph, target, target)
    alone = each_for_itself(derived.graph, found)
    assert alone is not None
    total, moves, nbytes = 0.0, 0, 0
    for node in derived.graph.nodes:
        names = {*node.inputs, *node.outputs} - {""}
        constants = {n: c for n, c in derived.graph.constants.items() if n in names}
        values = {n: derived.graph.values[n] for n in names}
        inputs = tuple(n for n in dict.fromkeys(node.inputs) if n and n not in constants)
        single = Graph("one", inputs, node.outputs, (node,), values, constants)
        plan = make_plan(type(derived)(single, {}, ()), target, target.machine, target)
        total += plan.cost_ns
        moves += len(plan.reorders)
        nbytes += sum(reorder.nbytes for reorder in plan.reorders)
    assert alone.cost_ns == pytest.approx(total)
    assert alone.reorders == sum(len(m) for m in alone.moves.values())
    if alone.reorders == moves:  # else two ways cost the same
        assert alone.nbytes == nbytes


# --- files --------------------------------------------------------------------------------------

SMALL = """
name = "small"
dialect = "onednn"
dtypes = ["float32"]
[rates]
bytes_per_s = 1e9
flops_per_s = 1e10
[data]
blocked = ["nChw8c"]
[weights]
packed = ["OIhw8i8o"]
[[family]]
ops = ["conv"]
rules = [{ data = "blocked", weights = "packed" }]
"""


def written(tmp_path: Path, text: str = SMALL) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_small_file_is_a_target(tmp_path: Path):
    target = load_target(written(tmp_path))
    assert (target.name, target.reorder, target.padding) == ("small", "reorder", "zero")
    assert [kind.name for kind in target.kinds] == ["blocked"]
    plan = sw.plan(chain(), target=written(tmp_path))
    assert plan.target.name == "small"
    assert sw.plan(chain(), target=str(written(tmp_path))).cost_ns == plan.cost_ns
    assert {d.chosen.algorithm for d in plan.decisions} == {"blocked, weights packed"}
    assert [item.name for item in plan.compare()] == [
        "planned", "all blocked", "each operator for itself"
    ]  # fmt: skip
    assert '"target": "small"' in plan.to_json()


def test_costs_come_from_the_rates(tmp_path: Path):
    text = SMALL.replace("[data]", "step_ns = 70\n[reorder]\nefficiency = 0.25\n[data]")
    plan = sw.plan(chain(channels=8, size=4), target=written(tmp_path, text))
    reorder = next(r for r in plan.reorders if r.tensor == "x")
    # 8 channels of 4x4 float32, read and written at a quarter of 1 byte a ns.
    assert reorder.cost_ns == pytest.approx(70 + 2 * 8 * 16 * 4 / 0.25)
    decision = plan.decisions[0].chosen
    flops = 2 * 24 * 16 * 8 * 9
    assert decision.cost_ns == pytest.approx(
        70 + max(flops / 10, (8 * 16 + 24 * 16 + 8 * 24 * 9) * 4)
    )
    assert decision.costs[0].source == "model"


def test_blocks_may_be_given_by_dtype(tmp_path: Path):
    text = """
name = "precise"
dialect = "ascend"
dtypes = ["float16", "float32"]
rates = { bytes_per_s = 1, flops_per_s = 1 }
block = { float32 = 8 }
data = { five = ["NC1HWC0"] }
family = [{ ops = ["relu", "max_pool"], rules = [{ data = "five" }] }]
"""
    target = load_target(written(tmp_path, text))
    for dtype, block in (("float16", 16), ("float32", 8)):
        b = sw.GraphBuilder("g")
        y = b.op("max_pool", [b.input("x", (1, 8, 4, 4), dtype)], {"kernel": (2, 2)})
        graph = derive(b.build([y])).graph
        assert target.formats(graph.values["x"])["five"] == parse(f"nChw{block}c")


def test_formats_that_do_not_divide_are_not_offered(tmp_path: Path):
    text = SMALL.replace('"onednn"', '"tensorflow"').replace("nChw8c", "NCHW_VECT_C")
    text = text.replace("OIhw8i8o", "OIHW_VECT_I")
    target = load_target(written(tmp_path, text))
    graph = derive(chain(channels=20)).graph
    assert "blocked" in target.formats(graph.values["x"])
    graph = derive(chain(channels=18)).graph
    assert "blocked" not in target.formats(graph.values["x"])
    assert "there is no such format for tensor 'x' of shape (1, 18, 14, 14)" in " ".join(
        map(str, planned(chain(channels=18), target).refusals)
    )


def edited(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "expected a TOML file, found Invalid value"),
        ('dtypes = ["float32"]\n', "expected the key 'name', found \\[.dtypes.\\]"),
        (edited('"small"', "3"), "key 'name': expected a text, found 3"),
        (edited('"onednn"', '"onednm"'), "key 'dialect': expected one of .*; did you mean onednn?"),
        (edited('["float32"]', '["f"]'), "key 'dtypes': expected a list of dtypes out of .*'f'"),
        (edited('["float32"]', "[]"), "key 'dtypes': expected a list of one name or more, found"),
        (edited("1e9", "-1"), "key 'rates.bytes_per_s': expected a number above 0, found -1"),
        (edited("1e9", "true"), "key 'rates.bytes_per_s': expected a number above 0, found true"),
        (edited("[data]", "speed = 1\n[data]"), "key 'rates.speed': expected one of the keys "),
        (edited("[data]", "[dta]"), "key 'dta': expected one of the keys .*did you mean data"),
        (edited("nChw8c", "nChw8x"), "key 'data.blocked': expected names of formats of onednn"),
        (edited("nChw8c", "OIhw8i8o"), "key 'data.blocked': expected formats over N, C and"),
        (edited('["nChw8c"]', '"nChw8c"'), "key 'data.blocked': expected a list of one name or m"),
        (edited("blocked = ", "ND = "), "key 'data.ND': expected a name other than th"),
        (edited('["conv"]', '["covn"]'), "key 'family.0..ops': expected operators .*mean conv?"),
        (edited('["conv"]', '["conv", "conv"]'), "expected every operator in one family"),
        (edited('["conv"]', '["relu"]'), "expected rules without weights, which only conv, matmul"),
        (edited('data = "blocked"', 'data = "block"'), "did you mean blocked?"),
        (edited('data = "blocked",', ""), "key 'family.0..rules.0..takes': expected a text"),
        (edited("data = ", 'gives = "ND", data = '), "expected either data, or takes and gives"),
        (edited('"packed" }', '"packed", efficiency = 2 }'), "above 0, at most 1, found 2"),
        (edited('"packed" }', '"packed", most_channels = -1 }'), "expected a whole number, 0 or m"),
        (edited('"packed" }', '"packed", effciency = 1 }'), "did you mean efficiency?"),
        (edited("[[family]]", "[family]"), "key 'family': expected a list of one table or m"),
        (edited("[rates]", 'padding = "nan"\n[rates]'), "expected one of zero, unspecified"),
        (SMALL + "[extra]\n", "key 'extra': expected one of the keys name, dialect"),
        (SMALL + "[default]\nspeed = 1\n", "key 'default.speed': expected one of the keys effici"),
        (SMALL + "[block]\nfloat16 = 8\n", "key 'block.float16': expected one of the keys float32"),
        (edited("[rates]", "reorder = 3\n[rates]"), "key 'reorder': expected a table, found 3"),
    ],
)  # fmt: skip
def test_errors_name_the_file_the_key_and_what_was_expected(
    tmp_path: Path, text: str, message: str
):
    path = written(tmp_path, text)
    with pytest.raises(TargetError) as error:
        load_target(path)
    assert f"target {path}" in str(error.value)
    assert re.search(message, str(error.value)), str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(TargetError, match="expected a TOML file in UTF-8, found no such file"):
        load_target(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(TargetError, match="expected a TOML file in UTF-8, found 'utf-8' codec"):
        load_target(tmp_path / "latin.toml")
    with pytest.raises(InputError, match=f"one of onednn-cpu, {', '.join(TARGETS)}, or a"):
        sw.plan(chain(), target="ascent")


@pytest.mark.parametrize("name", TARGETS)
def test_shipped_targets_are_files_of_the_package_and_cover_the_usual_operators(name: str):
    folder = Path(reading.__file__).parent
    assert load_target(folder / SHIPPED[name]).rules == shipped(name).rules
    target = shipped(name)
    assert target.name == name
    assert set(target.rules) >= {"conv", "matmul", "max_pool", "relu", "add", "concat"}
    assert set(target.rules) <= set(OPS)


def test_an_unknown_dtype_is_refused_by_name():
    b = sw.GraphBuilder("g")
    x = b.input("x", (1, 2), "float64")
    with pytest.raises(sw.ModelError, match="expected dtype float16 or float32, found float64"):
        sw.plan(b.build([b.op("add", [x, x])]), target="ascend")
