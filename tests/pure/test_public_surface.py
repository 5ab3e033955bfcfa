"""The public names: which they are, and that each says what it does and what it raises."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

import stridewise as sw
from stridewise import errors

PUBLIC = {
    "AdamW",
    "Calibration",
    "Capability",
    "CompiledModel",
    "DTypeError",
    "DamageError",
    "DependencyError",
    "DynamicModel",
    "ExecutionError",
    "Format",
    "FormatError",
    "Graph",
    "GraphBuilder",
    "GraphError",
    "InputError",
    "LayerReport",
    "LibraryError",
    "MemoryLimitError",
    "ModelError",
    "ModuleModel",
    "Plan",
    "PlanAssertionError",
    "PlanError",
    "PlanWarning",
    "Quantization",
    "Quantized",
    "Reorder",
    "SGD",
    "SimulatedModel",
    "StridewiseError",
    "TargetError",
    "TensorDesc",
    "Trainer",
    "TrainingWarning",
    "UnknownValueError",
    "UnsupportedError",
    "Verification",
    "VerificationError",
    "VerificationRow",
    "annotate",
    "assert_plan",
    "calibrate",
    "capability",
    "compile",
    "errors",
    "formats",
    "grad",
    "load",
    "load_plan",
    "plan",
    "quantize",
    "reorder",
    "save",
    "verify",
    "zoo",
}


def modules() -> list[ModuleType]:
    """Every module in Python, without the native core."""
    names = [item.name for item in pkgutil.walk_packages(sw.__path__, "stridewise.")]
    return [sw, *(import_module(name) for name in names if not name.endswith("._core"))]


def exported() -> Iterator[tuple[str, Any]]:
    """The classes and functions that some module lists in ``__all__``, each once."""
    found: dict[str, Any] = {}
    for module in modules():
        for name in getattr(module, "__all__", ()):
            item = getattr(module, name)
            ours = str(getattr(item, "__module__", "")).startswith("stridewise")
            if (inspect.isclass(item) or inspect.isfunction(item)) and ours:
                found[f"{item.__module__}.{item.__qualname__}"] = item
    yield from found.items()


def members(item: Any) -> Iterator[tuple[str, Any]]:
    """A function itself, or the public functions that a class defines."""
    if inspect.isfunction(item):
        yield item.__qualname__, item
        return
    for name, attribute in vars(item).items():
        function = attribute.fget if isinstance(attribute, property) else attribute
        function = getattr(function, "__func__", function)
        public = not name.startswith("_") or name == "__call__"
        own = getattr(function, "__qualname__", "").startswith(item.__qualname__)
        if public and own and inspect.isfunction(function):
            yield function.__qualname__, function


EXPORTED = dict(exported())


def test_the_public_names():
    assert set(sw.__all__) == PUBLIC
    assert sw.__all__ == sorted(sw.__all__)
    assert set(dir(sw)) == PUBLIC | {"__version__"}
    assert all(hasattr(sw, name) for name in PUBLIC)
    assert sw.__version__.count(".") == 2
    with pytest.raises(AttributeError, match="has no attribute 'compiel'"):
        _ = sw.compiel


@pytest.mark.parametrize("package", ["stridewise", "stridewise.ops", "stridewise.planner"])
def test_names_at_first_use_are_those_of_type_checkers(package: str):
    module = import_module(package)
    tree = ast.parse(inspect.getsource(module))
    blocks = [item for item in tree.body if isinstance(item, ast.If)]
    listed = [item for block in blocks for item in block.body if isinstance(item, ast.ImportFrom)]
    assert listed
    for item in listed:
        for alias in item.names:
            found = getattr(module, alias.name)
            place = import_module(item.module or "")
            assert found is getattr(place, alias.name), alias.name
            assert alias.name in module.__all__


def test_what_modules_export_is_there():
    for module in modules():
        assert module.__doc__, module.__name__
        names = getattr(module, "__all__", ())
        assert len(set(names)) == len(names), module.__name__
        assert [name for name in names if not hasattr(module, name)] == [], module.__name__


def test_every_error_is_public_and_under_the_root():
    tree = {name for name in errors.__all__ if name.endswith("Error")}
    assert set(errors.__all__) == tree | {"PlanWarning", "TrainingWarning", "describe"}
    assert {name for name in PUBLIC if name.endswith("Error")} == tree
    drawn = errors.__doc__ or ""
    for name in tree:
        error = getattr(errors, name)
        assert issubclass(error, sw.StridewiseError)
        assert name in drawn
        built_in = next(base for base in error.__mro__ if base.__module__ == "builtins")
        assert built_in is Exception or f"({built_in.__name__})" in drawn


def test_every_export_says_what_it_is():
    silent = [name for name, item in EXPORTED.items() if not inspect.getdoc(item)]
    functions = [pair for item in EXPORTED.values() for pair in members(item)]
    assert silent + [where for where, function in functions if not function.__doc__] == []


def raised(function: Any) -> set[str]:
    """The classes of Stridewise's errors that the body of a function names after ``raise``."""
    tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(function)))
    found: set[str] = set()
    for item in ast.walk(tree):
        if not isinstance(item, ast.Raise) or item.exc is None:
            continue
        error = item.exc.func if isinstance(item.exc, ast.Call) else item.exc
        if isinstance(error, ast.Name) and error.id in errors.__all__:
            found.add(error.id)
    return found


def undocumented(item: Any) -> Iterator[str]:
    """The errors that an export raises and does not name."""
    whole = inspect.getdoc(item) or ""
    for where, function in members(item):
        text = function.__doc__ or whole
        if "programming error" not in text:
            yield from (f"{where} raises {name}" for name in raised(function) if name not in text)


def test_what_is_raised_is_documented():
    assert [message for item in EXPORTED.values() for message in undocumented(item)] == []


def test_the_functions_that_users_call_say_what_they_raise():
    calls = (
        sw.load, sw.plan, sw.compile, sw.save, sw.annotate,
        sw.CompiledModel.__init__, sw.CompiledModel.__call__,
        sw.CompiledModel.run, sw.CompiledModel.profile, sw.GraphBuilder.op, sw.GraphBuilder.build,
        sw.Plan.decision, sw.Graph.value, sw.TensorDesc, sw.formats.parse, sw.formats.Format,
    )  # fmt: skip
    for call in calls:
        assert "Raises:" in (call.__doc__ or ""), call
