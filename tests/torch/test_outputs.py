"""Results that share memory with each other or with inputs, and results of any structure."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

import stridewise.torch as st  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

SHARING = {
    "view": lambda y: (y, y.view(-1)),
    "transpose": lambda y: (y.t(), y.view(-1), y),
    "same": lambda y: (y, y, y[1:]),
    "parts": lambda y: (*y.split(2, 0), y),
    "view of a view": lambda y: (y.t()[1], y.t()[:, 1:], y),
    "root not returned": lambda y: (y[0], y[0, 1:]),
    "other results": lambda y: (y * 2, y.t(), y, (y * 2).contiguous()),
    "of pytorch": lambda y: (y.cumsum(0), y, y.cumsum(0).t()),
}


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="stridewise", options={"fallback": "eager"})


@pytest.mark.filterwarnings("ignore::stridewise.torch.FallbackWarning")
@pytest.mark.parametrize("name", SHARING)
def test_a_write_to_a_result_shows_where_it_does_in_pytorch(name):
    def function(x):
        return SHARING[name](torch.relu(x))

    fast = compiled(function)
    for rows in (4, 6, 8):
        x = torch.randn(rows, 5)
        for at in range(len(function(x))):
            with torch.no_grad():
                wanted, found = function(x), fast(x)
                for results in (wanted, found):
                    results[at].fill_(7.0)
            for a, b in zip(wanted, found, strict=True):
                assert a.stride() == b.stride()
                assert torch.equal(a, b)


def test_results_that_are_views_of_inputs():
    def function(x):
        return x, x[:1], x.view(-1), torch.relu(x)

    x = torch.randn(2, 3)
    with torch.no_grad():
        found = compiled(function)(x)
    assert found[0] is x
    assert found[1].data_ptr() == found[2].data_ptr() == x.data_ptr()
    found[2].zero_()
    assert not x.any()
    assert found[3].any()


@pytest.mark.parametrize("index", [slice(None), 0], ids=["row", "element"])
def test_views_of_inputs_begin_where_an_open_index_says(index):
    def function(x, row):
        return x * 2 + row, x[row], x[row][index]

    fast, x = compiled(function), torch.randn(3, 4)
    with torch.no_grad():
        for row in (1, 2, 0, 2, 1):
            for a, b in zip(function(x, row), fast(x, row), strict=True):
                assert torch.equal(a, b)
                assert a.storage_offset() == b.storage_offset()


def test_views_of_parameters():
    module = torch.nn.Linear(3, 2)

    def function(x):
        return torch.relu(module(x)), module.weight.t(), module.weight[1]

    fast, x = compiled(function), torch.randn(4, 3)
    with torch.no_grad():
        for _ in range(3):
            for a, b in zip(function(x), fast(x), strict=True):
                assert torch.allclose(a, b, atol=1e-6)
                assert a.stride() == b.stride()
            fast(x)[1].mul_(2)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Record:
    first: Any
    second: Any = None


@pytest.mark.usefixtures("no_graphs")
@pytest.mark.parametrize("kind", [Pair, Record, lambda a, b: {"a": a, "b": [b, None, 3, "text"]}])
def test_results_of_any_structure(kind):
    def function(x):
        return kind(torch.relu(x), x.mean())

    x = torch.randn(3, 4)
    with torch.no_grad():
        wanted, found = function(x), compiled(function)(x)
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        assert found["b"][1:] == wanted["b"][1:]
        wanted, found = (Record(y["a"], y["b"][0]) for y in (wanted, found))
    first, second = found if isinstance(found, tuple) else (found.first, found.second)
    assert torch.equal(first, torch.relu(x))
    assert torch.allclose(second, x.mean())
    assert st.report().outside == 0
