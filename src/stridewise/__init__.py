"""Stridewise: convolutional networks on CPUs, every tensor stored the way that makes them fast."""

import importlib
import types
import typing

from stridewise import errors, formats
from stridewise.api import (
    ModuleModel,
    Trainer,
    annotate,
    assert_plan,
    calibrate,
    capability,
    compile,  # noqa: A004
    load,
    load_plan,
    plan,
    save,
    verify,
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
    VerificationError,
)
from stridewise.formats import Format
from stridewise.graph import Capability, Graph
from stridewise.ops import GraphBuilder
from stridewise.planning import Plan
from stridewise.quantization import LayerReport, Quantized, quantize
from stridewise.runtime.execution.dynamic import DynamicModel
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.reorder.reorder import Reorder, reorder
from stridewise.runtime.simulation.simulate import SimulatedModel
from stridewise.runtime.tuning.calibrate import Calibration
from stridewise.runtime.verification.result import Verification, VerificationRow
from stridewise.tensor import Quantization, TensorDesc
from stridewise.training import SGD, AdamW, grad

if typing.TYPE_CHECKING:
    from stridewise import zoo

__all__ = [  # noqa: RUF022 (in plain order of their letters)
    "AdamW",
    "Calibration",
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
    "LayerReport",
    "LibraryError",
    "MemoryLimitError",
    "ModelError",
    "ModuleModel",
    "Plan",
    "PlanAssertionError",
    "PlanError",
    "PlanWarning",
    "Quantization",
    "Quantized",
    "Reorder",
    "SGD",
    "SimulatedModel",
    "StridewiseError",
    "TargetError",
    "TensorDesc",
    "Trainer",
    "UnknownValueError",
    "UnsupportedError",
    "Verification",
    "VerificationError",
    "VerificationRow",
    "annotate",
    "assert_plan",
    "calibrate",
    "capability",
    "compile",
    "errors",
    "formats",
    "grad",
    "load",
    "load_plan",
    "plan",
    "quantize",
    "reorder",
    "save",
    "verify",
    "zoo",
]

__version__ = "0.2.0"


def __getattr__(name: str) -> types.ModuleType:
    """Import the zoo at its first use, because running a model does not need it."""
    if name == "zoo":
        return importlib.import_module("stridewise.zoo")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
