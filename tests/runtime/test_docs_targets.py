"""docs/targets.md: its target loads, plans and runs, and prints what the page says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stridewise.runtime.simulation.reference import run_reference
from stridewise.runtime.simulation.simulate import SimulatedModel
from stridewise.targets.tables import load as reading
from stridewise.targets.tables.load import SHIPPED, load_target

PAGE = (Path(__file__).parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_target_of_the_page_has_about_thirty_lines_and_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    text = block("toml")
    assert text.count("\n") <= 35
    (tmp_path / "npu.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(block("python"), "targets.md", "exec"), names)
    shown = re.search(r"^```\n(plan of .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert shown is not None
    # The order of reorders means nothing.
    assert sorted(capsys.readouterr().out.split("\n")) == sorted([*shown[1].split("\n"), ""])
    assert isinstance(names["model"], SimulatedModel)
    ones = {"x": np.ones((1, 20, 14, 14), np.float32)}
    np.testing.assert_array_equal(names["y"], run_reference(names["graph"], ones)["y"])


def test_the_page_knows_every_target_and_every_key():
    assert set(re.findall(r"^\| `([a-z-]+)` \|.*simulation \|$", PAGE, re.MULTILINE)) == set(
        SHIPPED
    )
    for key in (item.name for part in (reading._File, reading._Rule) for item in fields(part)):
        assert re.search(rf"^\| .*`{key}\b.*\|", PAGE, re.MULTILINE), key
    assert load_target(Path(reading.__file__).with_name("ascend.toml")).reorder == "TransData"
