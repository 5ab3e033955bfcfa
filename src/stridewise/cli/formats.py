"""``stridewise formats``: the meaning of format names, and their translation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import wraps
from math import prod
from pathlib import Path
from typing import Any

import click

from stridewise.cli.console import save_text, with_options
from stridewise.cli.outputs import OutputFile
from stridewise.errors import FormatError, InputError
from stridewise.formats import Block, Format, Parameters, algebra, parse
from stridewise.formats import names as names_of
from stridewise.formats.axes import canonical
from stridewise.formats.dialects import DIALECTS, find, readings
from stridewise.formats.dialects.equivalents import (
    Equivalent,
    equivalent,
    equivalents,
    padding_rule,
)
from stridewise.formats.picture import svg

__all__ = ["columns", "formats", "parse_extents"]

_MAPPED = 256
"""The most stored elements whose places are listed one by one."""

# Axis names of dialects that differ from Stridewise's in more than their case.
_LETTERS = {"openvino": dict(zip("NCVUTDHW", "bfvuwzyx", strict=True))}
_VECTOR = re.compile(r"x\d+$")


def parse_extents(text: str, option: str = "--shape") -> tuple[int, ...]:
    """Return the extents of ``1,32,4,4``; those of a scalar are the empty text.

    Raises:
        InputError: an extent is not a number.
    """
    extents = text.split(",") if text else []
    if not all(extent.strip().isdecimal() for extent in extents):
        raise InputError.at(option, expected="extents such as 1,32,4,4", found=repr(text))
    return tuple(map(int, extents))


def columns(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Return rows of text as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(indent + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


# --- what is asked for ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Asked:
    """A name, and what it takes to read it."""

    name: str
    dialect: str | None
    axes: str | None
    parameters: Parameters

    def read(self) -> Format:
        """Return the format that the name means, its axes named as asked."""
        fmt = parse(self.name, self.dialect, self.parameters)
        return fmt if self.axes is None else _named(fmt, self.axes)

    @property
    def letters(self) -> Mapping[str, str]:
        """What the dialect calls the axes, where the name is that of one dialect."""
        known = [self.dialect] if self.dialect else list(readings(self.name, self.parameters)[0])
        return _LETTERS.get(find(known[0]).name, {}) if len(known) == 1 else {}


def _named(fmt: Format, text: str) -> Format:
    """Return a format whose axes are called ``text``, in canonical order where there is one."""
    axes = tuple(text.split(",")) if "," in text else tuple(text)
    if len(axes) != fmt.rank or len(set(axes)) != len(axes):
        raise InputError.at(
            "--axes", expected=f"{fmt.rank} different names, such as OIHW", found=text
        )
    found = fmt.renamed(dict(zip(fmt.axes, axes, strict=True)))
    return Format(canonical(axes) or axes, found.digits, found.pads, found.steps)


_PARAMETERS = (
    click.option("--dtype", help="Element type, such as float16 or int4."),
    click.option(
        "--block", type=click.IntRange(1), help="Block size, if the name does not give it."
    ),
    click.option(
        "--groups",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Number of groups of the convolution.",
    ),
    click.option(
        "--rank",
        type=click.IntRange(0, 12),
        help="Number of axes, if the name does not determine it.",
    ),
    click.option("--device", help="Device, if the name depends on it: xavier or orin."),
    click.option(
        "--hidden-size", type=click.IntRange(1), help="Hidden size, for Ascend's ND_RNN_BIAS."
    ),
)
_NAME = (
    click.argument("name"),
    click.option("--dialect", help="Dialect of NAME; see `stridewise formats list`."),
    click.option("--axes", help="Names of the axes, such as OIHW for abcd."),
)


def _parameter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that names may depend on; the command gets ``Parameters``."""

    @wraps(command)
    def with_parameters(
        dtype: str | None,
        block: int | None,
        groups: int,
        rank: int | None,
        device: str | None,
        hidden_size: int | None,
        **others: Any,
    ) -> None:
        command(Parameters(dtype, block, groups, rank, device, hidden_size), **others)

    return with_options(_PARAMETERS, with_parameters)


