"""Stridewise: convolutional networks on CPUs, every tensor stored the way that makes them fast."""

from stridewise import errors, formats, zoo
from stridewise.api import (
    annotate,
    assert_plan,
    capability,
    compile,  # noqa: A004
    load,
    load_plan,
    plan,
    save,
)
from stridewise.errors import (
    DamageError,
    DependencyError,
    DTypeError,
    ExecutionError,
    FormatError,
    GraphError,
    InputError,
    LibraryError,
    MemoryLimitError,
    ModelError,
    PlanAssertionError,
    PlanError,
    PlanWarning,
    StridewiseError,
    TargetError,
    UnknownValueError,
    UnsupportedError,
)
from stridewise.formats import Format
from stridewise.graph import Capability, Graph
from stridewise.ops import GraphBuilder
from stridewise.planner import Plan
from stridewise.runtime.dynamic import DynamicModel
from stridewise.runtime.executor import CompiledModel
from stridewise.runtime.reorder import Reorder, reorder
from stridewise.runtime.simulate import SimulatedModel
from stridewise.tensor import Quantization, TensorDesc

__all__ = [
    "Capability",
    "CompiledModel",
    "DTypeError",
    "DamageError",
    "DependencyError",
    "DynamicModel",
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
    "PlanAssertionError",
    "PlanError",
    "PlanWarning",
    "Quantization",
    "Reorder",
    "SimulatedModel",
    "StridewiseError",
    "TargetError",
    "TensorDesc",
    "UnknownValueError",
    "UnsupportedError",
    "annotate",
    "assert_plan",
    "capability",
    "compile",
    "errors",
    "formats",
    "load",
    "load_plan",
    "plan",
    "reorder",
    "save",
    "zoo",
]

__version__ = "0.1.0"
