"""Stridewise: convolutional networks on CPUs, every tensor stored the way that makes them fast."""

from stridewise import errors, formats
from stridewise.api import compile, load, plan  # noqa: A004 (the public name)
from stridewise.errors import (
    DependencyError,
    ExecutionError,
    FormatError,
    GraphError,
    InputError,
    LibraryError,
    ModelError,
    PlanError,
    StridewiseError,
)
from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.planner import Plan
from stridewise.runtime.executor import CompiledModel
from stridewise.tensor import TensorDesc

__all__ = [
    "CompiledModel",
    "DependencyError",
    "ExecutionError",
    "FormatError",
    "Graph",
    "GraphBuilder",
    "GraphError",
    "InputError",
    "LibraryError",
    "ModelError",
    "Plan",
    "PlanError",
    "StridewiseError",
    "TensorDesc",
    "compile",
    "errors",
    "formats",
    "load",
    "plan",
]

__version__ = "0.1.0"
