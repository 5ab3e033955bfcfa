"""Planning: what every tensor means, how each is stored, and which kernel computes each node."""

from stridewise.planner.derivation.derive import Derived, Provenance, derive
from stridewise.planner.documents.diff import NodeChange, PlanDiff
from stridewise.planner.plan import Decision, Pin, PlanData, Reorder
from stridewise.planner.questions.check import Expectations, check
from stridewise.planner.questions.moves import Move
from stridewise.planner.questions.savings import Saving
from stridewise.planner.questions.what_if import Regret
from stridewise.planner.questions.why import Alternative, Why

__all__ = [
    "Alternative",
    "Decision",
    "Derived",
    "Expectations",
    "Move",
    "NodeChange",
    "Pin",
    "PlanData",
    "PlanDiff",
    "Provenance",
    "Regret",
    "Reorder",
    "Saving",
    "Why",
    "check",
    "derive",
]
