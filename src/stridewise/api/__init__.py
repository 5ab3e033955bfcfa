"""The public functions.

``models`` reads and writes model files, ``plans`` plans, compiles and checks, ``modules`` has
models that are called like PyTorch modules, ``verify`` compares the tensors of a compiled model
with a reference, ``calibration`` measures the machine. The others wrap the flow of
``compiler.py``: ``stored`` for the compiled-model store, ``batches`` for batches in parts,
``dynamic`` for many shapes, ``restored`` for plans that were made before.
"""

from stridewise.api.calibration import calibrate
from stridewise.api.models import (
    ModelSource,
    annotate,
    capability,
    load,
    load_file,
    save,
)
from stridewise.api.modules import ModuleModel
from stridewise.api.plans import assert_plan, compile, load_plan, plan  # noqa: A004 (public name)
from stridewise.api.trainer import Trainer
from stridewise.api.verify import Against, verify
from stridewise.frontends.registry import open_model
from stridewise.options import (
    CompileOptions,
    GraphOptions,
    PlanOptions,
    PlanSource,
    TargetName,
    Tune,
)
from stridewise.targets.names import NATIVE, TARGETS

__all__ = [
    "NATIVE",
    "TARGETS",
    "Against",
    "CompileOptions",
    "GraphOptions",
    "ModelSource",
    "ModuleModel",
    "PlanOptions",
    "PlanSource",
    "TargetName",
    "Trainer",
    "Tune",
    "annotate",
    "assert_plan",
    "calibrate",
    "capability",
    "compile",
    "load",
    "load_file",
    "load_plan",
    "open_model",
    "plan",
    "save",
    "verify",
]
