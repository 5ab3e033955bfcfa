"""What calls return and change beyond values: structures, shared memory, written inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import stridewise.torch  # noqa: E402, F401 (registers the backend)


@dataclass
class Pair:
    """A result of a model."""

    first: Any
    others: list[Any]


@pytest.fixture(autouse=True)
def without_graphs() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.fixture(params=["no_grad", "inference_mode"])
def mode(request: pytest.FixtureRequest) -> Any:
    return getattr(torch, request.param)


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="stridewise")


def test_a_dataclass_with_a_list_and_a_dict_is_returned(mode: Any) -> None:
    conv = torch.nn.Conv2d(3, 4, 1)

    def model(given: dict[str, Any]) -> Pair:
        y = conv(given["x"])
        return Pair(y, [y + 1, {"sum": y.sum(), "none": None, "text": "s"}])

    given = {"x": torch.randn(2, 3, 8, 8)}
    with mode():
        wanted, found = model(given), compiled(model)(given)
    assert type(found) is Pair
    torch.testing.assert_close(found.first, wanted.first)
    torch.testing.assert_close(found.others[0], wanted.others[0])
    torch.testing.assert_close(found.others[1]["sum"], wanted.others[1]["sum"])
    assert found.others[1]["none"] is None
    assert found.others[1]["text"] == "s"


def test_results_share_memory_where_those_of_pytorch_do(mode: Any) -> None:
    conv = torch.nn.Conv2d(3, 4, 3)

    def model(x: Any) -> tuple[Any, ...]:
        y = conv(x).relu()
        return y, y[:, 1:3], y.permute(0, 2, 3, 1), x.view(-1), x, x[0], conv.weight.view(-1)

    x = torch.randn(2, 3, 8, 8)
    with mode():
        wanted, found = model(x), compiled(model)(x)
        for a, b in zip(wanted, found, strict=True):
            torch.testing.assert_close(b, a, check_stride=True)
            assert a.storage_offset() == b.storage_offset()
        assert _sharing((*found, x, conv.weight)) == _sharing((*wanted, x, conv.weight))


def _sharing(tensors: tuple[Any, ...]) -> list[list[bool]]:
    places = [x.untyped_storage().data_ptr() for x in tensors]
    return [[a == b for a in places] for b in places]


@pytest.mark.parametrize("is_same", [False, True])
def test_inputs_that_are_written_may_be_the_same_tensor(mode: Any, is_same: bool) -> None:
    conv = torch.nn.Conv2d(3, 3, 1)

    def model(x: Any, y: Any) -> Any:
        x.add_(1)
        z = conv(x)
        y[:, 0].mul_(2)
        y.relu_()
        x[:, 1] = z[:, 0]
        return z + y

    with mode():
        run = compiled(model)
        for batch in (2, 3):
            x, y = torch.randn(2, batch, 3, 8, 8)
            y = x if is_same else y
            a = x.clone()
            b = a if is_same else y.clone()
            torch.testing.assert_close(run(a, b), model(x, y))
            torch.testing.assert_close(a, x)
            torch.testing.assert_close(b, y)
