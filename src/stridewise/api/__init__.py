"""What users call: the stages put together.

``models`` reads and writes model files, ``request`` prepares what plans a model, ``plans`` plans,
compiles and checks.
"""

from stridewise.api.models import ModelSource, annotate, capability, load, save
from stridewise.api.plans import assert_plan, compile, load_plan, plan  # noqa: A004 (public name)
from stridewise.api.request import NATIVE, TARGETS, PlanSource, TargetName, Tune

__all__ = [
    "NATIVE",
    "TARGETS",
    "ModelSource",
    "PlanSource",
    "TargetName",
    "Tune",
    "annotate",
    "assert_plan",
    "capability",
    "compile",
    "load",
    "load_plan",
    "plan",
    "save",
]
