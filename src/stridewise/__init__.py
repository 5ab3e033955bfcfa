"""Stridewise: convolutional networks on CPUs, every tensor stored the way that makes them fast."""

from stridewise import errors, formats
from stridewise.api import compile, load, plan  # noqa: A004 (the public name)
from stridewise.errors import (
    DependencyError,
    DTypeError,
    ExecutionError,
    FormatError,
    GraphError,
    InputError,
    LibraryError,
    MemoryLimitError,
    ModelError,
    PlanError,
    StridewiseError,
)
from stridewise.formats import Format
from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.planner import Plan
from stridewise.runtime.executor import CompiledModel
from stridewise.runtime.reorder import Reorder, reorder
from stridewise.tensor import Quantization, TensorDesc

__all__ = [
    "CompiledModel",
    "DTypeError",
    "DependencyError",
    "ExecutionError",
    "Format",
    "FormatError",
    "Graph",
    "GraphBuilder",
    "GraphError",
    "InputError",
    "LibraryError",
    "MemoryLimitError",
    "ModelError",
    "Plan",
    "PlanError",
    "Quantization",
    "Reorder",
    "StridewiseError",
    "TensorDesc",
    "compile",
    "errors",
    "formats",
    "load",
    "plan",
    "reorder",
]

__version__ = "0.1.0"
