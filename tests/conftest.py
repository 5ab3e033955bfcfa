"""What all tests share: reproducible property tests, and golden files."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

from stridewise.runtime.binding.primitives import create
from stridewise.runtime.tuning import kernel_times, plan_race
from stridewise.targets import kernels

settings.register_profile(
    "suite",
    deadline=None,
    database=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")

GOLDEN = Path(__file__).parent / "golden"
SMALL_FLOPS = kernels.SMALL_FLOPS


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the files under tests/golden"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from what is collected.

    Tests and loaded modules are some millions of objects, which live to the end and which the
    collector would walk again and again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def several_threads() -> Generator[None]:
    """Run small kernels on all threads: the graphs of tests have hardly any other kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "SMALL_FLOPS", -1.0)
        yield


@pytest.fixture
def small_kernels(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Run small kernels on one thread, as other processes do."""
    monkeypatch.setattr(kernels, "SMALL_FLOPS", SMALL_FLOPS)
    create.cache_clear()
    yield
    create.cache_clear()


@pytest.fixture(autouse=True, scope="session")
def undisturbed() -> Generator[None]:
    """Keep measurements although other tests disturb them: tests of caches need them."""
    with pytest.MonkeyPatch.context() as patch:
        quiet = SimpleNamespace(is_disturbed=False, add=lambda _: None)
        patch.setattr(kernel_times, "Waits", lambda _: quiet)
        patch.setattr(plan_race, "Stopwatch", lambda _: quiet)
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the golden file of that name, or rewrite the file if asked to."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path.name} is missing; run pytest --update-golden"
        assert text == path.read_text(encoding="utf-8")

    return check
