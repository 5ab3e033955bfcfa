"""Tables of ``benchmarks/models.py`` from samples that are known."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOM = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("model_tables", ROOM / "model_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def row(tables: ModuleType, model: str, batch: int = 1, **medians: float):
    found = {
        name: tables.Found((middle, middle, middle), 1e-6, {"cold": 0.5})
        for name, middle in medians.items()
    }
    versions = {"stridewise": "0.1.0"}
    return tables.Row(
        model, batch, None, "2025-01-31", 2, "warm", 0.05, "a machine", versions, found
    )


def cells(page: str, start: str) -> list[str]:
    """Cells of the first line that starts so."""
    line = next(line for line in page.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_best_peer_is_compared_with(tables: ModuleType) -> None:
    one = row(tables, "unet", fast=2.0, exact=4.0, onnxruntime=8.0, openvino=6.0)
    assert one.best_ms == 6.0
    assert (one.ratio("fast"), one.ratio("exact")) == (3.0, 1.5)
    assert cells(tables.report([one]), "unet") == [
        "unet", "2.00", "4.00", "8.00", "6.00", "**3.00**", "**1.50**", "1e-06", "1e-06",
    ]  # fmt: skip


def test_ratios_have_a_geometric_mean(tables: ModuleType) -> None:
    rows = [
        row(tables, "a", fast=1.0, exact=1.0, openvino=2.0),
        row(tables, "b", fast=1.0, exact=1.0, openvino=8.0),
        row(tables, "c", batch=16, fast=1.0, exact=1.0, openvino=100.0),
    ]
    page = tables.report(rows[:2])
    assert cells(page, "geometric mean")[4:6] == ["**4.00**", "**4.00**"]
    both = tables.report(rows)
    assert both.index("## Batch 1\n") < both.index("## Batch 16\n")
    assert both.count("| geometric mean |") == 2


def test_a_large_spread_is_called_noisy(tables: ModuleType) -> None:
    quiet = tables.Found((1.0, 1.01, 1.02), 0.0)
    noisy = tables.Found((1.0, 2.0, 3.0, 2.0, 1.0), 0.0)
    assert quiet.spread < tables.NOISY
    assert noisy.spread == 0.5
    one = row(tables, "unet", exact=1.0, openvino=1.0)
    one = tables.Row.from_json(one.as_json() | {"found": {
        **one.as_json()["found"], "fast": {**one.as_json()["found"]["exact"],
                                           "samples_ms": noisy.samples_ms},
    }})  # fmt: skip
    found = cells(tables.report([one]), "unet")
    assert "2.00 (noisy: 50%)" in found
    assert sum("noisy" in cell for cell in found) == 1


def test_rows_come_back_from_their_json(tables: ModuleType) -> None:
    one = row(tables, "unet", fast=2.0, exact=4.0, torch=8.0)
    document = json.loads(json.dumps(one.as_json()))
    assert tables.Row.from_json(document) == one
    assert document["best_peer_over"] == {"fast": 4.0, "exact": 2.0}
    assert document["found"]["fast"]["median_ms"] == 2.0


def test_memory_is_shown_where_somebody_looked(tables: ModuleType) -> None:
    without = row(tables, "unet", fast=2.0, exact=4.0)
    assert "Peak memory" not in tables.report([without])
    found = {
        "fast": tables.Found((1.0,), 0.0, {}, 50 * 2**20, 30 * 2**20, 20 * 2**20),
        "exact": tables.Found((1.0,), 0.0, {}, 40 * 2**20, 10 * 2**20, 0),
        "openvino": tables.Found((1.0,), 0.0, {}, 60 * 2**20),
        "torch": tables.Found((1.0,), 0.0),
    }
    document = without.as_json()
    one = tables.Row(**{key: document[key] for key in tables.Row.__slots__ if key != "found"},
                     found=found)  # fmt: skip
    page = tables.report([one])
    table = page[page.index("Peak memory") :]
    assert cells(table, "model")[1:4] == ["ours", "ours, exact", "OpenVINO"]
    assert cells(table, "unet")[1:] == ["50", "40", "60", "30", "20", "10"]
