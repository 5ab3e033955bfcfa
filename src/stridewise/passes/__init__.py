"""Simplification: one pass a file, run in the order of the table in ``pipeline.py``."""

from stridewise.passes.pipeline import Simplified, passes_for, simplify

__all__ = ["Simplified", "passes_for", "simplify"]
