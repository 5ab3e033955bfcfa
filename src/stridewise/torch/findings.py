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
    "of_operator",
    "of_result",
    "replaced",
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
        patch: the line of the program and what to write instead, if that is certain.
        milliseconds: what it costs each time, measured: to store the result channels-last again,
            and the copy itself if it is one; None if the run ended there.
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


def of_operator(row: OperatorLayout, is_mixed: bool) -> Finding:
    """Return the finding of an operator that gives images in another format than it reads.

    Args:
        row: the operator.
        is_mixed: whether it is for the format of one of its images.
    """
    name = row.operator.split(".")[1]
    if is_mixed and "contiguous" in row.inputs:
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


def of_result(row: OperatorLayout) -> Finding:
    """Return the finding of an operator whose results are images only after a reshape."""
    name = row.operator.split(".")[1]
    return Finding(
        row,
        f"{name} stores its result with channels ahead of pixels, and it becomes an image again",
        "compute on [N, pixels, C], which x.flatten(2).transpose(1, 2) gives without a copy, "
        "and permute the result back",
    )


def of_strides(row: OperatorLayout) -> Finding:
    """Return the finding of strides that are written down: they fit one memory format only."""
    return Finding(
        row,
        "as_strided reads channels-last images as if they were NCHW, which gives other values",
        "use operators on axes, such as unfold, permute and slices",
    )


def of_copy(row: OperatorLayout, rank: int) -> Finding:
    """Return the finding of a copy into another order."""
    text = row.place.text
    if ".contiguous()" in text and rank < 4:
        problem = "contiguous() stores what was a view of channels-last images as NCHW"
        patch = replaced(row.place, ".contiguous().view(", ".reshape(")
        return Finding(row, problem, "leave the call out, and use reshape in place of view", patch)
    if ".contiguous()" in text:
        last = "torch.channels_last_3d" if rank == 5 else "torch.channels_last"
        named = f".contiguous(memory_format={last})"
        patch = replaced(row.place, ".contiguous()", named)
        fix = "name the memory format, or leave the call out"
        return Finding(row, "contiguous() stores channels-last images as NCHW", fix, patch)
    if re.search(r"reshape|flatten|view", text):
        problem = "a reshape of channels-last images copies them as NCHW"
        fix = "split or merge no channels here (torch.nn.ChannelShuffle keeps the format), "
        return Finding(row, problem, f"{fix}or convert the result back")
    problem = f"{row.operator.split('.')[1]} stores channels-last images in another order"
    patch = replaced(row.place, "torch.contiguous_format", "torch.preserve_format")
    return Finding(row, problem, "copy with memory_format=torch.preserve_format", patch)


def replaced(place: Place, old: str, new: str) -> tuple[str, str] | None:
    """Return a line of the program and its replacement, if the text occurs in it once."""
    text = place.text
    return (text, text.replace(old, new)) if text.count(old) == 1 else None
