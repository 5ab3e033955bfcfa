"""Simplification: one pass a file, run in the order of the table in ``pipeline.py``."""

from stridewise.passes.pipeline import (
    Pass,
    Simplified,
    check_passes,
    passes_for,
    select,
    simplify,
)

__all__ = ["Pass", "Simplified", "check_passes", "passes_for", "select", "simplify"]
