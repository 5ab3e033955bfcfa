"""The tables of ``benchmarks/startup.py``, from made-up samples."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "startup.py"


@pytest.fixture(scope="module")
def startup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("startup_benchmark", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def row(startup: ModuleType, model: str) -> object:
    loads = {"ours cold": 2.0, "openvino cold": 3.0, "ours warm": 0.1, "openvino cached": 0.4}
    samples = {
        who: [{"import": 1.0, "load": load * by, "first": 0.05} for by in (3, 1, 0.5)]
        for who, load in loads.items()
    }
    return startup.Row(model, "2024-01-01", 2, "this CPU", {"stridewise": "1"}, samples)


def test_medians_and_ratios(startup: ModuleType) -> None:
    page = startup.report([row(startup, "vgg16")])
    lines = [line for line in page.splitlines() if line.startswith("| vgg16")]
    assert lines[0] == "| vgg16 | 2000 |  |  | 3000 | 100 | 400 |  | **1.50** | **4.00** |"
    assert lines[1].startswith("| vgg16 | 2050 |  |  | 3050 | 150 | 450 |")
    assert lines[2].startswith("| vgg16 | 3050 |  |  | 4050 | 1150 | 1450 |")
    assert "2 threads each, 3 rounds; stridewise 1." in page


def test_rows_are_kept_in_order(startup: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "startup.json"
    for name in ("vgg16", "other", "resnet50", "vgg16"):
        startup.merge(row(startup, name), path)
    table = path.with_suffix(".md").read_text()
    assert table.index("| resnet50") < table.index("| vgg16") < table.index("| other")
    assert table.count("| vgg16") == 4
