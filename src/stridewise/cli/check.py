"""``stridewise check``: where a PyTorch model loses channels-last."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import click

from stridewise.cli.console import save_text
from stridewise.cli.outputs import Command, OutputFile
from stridewise.errors import InputError
from stridewise.frontends.torch.library import submodule

__all__ = ["check"]


@click.command(cls=Command)
@click.argument("factory", metavar="FILE.py:FUNCTION")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", type=OutputFile(path_type=Path), help="Also write a page in HTML.")
def check(factory: str, *, as_json: bool, html: Path | None) -> None:
    """Run a PyTorch model and print where it loses channels-last.

    FUNCTION takes no arguments. It returns the model and its inputs: (model, x) or (model, (x, y)).
    The file is imported, so its code runs. The exit status is 1 if channels-last is lost somewhere.
    """
    # Here, as other commands need no PyTorch.
    from stridewise.torch.check import check as check_layouts  # noqa: PLC0415

    submodule("torch")  # else the message would be that of the file
    model, inputs = _made(factory)
    found = check_layouts(model, inputs)
    if html is not None:
        save_text(html, found.to_html(), "--html")
    click.echo(found.to_json() if as_json else str(found))
    if not found.is_clean:
        click.get_current_context().exit(1)


def _made(factory: str) -> tuple[Any, Any]:
    """Return a model and its inputs.

    Raises:
        InputError: there is no such file or function, or it returns something else.
    """
    path, _, name = factory.rpartition(":")
    file = Path(path)
    if not path or not file.is_file():
        expected = "FILE.py:FUNCTION, with a file that exists"
        raise InputError.at("check", expected=expected, found=repr(factory))
    function = getattr(_imported(file), name, None)
    if not callable(function):
        expected = f"a function {name!r}"
        raise InputError.at(str(file), expected=expected, found=repr(function))
    found = cast("Any", function())
    pair = cast("tuple[Any, ...]", found) if isinstance(found, tuple) else ()
    if len(pair) != 2:
        kind = type(cast("object", found)).__name__
        expected = "a model and its inputs: return model, x"
        raise InputError.at(factory, expected=expected, found=kind)
    return pair[0], pair[1]


def _imported(file: Path) -> ModuleType:
    """Import a file as if it were run from its folder."""
    spec = importlib.util.spec_from_file_location(file.stem, file.absolute())
    if spec is None or spec.loader is None:
        raise InputError.at(str(file), expected="a Python file", found="another kind")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.absolute().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module
