"""Lowering: from a plan to a program with addresses."""
