"""Dialects against golden data: what every name means, and what is no name."""

from __future__ import annotations

import random
from math import prod

import pytest

from stridewise.errors import FormatError
from stridewise.formats import Format, names
from stridewise.formats.dialects import DIALECTS
from stridewise.formats.dialects.onednn import abstract_tag

from .dialect_facts import GOLDEN, NOTHING, REFUSED, each_system, facts, parsed

# --- what names mean ------------------------------------------------------------------------------


class Golden:
    """A fact and a shape, evaluated by the letter."""

    def __init__(self, fact, shape):
        self.axes = fact["axes"].split(",")
        self.shape = dict(zip(self.axes, shape, strict=True))
        self.fused = fact.get("fused", {})
        walk = [self.read(item) for item in fact["walk"].split()]
        blocks = {
            axis: prod(size for a, size, _ in walk if a == axis and size) for axis, *_ in walk
        }
        self.multiples = blocks | fact.get("divide", {}) | fact.get("pads", {})
        extents = {
            axis: self.padded(axis, extent)
            for axis, extent in self.shape.items()
            if not any(axis in parts for parts in self.fused.values())
        }
        for axis, parts in self.fused.items():
            extents[axis] = self.padded(axis, prod(self.padded(a, self.shape[a]) for a in parts))
        self.digits = []
        for position, (axis, size, step) in enumerate(walk):
            inner = prod(s for a, s, _ in walk[position + 1 :] if a == axis and s)
            whole = extents[axis] // blocks[axis]
            self.digits.append((axis, size or whole, step or (inner if size else blocks[axis])))

    @staticmethod
    def read(item):
        """Return axis, size and step of a digit; None where the walk does not say."""
        size, star, rest = item.rpartition("*")
        axis, _, step = rest.partition("@")
        return axis, int(size) if star else None, int(step) if step else None

    def padded(self, axis, extent):
        multiple = self.multiples.get(axis, 1)
        return (extent + multiple - 1) // multiple * multiple

    def storage(self):
        return tuple(size for _, size, _ in self.digits)

    def offset(self, index):
        at = dict(zip(self.axes, index, strict=True))
        for axis, parts in self.fused.items():
            at[axis] = 0
            for part in parts:
                at[axis] = at[axis] * self.padded(part, self.shape[part]) + at[part]
        found = 0
        for axis, size, step in self.digits:
            found = found * size + at[axis] // step % size
        return found


def random_shape(fact, rng):
    """Return a small shape that fits, extents beyond a block where there are blocks."""
    fused = {part for parts in fact.get("fused", {}).values() for part in parts}
    found = []
    for axis in fact["axes"].split(","):
        multiple = Golden(fact, [1] * len(fact["axes"].split(","))).multiples.get(axis, 1)
        if axis in fact.get("static", {}):
            found.append(fact["static"][axis])
        elif axis in fact.get("divide", {}):
            found.append(multiple * rng.randint(1, 3))
        elif axis in fused:
            found.append(rng.randint(1, 7))
        else:
            found.append(rng.choice([1, 2, 3, 5, multiple, multiple + 1, 2 * multiple + 3]))
    return tuple(found)


@each_system
def test_every_name_puts_every_element_where_its_system_does(system):
    rng = random.Random(system)
    wrong = []
    for fact in facts(system):
        fmt, shape = parsed(fact), random_shape(fact, rng)
        golden = Golden(fact, shape)
        last = tuple(extent - 1 for extent in shape)
        some = [tuple(rng.randrange(extent) for extent in shape) for _ in range(8)]
        for index in (*some, last):
            if fmt.offset(index, shape) != golden.offset(index):
                wrong.append((fact["name"], shape, index))
        if prod(fmt.storage_shape(shape)) != prod(golden.storage()):
            wrong.append((fact["name"], shape, "size"))
        padded = tuple(map(golden.padded, golden.axes, shape))
        if fmt.padded_shape(shape) != padded:
            wrong.append((fact["name"], shape, "padding"))
    assert not wrong


# Digits that parsing merges: OpenVINO writes a padded axis as a block, the others tile twice.
MERGED = {
    *("os_i_osv16__ai8", "os_i_osv8__ai8", "{1,0:T(2,4)(2,1)}"),
    *("(2,(2,2)):(1,(2,4))", "{1,0:T(32,128)(32,1)}"),
}


