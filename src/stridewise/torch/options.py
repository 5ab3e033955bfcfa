"""The options of the backend, and the warnings that it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import Any, Literal

from stridewise.errors import InputError
from stridewise.frontends.torch.library import torch
from stridewise.options import Options as CompilerOptions
from stridewise.options import Tune
from stridewise.runtime.machine.cpus import usable_cpus
from stridewise.targets.target import PrecisionChoice

__all__ = ["FallbackWarning", "Options"]


class FallbackWarning(UserWarning):
    """PyTorch computes operators, or a whole graph, in place of Stridewise."""


_MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "reduce-overhead": {},
    "max-autotune": {"tune": "measure"},
    "max-autotune-no-cudagraphs": {"tune": "measure"},
}
"""What PyTorch's modes stand for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How graphs are compiled.

    Attributes:
        threads: how many threads run a program; by default as many as PyTorch uses, and no more
            than CPUs and their quotas allow.
        accuracy: ``"fast"``, or ``"exact"`` to leave out Winograd convolution.
        dtype: ``"model"`` allows to store tensors inside of programs as bfloat16, where that is not
            slower, if PyTorch computes in bfloat16, as under autocast; ``"bfloat16"`` allows it
            always, ``"float32"`` never, and ``"auto"`` within ``max_error``. See
            ``docs/precision.md``.
        max_error: with ``dtype="auto"``, the limit on the relative error of the outputs of a
            program, as in :func:`stridewise.compile`.
        memory_limit: bytes that a program may need; by default three quarters of the memory.
        fallback: ``"eager"``: PyTorch computes what has no native operator, with a warning;
            ``"error"``: that is an error.
        tune: as in :func:`stridewise.compile`, but by default ``"model"``, which estimates costs;
            ``"auto"`` takes them from the cost cache and measures for at most a second at the first
            call, ``"measure"`` times all kernels and keeps the times.
        max_programs: for how many shapes of the inputs a graph stays ready.
    """

    threads: int | None = None
    accuracy: Literal["fast", "exact"] = "fast"
    dtype: PrecisionChoice = "model"
    max_error: float = 1e-2
    memory_limit: int | None = None
    fallback: Literal["eager", "error"] = "eager"
    tune: Tune = "model"
    max_programs: int = 8

    @classmethod
    def of(cls, given: Mapping[str, Any], mode: str | None = None) -> Options:
        """Return checked options.

        Args:
            given: options by name.
            mode: of ``torch.compile``.

        Raises:
            InputError: an option or mode is unknown, or has a wrong value.
        """
        known = [item.name for item in fields(cls)]
        for name in given:
            if name not in known:
                raise _wrong("options", f"some of {', '.join(known)}", name)
        if mode is not None and mode not in _MODES:
            raise _wrong("mode", f"one of {', '.join(_MODES)}", mode)
        found = cls(**{**_MODES[mode or "default"], **given})
        for name, words in _WORDS.items():
            if getattr(found, name) not in words:
                raise _wrong(name, " or ".join(map(repr, words)), getattr(found, name))
        for name in ("threads", "memory_limit", "max_programs"):
            number = getattr(found, name)
            if number is not None and (type(number) is not int or number < 1):
                raise _wrong(name, "a number from 1 on", number)
        if type(found.max_error) not in (int, float) or not 0 < found.max_error < inf:
            raise _wrong("max_error", "a relative error above 0", found.max_error)
        return found

    def compiling(self, in_bfloat16: bool) -> CompilerOptions:
        """Return the options of the compiler.

        Args:
            in_bfloat16: whether PyTorch computes the graph in bfloat16.
        """
        threads = self.threads or min(torch.get_num_threads(), usable_cpus())
        return CompilerOptions(
            threads=threads,
            accuracy=self.accuracy,
            memory_limit=self.memory_limit,
            tune=self.tune,
            dtype="bfloat16" if in_bfloat16 and self.dtype == "model" else self.dtype,
            max_error=self.max_error,
        )


_WORDS = {
    "accuracy": ("fast", "exact"),
    "dtype": ("model", "float32", "bfloat16", "auto"),
    "fallback": ("eager", "error"),
    "tune": ("auto", "measure", "model"),
}


def _wrong(name: str, expected: str, found: object) -> InputError:
    return InputError.at(
        f"backend 'stridewise', {name}",
        expected=expected,
        found=repr(found),
        fix="see docs/from-pytorch.md",
    )
