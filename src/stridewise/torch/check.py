"""Where a model loses channels-last: one run with every operator and its memory formats watched."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from stridewise.errors import InputError
from stridewise.frontends.torch.library import submodule, torch
from stridewise.torch.equality import difference
from stridewise.torch.findings import Finding, LayoutCheck
from stridewise.torch.layouts import format_of, to_channels_last
from stridewise.torch.patches import Change, changes
from stridewise.torch.watch import Watch

__all__ = ["check", "copied", "stored_last", "unchanged"]

_TOLERANCE = 1e-3
"""Greatest difference, relative to the greatest result, of a run with a changed line."""


def check(model: Any, inputs: Any) -> LayoutCheck:
    """Run a model with channels-last images, and say where it loses that memory format.

    Inputs, buffers, the state of the random generator and results stay as they are. Copies that
    leave images, such as ``flatten`` before a classifier, are no finding; copies that later
    operators on images read are.

    Args:
        model: a ``torch.nn.Module`` or a function of tensors.
        inputs: one tensor or a sequence of positional arguments. Images [N, C, H, W] and volumes
            [N, C, D, H, W] among them are stored channels-last for the run.

    Raises:
        InputError: ``inputs`` has no image or volume whose memory format can be told.
        DependencyError: PyTorch is not installed.
    """
    given = stored_last(inputs)
    tensors = [x for x in submodule("torch.utils._pytree").tree_leaves(given) if _is_tensor(x)]
    if not any(format_of(x) == "channels_last" for x in tensors):
        raise InputError.at(
            "check",
            expected="an image [N, C, H, W] or volume of 2 or more channels and pixels",
            found=", ".join(str(tuple(x.shape)) for x in tensors) or "no tensor",
        )
    watch = _watched(model, given)
    found = [_patched(model, given, watch, item) for item in watch.costed()]
    return LayoutCheck(tuple(watch.rows), tuple(found))


def _watched(model: Any, given: Sequence[Any], change: Change | None = None) -> Watch:
    """Run a model and return what was seen.

    Args:
        model: the module or function.
        given: positional arguments.
        change: how the operators of one line run, if not as they are.

    Raises:
        Exception: whatever the model raises, except for a view that channels-last makes impossible.
    """
    args = submodule("torch.utils._pytree").tree_map_only(torch.Tensor, torch.clone, list(given))
    watch = Watch(model, submodule("torch.utils._pytree").tree_leaves(args))
    operators, functions = _modes_of(watch, change)
    try:
        with torch.no_grad(), unchanged(model), watch.modules(model), functions(), operators():
            results = model(*args)
    except RuntimeError as error:
        if "view size is not compatible" not in str(error):
            raise
        watch.refused(error)
    else:
        watch.left(results)
    return watch


def _patched(model: Any, given: Sequence[Any], watch: Watch, finding: Finding) -> Finding:
    """Return a finding with the first change of its line that keeps channels-last there."""
    for change in changes(finding.where):
        try:
            again = _watched(model, given, change)
        except Exception:
            continue  # a change with which the model fails is none
        key = (finding.where.place, finding.where.operator)
        is_new = watch.results is not None and not set(again.findings) <= set(watch.findings)
        if key not in again.findings and not is_new and _same(watch.results, again.results):
            return replace(finding, patch=change.patch)
    return finding


def _same(wanted: Sequence[Any] | None, found: Sequence[Any] | None) -> bool:
    """Return whether two runs gave the same, up to rounding; none that ended early has results."""
    if wanted is None or found is None:
        return wanted is None
    return difference(wanted, found) <= _TOLERANCE


def stored_last(inputs: Any) -> list[Any]:
    """Return positional arguments with copies of their tensors, images stored channels-last."""
    args = [inputs] if _is_tensor(inputs) else list(inputs)
    tree = submodule("torch.utils._pytree")
    return tree.tree_map_only(torch.Tensor, _copied_last, args)


def _copied_last(x: Any) -> Any:
    return to_channels_last(copied(x))


def copied(x: Any) -> Any:
    """Return a copy of a tensor, without gradients."""
    return x.detach().clone()


@contextmanager
def unchanged(model: Any) -> Generator[None]:
    """Restore the buffers of a model and the state of the random generator after runs."""
    buffers = list(model.buffers()) if isinstance(model, torch.nn.Module) else []
    saved = [(x, x.clone()) for x in buffers]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        with torch.no_grad():
            for x, before in saved:
                if not torch.equal(x, before):
                    x.copy_(before)


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def _modes_of(watch: Watch, change: Change | None) -> tuple[Any, Any]:
    """Return the modes that watch operators, and methods that no operator computes."""
    operators: Any = submodule("torch.utils._python_dispatch").TorchDispatchMode
    functions: Any = submodule("torch.overrides").TorchFunctionMode
    kind = torch.Tensor
    exits = (kind.numpy, kind.tolist, kind.__array__, kind.__dlpack__)
    transforms = submodule("torch._C")._functorch.peek_interpreter_stack

    class Operators(operators):
        is_changed = False

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            del types
            options = kwargs or {}
            if change is None or self.is_changed or watch.place != change.place:
                results = func(*args, **options)
                watch.ran(func, (args, options), results)
                return results
            self.is_changed = True
            with self:
                results = change.instead(func, args, options)
            self.is_changed = False
            return results

    class Functions(functions):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            del types
            if func in exits:
                watch.leaves(args[0])
            if change is not None and transforms() is not None and watch.place == change.place:
                raise NotImplementedError  # a line within vmap sees fewer axes than its operators
            return func(*args, **(kwargs or {}))

    return Operators, Functions