@each_system
def test_the_shape_of_storage_is_that_of_the_system(system):
    rng = random.Random(system)
    for fact in facts(system):
        if fact["name"] not in MERGED:
            shape = random_shape(fact, rng)
            assert parsed(fact).storage_shape(shape) == Golden(fact, shape).storage()


OPENVINO_AXES = {"B": "N", "F": "C", "W": "T", "Z": "D", "Y": "H", "X": "W"}
WEIGHT_AXES = {"K": "O", "C": "I", "R": "H", "S": "W"}


@each_system
def test_axes_have_one_name_in_all_systems(system):
    for fact in facts(system):
        axes = fact["axes"].split(",")
        if system == "openvino":
            axes = ["N", "C"] if axes == ["B", "X"] else [OPENVINO_AXES.get(a, a) for a in axes]
        elif system == "xla":
            axes = list("abcde"[: len(axes)])
        elif "K" in axes:
            axes = [WEIGHT_AXES.get(axis, axis) for axis in axes]
        axes = ["W" if axis == "L" and "C" in axes and "D" not in axes else axis for axis in axes]
        assert parsed(fact).axes == tuple(axes), fact["name"]


@each_system
def test_padding_that_divides_is_not_padding(system):
    for fact in facts(system):
        fmt = parsed(fact)
        for axis, golden in zip(fmt.axes, fact["axes"].split(","), strict=True):
            policy = "unspecified" if system == "xla" else "zero"
            policy = "divide" if golden in fact.get("divide", {}) else policy
            assert fmt.policy(axis) == policy or fmt.multiple(axis) == 1


@each_system
def test_printing_and_parsing_a_name_is_identity(system):
    for fact in facts(system):
        fmt, given = parsed(fact), fact.get("give", {})
        assert Format.parse(fmt.to(system, **given), system, **given) == fmt


@each_system
def test_aliases_mean_what_the_name_means(system):
    for fact in facts(system):
        fmt = parsed(fact)
        for alias in fact.get("aliases", ()):
            found = parsed(fact, alias, rank=fmt.rank)
            if system == "onednn":  # named and abstract tags: axes by letter and by position
                found = found.renamed(dict(zip(found.axes, fmt.axes, strict=True)))
            assert found == fmt, alias
    for fact in facts(system, REFUSED):
        for alias in fact.get("aliases", ()):
            with pytest.raises(FormatError):
                parsed(fact, alias)


def test_the_prefixes_of_onednn_change_nothing():
    for fact in facts("onednn"):
        for prefix in ("dnnl_", "dnnl::memory::format_tag::"):
            assert parsed(fact, prefix + fact["name"]) == parsed(fact)


def test_tags_of_onednn_and_their_abstract_counterparts_are_each_others_inverse():
    for fact in facts("onednn"):
        if fact["axes"].startswith("a,"):
            assert abstract_tag(parsed(fact)) == fact["name"]


# --- what names do not mean -----------------------------------------------------------------------

# For more than 4 input channels, FRACTAL_Z_C04 is another format; formats do not bound extents.
UNBOUNDED = [fact for fact in REFUSED if "when" in fact]


def test_what_is_no_permutation_is_refused_with_a_reason():
    assert [fact["name"] for fact in UNBOUNDED] == ["FRACTAL_Z_C04"]
    for fact in REFUSED:
        if fact in UNBOUNDED:
            continue
        with pytest.raises(FormatError) as caught:
            parsed(fact)
        where, _, reason = str(caught.value).partition(": expected ")
        assert where == f"{DIALECTS[fact['system']].title} format {fact['name']!r}"
        assert len(reason.partition(", found ")[2]) > len("sentinel"), reason


@each_system
def test_every_name_has_a_format_or_a_reason(system):
    assert set(names(system)) == set(GOLDEN["names"][system])
    refused = {fact["name"] for fact in facts(system, REFUSED)}
    known = {fact["name"] for fact in facts(system)}
    for name in GOLDEN["names"][system]:
        reason = why_not(name, system)
        assert bool(reason) == (name in refused or "; give " in reason), name
        assert name not in known or not reason or "; give " in reason, name


def why_not(name, system):
    """Return why a name has no format, or nothing where it has one."""
    try:
        Format.parse(name, system)
    except FormatError as error:
        return str(error)
    return ""


@each_system
def test_a_dialect_knows_none_of_what_it_does_not_know(system):
    for text in ("", " ", "nope", "NCHW!", "16c", "N C H W", "{", "(", "nChw16c\n", "\u0661"):
        assert DIALECTS[system].parse(text, NOTHING) is None
