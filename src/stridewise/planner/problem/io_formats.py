"""In which formats the caller hands tensors over, and takes them.

By default these are the user's own axis orders. Where the caller lists others, the planner picks
one of them for each input and output: images that a decoder leaves as NHWC need no reorder then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from stridewise.classes import dataclass
from stridewise.errors import FormatError, InputError
from stridewise.formats import Format, is_dense
from stridewise.graph import Graph, Value
from stridewise.ops.geometry import canonical_shape, storage_shape, user_format

__all__ = ["Boundary", "Wanted", "boundary"]

Wanted = Mapping[str, str | Format | Sequence[str | Format]]
"""For some inputs or outputs, the format or the formats that are acceptable."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Acceptable formats of every input and output; of those of equal bytes the first is used.

    Attributes:
        inputs: by name.
        outputs: by name; constants have the user's own order.
    """

    inputs: Mapping[str, tuple[Format, ...]]
    outputs: Mapping[str, tuple[Format, ...]]


def _refused(value: Value, side: str, expected: str, found: object, fix: str = "") -> FormatError:
    where = f"{side} {value.name!r} of shape {value.shape}"
    return FormatError.at(where, expected=expected, found=str(found), fix=fix)


def _format(value: Value, side: str, wanted: str | Format) -> Format:
    """Return an acceptable format over the axes of a value."""
    own = user_format(value)
    if wanted == str(own):
        return own
    fmt = wanted if isinstance(wanted, Format) else Format.parse(wanted, dtype=value.dtype)
    if fmt == own:
        return fmt
    if value.origin is None:
        raise _refused(
            value,
            side,
            "no format, as nothing in the model says what its axes mean",
            fmt,
            "leave it out, or declare what they mean with origins",
        )
    if fmt.axes != own.axes:
        raise _refused(value, side, f"a format over the axes {', '.join(own.axes)}", fmt)
    if not is_dense(fmt, canonical_shape(value, fmt)):
        raise _refused(
            value,
            side,
            "a format without padding, which callers would have to keep at zero",
            f"{fmt}, stored as {storage_shape(value, fmt)}",
        )
    return fmt


def _formats(
    value: Value, side: str, wanted: str | Format | Sequence[str | Format]
) -> list[Format]:
    items = [wanted] if isinstance(wanted, str | Format) else wanted
    # Values come from callers, whatever their declared types are.
    if not isinstance(items, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _refused(value, side, "a format, or a list of formats", repr(items))
    if not items:
        raise _refused(value, side, "one format or more", "none")
    for item in items:
        if not isinstance(item, str | Format):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _refused(value, side, "a format, or a list of formats", repr(item))
    return list(dict.fromkeys(_format(value, side, item) for item in items))


def _side(
    graph: Graph, names: tuple[str, ...], side: str, wanted: Wanted
) -> Mapping[str, tuple[Format, ...]]:
    unknown = [name for name in wanted if name not in names]
    if unknown:
        expected = f"names of {side}s ({', '.join(names)})"
        where = f"{side}_formats of model {graph.name!r}"
        raise InputError.at(where, expected=expected, found=", ".join(unknown))
    return MappingProxyType(
        {
            name: tuple(_formats(graph.values[name], side, wanted[name]))
            if name in wanted
            else (user_format(graph.values[name]),)
            for name in names
        }
    )


def _own(graph: Graph, name: str) -> tuple[Format, ...]:
    return (user_format(graph.values[name]),)


def boundary(graph: Graph, inputs: Wanted | None = None, outputs: Wanted | None = None) -> Boundary:
    """Return the acceptable formats of all inputs and outputs of a derived graph.

    Args:
        graph: its values know their Origin.
        inputs: for some inputs, acceptable formats: spellings of any system, or formats. They must
            be over the axes of the input, and pad nothing for its shape.
        outputs: likewise for outputs.

    Raises:
        InputError: there is no input or output of some name.
        FormatError: a format is unknown, or does not suit its tensor.
    """
    given, taken = (
        _side(graph, graph.inputs, "input", inputs or {}),
        _side(graph, graph.outputs, "output", outputs or {}),
    )
    updates = graph.updates.values()
    for name in outputs or {}:
        if name in updates and taken[name] != _own(graph, name):
            expected = "the user's own order of axes, in which a state takes it"
            raise _refused(graph.values[name], "output", expected, taken[name], "leave it out")
    # Parameters and states lie in memory in the user's own order of axes.
    return Boundary(
        {**given, **{name: _own(graph, name) for name in graph.stored}},
        {**taken, **{name: _own(graph, name) for name in updates}},
    )
