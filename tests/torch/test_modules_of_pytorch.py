"""The modules that PyTorch tests, with its own inputs, in all memory formats."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")
modules = pytest.importorskip(
    "torch.testing._internal.common_modules", reason="PyTorch's test package is not complete"
)

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "torch-modules.md").read_text()
spec = spec_from_file_location("make_torch_modules", DOCS / "make_torch_modules.py")
made = sys.modules[spec.name] = module_from_spec(spec)
spec.loader.exec_module(made)

MODULES = [info for info in modules.module_db if torch.float32 in info.dtypes]
MOST = 2
"""Inputs of each module; the page has all."""


@pytest.mark.parametrize("info", [pytest.param(info, id=info.name) for info in MODULES])
def test_module(info):
    row = made.row_of(info, MOST)
    assert row.runs
    assert row.failures == []
    assert f"`{row.name}`" in PAGE, "run python docs/make_torch_modules.py"
