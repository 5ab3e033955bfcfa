"""Parameters that programs have packed: every change that PyTorch can report is noticed."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from stridewise.runtime.binding.library import load_core  # noqa: E402
from stridewise.torch import repack  # noqa: E402
from stridewise.torch.weights import Mark, Weights, count_optimizer_steps  # noqa: E402

VERSION, ADDRESS = torch.Tensor._version, torch.Tensor.data_ptr


def made() -> list[Any]:
    """Return the arguments of a call: a number, an input, and two parameters."""
    return [
        3,
        torch.randn(2),
        torch.nn.Parameter(torch.randn(4)),
        torch.nn.Parameter(torch.ones(3)),
    ]


def assign(args: list[Any]) -> None:
    args[2].data = torch.zeros(4)


def step(args: list[Any]) -> None:
    count_optimizer_steps()
    args[3].grad = torch.ones(3)
    torch.optim.SGD([args[3]], lr=0.1).step()


def in_place(args: list[Any]) -> None:
    with torch.no_grad():
        args[3].mul_(2)


def through_a_view(args: list[Any]) -> None:
    with torch.no_grad():
        args[2][1:].zero_()


def another(args: list[Any]) -> None:
    args[2] = torch.nn.Parameter(args[2].detach())  # with the same memory


def swap(args: list[Any]) -> None:
    torch.utils.swap_tensors(args[2], torch.nn.Parameter(torch.ones(4)))


def all_at_once(_: list[Any]) -> None:
    repack()


CHANGES = (assign, step, in_place, through_a_view, another, swap, all_at_once)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_are_noticed(change: Callable[[list[Any]], None]) -> None:
    args = made()
    weights = Weights(args, (2, 3))
    assert weights.holds(args)
    assert weights.holds([None, None, *args[2:]])
    change(args)
    assert not weights.holds(args)
    assert weights.is_of(args) == (change not in (another, assign, swap))
    assert Weights(args, (2, 3)).holds(args)


def test_a_parameter_that_is_gone_is_not_replaced_by_one_at_its_place() -> None:
    args = made()
    weights = Weights(args, (2, 3))
    args[2] = None
    gc.collect()
    args[2] = torch.nn.Parameter(torch.randn(4))
    assert not weights.is_alive
    assert not weights.holds(args)


@pytest.mark.parametrize("alias", [torch.Tensor.detach, lambda x: x.data], ids=["detach", "data"])
def test_parameters_at_the_same_memory_are_others(alias: Callable[[Any], Any]) -> None:
    args = made()
    weights = Weights(args, (2, 3))
    args[2] = torch.nn.Parameter(alias(args[2]))
    assert weights.is_alive
    assert not weights.holds(args)


def test_tensors_of_several_memories_are_parameters_too() -> None:
    args = [torch.eye(3).to_sparse()]
    weights = Weights(args, ())
    mark = Mark(args[0])
    assert mark.is_of(args[0])
    assert not mark.is_of(torch.eye(3))
    args.clear()
    gc.collect()
    assert not mark.is_alive
    assert weights.is_alive


def test_inference_tensors_are_read_in_each_run() -> None:
    args = made()
    with torch.inference_mode():
        args[2] = torch.ones(4)
    weights = Weights(args, (2, 3))
    with torch.inference_mode():
        args[2].mul_(2)
    assert weights.holds(args)
    in_place(args)
    assert not weights.holds(args)


def test_without_parameters_nothing_changes() -> None:
    args = made()
    weights = Weights(args, ())
    step(args)
    repack()
    assert weights.holds(args)
    assert weights.holds([])


def test_fewer_arguments_are_others() -> None:
    args = made()
    watch = load_core().TensorWatch(args, [2, 3], [0, 0], VERSION, ADDRESS)
    assert watch.holds(tuple(args))
    assert not watch.holds(args[:3])
    assert not watch.holds([])


@pytest.mark.parametrize(
    ("positions", "version", "kind", "message"),
    [
        ([4], VERSION, ValueError, "position: expected one within the sequence"),
        ([-1], VERSION, ValueError, "position: expected at least 0"),
        ([0], VERSION, TypeError, "_version"),
        ([2], "text", ValueError, "expected a descriptor"),
    ],
)
def test_what_cannot_be_watched(positions: Any, version: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        load_core().TensorWatch(made(), positions, [0] * len(positions), version, ADDRESS)
    with pytest.raises(TypeError, match="expected a sequence of tensors"):
        load_core().TensorWatch(3, [0], [0], VERSION, ADDRESS)


def test_another_tensor_with_the_identity_of_one_that_is_gone():
    """A tensor is gone, but its memory is not, and neither is what was noted of it."""
    first = torch.zeros(4)
    mark, memory = Mark(first), first.untyped_storage()
    assert mark.is_exactly(first)
    del first
    others = []
    while not any(id(other) == mark.identity for other in others):
        others.append(torch.zeros(4))
        assert len(others) < 10000
    (other,) = (other for other in others if id(other) == mark.identity)
    assert mark.is_of(other)
    assert not mark.is_exactly(other)
    assert memory.nbytes() == other.nbytes
