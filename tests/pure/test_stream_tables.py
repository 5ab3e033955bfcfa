"""Tables of ``benchmarks/streams.py`` from samples that are known."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOM = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOM))
    yield importlib.import_module("stream_tables")
    for name in ("stream_tables", "model_tables"):
        sys.modules.pop(name, None)


def row(tables: ModuleType, model: str, **medians: float) -> Any:
    """A row with milliseconds of contestants like ``stridewise2``."""
    found = {}
    for name, middle in medians.items():
        runtime, streams = name[:-1], int(name[-1])
        samples = (middle, middle, middle)
        found[tables.contestant(runtime, streams)] = tables.Found(runtime, streams, samples, 0.0)
    versions = {"stridewise": "0.1.0"}
    return tables.Row(model, "2025-01-31", 2, 24, 0.05, "a machine", versions, found)


def test_ratios_are_of_the_best_with_as_many_requests(tables: ModuleType) -> None:
    one = row(
        tables, "unet", stridewise1=10.0, stridewise2=5.0, openvino1=8.0, openvino2=20.0,
        onnxruntime1=40.0, onnxruntime2=10.0,
    )  # fmt: skip
    assert one.ratio(several=False) == pytest.approx(0.8)
    assert one.ratio(several=True) == pytest.approx(2.0)
    assert one.gain == pytest.approx(2.0)
    page = tables.report([one, row(tables, "vgg16", stridewise1=10.0, stridewise2=20.0)])
    lines = {line.split(" | ")[0].strip("| "): line for line in page.splitlines() if "|" in line}
    assert lines["unet"].split(" | ")[1:] == [
        "100.0", "200.0", "125.0", "50.0", "25.0", "100.0", "**0.80**", "**2.00**", "**2.00** |",
    ]  # fmt: skip
    assert lines["vgg16"].split(" | ")[-3:] == ["", "", "**0.50** |"]
    assert lines["geometric mean"].endswith("| **0.80** | **2.00** | **1.00** |")
    assert "ONNX Runtime, 2 at once" in lines["model"]


def test_rows_come_back_from_their_json(tables: ModuleType) -> None:
    one = row(tables, "unet", stridewise1=2.0, stridewise2=1.0, openvino1=2.0)
    document = json.loads(json.dumps(one.as_json()))
    assert tables.Row.from_json(document) == one
    assert document["gain"] == 2.0
    assert document["ours_over_best_peer"] == {"one": 1.0, "several": None}
    assert document["found"]["stridewise x2"]["per_second"] == 1000.0


def test_a_large_spread_is_called_noisy(tables: ModuleType) -> None:
    one = row(tables, "unet", stridewise1=1.0)
    document = one.as_json()
    document["found"]["stridewise x1"]["samples_ms"] = (1.0, 2.0, 3.0, 2.0, 1.0)
    assert "500.0 (noisy: 50%)" in tables.report([tables.Row.from_json(document)])
