"""The page on operators of PyTorch is what its script writes."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "torch-operators.md").read_text()


@pytest.mark.skipif(
    f"What PyTorch {torch.__version__.partition('+')[0]} does" not in PAGE,
    reason="the page is about another version of PyTorch",
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_page_is_current():
    spec = spec_from_file_location("make_torch_operators", DOCS / "make_torch_operators.py")
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.generated() == PAGE, "run python docs/make_torch_operators.py"
