"""``stridewise compile`` and ``stridewise passes``: what happens to a model, stage by stage."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simplified import PASSES, simplify

import stridewise as sw

from .commands import Run, fails, image, model, own_cache, run

__all__ = ["image", "model", "own_cache", "run"]

MODEL = ("--tune", "model", "--threads", 2)


def sections(text: str) -> dict[str, str]:
    """Return the printed texts by their titles."""
    parts = text.split("--- ")[1:]
    return dict(part.split(" ---\n", 1) for part in parts)


def test_passes_are_listed_in_their_order(run: Run) -> None:
    lines = run("passes").out.splitlines()
    assert [line.split()[0] for line in lines] == [item.name for item in PASSES]
    assert all(item.help in line for item, line in zip(PASSES, lines, strict=True))
    assert sum("asks the target" in line for line in lines) == sum(bool(p.needs) for p in PASSES)
    assert [row["name"] for row in run("passes", "--json").json] == [item.name for item in PASSES]


def test_a_summary_of_what_was_compiled(run: Run, model: Path) -> None:
    compiled = sw.compile(model, tune="model", threads=2)
    assert isinstance(compiled, sw.CompiledModel)
    facts = run("compile", model, *MODEL, "--json").json
    assert facts["nodes"] == 1
    assert sum(facts["steps"].values()) == len(compiled.program.steps)
    assert facts["memory"]["arena"] == compiled.memory.arena
    assert facts["memory"]["packed_weights"] == compiled.memory.packed_weights
    assert facts["predicted_ns"] == compiled.plan.cost_ns
    text = run("compile", model, *MODEL).out
    for word in ("steps", f"{compiled.memory.arena} bytes", "weights", "predicted"):
        assert word in text


def test_the_text_of_every_stage(run: Run, model: Path) -> None:
    graph = sw.load(model)
    compiled = sw.compile(model, tune="model", threads=2)
    assert isinstance(compiled, sw.CompiledModel)
    wanted = {
        "graph": str(graph),
        "simplified": str(simplify(graph).graph),
        "plan": compiled.plan.to_text(),
        "program": compiled.program.text(),
    }
    for stage, text in wanted.items():
        assert sections(run("compile", model, *MODEL, "--print", stage).out) == {stage: text}
    several = [part for stage in reversed(wanted) for part in ("--print", stage)]
    assert sections(run("compile", model, *MODEL, *several).out) == wanted


def test_the_graph_after_passes(run: Run, model: Path) -> None:
    found = sections(run("compile", model, "--print-after", "all").out)
    assert list(found) == [f"after {item.name}" for item in PASSES]
    assert found["after fuse_post_ops"] == str(simplify(sw.load(model)).graph)
    assert "relu(%" in found["after fold_pad"]
    chosen = ("--print-after", "fold_pad", "--print-after", "fold_scale")
    assert list(sections(run("compile", model, *chosen).out)) == [
        "after fold_scale",
        "after fold_pad",
    ]


def test_selected_passes(run: Run, model: Path) -> None:
    for selection in (("--skip-pass", "fuse_post_ops"), ("--passes", "remove_dead,fold_pad")):
        found = sections(
            run("compile", model, *MODEL, *selection, "--print", "program", "--print-after=all").out
        )
        assert '"relu1" eltwise' in found["program"]
        assert "after fuse_post_ops" not in found
    facts = run("compile", model, *MODEL, "--passes", "", "--json").json
    assert facts["nodes"] == 2


@pytest.mark.parametrize("option", ["--passes", "--skip-pass", "--print-after"])
def test_an_unknown_pass_is_an_error_before_any_work(run: Run, option: str) -> None:
    done = run("compile", "absent.onnx", option, "fuse_posts")
    fails(done, "'fuse_posts'", "did you mean fuse_post_ops?")


@pytest.mark.parametrize(
    "wrong",
    [("--print", "bytes"), ("--json", "--print", "plan"), ("--plan=f", "--skip-pass=fold_pad")],
)
def test_options_that_do_not_go_together(run: Run, model: Path, wrong: tuple[str, ...]) -> None:
    assert run("compile", model, *wrong).status == 2
