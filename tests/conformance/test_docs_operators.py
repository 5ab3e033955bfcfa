"""docs/operators.md is what the results of the conformance tests and the kernels say now."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_operators_is_up_to_date():
    spec = spec_from_file_location("make_operators", DOCS / "make_operators.py")
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    page = (DOCS / "operators.md").read_text(encoding="utf-8")
    assert page == made.generated(), "run python docs/make_operators.py"
