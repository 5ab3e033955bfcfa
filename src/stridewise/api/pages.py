"""The report, handed down to plans and models, which may not import it."""

from __future__ import annotations

from stridewise.planner import Plan
from stridewise.runtime.executor import CompiledModel, Profile

__all__ = ["model_page", "plan_page"]


def plan_page(plan: Plan) -> str:
    """Return a plan as a page in HTML."""
    from stridewise.report import to_html  # noqa: PLC0415 (jinja2 takes time to load)

    return to_html(plan)


def model_page(model: CompiledModel, profile: Profile | None) -> str:
    """Return a model and a profile of it as a page in HTML."""
    from stridewise.report import to_html  # noqa: PLC0415 (jinja2 takes time to load)

    return to_html(model.plan, model.program, profile, memory=model.memory)
