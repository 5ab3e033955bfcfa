"""Files that commands write, which must not be those that they read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import click

from stridewise.errors import InputError

__all__ = ["Command", "OutputFile"]


class OutputFile(click.Path):
    """The type of a parameter that names a file to write."""


class Command(click.Command):
    """A command that refuses to write over another file of its parameters."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        Raises:
            InputError: a file to write is the one of another parameter.
        """
        files = [item for param in self.params for item in _files(param, ctx.params)]
        for param, path in files:
            if not isinstance(param.type, OutputFile):
                continue
            for other, taken in files:
                if other is not param and _is_same(path, taken):
                    raise InputError.at(
                        _label(param),
                        expected=f"another file than that of {_label(other)}",
                        found=repr(str(path)),
                    )
        return super().invoke(ctx)


def _files(
    param: click.Parameter, values: dict[str, Any]
) -> Iterator[tuple[click.Parameter, Path]]:
    """Yield the files of a parameter: also those of ``x=FILE`` and of ``FILE:FUNCTION``."""
    given = values.get(param.name or "")
    for item in cast("tuple[Any, ...]", given) if isinstance(given, tuple) else (given,):
        if isinstance(item, Path | str):
            text = str(item)
            yield param, Path(text)
            if param.multiple and "=" in text:
                yield param, Path(text.partition("=")[2])
            if ":" in text:
                yield param, Path(text.rpartition(":")[0])


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.is_file() and path.samefile(other)
    except (OSError, ValueError):  # it does not exist, or no file has such a name
        return False


def _label(param: click.Parameter) -> str:
    return param.opts[-1] if isinstance(param, click.Option) else (param.name or "").upper()
