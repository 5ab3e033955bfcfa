"""What names of twenty systems mean.

``tests/data/formats.json`` holds one fact a line. ``walk`` lists digits, outermost first, each an
axis or ``<size>*<axis>[@<step>]``, whose default step is the product of the axis' later blocks;
``pads`` (where they are more than the blocks), ``divide`` (blocks that do not pad), ``fused`` axes
and ``static`` extents say the rest, and ``give`` what the name leaves open. ``refused`` facts are
names that are not permutations. The tests evaluate the formats independently of the algebra.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stridewise.formats import Format, Parameters

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "formats.json").read_text("ascii"))
SYSTEMS = tuple(GOLDEN["names"])
NOTHING = Parameters()
KNOWN = [fact for fact in GOLDEN["facts"] if "walk" in fact]
REFUSED = [fact for fact in GOLDEN["facts"] if "refused" in fact]

each_system = pytest.mark.parametrize("system", SYSTEMS)


def facts(system, among=KNOWN):
    return [fact for fact in among if fact["system"] == system]


def parsed(fact, name=None, **more):
    return Format.parse(name or fact["name"], fact["system"], **fact.get("give", {}) | more)
