"""Verification: every tensor that a compiled model stores beside what it should be.

Two questions are asked of each tensor. Is it what its node should make of the operands that the
node really had? That finds the node where an error begins, and says nothing of errors before it.
And how far is it from the reference of the whole model? The reference is computed a second time
with operands that are moved a little at every node, which shows how far right programs may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import dtype_of
from stridewise.formats import Format, algebra
from stridewise.graph import Graph, Node, Value
from stridewise.ops import evaluate
from stridewise.ops.activation import SNAPS
from stridewise.ops.geometry import converted, storage_shape, user_format, way_of
from stridewise.ops.quantize import node_grid
from stridewise.planner.problem.candidates import Candidate
from stridewise.planning import Plan
from stridewise.program import Written
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.inputs import as_array, made_up
from stridewise.runtime.lowering.schedule import reorder_label
from stridewise.runtime.simulation.storage import StoredTensor, store
from stridewise.runtime.verification.closeness import (
    Difference,
    compare,
    is_float,
    relative_error,
    relative_step,
    shaken,
)
from stridewise.runtime.verification.result import RUN, Verdict, VerificationRow
from stridewise.runtime.verification.rounded import rounded_graph
from stridewise.tensor import Storage, TensorDesc

__all__ = ["input_arrays", "verified_rows"]

Array = NDArray[Any]
Values = dict[str, Array]


def input_arrays(
    model: CompiledModel, given: Mapping[str, Any] | None, seed: int
) -> dict[str, StoredTensor]:
    """Return the inputs of a model's program in the formats that it reads.

    Args:
        model: the model.
        given: arrays by name, in the user's axis order or as they are stored; those that are
            missing are made up.
        seed: of made-up inputs.

    Raises:
        InputError: a shape or a dtype is wrong.
    """
    rng, signature = np.random.default_rng(seed), model.call_signature
    found: dict[str, StoredTensor] = {}
    for name in signature.graph.inputs:
        value, fmt = signature.graph.values[name], signature.input_formats[name]
        array = None if given is None else given.get(name)
        if array is None:
            array = made_up(value, value.shape, rng)
        found[name] = _stored(value, array, fmt)
    return found


def _desc(value: Value, fmt: Format) -> TensorDesc:
    return TensorDesc(value.shape, value.dtype, user_format(value), fmt)


def _stored(value: Value, array: Any, fmt: Format) -> StoredTensor:
    desc, shape = _desc(value, fmt), storage_shape(value, fmt)
    if np.shape(array) == value.shape != shape:
        return store(value.name, desc, as_array(value, array), "zero")
    return StoredTensor(value.name, desc, as_array(value, array, fmt).reshape(-1))


def verified_rows(
    model: CompiledModel,
    graph: Graph,
    inputs: Mapping[str, StoredTensor],
    rng: np.random.Generator,
    outputs: Mapping[str, Array] | None = None,
) -> tuple[VerificationRow, ...]:
    """Run a model and return what is to be said of each stored tensor, in order.

    Args:
        model: the model.
        graph: of its plan, with all constants.
        inputs: from :func:`input_arrays`.
        rng: where perturbations come from.
        outputs: what another runtime computes, by name, in the user's order; by default the
            reference's own.

    Raises:
        ExecutionError: a node fails for these inputs.
    """
    plan = replace(model.plan, graph=rounded_graph(model.plan, graph))
    arrays = {name: item.buffer.reshape(item.desc.storage_shape) for name, item in inputs.items()}
    signature = model.call_signature
    results = model.run_program([arrays[name] for name in signature.graph.inputs])
    plain: Values = {}
    for name, result in zip(signature.graph.outputs, results, strict=True):
        value, fmt = signature.graph.values[name], signature.output_formats[name]
        plain[name] = StoredTensor(name, _desc(value, fmt), result.reshape(-1)).array
    parts = plan.split.parts
    users = {name: item.array for name, item in inputs.items()}
    rows: list[tuple[VerificationRow, ...]] = []

    def check(part: int, traced: Sequence[tuple[Written, Array]]) -> None:
        cut = [
            {name: _part(array, part, parts) for name, array in arrays_.items()}
            for arrays_ in (users, plain, outputs or {})
        ]
        rows.append(tuple(_Part(plan, rng, traced).rows(*cut)))

    _trace(model, arrays, check)
    return tuple(max(same, key=lambda row: row.badness) for same in zip(*rows, strict=True))


def _part(array: Array, part: int, parts: int) -> Array:
    size = array.shape[0] // parts if parts > 1 else 0
    return array if parts == 1 else array[part * size : (part + 1) * size]


def _trace(
    model: CompiledModel,
    arrays: Mapping[str, Array],
    check: Callable[[int, Sequence[tuple[Written, Array]]], None],
) -> None:
    """Run a model and hand on the stored tensors of each part of its batch."""
    steps = model.program.steps
    each = sum(item.ref.space != "input" for step in steps for item in step.written)
    seen: list[tuple[Written, Array]] = []
    part = 0

    def collect(written: Written, stored: Array) -> None:
        nonlocal part
        seen.append((written, stored))
        if len(seen) == each:
            check(part, seen)
            seen.clear()
            part += 1

    # What a tail takes beside tensors is not read here.
    others = dict.fromkeys(model.input_names)
    model.trace({**others, **arrays}, collect)
    while part < model.program.split.parts:  # nothing is stored
        check(part, ())
        part += 1


class _Part:
    """The check of one part of a batch, or of the whole."""

    def __init__(
        self, plan: Plan, rng: np.random.Generator, traced: Sequence[tuple[Written, Array]]
    ) -> None:
        self._plan, self._graph, self._rng = plan, plan.graph, rng
        key = plan.storages.key
        labels = {(r.tensor, key(r.tensor, r.target)): reorder_label(r) for r in plan.reorders}
        kernels = {(r.tensor, key(r.tensor, r.target)): r.implementation for r in plan.reorders}
        self._labels, self._kernels = labels, kernels
        self._made: dict[str, tuple[Written, Array]] = {}
        self._again: dict[str, list[tuple[Written, Array]]] = {}
        for written, stored in traced:
            if self._key(written) in labels:
                self._again.setdefault(written.value, []).append((written, stored))
            else:
                self._made[written.value] = (written, stored)
        constants = {name: item.array for name, item in plan.graph.constants.items()}
        self._reference: Values = dict(constants)
        self._moved: Values = dict(constants)
        self._had: Values = dict(constants)
        self._had_moved: Values = {}
        # Tensors as reorders stored them, which may have rounded them.
        self._had_again: dict[tuple[str, Storage], Array] = {}
        self._last = {
            name: index for index, node in enumerate(self._graph.nodes) for name in node.inputs
        }

    def _storage(self, written: Written) -> Storage:
        return way_of(self._graph.values[written.value], written.desc)

    def _key(self, written: Written) -> tuple[str, str]:
        return written.value, self._plan.storages.key(written.value, self._storage(written))

    def rows(
        self, inputs: Mapping[str, Array], plain: Mapping[str, Array], others: Mapping[str, Array]
    ) -> Iterator[VerificationRow]:
        """Yield the rows of all tensors, given inputs, outputs of a plain run, and others' outputs.

        Args:
            inputs: in the user's order.
            plain: outputs of a plain run, in the user's order.
            others: outputs of another runtime; empty for the reference.
        """
        self._reference |= inputs
        self._had |= inputs
        self._moved |= {name: shaken(array, self._rng) for name, array in inputs.items()}
        for name in self._graph.inputs:
            yield from self._reordered(name)
        for index, (node, decision) in enumerate(
            zip(self._graph.nodes, self._plan.decisions, strict=True)
        ):
            yield from self._node(node, decision.chosen)
            self._forget(node, index)
        for name, found in plain.items():
            yield self._output(name, found, others.get(name))

    def _forget(self, node: Node, index: int) -> None:
        for name in dict.fromkeys((*node.inputs, *node.outputs)):
            if self._last.get(name, -1) <= index and name not in self._graph.outputs:
                for values in (self._reference, self._moved, self._had, self._had_moved):
                    values.pop(name, None)
                self._made.pop(name, None)
                self._again.pop(name, None)

    def _node(self, node: Node, chosen: Candidate) -> Iterator[VerificationRow]:
        approximate = chosen.option.approximate
        right = _computed(node, self._had | self._as_read(node, chosen))
        reference = _computed(node, self._reference)
        coarse = self._coarse(chosen)
        moved = self._shaken(node, self._moved, reference, approximate, coarse)
        self._reference |= zip(node.outputs, reference, strict=True)
        self._moved |= zip(node.outputs, moved, strict=True)

        def again() -> Sequence[Array]:
            values = {**self._had, **self._had_moved}
            return self._shaken(node, values, right, approximate, coarse)

        kernel = f"{chosen.algorithm} [{chosen.implementation}]"
        for position, name in enumerate(node.outputs):
            if name not in self._made:
                # It lies nowhere: its reader's kernel computes it, or it is a view of an input.
                self._had[name], self._had_moved[name] = right[position], again()[position]
                yield from self._reordered(name)
                continue
            written, stored = self._made[name]
            found, spare = self._unstored(written, stored)
            self._had[name] = found
            local = compare(
                _rounded_alike(node, found, right[position]),
                right[position],
                lambda position=position: again()[position],
                step=relative_step(found.dtype, approximate=approximate, coarse=coarse),
                spreads=approximate,
            )
            yield self._row(name, node.name, kernel, written, found, local, spare)
            yield from self._reordered(name)

    def _as_read(self, node: Node, chosen: Candidate) -> Values:
        """Return operands that reorders stored as the kernel reads them."""
        ways: dict[str, set[Storage | None]] = {}
        for name, way in zip(node.inputs, chosen.option.needs, strict=True):
            ways.setdefault(name, set()).add(way)
        # A tensor that is read in two ways keeps the values that it was made with.
        keys = ((name, *read) for name, read in ways.items() if len(read) == 1)
        found = ((name, self._had_again.get((name, way))) for name, way in keys if way is not None)
        return {name: array for name, array in found if array is not None}

    def _coarse(self, chosen: Candidate) -> float:
        """Return the step of the types that a kernel has tensors in instead of their own."""
        option = chosen.option
        ways = (*option.needs, *option.makes)
        types = [way.dtype.numpy for way in ways if way is not None and way.dtype is not None]
        # Reorders may have rounded operands to integers.
        is_offered = bool(self._graph.offers) and any(way and way.quantization for way in ways)
        return max(*map(relative_step, types), _INTEGER_STEP if is_offered else 0.0, 0.0)

    def _shaken(
        self,
        node: Node,
        values: Values,
        right: Sequence[Array],
        approximate: bool,
        coarse: float,
    ) -> Sequence[Array]:
        """Return the results of a node whose operands are moved, where that makes sense."""
        moved = {
            name: values[name]
            if name in self._graph.constants
            else shaken(values[name], self._rng, approximate=approximate, coarse=coarse)
            for name in node.inputs
            if name
        }
        try:
            found = _computed(node, moved)
        except Exception:  # an operand may be a parameter, such as a scale, that cannot be moved
            return right
        pairs = list(zip(found, right, strict=True))
        if any(a.shape != b.shape for a, b in pairs):
            return right
        # A square root of what was 0 is no number; the next nodes need one.
        return [np.where(np.isfinite(a), a, b) if is_float(b.dtype) else a for a, b in pairs]

    def _reordered(self, name: str) -> Iterator[VerificationRow]:
        """Yield the rows of a tensor in other formats than it was produced in."""
        for written, stored in self._again.get(name, ()):
            label = self._key(written)
            found, spare = self._unstored(written, stored)
            # A conversion rounds to the nearest element.
            value, way = self._graph.values[name], self._storage(written)
            own = Storage(way.format)
            self._had_again[name, way] = found
            right = converted(value, converted(value, self._had[name], own, way), way, own)
            difference = compare(found, right, lambda right=right: right, step=0.0)
            kernel = f"reorder [{self._kernels[label]}]"
            yield self._row(name, self._labels[label], kernel, written, found, difference, spare)

    def _unstored(self, written: Written, stored: Array) -> tuple[Array, int]:
        return _unstored(written, stored, self._graph.values[written.value])

    def _row(
        self,
        name: str,
        node: str,
        kernel: str,
        written: Written,
        found: Array,
        local: Difference,
        spare: int,
    ) -> VerificationRow:
        error, tolerance = self._whole(name, found)
        if spare and not local.is_wrong:
            local = Difference(np.inf, 0.0, np.inf, f"the padding, where {spare} are not 0")
        verdict: Verdict = "follows" if error > tolerance else "ok"
        if local.is_wrong:
            verdict = "differs"
        fmt = str(self._storage(written))
        return VerificationRow(
            name, node, kernel, fmt, error, tolerance, local.largest,
            local.error, local.tolerance, local.where, verdict,
        )  # fmt: skip

    def _whole(self, name: str, found: Array) -> tuple[float, float]:
        """Return the relative error against the whole reference, and what is explained of it."""
        reference = self._reference[name]
        explained = relative_error(self._moved[name], reference)
        return relative_error(found, reference), explained + self._coarsest(reference.dtype)

    def _coarsest(self, dtype: np.dtype[Any]) -> float:
        """Return the step of the coarsest type that float tensors of the plan may have."""
        if self._plan.target.precision != "bfloat16":
            return relative_step(dtype)
        return relative_step(dtype, coarse=relative_step(dtype_of("bfloat16").numpy))

    def _output(self, name: str, found: Array, other: Array | None) -> VerificationRow:
        """Return the row of an output of a plain run, which is the traced one to the bit."""
        had = self._had[name]
        local = compare(found, had, lambda: had, step=relative_step(had.dtype))
        error, tolerance = self._whole(name, found)
        verdict: Verdict = "differs" if local.is_wrong else "ok"
        if other is not None:
            error = relative_error(found, other)
            local = Difference(error, tolerance, local.largest) if error > tolerance else local
        if error > tolerance and verdict == "ok":
            verdict = "follows" if other is None else "differs"
        fmt = str(self._plan.output_formats[name])
        return VerificationRow(
            name, RUN, "all steps", fmt, error, tolerance, local.largest,
            local.error, local.tolerance, local.where, verdict,
        )  # fmt: skip


def _rounded_alike(node: Node, found: Array, right: Array) -> Array:
    """Return results of which those count as right that a rounding to a grid made differ.

    The sums before such a rounding may lie on both sides of a half, so a few results may differ by
    one step of each grid that the node rounds to. Where many do, the kernel rounds in another way.
    """
    steps = [post.alpha for post in node.post_ops if post.op in SNAPS]
    steps += [node_grid(node).scales[0]] if node.op in SNAPS else []
    if not steps:
        return found
    off = found != right
    near = np.abs(found - right) <= _ONE_STEP * sum(steps)
    is_rare = np.count_nonzero(off) <= _FEW + _MOST_HALVES * off.size
    return np.where(near, right, found) if is_rare else found


_INTEGER_STEP = 2.0**-6
"""What rounding to the 256 numbers of a grid changes, as a part of typical elements."""
_ONE_STEP = 1.01
"""A step of a grid, and rounding errors of its multiples."""
_FEW, _MOST_HALVES = 8, 0.2
"""How many sums may lie at a half, and which part: means of four integers often do."""


def _computed(node: Node, values: Mapping[str, Array]) -> Sequence[Array]:
    with np.errstate(all="ignore"):
        return evaluate(node, [values[name] if name else None for name in node.inputs])


def _unstored(written: Written, stored: Array, value: Value) -> tuple[Array, int]:
    """Return a tensor as the user sees it, and how many elements of padding are not zero."""
    desc, flat = written.desc, stored.reshape(-1)
    array = StoredTensor(written.value, desc, flat).array
    array = converted(value, array, way_of(value, desc), Storage(desc.storage.format))
    if array.size == flat.size:
        return array, 0
    spare = np.ones(flat.size, bool)
    spare[algebra.offsets(desc.storage.format, desc.canonical_shape)] = False
    return array, int(np.count_nonzero(flat[spare]))
