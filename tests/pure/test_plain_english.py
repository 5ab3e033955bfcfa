"""Pages, help texts, comments and docstrings are plain technical English; links have targets."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from stridewise.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
        *(ROOT / "docs").glob("**/*.md"),
    ]
)

WORDS = (
    # Persons in place of parts of the program.
    r"nobody|somebody|anybody|everybody|whoever|who|whom|we|us|our|ours",
    # Private names of things that have a usual one.
    r"wish|wishes|wished",  # constraint, in-place request
    r"rooms?",  # module, file, folder
    r"host kernels?",  # NumPy fallback
    r"contests?",  # plan race
    r"the clock|on the clock",  # measured time
    r"landmines?",  # pitfall
    # Idioms.
    r"no affair|no harm|for want of|ha[ds] the last word|belongs? into|whatever nonsense",
    r"not worth (its|their) words",
)
"""Words that make a reader who is new to the project read a sentence twice."""

ALLOWED: dict[tuple[str, str], str] = {
    ("*", r"[\d.]+ us\b"): "microseconds",
    ("docs/onednn.md", r", us \|"): "microseconds in the head of a table",
}
"""Texts of a page (``*`` for all) in which the words may occur, and why."""


SOURCES = sorted(
    path
    for folder in ("src/stridewise", "native")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".pyi", ".cpp", ".hpp"}
)


def python_prose(source: str) -> str:
    """Return the comments and docstrings of Python source, those of attributes included."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string[1:] for token in tokens if token.type == tokenize.COMMENT]
    docstrings = [
        node.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    return "\n".join([*comments, *docstrings])


def cpp_prose(source: str) -> str:
    """Return the line comments of C++ source; strings may contain ``//``."""
    items = re.finditer(r'"(?:[^"\\\n]|\\.)*"|//([^\n]*)', source)
    return "\n".join(item[1] for item in items if item[1])


def prose(path: Path) -> str:
    """Return a page without its blocks of code, and without what may stay."""
    name = path.relative_to(ROOT).as_posix()
    text = re.sub(r"^ *```.*?^ *```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for page, pattern in ALLOWED:
        if page in ("*", name):
            text = re.sub(pattern, "", text)
    return text


def found(text: str) -> list[str]:
    lines = " ".join(text.split())
    pattern = rf"(?<![\w`-])({'|'.join(WORDS)})(?![\w`-])"
    return [
        lines[max(0, hit.start() - 40) : hit.end() + 20]
        for hit in re.finditer(pattern, lines, re.IGNORECASE)
    ]


def helps(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Yield every command below ``command`` and the text of its help."""
    context = click.Context(command, info_name=path)
    texts = [command.help or "", *(getattr(item, "help", "") or "" for item in command.params)]
    yield path, "\n".join(texts)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from helps(child, f"{path} {name}")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pages_have_none_of_the_words(path: Path):
    assert found(prose(path)) == []


def test_comments_and_docstrings_have_none_of_the_words():
    hits: dict[Path, list[str]] = {}
    for path in SOURCES:
        source = path.read_text("utf-8")
        text = python_prose(source) if path.suffix in {".py", ".pyi"} else cpp_prose(source)
        hits[path] = found(re.sub(r"[\d.]+ us\b", "", text))
    assert {path: texts for path, texts in hits.items() if texts} == {}


@pytest.mark.parametrize(("path", "text"), list(helps(cli, "stridewise")))
def test_help_has_none_of_the_words(path: str, text: str):
    assert text.strip(), path
    assert found(text) == []


def test_every_option_has_a_help_text():
    def without(command: click.Command) -> Iterator[str]:
        for item in command.params:
            if isinstance(item, click.Option) and not item.help:
                yield f"{command.name} {item.name}"
        if isinstance(command, click.Group):
            for child in command.commands.values():
                yield from without(child)

    assert list(without(cli)) == []


def test_the_words_are_found():
    assert found("Nobody reads\nthis room.") == [
        "Nobody reads this room.",
        "Nobody reads this room.",
    ]
    assert found("headroom, 12 bytes, `who`, focus") == []


def test_comments_and_docstrings_are_found():
    source = '''x = "code"  # a comment\n"""A docstring."""\n'''
    assert python_prose(source) == " a comment\nA docstring."
    assert cpp_prose('x = "//code"; // a comment\ny; // one more') == " a comment\n one more"


@pytest.mark.parametrize("page", sorted({page for page, _ in ALLOWED} - {"*"}))
def test_exceptions_are_of_pages_that_exist(page: str):
    assert (ROOT / page).is_file()


# --- links ----------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page as GitHub names them, and those that it sets itself."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(path: Path):
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), f"{path.name} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{path.name} links to {link}"


def test_the_glossary_has_at_most_forty_terms():
    lines = (ROOT / "docs" / "glossary.md").read_text("utf-8").splitlines()
    terms = [line.split("|")[1].strip() for line in lines if line.startswith("| ")][1:]
    assert len(terms) <= 40
    assert terms == sorted(set(terms), key=str.lower)
