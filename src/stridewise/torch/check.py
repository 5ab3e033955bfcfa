"""Where a model loses channels-last: one run with every operator and its memory formats watched."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from stridewise.errors import InputError
from stridewise.frontends.torch.graphs import memory_order
from stridewise.frontends.torch.library import submodule, torch
from stridewise.torch.costs import Loss
from stridewise.torch.findings import (
    Finding,
    LayoutCheck,
    OperatorLayout,
    is_mixed_up,
    of_copy,
    of_operator,
    of_result,
    of_strides,
    replaced,
)
from stridewise.torch.layouts import (
    Place,
    format_of,
    is_image,
    place_now,
    place_of_error,
    to_channels_last,
)

__all__ = ["check"]

_COPIES = ("aten.clone.default", "aten._to_copy.default", "aten.copy_.default")
"""Operators that store a tensor anew, in the order that the program asks for."""

_UNSAFE_VIEW = "aten._unsafe_view.default"

_RESTRIDES = "aten.as_strided.default"

_READERS = re.compile(
    r"aten\.(_?convolution|conv\w*|\w*pool\w*|\w*batch_norm\w*|native_group_norm|upsample\w*|"
    r"_upsample\w*|grid_sampler\w*|\w*_pad\w*|constant_pad_nd|cat)\b"
)
"""Operators on images: a copy that they read was no way out of images."""


def check(model: Any, inputs: Any) -> LayoutCheck:
    """Run a model with channels-last images, and say where it loses that memory format.

    Neither the model nor its results are changed. Copies that leave images, such as ``flatten``
    before a classifier, are no finding; copies that later operators on images read are.

    Args:
        model: a ``torch.nn.Module`` or a function of tensors.
        inputs: one tensor or a sequence of positional arguments. Images [N, C, H, W] and volumes
            [N, C, D, H, W] among them are stored channels-last for the run.

    Raises:
        InputError: ``inputs`` has no image or volume whose memory format can be told.
        DependencyError: PyTorch is not installed.
    """
    args = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    given = [to_channels_last(x) if isinstance(x, torch.Tensor) else x for x in args]
    images = [x for x in given if isinstance(x, torch.Tensor)]
    if not any(format_of(x) == "channels_last" for x in images):
        raise InputError.at(
            "check",
            expected="an image [N, C, H, W] or volume of 2 or more channels and pixels",
            found=", ".join(str(tuple(x.shape)) for x in images) or "no tensor",
        )
    watch = _Watch()
    mode = _mode_of(watch)
    try:
        with torch.no_grad(), watch.modules(model), mode():
            results = model(*given)
    except RuntimeError as error:
        if "view size is not compatible" not in str(error):
            raise
        watch.refused(error)
    else:
        watch.left(submodule("torch.utils._pytree").tree_leaves(results))
    with torch.no_grad():
        return LayoutCheck(tuple(watch.rows), tuple(watch.costed()))


def _mode_of(watch: _Watch) -> Any:
    base: Any = submodule("torch.utils._python_dispatch").TorchDispatchMode

    class Mode(base):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            del types
            results = func(*args, **(kwargs or {}))
            watch.ran(func, (args, kwargs or {}), results)
            return results

    return Mode


class _Watch:
    """What is known of a run: operators so far, and copies that may turn out to be losses."""

    def __init__(self) -> None:
        self.rows: list[OperatorLayout] = []
        self.findings: dict[tuple[Place, str], Finding] = {}
        weak = submodule("torch.utils.weak").WeakIdKeyDictionary
        self._views: Any = weak()  # of channels-last images
        self._copied: Any = weak()  # from such, by the finding that it may turn out to be
        self._path: list[str] = []
        self._losses: dict[Finding, Loss] = {}
        self._leaves = submodule("torch.utils._pytree").tree_leaves

    @contextmanager
    def modules(self, model: Any) -> Generator[None]:
        """Keep track of the module that runs."""
        names = {}
        if isinstance(model, torch.nn.Module):
            names = {id(module): name for name, module in model.named_modules()}
        hooks = submodule("torch.nn.modules.module")

        def enter(module: Any, _args: Any) -> None:
            self._path.append(names.get(id(module)) or type(module).__name__)

        def leave(_module: Any, _args: Any, _results: Any) -> None:
            self._path.pop()

        handles = [
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _tensors(self, tree: Any) -> list[Any]:
        return [x for x in self._leaves(tree) if isinstance(x, torch.Tensor)]

    def ran(self, operator: Any, args: Any, results: Any) -> None:
        """Take note of an operator.

        Args:
            operator: its overload.
            args: what it read.
            results: what it gave.
        """
        read, made = self._tensors(args), self._tensors(results)
        row = OperatorLayout(
            str(operator),
            self._path[-1] if self._path else "",
            place_now(),
            tuple(format_of(x) for x in read if is_image(x)),
            tuple(format_of(x) for x in made if is_image(x)),
        )
        if row.inputs or row.outputs:
            self.rows.append(row)
        before = copied = next((self._copied[x] for x in read if x in self._copied), None)
        last = next((x for x in read if format_of(x) == "channels_last" or x in self._views), None)
        keeps = operator.is_view or row.operator == _UNSAFE_VIEW
        if copied is not None and _READERS.match(row.operator) and _is_plain(row.inputs):
            self._add(copied)
        elif last is not None and row.operator == _RESTRIDES:
            self._restrided(row)
        elif last is not None and not keeps:
            keeps = row.operator not in _COPIES and _keeps_order(last, made)
            if row.operator in _COPIES:
                copied = copied if _keeps_order(read[-1], made) else of_copy(row, made[0].dim())
            elif "channels_last" in row.inputs and _is_plain(row.outputs):
                self._lost(row, operator, args, made)
            elif not keeps:
                copied = of_result(row)
        if copied is not None and copied is not before:
            source = read[-1] if row.operator in _COPIES else None
            self._losses.setdefault(copied, Loss.of(made[0], source))
        for x in made:
            if format_of(x) != "channels_last":
                self._views.update({x: True} if keeps and last is not None else {})
                self._copied.update({} if copied is None else {x: copied})

    def _lost(self, row: OperatorLayout, operator: Any, args: Any, made: Sequence[Any]) -> None:
        """Take note of an operator that reads channels-last images and gives other ones."""
        found = of_operator(row, is_mixed_up(operator, args, made))
        self._losses.setdefault(found, Loss.of(made[0]))
        self._add(found)

    def _restrided(self, row: OperatorLayout) -> None:
        """Take note of strides that a program sets itself."""
        if "channels_last" in row.inputs and _is_plain(row.outputs):
            self._add(of_strides(row))

    def _add(self, finding: Finding) -> None:
        self.findings.setdefault((finding.where.place, finding.where.operator), finding)

    def costed(self) -> list[Finding]:
        """Return the findings with their costs."""
        found = self.findings.values()
        losses = [self._losses.get(finding) for finding in found]
        return [
            finding if loss is None else replace(finding, milliseconds=loss.milliseconds())
            for finding, loss in zip(found, losses, strict=True)
        ]

    def refused(self, error: RuntimeError) -> None:
        """Take note of a view that channels-last makes impossible; the run ended there."""
        place = place_of_error(error)
        row = OperatorLayout("aten.view.default", "", place, ("channels_last",), ())
        problem = "view fails, as axes that it merges are not neighbors in channels-last"
        patch = replaced(place, ".view(", ".reshape(")
        fix = "use reshape, which copies, or keep the axes apart; later operators did not run"
        self._add(Finding(row, problem, fix, patch))

    def left(self, results: Sequence[Any]) -> None:
        """Take note of the results of the model: copies among them are losses."""
        for x in results:
            if isinstance(x, torch.Tensor) and is_image(x) and x in self._copied:
                self._add(self._copied[x])


def _is_plain(formats: Sequence[str]) -> bool:
    return "contiguous" in formats or "strided" in formats


def _keeps_order(read: Any, made: Sequence[Any]) -> bool:
    """Return whether the first result stores its axes in the order of what was read."""
    orders = [memory_order(x.shape, x.stride()) for x in (read, *made[:1])]
    return len(orders) == 2 and orders[0] == orders[1]
