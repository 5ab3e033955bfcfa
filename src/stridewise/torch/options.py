"""The options of the backend, and the warnings that it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from stridewise.errors import InputError
from stridewise.frontends.torch.library import torch
from stridewise.options import Options as CompilerOptions
from stridewise.runtime.machine.cpus import available_cpus

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
        dtype: ``"bfloat16"`` allows to store tensors as bfloat16 inside of programs where that is
            not slower; see ``docs/precision.md``.
        memory_limit: bytes that a program may need; by default three quarters of the memory.
        fallback: ``"eager"``: PyTorch computes what has no native operator, with a warning;
            ``"error"``: that is an error.
        tune: ``"model"`` estimates costs, ``"measure"`` times kernels and keeps the times.
        max_programs: for how many shapes of the inputs a graph stays ready.
    """

    threads: int | None = None
    accuracy: Literal["fast", "exact"] = "fast"
    dtype: Literal["float32", "bfloat16"] = "float32"
    memory_limit: int | None = None
    fallback: Literal["eager", "error"] = "eager"
    tune: Literal["model", "measure"] = "model"
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
        return found

    def compiling(self) -> CompilerOptions:
        """Return the options of the compiler."""
        threads = self.threads or min(torch.get_num_threads(), available_cpus())
        return CompilerOptions(
            threads=threads,
            accuracy=self.accuracy,
            memory_limit=self.memory_limit,
            tune=self.tune,
            dtype=self.dtype,
        )


_WORDS = {
    "accuracy": ("fast", "exact"),
    "dtype": ("float32", "bfloat16"),
    "fallback": ("eager", "error"),
    "tune": ("model", "measure"),
}


def _wrong(name: str, expected: str, found: object) -> InputError:
    return InputError.at(
        f"backend 'stridewise', {name}",
        expected=expected,
        found=repr(found),
        fix="see docs/from-pytorch.md",
    )
