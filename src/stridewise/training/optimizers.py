"""Optimizers: what becomes of a parameter, as nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Protocol, cast, runtime_checkable

import numpy as np

from stridewise.errors import InputError
from stridewise.ops import GraphBuilder
from stridewise.ops.backward import Term

__all__ = ["SGD", "AdamW", "Optimizer", "Schedule"]

Schedule = float | Callable[[int], float]
"""A number, or a function of the number of steps done so far."""

Updates = dict[str, Term]
"""New values by the names of the parameter and of states."""


@runtime_checkable
class Optimizer(Protocol):
    """What a trainer asks of an optimizer."""

    def scalars(self, step: int) -> Mapping[str, float]:
        """Return the numbers that differ from step to step, by name.

        Args:
            step: number of steps done so far.
        """
        ...

    def updates(
        self, b: GraphBuilder, parameter: str, gradient: Term, scalars: Mapping[str, Term]
    ) -> Updates:
        """Add the nodes of an update, and return the new values.

        Args:
            b: the graph that grows.
            parameter: name of the parameter.
            gradient: of the loss by the parameter.
            scalars: the values of :meth:`scalars` in the graph.
        """
        ...


def _checked(optimizer: str, **limits: tuple[object, float]) -> None:
    """Raise unless numbers lie from 0 up to below a limit; a schedule of rates is not called."""
    for name, (value, below) in limits.items():
        if (name == "lr" and callable(value)) or (
            isinstance(value, Real) and 0 <= float(value) < below
        ):
            continue
        end = "" if below == float("inf") else f" and below {below:g}"
        expected = f"a number from 0 on{end}"
        raise InputError.at(f"{optimizer}, {name}", expected=expected, found=repr(value))


def _at(schedule: Schedule, step: int) -> float:
    if not callable(schedule):
        return float(schedule)
    found = schedule(step)
    try:
        number = float(found)
    except (TypeError, ValueError):
        number = float("nan")
    if not (isfinite(number) and number >= 0):
        expected = "a finite number from 0 on"
        raise InputError.at(f"learning rate of step {step}", expected=expected, found=repr(found))
    return number


def _state(b: GraphBuilder, parameter: str, role: str) -> Term:
    """Declare a state of zeros beside a parameter."""
    name = b.fresh(f"optimizer.{parameter}.{role}")
    return Term(b, b.state(np.zeros(b.type(parameter).shape, np.float32), name))


_ANY = float("inf")


@dataclass(frozen=True, slots=True)
class SGD:
    """Stochastic gradient descent with momentum, as PyTorch's ``torch.optim.SGD`` computes it.

    Attributes:
        lr: learning rate, or a function from the number of steps done so far to it.
        momentum: factor of the previous step in the next one; with 0 no states are kept.
        nesterov: whether Nesterov momentum is used.
        weight_decay: multiple of the parameter that is added to its gradient.
        dampening: the gradient enters the momentum with the factor ``1 - dampening``, except in the
            first step.

    Raises:
        InputError: a number is out of range, or ``nesterov`` has dampening or no momentum.

    >>> SGD(lr=lambda step: 0.1 * 0.5**step).scalars(2)
    {'rate': 0.025}
    """

    lr: Schedule
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    dampening: float = 0.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        decay, momentum = self.weight_decay, self.momentum
        _checked("SGD", lr=(self.lr, _ANY), momentum=(momentum, 1.0), weight_decay=(decay, _ANY))
        _checked("SGD", dampening=(self.dampening, _ANY))
        if self.nesterov and not self.momentum:
            expected = "a momentum above 0 with nesterov"
            raise InputError.at("SGD, momentum", expected=expected, found="0")
        if self.nesterov and self.dampening:
            expected = "0 with nesterov"
            raise InputError.at("SGD, dampening", expected=expected, found=repr(self.dampening))

    def scalars(self, step: int) -> Mapping[str, float]:
        """Return the learning rate, and with dampening the share of the gradient that is used."""
        rate = {"rate": _at(self.lr, step)}
        return {**rate, "gain": 1 - self.dampening if step else 1.0} if self.dampening else rate

    def updates(
        self, b: GraphBuilder, parameter: str, gradient: Term, scalars: Mapping[str, Term]
    ) -> Updates:
        """Add the nodes of an update; see :meth:`Optimizer.updates`."""
        old, found = Term(b, parameter), Updates()
        if self.weight_decay:
            gradient = gradient + old * self.weight_decay
        if self.momentum:
            moment = _state(b, parameter, "momentum")
            added = gradient * scalars["gain"] if self.dampening else gradient
            new = found[moment.name] = moment * self.momentum + added
            gradient = gradient + new * self.momentum if self.nesterov else new
        found[parameter] = old - gradient * scalars["rate"]
        return found


@dataclass(frozen=True, slots=True)
class AdamW:
    """Adam with decoupled weight decay, as PyTorch's ``torch.optim.AdamW`` computes it.

    Source: Loshchilov and Hutter (2019).

    Attributes:
        lr: learning rate, or a function from the number of steps done so far to it.
        betas: decay of the means of gradients and of their squares, per step.
        epsilon: added to the root of the mean square.
        weight_decay: in each step, the parameter is reduced by itself times this number and the
            learning rate.

    Raises:
        InputError: a number is out of range.
    """

    lr: Schedule = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 1e-2

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not isinstance(cast("object", self.betas), tuple | list) or len(self.betas) != 2:
            found = repr(self.betas)
            raise InputError.at("AdamW, betas", expected="two numbers", found=found)
        first, second = self.betas
        _checked("AdamW", lr=(self.lr, _ANY), betas=(first, 1.0), epsilon=(self.epsilon, _ANY))
        _checked("AdamW", betas=(second, 1.0), weight_decay=(self.weight_decay, _ANY))

    def scalars(self, step: int) -> Mapping[str, float]:
        """Return learning rate and the corrections of the means' bias."""
        rate, (first, second) = _at(self.lr, step), self.betas
        return {
            "keep": 1 - rate * self.weight_decay,
            "rate": rate / (1 - first ** (step + 1)),
            "root": (1 - second ** (step + 1)) ** -0.5,
        }

    def updates(
        self, b: GraphBuilder, parameter: str, gradient: Term, scalars: Mapping[str, Term]
    ) -> Updates:
        """Add the nodes of an update; see :meth:`Optimizer.updates`."""
        old, (first, second) = Term(b, parameter), self.betas
        mean, square = _state(b, parameter, "mean"), _state(b, parameter, "square")
        new = mean * first + gradient * (1 - first)
        spread = square * second + gradient * gradient * (1 - second)
        step = new * scalars["rate"] / (spread.of("sqrt") * scalars["root"] + self.epsilon)
        return {
            mean.name: new,
            square.name: spread,
            parameter: old * scalars["keep"] - step,
        }
