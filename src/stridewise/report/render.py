"""From the data of the report to a page: one file without requests or foreign scripts."""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stridewise.planner.plan import PlanData
from stridewise.planner.questions.what_if import regrets
from stridewise.profile import Memory, Profile
from stridewise.program import Program
from stridewise.report.collect import collect
from stridewise.report.data import Report, to_json

__all__ = ["embedded_json", "framed", "layouts_page", "render", "to_html"]

_FRAME_HEIGHT = 820

# Characters that could end the element with the data or begin a comment in it. The JSON encoder
# escapes all characters outside of ASCII, including U+2028.
_DANGEROUS = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def embedded_json(report: Report) -> Markup:
    """Return a report as JSON that is safe inside a script element of HTML."""
    return Markup(to_json(report).translate(_DANGEROUS))


_REGRET_WORK, _LEAST_REGRETS = 3000, 8
"""Tensors whose regret is shown, times nodes of the graph, which is about a second of solving."""


@cache
def _static(name: str) -> str:
    return files("stridewise.report").joinpath("static", name).read_text("utf-8")


def _digest(text: str) -> str:
    """Return the name of a script or a style sheet in a Content-Security-Policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _picture_address(picture: str) -> str:
    """Return a picture as a data URL, so that pictures share no ids."""
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.encode()).decode()}"


# --- numbers --------------------------------------------------------------------------------------


def _ms(ns: float) -> str:
    """Return a time with three significant digits.

    >>> _ms(12_345_678), _ms(20_710), _ms(640)
    ('12.3 ms', '20.7 µs', '0.64 µs')
    """
    value, unit = (ns / 1e6, "ms") if abs(ns) >= 1e6 else (ns / 1e3, "µs")
    places = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{places}f} {unit}"


def _size(nbytes: float) -> str:
    """Return a size with a unit.

    >>> _size(12), _size(602_112), _size(3_211_264)
    ('12 B', '602 kB', '3.21 MB')
    """
    power = min(max(math.floor(math.log10(max(nbytes, 1)) / 3), 0), 3)
    value = nbytes / 1000**power
    places = 0 if not power or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{places}f} {('B', 'kB', 'MB', 'GB')[power]}"


def _percent(part: float) -> str:
    """Return a difference as a percentage with its sign, and a large one as a multiple.

    >>> _percent(0.0512), _percent(-0.2), _percent(11)
    ('+5.1 %', '-20.0 %', '12 x')
    """
    return f"{1 + part:.0f} x" if part >= 9 else f"{100 * part:+.1f} %"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("stridewise.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(ms=_ms, size=_size, percent=_percent)
    return environment


def render(report: Report) -> str:
    """Return a report as a complete HTML document."""
    script, style = _static("report.js"), _static("report.css")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    shown = [
        (use, _picture_address(picture))
        for use, picture in zip(report.formats, report.pictures, strict=True)
        if picture
    ]
    nodes = [(index, v) for index, v in enumerate(report.vertices) if v.kind in ("node", "reorder")]
    template = _environment().get_template("report.html")
    return template.render(
        report=report,
        counted=Counter,
        nodes=nodes,
        pictures=shown,
        slowest=max((max(b.cost_ns, b.measured_ns or 0) for b in report.bars), default=1) or 1,
        data=embedded_json(report),
        policy=policy,
        # Files of the package; the policy allows exactly these.
        script=Markup(script),
        style=Markup(style),
    )


def to_html(
    plan: PlanData,
    program: Program | None = None,
    profile: Profile | None = None,
    others: Mapping[str, Mapping[str, int]] | None = None,
    memory: Memory | None = None,
    losses: Sequence[float] = (),
) -> str:
    """Return a plan as a page; see :func:`stridewise.report.collect` for the arguments.

    The cost of each other format is a solution of the whole graph. So large graphs have it for
    their largest tensors only.
    """
    largest = max(_LEAST_REGRETS, _REGRET_WORK // max(len(plan.decisions), 1))
    found = regrets(plan, limit=largest)
    return render(collect(plan, program, profile, found, others, memory, losses))


def layouts_page(found: Mapping[str, Any]) -> str:
    """Return a check of memory formats as a page.

    Args:
        found: ``operators``, ``findings`` and ``is_clean`` of a ``stridewise.torch.LayoutCheck``,
            as plain data.
    """
    style = _static("report.css")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    template = _environment().get_template("layouts.html")
    lost = {_place(item["where"]) for item in found["findings"]}
    return template.render(found=found, policy=policy, style=Markup(style), lost=lost, place=_place)


def _place(row: Mapping[str, Any]) -> str:
    return f"{row['place']['file']}:{row['place']['line']}"


def framed(page: str) -> str:
    """Return a page as a sandboxed frame inside another page.

    Notebooks show this: styles stay separate, and scripts can change only the frame.
    """
    source = escape(page, quote=True)
    return (
        f'<iframe title="Stridewise report" sandbox="allow-scripts" srcdoc="{source}" '
        f'width="100%" height="{_FRAME_HEIGHT}" style="border: 0"></iframe>'
    )
