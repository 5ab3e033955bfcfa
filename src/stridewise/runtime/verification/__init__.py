"""Comparison of the tensors of a compiled model with the reference."""
