"""``stridewise plan``: what it prints, saves and draws."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import stridewise as sw

from .commands import (
    F32,
    Run,
    fails,
    model,
    own_cache,
    run,
    saved,
)
from .onnx_nodes import make, node

__all__ = ["model", "own_cache", "run"]

# --- plan -----------------------------------------------------------------------------------------


def test_plan_prints_kernels_reorders_and_the_proof(run: Run, model: Path) -> None:
    done = run("plan", model, "--tune", "model", "--threads", 1)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("plan of 'test' for onednn-cpu (")
    assert "conv+relu" in done.out
    assert "conv1" in done.out
    assert re.search(r"\d reorders? left", done.out)
    assert "proved optimal for these candidates and costs" in done.out
    for kind in ("plain", "channels-last", "blocked"):
        assert f"all {kind}" in done.out
    assert "what every tensor means" not in done.out
    assert "what was not done" not in done.out


def test_plan_as_json_is_the_plan_of_the_api(run: Run, model: Path) -> None:
    found = run("plan", model, "--tune", "model", "--threads", 1, "--json").json
    assert found == json.loads(sw.plan(model, tune="model", threads=1).to_json())
    assert found["version"] == 2
    assert [step["name"] for step in found["nodes"]] == ["conv1"]
    assert found["nodes"][0]["post_ops"] == ["relu"]
    assert found["lower_bound_ns"] <= found["cost_ns"]


def test_origins_of_inputs_can_be_declared(run: Run, tmp_path: Path) -> None:
    path = saved(tmp_path, make(node("Relu", "x", name="relu1"), shape=(1, 6, 5, 20)))
    wanted = ("--tune", "model", "--threads", 1, "--input-origin", "x=NHWC")
    done = run("plan", path, *wanted, "--origins")
    assert "  y: NHWC declared for x through relu1\n" in done.out
    for target in ("onednn-cpu", "ascend"):
        done = run("run", path, *wanted, "--random", "--target", target)
        assert (done.status, done.err) == (0, "")
    page = tmp_path / "page.html"
    assert run("report", path, *wanted, "--no-run", "-o", page).status == 0
    assert "NHWC" in page.read_text()
    fails(run("plan", path, "--input-origin", "x"), "--input-origin: expected NAME=VALUE")
    fails(run("run", path, "--random", "--input-origin", "z=NHWC"), "origins: expected inputs, 'x'")
    fails(run("plan", path, "--input-origin", "x=NCW"), "the declared origin of input 'x'")


def test_plan_prints_origins_and_refusals_on_demand(run: Run, tmp_path: Path) -> None:
    proto = make(
        node("Conv", "x", "w", outputs=["a"], name="conv1"),
        node("Relu", "a", outputs=["y"], name="relu1"),
        node("Flatten", "a", outputs=["z"], name="flat"),
        constants={"w": np.ones((4, 3, 1, 1), F32)},
        outputs=("y", "z"),
    )
    path = saved(tmp_path, proto)
    done = run("plan", path, "--tune", "model", "--origins", "--refusals")
    assert done.status == 0
    origins, refusals = done.out.split("what was not done:\n")
    assert "  x: NCHW from conv1\n" in origins
    assert "  y: NCHW from conv1 through relu1\n" in origins
    assert "  z: ND: reshape 'flat' interrupts\n" in origins
    assert all(line.count(": ") >= 2 for line in refusals.splitlines())


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """Two convolutions, the first of them with its activation."""
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal((16, n, 3, 3)).astype(F32) for n in (3, 16))
    proto = make(
        node("Conv", "x", "w", outputs=["a"], pads=[1, 1, 1, 1], name="conv1"),
        node("Relu", "a", outputs=["b"], name="relu1"),
        node("Conv", "b", "v", outputs=["y"], pads=[1, 1, 1, 1], name="conv2"),
        constants={"w": first, "v": second},
    )
    return saved(tmp_path, proto, "chain.onnx")


MODEL = ("--tune", "model", "--threads", 1)


def follows_the_schema(document: Any) -> None:
    path = Path(__file__).parents[2] / "docs" / "plan.schema.json"
    jsonschema.validate(document, json.loads(path.read_text(encoding="utf-8")))


def test_plan_says_why(run: Run, chain: Path) -> None:
    done = run("plan", chain, *MODEL, "--why", "conv2")
    assert (done.status, done.err) == (0, "")
    plan = sw.plan(chain, tune="model", threads=1)
    assert done.out == str(plan.why("conv2"))
    found = run("plan", chain, *MODEL, "--why", "conv1", "--why", "conv2", "--json").json
    follows_the_schema(found)
    assert [why["node"] for why in found["why"]] == ["conv1", "conv2"]
    assert [item["total_delta_ns"] for item in found["why"][1]["alternatives"]] == [
        item.total_delta_ns for item in plan.why("conv2").alternatives
    ]


def test_plan_prints_every_regret(run: Run, chain: Path) -> None:
    done = run("plan", chain, *MODEL, "--regret")
    regrets = sw.plan(chain, tune="model", threads=1).regrets()
    assert done.out.splitlines() == [str(regret) for regret in regrets]
    found = run("plan", chain, *MODEL, "--regret", "--json").json
    follows_the_schema(found)
    assert [item["total_ns"] for item in found["regrets"]] == [r.total_ns for r in regrets]
    assert len({r.tensor for r in regrets}) == 2
    few = run("plan", chain, *MODEL, "--regret", "--limit", 1, "--json").json
    assert len({item["tensor"] for item in few["regrets"]}) == 1


def test_plan_with_a_wish_shows_what_it_costs(run: Run, chain: Path) -> None:
    done = run("plan", chain, *MODEL, "--what-if", "conv1=NCHW")
    assert done.status == 0
    assert "given: b in NCHW\n" in done.out
    assert "beside the plan without conv1:\n" in done.out
    plan = sw.plan(chain, tune="model", threads=1)
    assert done.out.endswith(str(plan.diff(plan.what_if({"b": "plain"}))))
    found = run("plan", chain, *MODEL, "--what-if", "conv1=nchw", "--json").json
    follows_the_schema(found)
    assert found["pins"] == {"b": "NCHW"}


def test_plans_are_saved_used_again_and_compared(run: Run, chain: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    done = run("plan", chain, *MODEL, "--save", one)
    assert done.out.endswith(f"saved to {one}\n")
    run("plan", chain, *MODEL, "--plan", one, "--what-if", "b=plain", "--save", two)
    follows_the_schema(json.loads(one.read_text(encoding="utf-8")))
    again = run("plan", chain, "--threads", 1, "--plan", one, "--json")
    assert (again.err, again.json) == ("", json.loads(one.read_text(encoding="utf-8")))
    ran = run("run", chain, "--random", "--threads", 1, "--plan", two)
    assert (ran.status, ran.err) == (0, "")
    found = run("diff", one, two)
    plan = sw.load_plan(one, chain, threads=1)
    assert found.out == str(plan.diff(sw.load_plan(two, chain, threads=1)))
    table = run("diff", one, two, "--json").json
    assert table["changes"][0]["node"] == "conv1"
    assert table["before_ns"] == plan.cost_ns
    assert run("diff", one, one).out.startswith("both plans decide the same\n")


def test_a_plan_of_other_threads_is_a_warning_of_one_line(
    run: Run, chain: Path, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    run("plan", chain, *MODEL, "--save", path)
    for command in (("plan",), ("run", "--random")):
        done = run(command[0], chain, *command[1:], "--threads", 2, "--plan", path)
        assert done.status == 0
        assert done.err == (
            f"warning: plan file {str(path)!r}: the plan was made for another machine "
            "(threads: 1, here 2); costs may not hold here\n"
        )


def test_plans_are_drawn(run: Run, chain: Path, tmp_path: Path) -> None:
    plan = sw.plan(chain, tune="model", threads=1)
    assert run("plan", chain, *MODEL, "--dot", "-").out == plan.to_dot()
    path = tmp_path / "plan.dot"
    done = run("plan", chain, *MODEL, "--dot", path)
    assert path.read_text(encoding="utf-8") == plan.to_dot()
    assert done.out.endswith(f"saved to {path}\n")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--why", "conv3"), ("expected the name of a node", "'conv3'", "did you mean 'conv2'")),
        (("--what-if", "b=foo"), ("tensor 'b'", "formats on offer", "NCHW (plain)", "'foo'")),
        (("--what-if", "c=nhwc"), ("the name of a tensor or node", "'c'")),
        (("--what-if", "b"), ("--what-if", "NAME=VALUE")),
        (("--plan", "no.json"), ("plan file 'no.json'", "no such file", "--save FILE")),
        (("--save", "no/plan.json"), ("plan file 'no/plan.json'", "found no directory 'no'")),
        (("--save", ""), ("plan file '.'", "a file to write", "Is a directory")),
        (("--dot", "no/plan.dot"), ("--dot 'no/plan.dot'", "found no directory ")),
    ],
)
def test_questions_that_make_no_sense(
    run: Run, chain: Path, options: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    fails(run("plan", chain, *MODEL, *options), *parts)


def test_files_that_are_no_plans_are_not_compared(run: Run, model: Path) -> None:
    fails(run("diff", model, model), f"plan file {str(model)!r}", "a plan file", "no JSON")


def test_plan_takes_a_target(run: Run, model: Path) -> None:
    fails(run("plan", model, "--target", "gpu"), "target", "onednn-cpu", "'gpu'")


def test_plan_and_run_take_simulated_targets_by_name_and_by_file(
    run: Run, model: Path, tmp_path: Path
) -> None:
    done = run("plan", model, "--target", "ascend")
    assert done.status == 0
    assert "TransData" in done.out
    assert "each operator for itself" in done.out
    expected = run("run", model, "--random", "--tune", "model", "--json").json["outputs"]
    found = run("run", model, "--random", "--target", "ascend", "--json").json["outputs"]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["mean"] == pytest.approx(theirs["mean"], rel=1e-4, abs=1e-5)
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\ndialect = "onednn"\ndtypes = ["float32"]\n'
        "rates = { bytes_per_s = 1e9, flops_per_s = 1e9 }\n"
        'family = [{ ops = ["relu"], rules = [{ data = "ND" }] }]\n'
    )
    assert run("plan", model, "--target", path, "--json").json["target"] == "mine"
    assert run("run", model, "--random", "--target", path).status == 0
    fails(run("run", model, "--random", "--profile", "--target", path), "mine", "simulated")
    path.write_text("name = 3")
    fails(run("plan", model, "--target", path), "mine.toml", "key 'name'")
