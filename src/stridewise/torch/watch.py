"""What a run does with images in memory: the losses of channels-last, operator by operator.

Memory that holds data of channels-last images in another order has a note of the loss that it is
once an operator on images reads it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from stridewise.frontends.torch.graphs import memory_order
from stridewise.frontends.torch.library import submodule, torch
from stridewise.frontends.torch.values import OF_SHAPES
from stridewise.torch.costs import Loss
from stridewise.torch.findings import (
    Finding,
    OperatorLayout,
    is_mixed_up,
    of_copy,
    of_filling,
    of_operator,
    of_outside,
    of_refusal,
    of_result,
    of_strides,
    of_view,
)
from stridewise.torch.layouts import (
    Place,
    format_of,
    is_image,
    is_last,
    is_plain,
    place_now,
    place_of_error,
)
from stridewise.torch.notes import Memory, Note

__all__ = ["Watch"]

_COPIES = ("aten.clone.default", "aten._to_copy.default")
"""Operators that store a tensor anew, in the order that the program asks for."""

_VIEWS = ("aten._unsafe_view.default", "aten.lift_fresh.default")
"""Operators whose results share memory with operands, though their schemas do not say so."""

_RESTRIDES = "aten.as_strided.default"

_RESIZES = "aten.resize_.default"

_READERS = re.compile(
    r"aten\.(_?convolution|conv\w*|\w*pool\w*|\w*batch_norm\w*|native_group_norm|upsample\w*|"
    r"_upsample\w*|grid_sampler\w*|ref\w*_pad\w*|rep\w*_pad\w*)\b"
)
"""Operators on images alone; what they read has its channels in the second axis."""


class Watch:
    """What is known of a run.

    Attributes:
        rows: all operators on images so far.
        findings: where channels-last is lost, by place and operator.
        results: the tensors that the model has returned; None if the run ended before.
    """

    def __init__(self, model: Any, inputs: Sequence[Any]) -> None:
        """Start a run.

        Args:
            model: the module or function.
            inputs: the tensors that it reads, images among them stored channels-last.
        """
        self.rows: list[OperatorLayout] = []
        self.findings: dict[tuple[Place, str], Finding] = {}
        self.results: list[Any] | None = None
        self._memory = Memory()
        self._turned: Any = submodule("torch.utils.weak").WeakIdKeyDictionary()  # views
        # Where images left PyTorch and what they had lost, by their sizes.
        self._gone: dict[int, tuple[Place, Finding | None]] = {}
        self._path: list[str] = []
        self._packages = [_package(model)]
        self._losses: dict[Finding, Loss] = {}
        self._direct: set[Finding] = set()  # of images as such, in no view of another shape
        self._leaves = submodule("torch.utils._pytree").tree_leaves
        if isinstance(model, torch.nn.Module):
            for x in self._tensors([*model.parameters(), *model.buffers()]):
                self._memory.note(x, Note())
        for x in self._tensors(inputs):
            self._memory.note(x, Note(is_image=is_last(x)))

    @contextmanager
    def modules(self, model: Any) -> Generator[None]:
        """Keep track of the module that runs."""
        names = {}
        if isinstance(model, torch.nn.Module):
            names = {id(module): name for name, module in model.named_modules()}
        hooks = submodule("torch.nn.modules.module")

        def enter(module: Any, _args: Any) -> None:
            self._path.append(names.get(id(module)) or type(module).__name__)
            self._packages.append(_package(module))

        def leave(_module: Any, _args: Any, _results: Any) -> None:
            self._path.pop()
            self._packages.pop()

        handles = [
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @property
    def place(self) -> Place:
        """The line that runs now."""
        return place_now(self._packages)

    def _tensors(self, tree: Any) -> list[Any]:
        found = [x for x in self._leaves(tree) if isinstance(x, torch.Tensor)]
        return [x for x in found if x.layout == torch.strided]

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
            self.place,
            tuple(format_of(x) for x in read if format_of(x) != "-"),
            tuple(format_of(x) for x in made if format_of(x) != "-"),
        )
        if row.inputs or row.outputs:
            self.rows.append(row)
        for x in read[:1]:
            self._entered(row, x)
        images = [x for x in read if self._is_image(x)]
        if images and images[0] is read[0] and _READERS.match(row.operator):
            self._reads(images[0], made)
        if row.operator == _RESIZES or (operator.is_view and not row.inputs):
            self._shaped(row, made)
        if row.operator == _RESTRIDES and images:
            self._restrided(row, images[0], made)
        elif operator.is_view or row.operator in _VIEWS:
            self._viewed(row, images, made)
        elif images and made and any(x is made[0] for x in read):
            self._written(row, images, made[0])
        elif images and row.operator not in OF_SHAPES:
            self._computed(row, operator, args, images, made)
        else:
            for x in made:
                if self._memory.of(x) is None:
                    self._memory.note(x, Note(row))

    def _is_image(self, x: Any) -> bool:
        note = self._memory.of(x)
        return note is not None and note.is_image

    def _loss(self, x: Any) -> Finding | None:
        note = self._memory.of(x)
        return None if note is None else note.loss

    def _entered(self, row: OperatorLayout, x: Any) -> None:
        """Take note of memory that no operator made, after images have left PyTorch."""
        gone = self._gone.get(x.numel())
        if format_of(x) != "-" and self._gone:
            gone = gone or list(self._gone.values())[-1]
        if gone is not None and self._memory.of(x) is None:
            where = row if row.operator in _VIEWS else replace(row, place=gone[0])
            loss = gone[1] or of_outside(where)
            self._memory.note(x, Note(row, is_image=True, loss=loss))

    def leaves(self, x: Any) -> None:
        """Take note of a tensor that becomes a NumPy array or a list."""
        if isinstance(x, torch.Tensor) and x.numel() > 1 and self._is_image(x):
            self._gone.pop(x.numel(), None)
            self._gone[x.numel()] = (self.place, self._loss(x))

    def _reads(self, x: Any, made: Sequence[Any]) -> None:
        """Take note of an image that an operator on images reads."""
        note = self._memory.of(x)
        if note is None or not is_plain(x):
            return
        loss = note.loss or self._turned.get(x)
        # Of images without an order, an operator makes NCHW ones, which matters if they spread.
        is_new = note.row is not None and set(note.row.inputs) == {"either"}
        if loss is None and note.row is not None and (not is_new or any(map(is_plain, made))):
            loss = of_result(note.row)
        self._add(loss, x)

    def _shaped(self, row: OperatorLayout, made: Sequence[Any]) -> None:
        """Take note of memory without axes of images that becomes an image."""
        for x in made:
            note = self._memory.of(x)
            if is_image(x) and note is not None and not note.is_image:
                self._memory.note(x, replace(note, row=row))

    def _restrided(self, row: OperatorLayout, x: Any, made: Sequence[Any]) -> None:
        """Take note of strides that a program sets itself."""
        if is_last(x) and any(map(is_plain, made)):
            self._add(of_strides(row))
            self._turned.update({view: of_strides(row) for view in made})

    def _viewed(self, row: OperatorLayout, images: Sequence[Any], made: Sequence[Any]) -> None:
        """Take note of views that have channels-last images in another order."""
        for x in images[:1]:
            found = self._turned.get(x) or of_view(row)
            self._turned.update({view: found for view in made if is_plain(view)})

    def _written(self, row: OperatorLayout, images: Sequence[Any], target: Any) -> None:
        """Take note of images that are written into other memory."""
        note, whole = self._memory.of(target) or Note(), target
        if target._base is not None:
            whole = target._base
        if not note.is_image:
            loss = None if is_last(whole) else of_filling(note.row, row)
            self._memory.note(target, replace(note, is_image=True, loss=loss))
            if loss is not None and any(map(is_last, images)):
                self._direct.add(loss)

    def _computed(
        self,
        row: OperatorLayout,
        operator: Any,
        args: Any,
        images: Sequence[Any],
        made: Sequence[Any],
    ) -> None:
        """Take note of new results."""
        others = [x for x in images if not is_last(x)]
        known = next((loss for x in others if (loss := self._loss(x)) is not None), None)
        turned = next((self._turned[x] for x in others if x in self._turned), None)
        is_direct, is_copy = len(others) < len(images), row.operator in _COPIES
        # What reads lost images alone loses nothing more.
        is_kept = _keeps_order(images, made) or all(self._loss(x) is not None for x in images)
        loss = (known or turned) if is_kept or _READERS.match(row.operator) else None
        if is_copy and made and not _keeps_order(images, made):
            loss = of_copy(row)
            self._losses.setdefault(loss, Loss.of(made[0], images[0]))
        elif is_direct and any(is_plain(x) and self._loss(x) is not None for x in others):
            self._add(known, images[0])
            loss = known
        elif is_direct and any(map(is_plain, made)):
            other = self._other(args) if is_mixed_up(operator, args, made) else None
            loss = known or turned or of_operator(row, other, self._made_at(args))
        elif loss is None and not is_kept:
            loss = of_result(row)
        if is_direct and loss is not None:
            self._direct.add(loss)
        for x in made:
            is_lost = is_plain(x) or format_of(x) == "-"
            self._memory.note(x, Note(row, is_image=True, loss=loss if is_lost else None))

    def _other(self, args: Any) -> int | None:
        """Return the position among images of the first one in another order than channels-last."""
        images = [x for x in self._tensors(args) if is_image(x)]
        kinds = [is_last(x) or format_of(x) == "either" for x in images]
        return None if all(kinds) else kinds.index(False)

    def _made_at(self, args: Any) -> Place | None:
        """Return the line that makes an NCHW image, which holds no data of channels-last ones."""
        plain = [x for x in self._tensors(args) if is_plain(x) and not self._is_image(x)]
        notes = [note for x in plain if (note := self._memory.of(x)) is not None]
        return next((note.row.place for note in notes if note.row is not None), None)

    def _add(self, finding: Finding | None, image: Any = None) -> None:
        """Add a finding, and what it costs to store an image channels-last again."""
        if finding is not None:
            self.findings.setdefault((finding.where.place, finding.where.operator), finding)
            if image is not None:
                self._losses.setdefault(finding, Loss.of(image))

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
        self._add(of_refusal(place_of_error(error, self._packages)))

    def left(self, results: Any) -> None:
        """Take note of the results of the model: images in another order are losses."""
        self.results = self._tensors(results)
        for x in self.results:
            loss = self._loss(x)
            if is_plain(x) and loss in self._direct:
                self._add(loss, x)


def _package(model: Any) -> str:
    return str(getattr(model, "__module__", "")).split(".", maxsplit=1)[0]


def _keeps_order(images: Sequence[Any], made: Sequence[Any]) -> bool:
    """Return whether the first result stores its axes in the order of the first image."""
    orders = [memory_order(x.shape, x.stride()) for x in (images[0], *made[:1])]
    return len(orders) == 2 and orders[0] == orders[1]
