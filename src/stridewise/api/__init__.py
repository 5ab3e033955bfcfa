"""What users call: the stages put together.

``models`` reads and writes model files, ``options`` names the arguments, ``request`` prepares what
plans a model, ``plans`` plans, compiles and checks, ``dynamic`` compiles models of many shapes,
``verify`` compares what a compiled model computes, for which ``sources`` reads its graph again.
"""

from stridewise.api.models import (
    ModelSource,
    annotate,
    capability,
    load,
    load_file,
    model_file,
    save,
)
from stridewise.api.options import (
    CompileOptions,
    GraphOptions,
    PlanOptions,
    PlanSource,
    TargetName,
    Tune,
)
from stridewise.api.plans import assert_plan, compile, load_plan, plan  # noqa: A004 (public name)
from stridewise.api.request import NATIVE, TARGETS
from stridewise.api.verify import Against, verify

__all__ = [
    "NATIVE",
    "TARGETS",
    "Against",
    "CompileOptions",
    "GraphOptions",
    "ModelSource",
    "PlanOptions",
    "PlanSource",
    "TargetName",
    "Tune",
    "annotate",
    "assert_plan",
    "capability",
    "compile",
    "load",
    "load_file",
    "load_plan",
    "model_file",
    "plan",
    "save",
    "verify",
]
