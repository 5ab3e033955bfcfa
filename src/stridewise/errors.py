"""All exceptions that Stridewise raises on purpose.

::

    StridewiseError
    ├── FormatError      (ValueError)     a memory format is malformed, unknown or does not fit
    │   └── DTypeError   (ModelError)     an element type is unknown, of a tensor or of a model
    ├── GraphError       (ValueError)     a graph breaks a rule of its own, or its text is wrong
    ├── ModelError       (ValueError)     a model file is damaged, or uses something unsupported
    │   ├── MemoryLimitError              a model needs more memory than it may have
    │   ├── DamageError                   a node breaks a rule of its model format
    │   ├── UnknownValueError             a model cannot be planned without the values of inputs
    │   └── UnsupportedError              a sound model uses what Stridewise has no operator for
    ├── InputError       (ValueError)     an input of a call has the wrong name, shape or dtype
    ├── TargetError      (ValueError)     a target's file is damaged, or contradicts itself
    ├── PlanError        (RuntimeError)   no plan exists under the given constraints, or a plan's
    │   │                                 file is damaged or of another model
    │   └── PlanAssertionError (AssertionError)   a plan is not what a test expects
    ├── LibraryError     (ImportError)    libdnnl cannot be found, loaded or used
    ├── DependencyError  (ImportError)    an optional extra is not installed
    ├── VerificationError (AssertionError)   a compiled program computes what it should not
    └── ExecutionError   (RuntimeError)   a compiled program failed while running

There are two warnings. ``PlanWarning`` (UserWarning) says that a plan file was made for another
machine, so that its costs and its choices may not be the best here. ``TrainingWarning``
(UserWarning) says that a trainer leaves constants of a graph as they are that may be parameters.

A message has four parts: where the error occurred, what was expected, what was found, and how to
fix it. :meth:`StridewiseError.at` composes them, so that all messages have one form.
"""

from __future__ import annotations

from typing import Self

__all__ = [
    "DTypeError",
    "DamageError",
    "DependencyError",
    "ExecutionError",
    "FormatError",
    "GraphError",
    "InputError",
    "LibraryError",
    "MemoryLimitError",
    "ModelError",
    "PlanAssertionError",
    "PlanError",
    "PlanWarning",
    "StridewiseError",
    "TargetError",
    "TrainingWarning",
    "UnknownValueError",
    "UnsupportedError",
    "VerificationError",
    "describe",
]


class StridewiseError(Exception):
    """Root of all errors raised on purpose."""

    @classmethod
    def at(cls, where: str, *, expected: str, found: str, fix: str = "") -> Self:
        """Return an error whose message has the common form.

        Args:
            where: the object in which the error occurred.
            expected: what is valid.
            found: what was found instead.
            fix: what the user can do; "" for no advice.

        >>> InputError.at("input 'x'", expected="float32", found="float64")
        InputError("input 'x': expected float32, found float64")
        """
        return cls(describe(where, expected=expected, found=found, fix=fix))


class FormatError(StridewiseError, ValueError):
    """A memory format is malformed, unknown, or does not fit a shape."""


class GraphError(StridewiseError, ValueError):
    """A graph breaks one of its invariants, or its text form does not parse."""


class ModelError(StridewiseError, ValueError):
    """A model is damaged or uses an operator, attribute or dtype that is not supported."""


class MemoryLimitError(ModelError):
    """A model needs more memory than the limit; the message contains the estimate."""


class DamageError(ModelError):
    """A node breaks a rule of its model format, so that no other runtime is asked about it."""


class UnknownValueError(ModelError):
    """A model reads a shape or axes from an input and cannot be planned without its value.

    Attributes:
        inputs: the names of the inputs whose values are needed.
    """

    def __init__(self, message: str, inputs: tuple[str, ...] = ()) -> None:
        """Store the message and the names of the inputs."""
        super().__init__(message)
        self.inputs = inputs


class UnsupportedError(ModelError):
    """A valid model uses an operator that Stridewise does not have; another runtime may have it.

    Attributes:
        reason: a shorter form of the message, for tables; "" if the message is short enough.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        """Store the message and the reason."""
        super().__init__(message)
        self.reason = reason


class DTypeError(ModelError, FormatError):
    """An element type is unknown, whether a model or a caller names it."""


class InputError(StridewiseError, ValueError):
    """An input of a call has the wrong name, shape or dtype."""


class TargetError(StridewiseError, ValueError):
    """The file of a target is damaged, contradicts itself, or names something unknown."""


class PlanError(StridewiseError, RuntimeError):
    """No plan exists under the given constraints, or a plan file does not fit the model."""


class PlanAssertionError(PlanError, AssertionError):
    """A plan does not meet the expectations given to :func:`stridewise.assert_plan`."""


class TrainingWarning(UserWarning):
    """A training leaves something as it is that might be meant to change."""


class PlanWarning(UserWarning):
    """A plan file was made for another machine, library or number of threads."""


class LibraryError(StridewiseError, ImportError):
    """The oneDNN library cannot be found, loaded or used."""


class DependencyError(StridewiseError, ImportError):
    """An optional dependency is missing."""


class VerificationError(StridewiseError, AssertionError):
    """A compiled program computes other results than its model."""


class ExecutionError(StridewiseError, RuntimeError):
    """A compiled program failed while running."""


_LONGEST = 600
"""Limit of characters of one part of a message; models may have names of any length."""


def _printable(text: str) -> str:
    """Return text on one line with control characters escaped and long texts cut in the middle."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 4 :]}"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def describe(where: str, *, expected: str, found: str, fix: str = "") -> str:
    """Return a one-line error message in the common form.

    Parts may contain text from a model: control characters are escaped, and long parts are cut.

    Args:
        where: the object in which the error occurred.
        expected: what is valid.
        found: what was found instead.
        fix: what the user can do; "" for no advice.

    >>> describe("input 'x'", expected="float32", found="float64", fix="use x.astype('float32')")
    "input 'x': expected float32, found float64; use x.astype('float32')"
    """
    where, expected, found, fix = map(_printable, (where, expected, found, fix))
    message = f"{where}: expected {expected}, found {found}"
    return f"{message}; {fix}" if fix else message
