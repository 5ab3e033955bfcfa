"""Where a model loses channels-last: one run with every operator and its memory formats watched."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stridewise.errors import InputError, VerificationError, describe
from stridewise.frontends.torch.graphs import memory_order
from stridewise.frontends.torch.library import submodule, torch
from stridewise.torch.layouts import (
    Place,
    format_of,
    is_image,
    place_now,
    place_of_error,
    to_channels_last,
)

__all__ = ["Finding", "LayoutCheck", "OperatorLayout", "check", "convert"]

_COPIES = ("aten.clone.default", "aten._to_copy.default", "aten.copy_.default")
"""Operators that store a tensor anew, in the order that the program asks for."""

_READERS = re.compile(
    r"aten\.(_?convolution|conv\w*|\w*pool\w*|\w*batch_norm\w*|native_group_norm|upsample\w*|"
    r"_upsample\w*|grid_sampler\w*|\w*_pad\w*|constant_pad_nd|cat)\b"
)
"""Operators on images: a copy that they read was no way out of images."""


@dataclass(frozen=True, slots=True)
class OperatorLayout:
    """An operator that ran.

    Attributes:
        operator: the name of its overload.
        module: the path of the module that it belongs to.
        place: the line of the program.
        inputs: memory formats of the tensors that it read; see :func:`format_of`.
        outputs: memory formats of its results.
    """

    operator: str
    module: str
    place: Place
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        formats = f"{', '.join(self.inputs)} -> {', '.join(self.outputs)}"
        return f"{self.place}: {self.operator.removeprefix('aten.')} ({self.module}): {formats}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A place where channels-last is lost.

    Attributes:
        where: the operator.
        problem: what happens there.
        fix: what to change.
        patch: the line of the program and what to write instead, if that is certain.
    """

    where: OperatorLayout
    problem: str
    fix: str
    patch: tuple[str, str] | None = None

    def __str__(self) -> str:
        lines = [f"{self.where.place}: {self.problem}", f"  fix: {self.fix}"]
        if self.patch is not None:
            lines += [f"  - {self.patch[0]}", f"  + {self.patch[1]}"]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class LayoutCheck:
    """What a run of a model with channels-last images shows.

    Attributes:
        operators: all operators on images, in the order of the run.
        findings: where channels-last is lost, each line once.
    """

    operators: tuple[OperatorLayout, ...]
    findings: tuple[Finding, ...]

    @property
    def is_clean(self) -> bool:
        """Whether channels-last is kept everywhere."""
        return not self.findings

    def __str__(self) -> str:
        kept = sum("channels_last" in row.outputs for row in self.operators)
        head = f"{kept} of {len(self.operators)} operators on images give channels-last"
        found = f"{len(self.findings)} places lose it" if self.findings else "none loses it"
        return "\n".join([f"{head}; {found}", *map(str, self.findings)])


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
        raise InputError(
            describe(
                "check",
                expected="an image [N, C, H, W] or volume of 2 or more channels and pixels",
                found=", ".join(str(tuple(x.shape)) for x in images) or "no tensor",
            )
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
    return LayoutCheck(tuple(watch.rows), tuple(watch.findings.values()))


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
        copied = next((self._copied[x] for x in read if x in self._copied), None)
        is_last = [format_of(x) == "channels_last" or x in self._views for x in read]
        if copied is not None and _READERS.match(row.operator) and _is_plain(row.inputs):
            self._add(copied)
        elif not operator.is_view and any(is_last):
            if row.operator in _COPIES:
                copied = copied if _keeps_order(read, made) else _of_copy(row, made[0].dim())
            elif "channels_last" in row.inputs and _is_plain(row.outputs):
                self._add(_of_operator(row))
            else:
                copied = _of_result(row)
        for x in made:
            if format_of(x) == "channels_last":
                continue
            if operator.is_view and any(is_last):
                self._views[x] = True
            if copied is not None:
                self._copied[x] = copied

    def _add(self, finding: Finding) -> None:
        self.findings.setdefault((finding.where.place, finding.where.operator), finding)

    def refused(self, error: RuntimeError) -> None:
        """Take note of a view that channels-last makes impossible; the run ended there."""
        place = place_of_error(error)
        row = OperatorLayout("aten.view.default", "", place, ("channels_last",), ())
        problem = "view fails, as axes that it merges are not neighbors in channels-last"
        patch = _replaced(place, ".view(", ".reshape(")
        fix = "use reshape, which copies, or keep the axes apart; later operators did not run"
        self._add(Finding(row, problem, fix, patch))

    def left(self, results: Sequence[Any]) -> None:
        """Take note of the results of the model: copies among them are losses."""
        for x in results:
            if isinstance(x, torch.Tensor) and is_image(x) and x in self._copied:
                self._add(self._copied[x])


def _is_plain(formats: Sequence[str]) -> bool:
    return "contiguous" in formats or "strided" in formats


def _keeps_order(read: Sequence[Any], made: Sequence[Any]) -> bool:
    """Return whether a copy stores its axes in the order of what it reads."""
    orders = [memory_order(x.shape, x.stride()) for x in (read[-1], made[0])]
    return orders[0] == orders[1]


def _of_operator(row: OperatorLayout) -> Finding:
    """Return the finding of an operator that gives images in another format than it reads."""
    name = row.operator.split(".")[1]
    if "contiguous" in row.inputs:
        at = row.inputs.index("contiguous")
        return Finding(
            row,
            f"{name} reads channels-last and contiguous images; its result is {row.outputs[0]}",
            f"store image {at + 1} of {len(row.inputs)} channels-last: make it with "
            ".contiguous(memory_format=torch.channels_last)",
        )
    return Finding(
        row,
        f"{name} reads channels-last and gives {row.outputs[0]} images",
        "PyTorch has no channels-last kernel for this form; append "
        ".contiguous(memory_format=torch.channels_last), or use another operator",
    )


def _of_result(row: OperatorLayout) -> Finding:
    """Return the finding of an operator whose results are images only after a reshape."""
    name = row.operator.split(".")[1]
    return Finding(
        row,
        f"{name} stores its result with channels ahead of pixels, and it becomes an image again",
        "compute on [N, pixels, C], which x.flatten(2).transpose(1, 2) gives without a copy, "
        "and permute the result back",
    )


def _of_copy(row: OperatorLayout, rank: int) -> Finding:
    """Return the finding of a copy into another order."""
    text = row.place.text
    if ".contiguous()" in text:
        last = "torch.channels_last_3d" if rank == 5 else "torch.channels_last"
        named = f".contiguous(memory_format={last})"
        patch = _replaced(row.place, ".contiguous()", named)
        fix = "name the memory format, or leave the call out"
        return Finding(row, "contiguous() stores channels-last images as NCHW", fix, patch)
    if re.search(r"reshape|flatten|view", text):
        problem = "a reshape of channels-last images copies them as NCHW"
        fix = "split or merge no channels here (torch.nn.ChannelShuffle keeps the format), "
        return Finding(row, problem, f"{fix}or convert the result back")
    problem = f"{row.operator.split('.')[1]} stores channels-last images in another order"
    return Finding(row, problem, "copy with memory_format=torch.preserve_format")


def _replaced(place: Place, old: str, new: str) -> tuple[str, str] | None:
    """Return a line of the program and its replacement, if the text occurs in it once."""
    text = place.text
    return (text, text.replace(old, new)) if text.count(old) == 1 else None


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
            raise VerificationError(
                describe(
                    "convert",
                    expected=f"results within {tolerance} of those before",
                    found=f"a difference of {error:.1e}",
                    fix="call check() to see which operators depend on strides",
                )
            )
