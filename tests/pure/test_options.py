"""The arguments of plan and compile: listed once, shown by ``help``, refused where unknown."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import stridewise as sw
from stridewise.options import CompileOptions, Options, PlanOptions

FUNCTIONS = ((sw.plan, PlanOptions), (sw.compile, CompileOptions))
OWN = {"source", "example_inputs"}
"""What is compiled; everything else is an option."""
both = pytest.mark.parametrize(("function", "options"), FUNCTIONS, ids=("plan", "compile"))


@both
def test_help_shows_every_argument_with_its_default(
    function: Callable[..., Any], options: type
) -> None:
    shown = inspect.signature(function).parameters
    assert set(shown) - {*OWN, "target"} == set(options.__annotations__)
    fields = {item.name: item for item in dataclasses.fields(Options)}
    for name, parameter in shown.items():
        if name not in OWN:
            assert parameter.annotation == fields[name].type, name
            assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
            assert parameter.default == fields[name].default
        if name in options.__annotations__:
            assert options.__annotations__[name].__forward_arg__ == fields[name].type, name
        assert f"\n    {name}: " in (inspect.getdoc(function) or ""), name
    assert "options:" not in (inspect.getdoc(function) or "")


def test_every_argument_is_one_of_compile() -> None:
    names = {item.name for item in dataclasses.fields(Options)}
    assert set(inspect.signature(sw.compile).parameters) == names | OWN


@both
def test_what_is_no_argument_is_a_type_error(function: Callable[..., Any], options: type) -> None:
    with pytest.raises(TypeError, match=rf"{function.__name__}\(\) got an unexpected .* 'thread'"):
        function("no such file.onnx", thread=2)
    if "later" not in options.__annotations__:
        with pytest.raises(TypeError, match="unexpected keyword argument 'later'"):
            function("no such file.onnx", later="tune")


@both
@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("threads", "2", "a whole number"),
        ("threads", True, "a whole number"),
        ("streams", 1.5, "a whole number"),
        ("tune_seconds", "1", "a number"),
        ("shapes", (1, 3), "a mapping by name"),
        ("origins", "NCHW", "a mapping by name"),
        ("max_error", None, "a number"),
        ("cache_dir", 5, "a path"),
        ("target", 5, "a name or a path"),
        ("progress", 5, "a function"),
        ("fallback", "error", "True or False"),
    ],
)
def test_arguments_of_another_type_are_refused(
    function: Callable[..., Any], options: type, name: str, given: Any, expected: str
) -> None:
    if name not in {*options.__annotations__, "target"}:
        return
    with pytest.raises(sw.InputError, match=f"{name}: expected {expected}, found"):
        function("no such file.onnx", **{name: given})


@pytest.mark.parametrize("dtype", ["model", "float32", "bfloat16"])
def test_an_error_budget_without_a_choice_of_precision_is_refused(dtype: str) -> None:
    with pytest.raises(sw.InputError, match=r"max_error: expected dtype 'auto', found"):
        Options(dtype=dtype, max_error=0.1)  # type: ignore[arg-type]
