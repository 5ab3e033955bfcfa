"""Planning: what every tensor means, how each is stored, and which kernel computes each node."""

from stridewise.planner.derive import Derived, Provenance, derive
from stridewise.planner.plan import Decision, Plan, Reorder, make_plan, make_plans

__all__ = [
    "Decision",
    "Derived",
    "Plan",
    "Provenance",
    "Reorder",
    "derive",
    "make_plan",
    "make_plans",
]