def _name_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add a name and the options that say what it means; the command gets ``_Asked``."""

    @wraps(command)
    def with_name(
        parameters: Parameters, name: str, dialect: str | None, axes: str | None, **others: Any
    ) -> None:
        command(_Asked(name, dialect, axes, parameters), **others)

    return with_options(_NAME, _parameter_options(with_name))


@click.group()
def formats() -> None:
    """Explain and translate the names of memory formats."""


_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


# --- list -----------------------------------------------------------------------------------------


def _dialect_rows() -> list[dict[str, Any]]:
    return [
        {"name": d.name, "title": d.title, "names": len(d.names()), "example": d.example}
        for d in DIALECTS.values()
    ]


def _name_rows(dialect: str, parameters: Parameters) -> list[dict[str, Any]]:
    """Return each name of a dialect with its format, or with the reason why it has none."""
    rows: list[dict[str, Any]] = []
    for name in names_of(dialect):
        try:
            rows.append({"name": name, "format": parse(name, dialect, parameters).text})
        except FormatError as error:
            rows.append({"name": name, "refused": str(error)})
    return rows


@formats.command("list")
@click.option("--dialect", help="List the format names of this dialect.")
@_parameter_options
@_json_option
def list_(parameters: Parameters, dialect: str | None, as_json: bool) -> None:
    """List the dialects, or all format names of one dialect."""
    rows = _dialect_rows() if dialect is None else _name_rows(dialect, parameters)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif dialect is None:
        head = ("dialect", "system", "names", "example")
        cells = [(r["name"], r["title"], str(r["names"] or "any"), r["example"]) for r in rows]
        click.echo(columns([head, *cells]))
    elif rows:
        cells = [(r["name"], r.get("format") or f"refused: {r['refused']}") for r in rows]
        click.echo(columns(cells))
    else:
        click.echo(f"any format has a name, such as {DIALECTS['stridewise'].example}")


# --- show -----------------------------------------------------------------------------------------


def _bytes(elements: int, parameters: Parameters) -> int:
    """Return the bytes of packed elements, of float32 where no type was given."""
    dtype = _VECTOR.sub("", str(parameters.dtype or "float32"))  # int8x4 is four of int8
    return -(-elements * (Parameters(dtype=dtype).bits or 0) // 8)


def _facts(fmt: Format) -> dict[str, Any]:
    return {
        "name": fmt.name,
        "format": fmt.text,
        "axes": list(fmt.axes),
        "blocks": [asdict(block) for block in fmt.blocks],
        "padding": padding_rule(fmt),
    }


def _tensor(fmt: Format, shape: tuple[int, ...], parameters: Parameters) -> dict[str, Any]:
    stored = algebra.element_count(fmt, shape)
    elements = prod(shape)
    mapped = range(stored) if stored <= _MAPPED else ()
    return {
        "shape": list(shape),
        "dtype": str(parameters.dtype or "float32"),
        "padded_shape": list(algebra.padded_shape(fmt, shape)),
        "storage_shape": list(algebra.storage_shape(fmt, shape)),
        "elements": elements,
        "stored": stored,
        "bytes": _bytes(stored, parameters),
        "padding": (stored - elements) / stored if stored else 0.0,
        "loops": [loop._asdict() for loop in algebra.loops(fmt, shape)],
        "map": [algebra.index(fmt, at, shape) for at in mapped],
    }


def _name_lines(found: Sequence[Equivalent]) -> str:
    rows = [
        (e.dialect, e.name or "-", e.note if e.name else e.note.partition("; ")[2]) for e in found
    ]
    return columns(rows, "  ")


def _times(extents: Sequence[int]) -> str:
    return "x".join(map(str, extents)) or "scalar"


def _tensor_lines(found: Mapping[str, Any], axes: Sequence[str]) -> str:
    order = ",".join(axes) or "no axes"
    rows = [
        ("shape", f"{_times(found['shape'])} ({order}), {found['dtype']}"),
        ("padded", _times(found["padded_shape"])),
        ("storage", _times(found["storage_shape"])),
        ("elements", f"{found['elements']}, {found['stored']} stored"),
        ("padding", f"{100 * found['padding']:.1f} %"),
        ("bytes", str(found["bytes"])),
    ]
    head = ("axis", "extent", "step", "stride")
    loops = [head, *(tuple(map(str, loop.values())) for loop in found["loops"])]
    return f"{columns(rows)}\n{columns(loops, '  ')}"


def _map_lines(
    places: Sequence[tuple[int, ...] | None], axes: Sequence[str], letters: Mapping[str, str]
) -> str:
    """Return the places of elements as OpenVINO's documentation prints them."""
    called = [letters.get(axis, axis.lower()) for axis in axes]
    lines: list[str] = []
    for at, index in enumerate(places):
        if index is None:
            lines.append(f"i = {at} => padding")
        else:
            pairs = zip(called, index, strict=True)
            lines.append(f"i = {at} => [{'; '.join(f'{name}={i}' for name, i in pairs)}]")
    return "\n".join(lines)


