"""The report: a plan, its program and its profile as one page that works without a network.

It plans and measures nothing itself.
"""

from stridewise.report.collect import collect
from stridewise.report.data import Report, to_json
from stridewise.report.render import framed, layouts_page, render, to_html

__all__ = ["Report", "collect", "framed", "layouts_page", "render", "to_html", "to_json"]
