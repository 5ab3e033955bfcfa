"""Plan files: decisions that are committed, compared and used again without measuring anything.

A file is the document of a plan. It is used by enumerating the candidates of the graph anew, with
the costs of the file, and by finding its decisions among them; so a plan from a file can be asked
whatever another plan can.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum, isclose
from pathlib import Path
from typing import Any, cast

from stridewise.errors import FormatError, ModelError, PlanError
from stridewise.graph import Graph, Node, Refusal
from stridewise.planner.derivation.derive import Derived
from stridewise.planner.documents.document import (
    VERSION,
    NodeRecord,
    PlanRecord,
    ReorderRecord,
    fingerprint,
    signatures,
)
from stridewise.planner.plan import Decision, Pin, PlanData, Reorder
from stridewise.planner.problem.candidates import Candidate, Candidates, enumerate_candidates
from stridewise.planner.problem.formulation import Terms
from stridewise.planner.problem.io_formats import Boundary, boundary
from stridewise.planner.questions.lookup import Offer, offers
from stridewise.records import Reader
from stridewise.replacing import reason, replacing
from stridewise.targets.cost import KernelCost, Progress
from stridewise.targets.kernels import KernelSpec
from stridewise.targets.machine import Machine
from stridewise.targets.target import Target

__all__ = ["differences", "parsed", "read", "restore", "save"]

_AGAIN = "plan again: stridewise plan MODEL --save FILE"


# --- files --------------------------------------------------------------------------------------


def save(plan: PlanData, path: str | os.PathLike[str]) -> None:
    """Write a plan to a file, which is replaced at once or not at all.

    Raises:
        PlanError: the file cannot be written, or nodes run twice to save memory.
    """
    goal = Path(path)
    if plan.repeats:
        # They are found again, always the same ones, and the graph of a model has them not.
        raise PlanError.at(
            f"plan file {str(goal)!r}",
            expected="a plan in which each node runs once",
            found=f"{len(plan.repeats)} nodes that run again to save memory",
            fix="save the plan without memory_limit, and give memory_limit again with plan=",
        )
    text = PlanRecord.of(plan).to_json()
    try:
        with replacing(goal) as file:
            file.write(text.encode())
    except (OSError, ValueError) as error:
        raise PlanError.at(
            f"plan file {str(goal)!r}", expected="a file to write", found=reason(error)
        ) from error


def read(path: str | os.PathLike[str]) -> PlanRecord:
    """Return the record in a plan file, checked field by field.

    Raises:
        PlanError: there is no such file, it is no plan, it has another version of the schema, or
            it contradicts itself.
    """
    where = f"plan file {os.fspath(path)!r}"
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        found = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise PlanError.at(where, expected="a plan file", found=found, fix=_AGAIN) from error
    except ValueError as error:
        raise PlanError.at(
            where, expected="a plan file", found=f"no JSON ({error})", fix=_AGAIN
        ) from error
    return parsed(text, where)


def parsed(text: str, where: str) -> PlanRecord:
    """Return the record that a text is; ``where`` is what messages call it.

    Raises:
        PlanError: as for :func:`read`.
    """
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError.at(
            where, expected="a plan file", found=f"no JSON ({error})", fix=_AGAIN
        ) from error
    table = cast(dict[str, Any], document) if isinstance(document, dict) else {}
    version: Any = table.get("version")
    if version != VERSION:
        found = "no version" if version is None else f"version {version!r}"
        raise PlanError.at(where, expected=f"a plan of version {VERSION}", found=found, fix=_AGAIN)

    def wrong(path: str, expected: str, found: str, fix: str) -> PlanError:
        fix = fix or "plan again, the file is damaged"
        place = f"{where}, field {path!r}" if path else where
        return PlanError.at(place, expected=expected, found=found, fix=fix)

    record: PlanRecord = Reader(wrong).read(PlanRecord, document)
    _check_sum(record, where)
    return record


def _check_sum(record: PlanRecord, where: str) -> None:
    parts = [node.cost_ns for node in record.nodes]
    total = fsum((*parts, *(reorder.cost_ns for reorder in record.reorders)))
    if not isclose(total, record.cost_ns, rel_tol=1e-6, abs_tol=1e-3):
        raise PlanError.at(
            f"{where}, field 'cost_ns'",
            expected=f"the sum of its nodes and reorders, {total!r}",
            found=repr(record.cost_ns),
            fix="plan again, the file was changed by hand",
        )


# --- use ----------------------------------------------------------------------------------------


class _Recorded:
    """The oracle that knows what a file says, and nothing else."""

    def __init__(self, kernels: Mapping[str, KernelCost]) -> None:
        self._kernels = kernels

    def costs(
        self, specs: Sequence[KernelSpec], progress: Progress | None = None
    ) -> Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal]:
        del progress  # nothing takes long enough
        return {spec: self._known(str(spec)) for spec in specs}

    def _known(self, text: str) -> tuple[KernelCost, ...] | Refusal:
        if text in self._kernels:
            return (self._kernels[text],)
        return Refusal("plan file", text, "the plan file has no cost of it")


def differences(made_for: Machine, here: Machine) -> tuple[str, ...]:
    """Return what differs between two machines, each as ``"isa: AVX2, here AVX512_CORE"``."""
    pairs = (
        ("CPU", made_for.cpu, here.cpu),
        ("isa", made_for.isa, here.isa),
        ("threads", made_for.threads, here.threads),
        ("library", made_for.library, here.library),
    )
    return tuple(f"{what}: {there}, here {own}" for what, there, own in pairs if there != own)


def _check_graph(record: PlanRecord, graph: Graph, where: str) -> None:
    """Raise PlanError, naming the first node that differs, unless the plan is of this graph."""
    if record.fingerprint == fingerprint(graph):
        if len(record.nodes) != len(graph.nodes):
            raise PlanError.at(
                f"{where}, field 'nodes'",
                expected=f"{len(graph.nodes)} nodes",
                found=str(len(record.nodes)),
                fix=f"the file was changed by hand; {_AGAIN}",
            )
        return
    planned, found = record.parts, signatures(graph)
    for key in sorted({**found, **planned}, key=lambda key: not key.startswith("node ")):
        if planned.get(key) != found.get(key):
            raise PlanError.at(
                f"{where}, {key}",
                expected=found.get(key, f"none, as in graph {graph.name!r}"),
                found=planned.get(key, "none"),
                fix=f"it is the plan of another model, other shapes or origins; {_AGAIN}",
            )
    raise PlanError.at(
        f"{where}, field 'fingerprint'",
        expected=fingerprint(graph),
        found=record.fingerprint,
        fix=f"the order of nodes differs, or the file was changed by hand; {_AGAIN}",
    )


def _choice(candidate: Candidate) -> tuple[object, ...]:
    option = candidate.option
    return (
        option.algorithm,
        tuple(None if stored is None else str(stored) for stored in option.needs),
        tuple(map(str, option.makes)),
        tuple(str(call.spec) for call in option.calls),
    )


def _edge(record: PlanRecord, graph: Graph, where: str) -> Boundary:
    try:
        return boundary(
            graph,
            {tensor.name: tensor.format for tensor in record.inputs},
            {tensor.name: tensor.format for tensor in record.outputs},
        )
    except FormatError as error:
        raise PlanError.at(where, expected="known formats", found=str(error), fix=_AGAIN) from error


def _candidates(
    record: PlanRecord, graph: Graph, target: Target, edge: Boundary, where: str
) -> Candidates:
    try:
        return enumerate_candidates(graph, target, _Recorded(record.kernels), edge)
    except ModelError as error:
        raise PlanError.at(
            where,
            expected="kernels that this release knows for every node",
            found=str(error).partition("; ")[0],
            fix=_AGAIN,
        ) from error


def _decision(node: Node, found: NodeRecord, group: tuple[Candidate, ...], where: str) -> Decision:
    matching = [candidate for candidate in group if _choice(candidate) == found.choice]
    names = found.implementations
    matching = [c for c in matching if tuple(k.implementation for k in c.costs) == names]
    if not matching:
        sources = ", ".join(fmt for fmt in found.input_formats if fmt) or "nothing"
        raise PlanError.at(
            f"{where}, node {node.name!r} ({node.op})",
            expected="one of " + ", ".join(sorted({repr(c.algorithm) for c in group})),
            found=f"{found.algorithm!r} from {sources} to {', '.join(found.output_formats)}, "
            "which does not exist here",
            fix=_AGAIN,
        )
    chosen = min(matching, key=lambda candidate: abs(candidate.cost_ns - found.cost_ns))
    return Decision(node.name, chosen, tuple(c for c in group if c is not chosen))


def _reorder(
    record: ReorderRecord,
    known: Mapping[tuple[str, str, str], tuple[str, str, str]],
    candidates: Candidates,
    where: str,
) -> Reorder:
    key = known.get(record.key)
    if key is None:
        raise PlanError.at(
            f"{where}, reorder of {record.tensor!r}",
            expected="formats that its producer makes and a reader takes",
            found=f"{record.source} -> {record.target}",
            fix=_AGAIN,
        )
    tensor, source, goal = key
    form = candidates.storages.storage
    return Reorder(
        tensor,
        form(tensor, source),
        form(tensor, goal),
        record.nbytes,
        record.cost_ns,
        record.implementation,
    )


def _pins(plan: PlanData, record: PlanRecord, where: str) -> tuple[Pin, ...]:
    found: list[Pin] = []
    for tensor, name in record.pins.items():
        known: Mapping[str, Offer] = offers(plan, tensor) if tensor in plan.graph.values else {}
        ways = [offer.storage for offer in known.values()]
        wanted = next((stored for stored in ways if str(stored) == name), None)
        if wanted is None:
            raise PlanError.at(
                f"{where}, pin of {tensor!r}",
                expected=f"one of {', '.join(map(str, ways)) or 'none'}",
                found=name,
                fix=_AGAIN,
            )
        found.append(Pin(tensor, wanted, plan.target.spell))
    return tuple(found)


def _check_target(record: PlanRecord, target: Target, where: str) -> None:
    if record.target != target.name:
        raise PlanError.at(
            where,
            expected=f"a plan for target {target.name}",
            found=record.target,
            fix=f"give target={record.target!r}",
        )


def _notes(record: PlanRecord, here: Machine) -> tuple[str, ...]:
    other = differences(record.machine, here)
    if not other:
        return record.notes
    return (*record.notes, f"the plan was made for another machine ({'; '.join(other)})")


def restore(
    record: PlanRecord,
    derived: Derived,
    target: Target,
    machine: Machine,
    where: str = "plan file",
) -> PlanData:
    """Return the plan of a record for the graph that it was made of.

    Args:
        record: what :func:`read` returned.
        derived: the graph, with the Origin of its values; weights may differ.
        target: the target of the machine that the plan was made for.
        machine: this machine. Where it is another one, the plan has a note that says so.
        where: what messages call the record.

    Raises:
        PlanError: the plan is of another target or graph, or decides what does not exist.
    """
    graph = derived.graph
    _check_target(record, target, where)
    _check_graph(record, graph, where)
    edge = _edge(record, graph, where)
    candidates = _candidates(record, graph, target, edge, where)
    decisions = tuple(
        _decision(node, found, candidates.nodes[node.name], where)
        for node, found in zip(graph.nodes, record.nodes, strict=True)
    )
    form = candidates.storages.storage
    known = {(n, str(form(n, a)), str(form(n, b))): (n, a, b) for n, a, b in candidates.reorders}
    reorders = tuple(_reorder(item, known, candidates, where) for item in record.reorders)
    plan = PlanData(
        record.name,
        graph,
        target,
        machine,
        decisions,
        reorders,
        record.cost_ns,
        record.lower_bound_ns,
        record.refusals,
        derived,
        record.comparisons,
        {name: formats[0] for name, formats in edge.inputs.items()},
        {name: formats[0] for name, formats in edge.outputs.items()},
        Terms(graph, candidates, edge),
        notes=_notes(record, machine),
        split=record.split,
    )
    return replace(plan, pins=_pins(plan, record, where)) if record.pins else plan
