"""Planning: what every tensor means, how each is stored, and which kernel computes each node."""

from stridewise.planner.check import Expectations, check
from stridewise.planner.derive import Derived, Provenance, derive
from stridewise.planner.diff import NodeChange, PlanDiff
from stridewise.planner.moves import Move
from stridewise.planner.plan import Decision, Plan, Reorder, make_plan, make_plans
from stridewise.planner.savings import Saving
from stridewise.planner.what_if import Pin, Regret
from stridewise.planner.why import Alternative, Why

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
