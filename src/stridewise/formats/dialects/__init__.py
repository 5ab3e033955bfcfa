"""Format names of other systems: one file per system, and the table of all systems.

A dialect is defined in :mod:`stridewise.formats.dialects.dialect`.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

from stridewise.errors import FormatError
from stridewise.formats.data import FormatData
from stridewise.formats.dialects.dialect import Dialect, Parameters

__all__ = [
    "DIALECTS",
    "Dialect",
    "Parameters",
    "dialects",
    "find",
    "names",
    "parse",
    "readings",
    "spell",
]

_SYSTEMS = (
    "onednn", "openvino", "ascend", "pytorch", "paddle", "tvm", "tensorflow", "xla", "cudnn",
    "cutlass", "cute", "tensorrt", "miopen", "onnxruntime", "ncnn", "mnn", "mindspore",
    "mindspore_lite", "acl", "xnnpack",
)  # fmt: skip
"""The dialects that are called like their files, in the order of listings, after ``native``."""

_PARAMETER = re.compile(r"\b\w+=")


@cache
def _dialects() -> dict[str, Dialect]:
    """Return all dialects by name; their files are read when a name is first parsed or printed."""
    return {dialect.name: dialect for dialect in map(_dialect, ("native", *_SYSTEMS))}


def _dialect(file: str) -> Dialect:
    found: Dialect = import_module(f"{__name__}.{file}").DIALECT
    return found


if TYPE_CHECKING:
    DIALECTS: dict[str, Dialect]
else:

    def __getattr__(name: str) -> dict[str, Dialect]:
        if name != "DIALECTS":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _dialects()


# Length limit of a name in an error message. The longest known name, XNNPACK's, has 35 letters.
_LONGEST_NAME = 80


def dialects() -> tuple[str, ...]:
    """Return the names of the known dialects."""
    return tuple(_dialects())


def find(name: str) -> Dialect:
    """Return the dialect with a given name or alias.

    Raises:
        FormatError: the dialect is unknown.
    """
    if name in _SYSTEMS:
        return _dialect(name)
    for dialect in _dialects().values():
        if name in (dialect.name, *dialect.aliases):
            return dialect
    raise FormatError.at("dialect", expected=f"one of {', '.join(_dialects())}", found=repr(name))


def names(dialect: str) -> tuple[str, ...]:
    """Return every name of a system, including names that the algebra cannot express.

    Raises:
        FormatError: the dialect is unknown.
    """
    return find(dialect).names()


def _unknown(text: str, candidates: tuple[str, ...], where: str) -> FormatError:
    shown = text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."
    # Only messages need it.
    from difflib import get_close_matches  # noqa: PLC0415

    close = get_close_matches(shown, dict.fromkeys(candidates), 3, 0.6)
    return FormatError.at(
        where,
        expected="a name of a memory format",
        found=repr(shown),
        fix=f"did you mean {' or '.join(close)}?" if close else "see `stridewise formats list`",
    )


def readings(
    text: str, parameters: Parameters | None = None
) -> tuple[dict[str, FormatData], dict[str, FormatError]]:
    """Return the format of a name in each dialect that has it, and the errors of the others.

    Dialects that do not have the name are in neither result.
    """
    meant: dict[str, FormatData] = {}
    refused: dict[str, FormatError] = {}
    for name, dialect in _dialects().items():
        try:
            found = dialect.parse(text, parameters or Parameters())
        except FormatError as error:
            refused[name] = error
        else:
            if found is not None:
                meant[name] = found
    return meant, refused


def parse(
    text: str, dialect: str | None = None, parameters: Parameters | None = None
) -> FormatData:
    """Return the format that ``text`` names in a dialect.

    Args:
        text: the name.
        dialect: the system. By default all dialects that know the name must agree.
        parameters: values that the name leaves open.

    Raises:
        FormatError: as for :func:`stridewise.formats.parse`.
    """
    if not isinstance(cast("object", text), str):
        raise FormatError.at("format", expected="a name", found=repr(text))
    if dialect is not None:
        system = find(dialect)
        found = system.parse(text, parameters or Parameters())
        if found is None:
            raise _unknown(text, system.names(), f"{system.title} format")
        return found
    meant, refused = readings(text, parameters)
    different = dict.fromkeys(meant.values())
    if len(different) > 1:
        lines = ", ".join(f"{name}: {fmt.text}" for name, fmt in meant.items())
        raise FormatError.at(
            f"format {text!r}",
            expected="a name with one meaning",
            found=f"several ({lines})",
            fix=f"say which with dialect={next(iter(meant))!r}",
        )
    if different:
        return next(iter(different))
    if refused:
        raise next(iter(refused.values()))
    every = tuple(name for dialect in _dialects().values() for name in dialect.names())
    raise _unknown(text, every, "format")


@lru_cache(maxsize=256)
def _spellings(dialect: str, parameters: Parameters) -> tuple[dict[FormatData, str], str]:
    """Return the first name of each format, and a hint that lists missing parameters."""
    found: dict[FormatData, str] = {}
    lacked: dict[str, None] = {}
    system = _dialects()[dialect]
    for name in system.names():
        try:
            fmt = system.parse(name, parameters)
        except FormatError as error:
            lacked.update(dict.fromkeys(_PARAMETER.findall(str(error).partition("; give ")[2])))
            continue
        if fmt is not None:
            found.setdefault(fmt, name)
    hint = f"give {' or '.join(lacked)}, which some names depend on" if lacked else ""
    return found, hint


def spell(fmt: FormatData, dialect: str = "onednn", parameters: Parameters | None = None) -> str:
    """Return the name of a format in a dialect.

    Args:
        fmt: the format.
        dialect: the system.
        parameters: values that names of the dialect depend on.

    Raises:
        FormatError: the dialect is unknown, or has no name for the format.

    >>> spell(parse("NHWC"))
    'nhwc'
    """
    system = find(dialect)
    given = parameters or Parameters()
    if system.spell is not None:
        name, hint = system.spell(fmt, given), ""
    else:
        table, hint = _spellings(system.name, given)
        name = table.get(fmt)
    if name is None:
        raise FormatError.at(
            f"format {fmt}",
            expected=f"one that {system.title} has a name for",
            found="none",
            fix=hint,
        )
    return name
