"""Operators: one room a family, each ending in its registration. This file is the list of rooms."""

from stridewise.ops import (
    activation,
    concat,
    conv,
    conv_transpose,
    elementwise,
    fallback,
    matmul,
    norm,
    pad,
    pool,
    reduce,
    resize,
    shape,
    shuffle,
    slice,
    softmax,
)
from stridewise.ops.layers import GraphBuilder
from stridewise.ops.registry import OPS, OpSpec, evaluate, infer

__all__ = [
    "OPS",
    "GraphBuilder",
    "OpSpec",
    "activation",
    "concat",
    "conv",
    "conv_transpose",
    "elementwise",
    "evaluate",
    "fallback",
    "infer",
    "matmul",
    "norm",
    "pad",
    "pool",
    "reduce",
    "resize",
    "shape",
    "shuffle",
    "slice",
    "softmax",
]
