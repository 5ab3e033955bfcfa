"""Storing the weights of a model channels-last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stridewise.errors import VerificationError
from stridewise.frontends.torch.library import submodule, torch
from stridewise.torch.check import check
from stridewise.torch.findings import LayoutCheck
from stridewise.torch.layouts import to_channels_last

__all__ = ["convert"]


def convert(model: Any, inputs: Any, *, tolerance: float = 1e-4) -> LayoutCheck:
    """Store the weights of a model channels-last in place, and prove that its results stay.

    Args:
        model: a ``torch.nn.Module``.
        inputs: one tensor or a sequence of positional arguments, as for :func:`check`.
        tolerance: greatest difference relative to the greatest result.

    Returns:
        What :func:`check` says of the converted model.

    Raises:
        InputError: ``inputs`` has no image or volume.
        VerificationError: results differ; the weights are stored as before then.
    """
    args = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    before = {x: x.data for x in (*model.parameters(), *model.buffers())}
    with torch.no_grad():
        wanted = _results(model, args)
        try:
            for x in before:
                x.data = to_channels_last(x.data)
            last = [to_channels_last(x) if isinstance(x, torch.Tensor) else x for x in args]
            _check_close(_results(model, last), wanted, tolerance)
            return check(model, inputs)
        except Exception:
            for x, data in before.items():
                x.data = data
            raise


def _results(model: Any, args: Sequence[Any]) -> list[Any]:
    leaves = submodule("torch.utils._pytree").tree_leaves(model(*args))
    return [x for x in leaves if isinstance(x, torch.Tensor)]


def _check_close(found: Sequence[Any], wanted: Sequence[Any], tolerance: float) -> None:
    """Compare results.

    Raises:
        VerificationError: they differ by more than the tolerance.
    """
    for a, b in zip(wanted, found, strict=True):
        error = float((a - b).abs().max() / a.abs().max().clamp_min(1e-30)) if a.numel() else 0.0
        if not error <= tolerance:
            raise VerificationError.at(
                "convert",
                expected=f"results within {tolerance} of those before",
                found=f"a difference of {error:.1e}",
                fix="call check() to see which operators depend on strides",
            )
