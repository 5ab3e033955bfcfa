"""No import cycle between modules or folders, no import from a lower layer into a higher one."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"

Imports = Mapping[str, frozenset[str]]


def module_files() -> dict[str, Path]:
    """The file of every module of the package, stubs of native modules included, by its name."""
    found: dict[str, Path] = {}
    for path in sorted((*SOURCE.rglob("*.py"), *SOURCE.rglob("*.pyi"))):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


FILES = module_files()


def imports(module: str) -> Iterator[str]:
    """Yield the modules that a module imports at any time, those for type checkers too."""
    for statement in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            for alias in statement.names:
                name = f"{base}.{alias.name}"
                target = name if name in FILES else base
                if target in FILES:
                    yield target


def cycles(graph: Imports) -> list[list[str]]:
    """The strongly connected components of two modules or more, by Kosaraju's algorithm."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(module: str, edges: Imports, into: list[str]) -> None:
        seen.add(module)
        for other in sorted(edges[module] - seen):
            if other not in seen:
                visit(other, edges, into)
        into.append(module)

    for module in graph:
        if module not in seen:
            visit(module, graph, order)
    reverse = {name: frozenset(m for m in graph if name in graph[m]) for name in graph}
    seen.clear()
    found: list[list[str]] = []
    for module in reversed(order):
        if module not in seen:
            found.append([])
            visit(module, reverse, found[-1])
    return [sorted(group) for group in found if len(group) > 1]


GRAPH: Imports = {module: frozenset(imports(module)) for module in FILES}


TANGLED = {"stridewise.frontends.onnx"}
"""Packages whose folders import each other: reading a model needs the table of handlers, which
also write."""


def layers() -> dict[str, int]:
    """The height of each folder, from the layers that import-linter checks."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    rows = next(item["layers"] for item in contracts if item["type"] == "layers")
    return {
        name.strip(" ()"): height
        for height, row in enumerate(reversed(rows))
        for name in row.split("|")
    }


LAYERS = layers()


def height(module: str) -> int:
    """The layer of a module. The package itself, which the command line imports, is as the API."""
    apart = {"stridewise": LAYERS["stridewise.api"], "stridewise._core": -1}
    found = (rank for name, rank in LAYERS.items() if f"{module}.".startswith(f"{name}."))
    return next(found, apart.get(module, len(LAYERS)))


def folder(module: str) -> str:
    """The package or module below ``stridewise`` that a module belongs to."""
    return ".".join(module.split(".")[:2])


def test_imports_are_absolute():
    for path in FILES.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not {alias.name for alias in node.names} & set(FILES), path
            assert not isinstance(node, ast.ImportFrom) or not node.level, path


def test_cycles_are_found():
    graph = {"a": "b", "b": "c", "c": "b", "d": "a", "e": "f", "f": "g", "g": "e"}
    found = cycles({name: frozenset(reads) for name, reads in graph.items()})
    assert sorted(found) == [["b", "c"], ["e", "f", "g"]]


def test_no_import_cycle():
    found = [f"{len(group)} modules: {', '.join(group)}" for group in cycles(GRAPH)]
    assert not found, "\n".join(["import cycles:", *found])


def children(package: str) -> Imports:
    """The imports between the folders and modules of a package; ``__init__`` is no part of it."""
    depth = package.count(".") + 2
    found: dict[str, set[str]] = {}
    for module, targets in GRAPH.items():
        if module.startswith(f"{package}."):
            child = ".".join(module.split(".")[:depth])
            inside = (name for name in targets if name.startswith(f"{package}."))
            below = {".".join(name.split(".")[:depth]) for name in inside}
            found.setdefault(child, set()).update(below - {child})
    return {name: frozenset(below & found.keys()) for name, below in found.items()}


PACKAGES = [name for name, path in FILES.items() if path.name == "__init__.py"]


@pytest.mark.parametrize("package", sorted(set(PACKAGES) - TANGLED))
def test_no_import_cycle_between_folders(package: str):
    found = [f"{len(group)} folders: {', '.join(group)}" for group in cycles(children(package))]
    assert not found, "\n".join(["import cycles:", *found])


def test_folders_see_the_imports_of_their_modules():
    assert (
        "stridewise.runtime.binding"
        in children("stridewise.runtime")["stridewise.runtime.execution"]
    )
    assert "stridewise.runtime" in children("stridewise")["stridewise.compiler"]


def test_imports_lead_to_lower_layers():
    found = [
        f"{module} imports {target}"
        for module, targets in GRAPH.items()
        for target in sorted(targets)
        if folder(module) != folder(target) and height(target) >= height(module)
        if module != "stridewise"
    ]
    assert not found, "\n".join(["imports that lead up:", *found])


def test_the_table_of_operators_is_imported_whole():
    """Its module alone knows no operator; the package imports all of them first."""
    for module in FILES:
        if folder(module) == "stridewise.ops":
            continue
        for item in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
            if isinstance(item, ast.ImportFrom) and item.module == "stridewise.ops.registry":
                assert not {alias.name for alias in item.names} & {"OPS", "evaluate", "infer"}
