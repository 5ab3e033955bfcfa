"""README and docs: blocks of Python run, commands run, and commands in the text exist.

Small models take the place of the files that the pages name. ``tests/torch/test_pages.py`` runs the
blocks with PyTorch. Two pages have tests of their own, which also compare what is printed: those
of formats in ``test_cli_formats.py``, and of targets in ``tests/runtime/test_docs_targets.py``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
from tests.pages import ROOT, blocks, commands, execute, sources, write_files

from stridewise.api import calibration
from stridewise.cli.main import cli

from .commands import Run, run

__all__ = ["run"]

PAGES = ["README.md", *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").glob("**/*.md")))]

ELSEWHERE = {
    "docs/formats.md": "compared with what they print",
    "docs/targets.md": "compared with what they print",
    "docs/adding-an-op.md": "files of an operator that does not exist",
    "docs/architecture.md": "quotes the source",
    "docs/from-pytorch.md": "run with PyTorch",
}
"""Pages whose blocks are not run here, and why."""

CODE = [
    block
    for page in PAGES
    if page not in ELSEWHERE
    for block in blocks(page)
    if block.language == "python" and not re.search(r"\btorch\b", block.text)
]


def test_the_architecture_page_quotes_the_flow():
    (block,) = (item for item in blocks("docs/architecture.md") if item.language == "python")
    flow = (ROOT / "src/stridewise/compiler.py").read_text("utf-8").splitlines()
    quoted = iter(line.strip() for line in flow)
    for line in block.text.splitlines():
        assert line in quoted, line  # in this order


PLACEHOLDERS = {"MODEL": "model.onnx", "DATA": "data.npz", "PASS": "fold_scale", "STAGE": "plan"}
"""Words of commands that stand for others."""

NEEDS_TORCH = {"check"}
"""Commands that ``tests/torch/test_check.py`` runs."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages name, and with a cost cache."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.chdir(folder)
        write_files(folder)
    return folder


@pytest.fixture(autouse=True)
def there(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in that folder, and calibrate for a moment."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(files / "cache"))
    monkeypatch.chdir(files)
    measured = calibration.measured
    monkeypatch.setattr(calibration, "measured", lambda m, c, _, p: measured(m, c, 0.3, p))


@pytest.mark.parametrize("page", sorted({block.page for block in CODE}))
def test_blocks_of_python_run(page: str):
    names: dict[str, Any] = {}
    for block in CODE:
        if block.page == page:
            names |= sources(block)
            execute(block, names)


def filled(arguments: list[str]) -> list[str]:
    return [PLACEHOLDERS.get(word, word) for word in arguments]


def in_blocks(page: str) -> list[list[str]]:
    if page in ELSEWHERE:
        return []
    return [filled(command) for block in blocks(page) for command in commands(block.text)]


@pytest.mark.parametrize("page", [page for page in PAGES if in_blocks(page)])
def test_commands_run(page: str, run: Run):
    for arguments in in_blocks(page):
        if arguments[0] not in NEEDS_TORCH:
            done = run(*arguments)
            assert (done.status, done.err) == (0, ""), arguments


def in_text(page: str) -> list[list[str]]:
    """Return the commands in the text of a page."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text("utf-8"), flags=re.M | re.S)
    lines = (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text))
    return [command for line in lines for command in commands(line)]


@pytest.mark.parametrize("page", [page for page in PAGES if in_text(page)])
def test_commands_in_the_text_exist(page: str):
    for words in in_text(page):
        command: click.Command = cli
        rest = iter(words)
        while isinstance(command, click.Group) and (name := next(rest, None)):
            child = command.get_command(click.Context(command), name)
            assert child is not None, name
            command = child
        known = {name for item in command.params for name in (*item.opts, *item.secondary_opts)}
        assert {word for word in rest if word.startswith("-")} <= known, words
