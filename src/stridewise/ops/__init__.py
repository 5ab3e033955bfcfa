"""Operators: types, NumPy reference, origin rule. One file for each family.

Each file ends in its registration, and every file of this folder is imported. Kernels are in
``stridewise.targets``.
"""

from stridewise.discovery import modules_in
from stridewise.ops.layers import GraphBuilder
from stridewise.ops.registry import OPS, OpSpec, evaluate, infer

__all__ = ["OPS", "GraphBuilder", "OpSpec", "evaluate", "infer"]

modules_in(__name__)
