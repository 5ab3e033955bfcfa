"""What a check of memory formats finds, and the texts of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stridewise.frontends.torch.library import submodule, torch
from stridewise.torch.layouts import Place, format_of, to_channels_last

__all__ = [
    "Finding",
    "LayoutCheck",
    "OperatorLayout",
    "is_mixed_up",
    "of_copy",
    "of_filling",
    "of_operator",
    "of_outside",
    "of_refusal",
    "of_result",
    "of_strides",
    "of_view",
]


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
        patch: the line of the program and its replacement. It was tested: a run with that change
            kept channels-last there and gave the same results.
        milliseconds: measured cost in each run: the time to store the result channels-last again,
            plus the time of the copy if the finding is a copy; None if the run ended there.
    """

    where: OperatorLayout
    problem: str
    fix: str
    patch: tuple[str, str] | None = None
    milliseconds: float | None = None

    def __str__(self) -> str:
        cost = "" if self.milliseconds is None else f" ({self.milliseconds:.3f} ms)"
        lines = [f"{self.where.place}: {self.problem}{cost}", f"  fix: {self.fix}"]
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
        count = len(self.findings)
        found = (
            f"{count} place{'s lose' if count > 1 else ' loses'} it" if count else "none loses it"
        )
        return "\n".join([f"{head}; {found}", *map(str, self.findings)])

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {"is_clean": self.is_clean, **asdict(self)}

    def to_json(self) -> str:
        """Return :meth:`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=2)

    def to_html(self) -> str:
        """Return a page with the findings and all operators."""
        from stridewise.report import layouts_page  # noqa: PLC0415 (jinja2 takes time to load)

        return layouts_page(self.to_dict())


def is_mixed_up(operator: Any, args: Any, made: Sequence[Any]) -> bool:
    """Return whether an operator would give channels-last if all of its images were."""
    tags = operator.tags
    if operator._schema.is_mutable or torch.Tag.nondeterministic_seeded in tags or not made:
        return False
    tree = submodule("torch.utils._pytree")
    given, options = tree.tree_map_only(torch.Tensor, to_channels_last, args)
    found = tree.tree_leaves(operator(*given, **options))[0]
    return format_of(found) == "channels_last"


def of_operator(row: OperatorLayout, other: int | None, made_at: Place | None) -> Finding:
    """Return the finding of an operator that gives images in another format than it reads.

    Args:
        row: the operator.
        other: position of the image among ``row.inputs`` for whose format it is; None if there is
            none.
        made_at: the line that makes that image, if it is known.
    """
    name = _name(row)
    if other is not None:
        made = "" if made_at is None else f", which {made_at} makes,"
        return Finding(
            row,
            f"{name} reads channels-last and {row.inputs[other]} images; its result is "
            f"{row.outputs[0]}",
            f"store image {other + 1} of {len(row.inputs)}{made} channels-last: append "
            ".contiguous(memory_format=torch.channels_last)",
        )
    return Finding(
        row,
        f"{name} reads channels-last and gives {row.outputs[0]} images",
        "PyTorch has no channels-last kernel for this form; append "
        ".contiguous(memory_format=torch.channels_last), or use another operator",
    )


def of_result(row: OperatorLayout) -> Finding:
    """Return the finding of an operator whose results are images only after a reshape.

    Images of one channel or pixel have no order of their own; new ones of them are NCHW.
    """
    if set(row.inputs) == {"either"}:
        return Finding(
            row,
            f"{_name(row)} reads images of one channel or pixel, and gives {row.outputs[0]} ones",
            "append .contiguous(memory_format=torch.channels_last)",
        )
    return Finding(
        row,
        f"{_name(row)} stores its result with channels ahead of pixels, and it becomes an image "
        "again",
        "compute on [N, pixels, C], which x.flatten(2).transpose(1, 2) gives without a copy, "
        "and permute the result back",
    )


def of_view(row: OperatorLayout) -> Finding:
    """Return the finding of a view in another order that an operator on images reads."""
    return Finding(
        row,
        f"{_name(row)} gives a view of channels-last images in another order, and an operator on "
        "images copies it as NCHW",
        "leave the axes in their order, or append .contiguous(memory_format=torch.channels_last)",
    )


def of_filling(made: OperatorLayout | None, row: OperatorLayout) -> Finding:
    """Return the finding of memory that channels-last images are written into.

    Args:
        made: the operator that allocates it, if it is known.
        row: the operator that writes first.
    """
    fix = "store it channels-last: append .contiguous(memory_format=torch.channels_last)"
    if made is None:
        problem = f"{_name(row)} writes channels-last images into NCHW ones"
        return Finding(row, problem, f"{fix} where it is made")
    problem = f"{_name(made)} makes an NCHW image, and line {row.place.line} writes "
    return Finding(made, f"{problem}channels-last ones into it", fix)


def of_outside(row: OperatorLayout) -> Finding:
    """Return the finding of an image that becomes an array or a list, and a tensor again."""
    return Finding(
        row,
        "a channels-last image leaves PyTorch, and comes back as NCHW",
        "compute with operators of PyTorch, or append "
        ".contiguous(memory_format=torch.channels_last) to what comes back",
    )


def of_strides(row: OperatorLayout) -> Finding:
    """Return the finding of strides that are written down: they fit one memory format only."""
    return Finding(
        row,
        "as_strided reads channels-last images as if they were NCHW, which gives other values",
        "use operators on axes, such as unfold, permute and slices",
    )


def of_refusal(place: Place) -> Finding:
    """Return the finding of a view that channels-last makes impossible."""
    return Finding(
        OperatorLayout("aten.view.default", "", place, ("channels_last",), ()),
        "view fails, as axes that it merges are not neighbors in channels-last",
        "use reshape, which copies, or keep the axes apart; later operators did not run",
    )


def of_copy(row: OperatorLayout) -> Finding:
    """Return the finding of a copy into another order."""
    text = row.place.text
    if ".contiguous()" in text and "strided" not in row.inputs and row.inputs:
        problem = "contiguous() stores channels-last images as NCHW"
        return Finding(row, problem, "name the memory format, or leave the call out")
    if ".contiguous()" in text:
        problem = "contiguous() stores what was a view of channels-last images as NCHW"
        return Finding(row, problem, "leave the call out, and use reshape in place of view")
    if re.search(r"reshape|flatten|view", text):
        problem = "a reshape of channels-last images copies them as NCHW"
        fix = "split or merge no channels here (torch.nn.ChannelShuffle keeps the format), "
        return Finding(row, problem, f"{fix}or convert the result back")
    problem = f"{_name(row)} stores channels-last images in another order"
    return Finding(row, problem, "copy with memory_format=torch.preserve_format")


def _name(row: OperatorLayout) -> str:
    return row.operator.split(".")[1]