def _save_picture(path: Path, asked: _Asked, fmt: Format, shape: tuple[int, ...]) -> None:
    picture = svg(fmt, shape, title=asked.name, letters=asked.letters)
    save_text(path, picture, "--svg")


@formats.command()
@_name_options
@click.option("--shape", metavar="1,32,4,4", help="Extents, in the order of the format's axes.")
@click.option(
    "--svg", "picture", type=OutputFile(path_type=Path), help="Save a picture of the format."
)
@_json_option
def show(asked: _Asked, shape: str | None, picture: Path | None, as_json: bool) -> None:
    """Show a format and its names in other dialects.

    With --shape, also show how a tensor is stored.
    """
    if picture is not None and shape is None:
        raise click.UsageError("--svg needs --shape: a picture is one of a tensor")
    extents = None if shape is None else parse_extents(shape)
    if extents is not None and asked.parameters.rank is None:
        asked = replace(asked, parameters=replace(asked.parameters, rank=len(extents)))
    fmt = asked.read()
    facts = _facts(fmt)
    found = equivalents(fmt, asked.parameters)
    tensor = None if extents is None else _tensor(fmt, extents, asked.parameters)
    if picture is not None and extents is not None:
        _save_picture(picture, asked, fmt, extents)
    if as_json:
        named = [asdict(item) for item in found]
        click.echo(json.dumps({**facts, "names": named, "tensor": tensor}, indent=2))
        return
    blocks = " ".join(str(item) for item in fmt.digits if isinstance(item, Block)) or "none"
    rows = [(key, facts[key]) for key in ("name", "format")]
    rows += [("axes", " ".join(fmt.axes)), ("blocks", blocks), ("padding", facts["padding"])]
    click.echo(f"{columns(rows)}\nnames\n{_name_lines(found)}")
    if tensor is not None:
        click.echo(_tensor_lines(tensor, fmt.axes))
        if tensor["map"]:
            click.echo(_map_lines(tensor["map"], fmt.axes, asked.letters))
    if picture is not None:
        click.echo(f"picture saved to {picture}")


# --- translate ------------------------------------------------------------------------------------


def _translated(found: Equivalent) -> str:
    if found.exact and found.name is not None:
        return f"{found.name}  ({found.note})" if found.note else found.name
    if found.name is not None:
        return f"none; {found.name} puts elements in the same places, but {found.note}"
    return f"none: {found.note}"


@formats.command()
@_name_options
@click.option(
    "--to", "targets", required=True, metavar="ONEDNN,TVM", help="Dialects to translate to."
)
@_json_option
@click.pass_context
def translate(context: click.Context, asked: _Asked, targets: str, as_json: bool) -> None:
    """Print the names of a format in other dialects.

    If no dialect has a name for it, the exit status is 1.
    """
    dialects = [name.strip() for name in targets.split(",") if name.strip()]
    if not dialects:
        raise click.UsageError("--to needs the name of a dialect")
    fmt = asked.read()
    found = [equivalent(fmt, name, asked.parameters) for name in dialects]
    if as_json:
        click.echo(json.dumps([asdict(item) for item in found], indent=2))
    else:
        click.echo(columns([(item.dialect, _translated(item)) for item in found]))
    if not any(item.exact for item in found):
        context.exit(1)
