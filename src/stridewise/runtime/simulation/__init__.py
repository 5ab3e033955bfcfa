"""Execution with NumPy: the reference, and plans of targets without kernels."""
