"""Measured costs: timing of kernels and of whole plans, and the cache that keeps them."""
