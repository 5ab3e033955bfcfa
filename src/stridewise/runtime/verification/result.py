"""What a verification found: one row a stored tensor, the first wrong one, and a short table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Literal

from stridewise.errors import VerificationError

__all__ = ["RUN", "Verdict", "Verification", "VerificationRow"]

Verdict = Literal["ok", "follows", "differs"]

RUN = "run"
"""What is given as the node of outputs, which a plain run gives."""

_SHOWN = 5
"""Rows of a table beside the first wrong one: of inner tensors, and of outputs."""
_ORDER: tuple[Verdict, ...] = ("ok", "follows", "differs")


@dataclass(frozen=True, slots=True)
class VerificationRow:
    """The comparison of one stored tensor of a run with the correct result.

    Errors and tolerances are norms of differences over the norm of the right result; absolute ones
    where that is 0, and the part of the elements that differ for integers and booleans.

    Attributes:
        name: the tensor.
        node: the node that computes it, the step that reorders it, or ``"run"`` for an output of a
            plain run.
        kernel: how, as a plan calls it: ``"direct, blocked [jit:avx2]"``.
        format: how it is stored.
        relative_error: of the whole tensor against the reference of the whole model; it includes
            errors of earlier nodes.
        tolerance: the part of that error that the earlier nodes and their conditioning explain.
        largest_error: largest absolute difference from the correct result for the stored operands
            of the node.
        local_error: relative error against the same result, in the slice where it is largest
            relative to its tolerance.
        local_tolerance: the error that a correct kernel may have in that slice.
        where: that slice, or another defect; "" for the whole tensor.
        verdict: ``"ok"``; ``"differs"`` if the node computes a wrong result; ``"follows"`` if the
            tensor differs from the reference only because the operands of its node do.
    """

    name: str
    node: str
    kernel: str
    format: str
    relative_error: float
    tolerance: float
    largest_error: float
    local_error: float
    local_tolerance: float
    where: str
    verdict: Verdict

    @property
    def badness(self) -> tuple[int, float, float]:
        """Key that sorts rows: the verdict, then the largest ratio of an error to its tolerance."""
        local = self.local_error / (self.local_tolerance or 1e-300)
        return _ORDER.index(self.verdict), local, self.relative_error / (self.tolerance or 1e-300)

    def __str__(self) -> str:
        errors = (self.local_error, self.local_tolerance, self.relative_error, self.tolerance)
        numbers = "  ".join(f"{number:8.1e}" for number in errors)
        where = f" at {self.where}" if self.where and self.verdict == "differs" else ""
        made = f"{self.name} ({self.format}) by {self.node}: {self.kernel}"
        return f"{numbers}  {self.verdict:<7}  {made}{where}"


@dataclass(frozen=True, slots=True)
class Verification:
    """A comparison of a compiled model with an evaluation without its kernels and formats.

    Attributes:
        model: its name.
        against: what the outputs were compared with, ``"reference"`` or ``"onnxruntime"``.
        threads: how many ran the model.
        from_disk: whether an earlier process compiled it.
        seed: of random inputs and perturbations.
        rows: all tensors in the order in which they are computed.
        notes: what was not compared, and why.
    """

    model: str
    against: str
    threads: int
    from_disk: bool
    seed: int
    rows: tuple[VerificationRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> VerificationRow | None:
        """The first tensor that its node computes wrongly; None if there is none."""
        return next((row for row in self.rows if row.verdict == "differs"), None)

    @property
    def ok(self) -> bool:
        """Whether every tensor is correct for the operands of its node."""
        return self.first is None

    def check(self) -> None:
        """Raise an error if a tensor is wrong.

        Raises:
            VerificationError: one is not; the message names the first, its node and its kernel.
        """
        row = self.first
        if row is None:
            return
        where = f" at {row.where}" if row.where else ""
        raise VerificationError.at(
            f"model {self.model!r}, node {row.node!r}, tensor {row.name!r}",
            expected=f"a relative error of at most {row.local_tolerance:.2g}",
            found=f"{row.local_error:.2g}{where}, by {row.kernel} in {row.format}",
            fix=self._fix(row),
        )

    def _fix(self, row: VerificationRow) -> str:
        if self.from_disk:
            return "compile it anew with store_limit=0, and verify that"
        if row.node == RUN and self.against != "reference":
            return "report it with the model, as all layers agree with the graph that was imported"
        return "report it with the model; plan.why(node) names other kernels"

    def __str__(self) -> str:
        first = self.first
        verdict = "ok" if first is None else f"differs from node {first.node!r} on"
        made = "compiled by an earlier process" if self.from_disk else "compiled by this process"
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        lines = [
            f"{self.model!r}: {verdict}; {made}, {threads}, "
            f"{len(self.rows)} tensors against {self.against}, seed {self.seed}",
            f"{'local':>8}  {'allowed':>8}  {'in all':>8}  {'allowed':>8}  verdict  tensor",
        ]
        lines += map(str, _shown(self.rows, first))
        count = sum(row.verdict == "follows" for row in self.rows)
        if count:
            lines.append(
                f"{count} tensors are right for the operands of their nodes, which are off"
            )
        return "\n".join([*lines, *self.notes]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON has it; infinite errors are None."""
        rows = [
            {key: None if _is_infinite(item) else item for key, item in asdict(row).items()}
            for row in self.rows
        ]
        first = None if self.first is None else rows[self.rows.index(self.first)]
        head = {"model": self.model, "ok": self.ok, "against": self.against, "seed": self.seed}
        made = {"threads": self.threads, "from_disk": self.from_disk}
        return {**head, **made, "first": first, "notes": list(self.notes), "rows": rows}

    def to_json(self) -> str:
        """Return :meth:`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=2)


def _is_infinite(item: object) -> bool:
    return isinstance(item, float) and not isfinite(item)


def _shown(rows: Sequence[VerificationRow], first: VerificationRow | None) -> list[VerificationRow]:
    """Return the first wrong row, the worst of the others, and some outputs."""
    inner = [row for row in rows if row is not first and row.node != RUN]
    outputs = [row for row in rows if row is not first and row.node == RUN]
    worst = sorted(inner, key=lambda row: row.badness, reverse=True)[:_SHOWN]
    return [*([] if first is None else [first]), *worst, *outputs[:_SHOWN]]
