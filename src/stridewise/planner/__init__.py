"""Planning: what every tensor means, how each is stored, and which kernel computes each node."""

from stridewise.planner.derive import Derived, Provenance, derive
from stridewise.planner.plan import Decision, Plan, Reorder, make_plan, make_plans
from stridewise.planner.questions.check import Expectations, check
from stridewise.planner.questions.diff import NodeChange, PlanDiff
from stridewise.planner.questions.moves import Move
from stridewise.planner.questions.savings import Saving
from stridewise.planner.questions.what_if import Pin, Regret
from stridewise.planner.questions.why import Alternative, Why

__all__ = [
    "Alternative",
    "Decision",
    "Derived",
    "Expectations",
    "Move",
    "NodeChange",
    "Pin",
    "Plan",
    "PlanDiff",
    "Provenance",
    "Regret",
    "Reorder",
    "Saving",
    "Why",
    "check",
    "derive",
    "make_plan",
    "make_plans",
]
