"""Planning: what every tensor means, how each is stored, and which kernel computes each node."""

from typing import TYPE_CHECKING

from stridewise.discovery import at_first_use

if TYPE_CHECKING:
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

# A stored model needs none of this.
__getattr__ = at_first_use(
    __name__,
    {
        "stridewise.planner.derivation.derive": ("Derived", "Provenance", "derive"),
        "stridewise.planner.documents.diff": ("NodeChange", "PlanDiff"),
        "stridewise.planner.plan": ("Decision", "Pin", "PlanData", "Reorder"),
        "stridewise.planner.questions.check": ("Expectations", "check"),
        "stridewise.planner.questions.moves": ("Move",),
        "stridewise.planner.questions.savings": ("Saving",),
        "stridewise.planner.questions.what_if": ("Regret",),
        "stridewise.planner.questions.why": ("Alternative", "Why"),
    },
)
