"""Plan files: written and read back without loss, and refused with the reason where they differ."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simplified import simplify

from stridewise.errors import PlanError
from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.planner import derive
from stridewise.planner.documents import files
from stridewise.planner.documents.document import PlanRecord, fingerprint
from stridewise.planning import Plan, make_plan
from stridewise.records import Reader
from stridewise.targets.cost import Roofline
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import onednn_cpu

from .plans import F32, MACHINE, cheap, net, planned, random_costs, residual
from .test_explain import moving

Document = dict[str, Any]
DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "plan.schema.json").read_text(encoding="utf-8"))


def restored(record: PlanRecord, graph: Graph, machine: Machine = MACHINE) -> Plan:
    target = onednn_cpu(record.machine)
    return Plan.of(files.restore(record, derive(simplify(graph).graph), target, machine))


def reread(plan: Plan) -> PlanRecord:
    return Reader(lambda *wrong: PlanError(str(wrong))).read(PlanRecord, json.loads(plan.to_json()))


# --- there and back -------------------------------------------------------------------------------


@settings(max_examples=12)
@given(st.integers(0, 10_000), st.sampled_from([residual, moving]))
def test_a_plan_comes_back_as_it_was(seed: int, graph: Callable[[], Graph]):
    plan = planned(graph(), random_costs(seed))
    found = restored(reread(plan), graph())
    assert found.to_json() == plan.to_json()
    assert found.decisions == plan.decisions
    assert found.reorders == plan.reorders
    assert (found.cost_ns, found.lower_bound_ns) == (plan.cost_ns, plan.lower_bound_ns)
    assert found.refusals == plan.refusals
    assert found.compare() == plan.compare()
    assert found.explain() == plan.explain()
    # It can be asked whatever the other one can.
    for node in plan.graph.nodes[:2]:
        assert str(found.why(node.name)) == str(plan.why(node.name))
    assert found.candidates.nodes == plan.candidates.nodes
    assert found.candidates.reorders == plan.candidates.reorders


def test_pins_come_back_too():
    plan = planned(residual(), random_costs(2))
    tensor = plan.graph.nodes[0].outputs[0]
    pinned = plan.what_if({tensor: "nhwc"})
    found = restored(reread(pinned), residual())
    assert found.pins == pinned.pins
    assert found.name == pinned.name
    assert found.to_json() == pinned.to_json()


def test_files_are_written_whole_and_the_same_each_time(tmp_path: Path):
    plan = planned(residual(), random_costs(5))
    path = tmp_path / "plan.json"
    path.write_text("something else", encoding="utf-8")
    plan.save(path)
    first = path.read_bytes()
    planned(residual(), random_costs(5)).save(str(path))
    assert path.read_bytes() == first == plan.to_json().encode()
    assert [item.name for item in tmp_path.iterdir()] == ["plan.json"]
    assert files.read(path) == PlanRecord.of(plan)


def test_files_are_made_for_version_control():
    """One node that changes is a few lines that change; tables are sorted."""
    document = planned(residual(), random_costs(5)).to_json()
    lines = document.splitlines()
    assert all(len(line) < 1200 for line in lines)
    assert lines.count("    {") == len(json.loads(document)["nodes"])
    kernels = list(json.loads(document)["kernels"])
    assert kernels == sorted(kernels)
    assert "NaN" not in document
    assert "Infinity" not in document


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path):
    plan = planned(residual(), cheap("plain"))
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "no" / "plan.json", tmp_path / "folder"):
        with pytest.raises(PlanError, match="expected a file to write, found"):
            plan.save(path)
    assert [item.name for item in tmp_path.iterdir()] == ["folder"]


def test_weights_are_no_part_of_a_plan():
    def graph(weight: float) -> Graph:
        b, x = net()
        w = b.constant(np.full((32, 32, 1, 1), weight, F32), "w")
        return b.build([b.op("conv", [x, w], name="c", output="y")])

    plan = planned(graph(1.0), cheap("blocked"))
    found = restored(reread(plan), graph(2.0))
    assert found.decisions[0].chosen == plan.decisions[0].chosen
    assert float(found.graph.constants["w"].array.flat[0]) == 2.0


# --- what is wrong with a file --------------------------------------------------------------------


def damaged(tmp_path: Path, change: Callable[[Document], object]) -> PlanError:
    plan = planned(residual(), cheap("channels-last", reorder=0.1))
    assert plan.reorders
    document = json.loads(plan.to_json())
    change(document)
    path = tmp_path / "p.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(PlanError) as caught:
        restored(files.read(path), residual())
    return caught.value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("nodes"), ": expected the key 'nodes', found"),
        (lambda d: d.update(nodes={}), "field 'nodes': expected a list, found {}"),
        (lambda d: d.update(nodes=[3]), "field 'nodes[0]': expected an object, found 3"),
        (lambda d: d["nodes"][1].update(algorithm=None), "field 'nodes[1].algorithm': expected "),
        (lambda d: d["machine"].update(threads=1.5), "field 'machine.threads': expected an int"),
        (lambda d: d.update(cost_ns="much"), "field 'cost_ns': expected a number, found \"much\""),
        (lambda d: d.update(cost_ns=True), "field 'cost_ns': expected a number, found true"),
        (lambda d: d.update(cost_ns=float("nan")), "field 'cost_ns': expected a number, found NaN"),
        (lambda d: d.update(cost_ns=10**400), "field 'cost_ns': expected a number, found 1000"),
        (lambda d: d.update(pins=[]), "field 'pins': expected an object, found []"),
        (lambda d: d["moves"].append({"node_or_tensor": "a", "kind": "jump", "nbytes": 1,
                                      "cost_ns": 1}), "kind': expected one of reorder, copy, fill"),
    ],
)  # fmt: skip
def test_damaged_fields_are_named(tmp_path: Path, change: Any, message: str):
    error = damaged(tmp_path, change)
    assert message in str(error)
    assert str(error).startswith(f"plan file {str(tmp_path / 'p.json')!r}")
    assert str(error).endswith("; plan again, the file is damaged")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=1), "expected a plan of version 2, found version 1; plan "),
        (lambda d: d.pop("version"), "expected a plan of version 2, found no version; plan again"),
        (lambda d: d.update(cost_ns=1.0), "field 'cost_ns': expected the sum of its nodes and reo"),
        (lambda d: d.update(target="ascend"), "expected a plan for target onednn-cpu, found ascen"),
        (lambda d: d.update(fingerprint="0" * 64), "field 'fingerprint': expected "),
        (lambda d: d["nodes"][0].update(algorithm="by magic"),
         "node 'conv' (conv): expected one of 'direct, blocked', "),
        (lambda d: d["nodes"][0].update(implementations=["quick"]), "which does not exist here"),
        (lambda d: d["kernels"].clear(), "expected kernels that this release knows for every node"),
        (lambda d: d["reorders"][0].update({"from": "NHCW"}),
         "reorder of 'max_pool': expected formats that its producer makes and a reader takes, "),
        (lambda d: d["pins"].update(x="NHWC"), "pin of 'x': expected one of NCHW, found NHWC"),
        (lambda d: d["pins"].update(q="NHWC"), "pin of 'q': expected one of none, found NHWC"),
    ],
)  # fmt: skip
def test_decisions_that_do_not_hold_are_named(tmp_path: Path, change: Any, message: str):
    assert message in str(damaged(tmp_path, change))


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe", b"null", b"[" * 100_000])
def test_files_that_are_no_plans(tmp_path: Path, content: bytes):
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(PlanError) as caught:
        files.read(path)
    assert str(caught.value).startswith(f"plan file {str(path)!r}: expected a plan")
    assert "stridewise plan MODEL --save FILE" in str(caught.value)


def test_a_missing_file(tmp_path: Path):
    with pytest.raises(PlanError, match="expected a plan file, found no such file; plan again"):
        files.read(tmp_path / "none.json")


def named(outputs: int = 32, *, op: str = "relu", tail: bool = False, width: int = 6) -> Graph:
    b, x = net(1, 32, 6, width)
    w = b.constant(np.ones((outputs, 32, 3, 3), F32), "w")
    y = b.op("conv", [x, w], {"pads": (1,) * 4}, name="first", output="mid")
    y = b.op("max_pool", [y], {"kernel": (2, 2)}, name="pool", output="small")
    y = b.op(op, [y], name="last", output="end")
    return b.build([b.op("softmax", [y], {"axis": 1}, name="tail", output="more") if tail else y])


@pytest.mark.parametrize(
    ("other", "subject"),
    [
        (named(16), "node 'first': expected conv(x: f32[1,32,6,6] @NCHW, const w: f32[16,"),
        (named(width=8), "node 'first': expected conv(x: f32[1,32,6,8] @NCHW, const w: f32[32,"),
        (named(op="tanh"), "node 'last': expected tanh("),
        (named(tail=True), "node 'tail': expected softmax("),
    ],
)
def test_the_first_part_of_another_graph_is_named(other: Graph, subject: str):
    record = reread(planned(named(), cheap("plain")))
    with pytest.raises(PlanError) as caught:
        restored(record, other)
    assert str(caught.value).startswith(f"plan file, {subject}")
    assert "; it is the plan of another model, other shapes or origins; " in str(caught.value)


def test_fingerprints_tell_graphs_apart():
    graphs = [named(), named(16), named(width=8), named(op="tanh"), named(tail=True)]
    prints = {fingerprint(derive(graph).graph) for graph in graphs}
    assert len(prints) == len(graphs)
    assert fingerprint(derive(named()).graph) in prints


# --- another machine ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"cpu": "other CPU"}, "CPU: some CPU, here other CPU"),
        ({"isa": "AVX2"}, "isa: AVX512_CORE, here AVX2"),
        ({"threads": 8}, "threads: 2, here 8"),
        ({"library": "oneDNN 1"}, "library: oneDNN 0, here oneDNN 1"),
        ({"isa": "AVX2", "threads": 1}, "isa: AVX512_CORE, here AVX2; threads: 2, here 1"),
    ],
)
def test_a_plan_made_for_another_machine_says_so(change: dict[str, Any], note: str):
    plan = planned(residual(), cheap("blocked"))
    here = dataclasses.replace(MACHINE, **change)
    found = restored(reread(plan), residual(), here)
    said = f"the plan was made for another machine ({note})"
    assert found.notes == (said,)
    assert f"note: {said}\n" in found.explain()
    assert found.machine == here
    assert found.decisions == plan.decisions


def test_a_note_stays_with_a_plan_that_is_saved_again():
    plan = planned(residual(), cheap("blocked"))
    here = dataclasses.replace(MACHINE, threads=1)
    found = restored(reread(plan), residual(), here)
    # The second file is of this machine, but its costs still are not.
    again = restored(reread(found), residual(), here)
    assert again.notes == found.notes != ()
    assert again.to_json() == found.to_json()


def test_a_plan_made_for_this_machine_has_no_notes():
    plan = planned(residual(), cheap("blocked"))
    assert restored(reread(plan), residual()).notes == ()
    assert "note:" not in plan.explain()


# --- the schema -----------------------------------------------------------------------------------


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.sampled_from([residual, moving]))
def test_the_document_follows_its_schema(seed: int, graph: Callable[[], Graph]):
    plan = planned(graph(), random_costs(seed))
    jsonschema.validate(json.loads(plan.to_json()), SCHEMA)
    pinned = plan.what_if({plan.graph.nodes[0].name: "nhwc"})
    jsonschema.validate(json.loads(pinned.to_json()), SCHEMA)


def test_the_schema_is_one_and_is_strict():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = json.loads(planned(residual(), cheap("plain")).to_json())
    for key in document:
        less = copy.deepcopy(document)
        del less[key]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(less, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "more": 1}, SCHEMA)


def test_schema_and_document_name_the_same_fields():
    document = json.loads(planned(moving(), cheap("blocked")).to_json())
    assert SCHEMA["required"] == list(document)
    for key in ("node", "reorder", "move", "comparison"):
        fields = SCHEMA["$defs"][key]
        assert fields["required"] == list(fields["properties"]) == list(document[f"{key}s"][0])


def test_the_example_of_the_docs_is_what_comes_out():
    b = GraphBuilder("tiny")
    x, w = b.input("image", (1, 8, 56, 56)), b.constant(np.ones((16, 8, 3, 3), F32), "w")
    y = b.op("conv", [x, w], {"pads": (1,) * 4}, name="conv1", output="sum1")
    y = b.op("relu", [y], name="relu1", output="relu1")
    y = b.op("max_pool", [y], {"kernel": (2, 2), "strides": (2, 2)}, name="pool1", output="pooled")
    machine = Machine("AMD EPYC (26/2/1)", "AVX512_CORE_BF16", 1, "oneDNN 3.2.0")
    target = onednn_cpu(machine)
    oracle = Roofline(1e11, 4e10, target.efficiency)
    plan = make_plan(derive(simplify(b.build([y])).graph), target, machine, oracle)
    shown = (DOCS / "plan-json.md").read_text(encoding="utf-8")
    assert shown.partition("```json\n")[2].partition("```")[0] == plan.to_json()


# --- differences ----------------------------------------------------------------------------------


def test_a_plan_does_not_differ_from_itself():
    plan = planned(residual(), cheap("blocked"))
    found = plan.diff(restored(reread(plan), residual()))
    assert found.is_empty
    assert found.delta_ns == 0
    assert str(found).startswith("both plans decide the same\ncost ")


def test_a_difference_names_nodes_reorders_and_cost():
    def graph() -> Graph:
        b, x = net()
        w = b.constant(np.ones((32, 32, 1, 1), F32), "w")
        return b.build([b.op("conv", [x, w], name="c", output="y")])

    plain, blocked = planned(graph(), cheap("plain")), planned(graph(), cheap("blocked"))
    found = plain.diff(blocked)
    assert [change.node for change in found.changes] == ["c"]
    assert found.reorders_added == (("x", "NCHW", "nChw16c"), ("y", "nChw16c", "NCHW"))
    assert found.reorders_removed == ()
    assert (found.before_ns, found.after_ns, found.delta_ns) == (1.0, 3.0, 2.0)
    assert str(found) == (
        "  c:\n"
        "    - direct, plain [jit], NCHW, 1.0 ns\n"
        "    + direct, blocked [jit], nChw16c, 1.0 ns\n"
        "  + reorder x: NCHW -> nChw16c\n"
        "  + reorder y: nChw16c -> NCHW\n"
        "cost 1.0 ns -> 3.0 ns (+2.0 ns)\n"
    )
    back = blocked.diff(plain)
    assert back.reorders_removed == found.reorders_added
    assert back.delta_ns == -found.delta_ns
    assert "(-2.0 ns)" in str(back)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_difference_is_empty_exactly_where_decisions_are_equal(one: int, two: int):
    first, second = (planned(residual(), random_costs(seed % 7)) for seed in (one, two))
    options = [[d.chosen.option for d in plan.decisions] for plan in (first, second)]
    moved = [{(r.tensor, str(r.target)) for r in plan.reorders} for plan in (first, second)]
    same = options[0] == options[1] and moved[0] == moved[1]
    assert first.diff(second).is_empty == same


def test_differences_between_versions_of_a_model():
    found = planned(named(), cheap("plain")).diff(planned(named(tail=True), cheap("plain")))
    assert found.nodes_added == ("tail",)
    assert found.nodes_removed == ()
    assert not found.is_empty
    assert "  + node tail\n" in str(found)


def test_targets_and_machines_are_part_of_a_difference():
    plan = planned(residual(), cheap("plain"))
    other = dataclasses.replace(plan, machine=Machine("other", "AVX2", 1, "oneDNN 9"))
    found = plan.diff(other)
    assert found.is_empty
    assert found.facts == (f"machine: {MACHINE} -> {other.machine}",)
