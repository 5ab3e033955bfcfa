"""Simplification: one pass a file, run in the order of the table in ``pipeline.py``."""

from stridewise.passes.pipeline import PASSES, Simplified, simplify

__all__ = ["PASSES", "Simplified", "simplify"]
