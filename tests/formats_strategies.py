"""Random memory formats, and shapes that they accept."""

from __future__ import annotations

from math import lcm, prod
from typing import Any

from hypothesis import strategies as st

from stridewise.formats import Block, Format, Fuse, Pad, Pitch, Split, element_count
from stridewise.formats.algebra import sources

AXES = ("X", "NC", "NCW", "NCHW", "NCDHW", "OI", "OIHW", "GOIHW", "GOIDHW", "MN", "ab", "abcdef")
_STORED = 300
"""Elements of the largest storage, padding included; laws go through all of them."""


@st.composite
def _steps(draw: Any, axes: tuple[str, ...]) -> tuple[tuple[Fuse | Split, ...], list[str]]:
    """Return up to three steps, also of axes that other steps make, and the axes they leave."""
    left = list(axes)
    steps: list[Fuse | Split] = []
    for number in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2, 3]))):
        if len(left) > 1 and draw(st.booleans()):
            fused = tuple(draw(st.permutations(left))[: draw(st.integers(2, min(len(left), 3)))])
            steps.append(Fuse(fused, f"fused{number}"))
            left = [axis for axis in left if axis not in fused] + [f"fused{number}"]
        elif choices := [axis for axis in left if not axis.startswith("inner")]:
            axis = draw(st.sampled_from(choices))
            made = [f"outer{number}", f"inner{number}"]
            steps.append(Split(axis, *made, draw(st.integers(1, 3))))
            left = [other for other in left if other != axis] + made
    return tuple(steps), left


def _stepped(blocks: list[Block], order: list[int]) -> list[Block]:
    """Return the blocks of one axis with steps of their own, the first of ``order`` outermost."""
    found = list(blocks)
    step = 1
    for position in reversed(order):
        found[position] = Block(blocks[position].axis, blocks[position].size, step)
        step *= blocks[position].size
    return found


@st.composite
def _blocks(draw: Any, walked: list[str]) -> list[Block]:
    """Return up to four blocks, those of an axis in any order of significance."""
    sizes = st.sampled_from([2, 2, 3, 4])
    blocks = draw(st.lists(st.builds(Block, st.sampled_from(walked), sizes), max_size=4))
    if draw(st.booleans()):
        for axis in walked:
            own = [position for position, block in enumerate(blocks) if block.axis == axis]
            order = draw(st.permutations(range(len(own))))
            turned = _stepped([blocks[position] for position in own], order)
            for position, block in zip(own, turned, strict=True):
                blocks[position] = block
    return blocks


@st.composite
def _pads(draw: Any, fmt: Format, walked: list[str]) -> tuple[Pad, ...]:
    found = []
    split = [step.axis for step in fmt.steps if isinstance(step, Split)]
    for axis in dict.fromkeys([*fmt.axes, *walked]):
        if axis in split or (axis in walked and axis not in fmt.order):
            continue
        if draw(st.integers(0, 3)) == 0:
            policies = ["zero", "unspecified"]
            # An extent that steps make cannot be chosen to be a multiple.
            policies += ["divide"] if axis in fmt.axes else []
            block = prod(b.size for b in fmt.blocks if b.axis == axis)
            multiple = block * draw(st.integers(1, 3))
            found.append(Pad(axis, multiple, draw(st.sampled_from(policies))))
    return tuple(found)


@st.composite
def formats(draw: Any, axes: tuple[str, ...] | None = None) -> Format:
    """Return a format that uses anything that formats can say, over the given axes or any."""
    if axes is None:
        axes = tuple(draw(st.sampled_from(AXES)))
    steps, walked = draw(_steps(axes))
    blocks = draw(_blocks(walked))
    digits: list[Any] = draw(st.permutations(walked))
    position = 0
    for block in blocks:
        position = draw(st.integers(position, len(digits)))
        digits.insert(position, block)
        position += 1
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        digits.insert(draw(st.integers(0, len(digits))), Pitch(draw(st.integers(1, 8))))
    fixed = {block.axis for block in blocks if block.axis in axes}
    if fixed and draw(st.integers(0, 7)) == 0:
        digits.remove(draw(st.sampled_from(sorted(fixed))))
    pads = draw(_pads(Format(axes, tuple(digits), (), steps), walked))
    return Format(axes, tuple(digits), pads, steps)


@st.composite
def simple_formats(draw: Any, axes: tuple[str, ...] | None = None) -> Format:
    """Return a permutation with blocks innermost, as oneDNN has them."""
    if axes is None:
        axes = tuple(draw(st.sampled_from(AXES)))
    blocks = st.builds(Block, st.sampled_from(axes), st.sampled_from([2, 3, 4, 8]))
    return Format(axes, (*draw(st.permutations(axes)), *draw(st.lists(blocks, max_size=2))))


@st.composite
def _extent(draw: Any, fmt: Format, axis: str, most: int) -> int:
    splits = [step for step in fmt.steps if isinstance(step, Split)]
    unit = prod(step.size for step in splits if axis in sources(fmt)[step.axis])
    if unit > 1 or fmt.policy(axis) == "divide":
        # Where the axis is padded before it is split, its padded extent has to be a multiple.
        return lcm(unit, fmt.multiple(axis)) * draw(st.integers(1, 2))
    fused = {part for step in fmt.steps if isinstance(step, Fuse) for part in step.axes}
    split = {step.axis for step in splits}
    if axis not in fmt.order and axis not in fused | split:
        return fmt.multiple(axis)
    return draw(st.integers(1, most))


def shapes(fmt: Format) -> st.SearchStrategy[tuple[int, ...]]:
    """Return shapes that the format accepts, small enough to go through every element."""
    extents = [_extent(fmt, axis, most=7 if fmt.rank < 4 else 3) for axis in fmt.axes]
    return st.tuples(*extents).filter(lambda shape: element_count(fmt, shape) <= _STORED)
