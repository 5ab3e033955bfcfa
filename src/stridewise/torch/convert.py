"""Storing the weights of a model channels-last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stridewise.errors import VerificationError
from stridewise.frontends.torch.library import submodule, torch
from stridewise.torch.check import check, copied, stored_last, unchanged
from stridewise.torch.equality import difference
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
    before = {x: x.data for x in (*model.parameters(), *model.buffers())}
    args = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    wanted = _results(model, args)
    try:
        for x in before:
            x.data = to_channels_last(x.data)
        error = difference(wanted, _results(model, stored_last(args)))
        if not error <= tolerance:
            raise VerificationError.at(
                "convert",
                expected=f"results within {tolerance} of those before",
                found=f"a difference of {error:.1e}",
                fix="call check() to see which operators depend on strides",
            )
        return check(model, inputs)
    except BaseException:  # an interruption, too, leaves the model as it was
        for x, data in before.items():
            x.data = data
        raise


def _results(model: Any, args: Sequence[Any]) -> list[Any]:
    """Return the tensors that a model returns for copies of some arguments."""
    tree = submodule("torch.utils._pytree")
    copies = tree.tree_map_only(torch.Tensor, copied, list(args))
    with torch.no_grad(), unchanged(model):
        leaves = tree.tree_leaves(model(*copies))
    return [x for x in leaves if isinstance(x, torch.Tensor)]
