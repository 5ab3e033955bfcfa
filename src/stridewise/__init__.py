"""Stridewise compiles convolutional networks for CPUs and chooses the format of every tensor.

Names are imported at their first use, because a stored model needs few of the modules.
"""

from typing import TYPE_CHECKING

from stridewise import errors
from stridewise.discovery import at_first_use
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
    TrainingWarning,
    UnknownValueError,
    UnsupportedError,
    VerificationError,
)

if TYPE_CHECKING:
    from stridewise import formats, zoo
    from stridewise.api.calibration import calibrate
    from stridewise.api.compiling import compile  # noqa: A004
    from stridewise.api.models import annotate, capability, load, save
    from stridewise.api.modules import ModuleModel
    from stridewise.api.plans import assert_plan, load_plan, plan
    from stridewise.api.trainer import Trainer
    from stridewise.api.verify import verify
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
    "TrainingWarning",
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

__getattr__ = at_first_use(
    __name__,
    {
        "stridewise": ("formats", "zoo"),
        "stridewise.api.calibration": ("calibrate",),
        "stridewise.api.compiling": ("compile",),
        "stridewise.api.models": ("annotate", "capability", "load", "save"),
        "stridewise.api.modules": ("ModuleModel",),
        "stridewise.api.plans": ("assert_plan", "load_plan", "plan"),
        "stridewise.api.trainer": ("Trainer",),
        "stridewise.api.verify": ("verify",),
        "stridewise.formats": ("Format",),
        "stridewise.graph": ("Capability", "Graph"),
        "stridewise.ops": ("GraphBuilder",),
        "stridewise.planning": ("Plan",),
        "stridewise.quantization": ("LayerReport", "Quantized", "quantize"),
        "stridewise.runtime.execution.dynamic": ("DynamicModel",),
        "stridewise.runtime.execution.executor": ("CompiledModel",),
        "stridewise.runtime.reorder.reorder": ("Reorder", "reorder"),
        "stridewise.runtime.simulation.simulate": ("SimulatedModel",),
        "stridewise.runtime.tuning.calibrate": ("Calibration",),
        "stridewise.runtime.verification.result": ("Verification", "VerificationRow"),
        "stridewise.tensor": ("Quantization", "TensorDesc"),
        "stridewise.training": ("SGD", "AdamW", "grad"),
    },
)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
