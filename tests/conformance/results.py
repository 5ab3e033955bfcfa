"""What ONNX's tests say of Stridewise: numbers an operator, and every test that does not pass.

``results.toml`` keeps them. ``python -m tests.conformance`` compares, ``--update`` rewrites.
"""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import onnxruntime
from onnx import ModelProto, TensorProto, helper

from stridewise.frontends.onnx.table import HANDLERS

from .reasons import nodes, operators, reason_of
from .suite import Outcome

__all__ = ["PATH", "Results", "collect", "read", "render", "unexplained"]

PATH = Path(__file__).with_name("results.toml")
HANDLED = frozenset(HANDLERS[""])


@dataclass(slots=True)
class Row:
    """The tests of one operator by itself.

    Attributes:
        total: how many there are.
        native: how many pass without the fallback.
        fallback: how many pass with it.
        dtypes: of the first input, or output, of those that pass natively.
        ops: what the operator becomes, a set for each form of it.
    """

    total: int = 0
    native: int = 0
    fallback: int = 0
    dtypes: set[str] = field(default_factory=set[str])
    ops: set[frozenset[str]] = field(default_factory=set[frozenset[str]])


@dataclass(frozen=True, slots=True)
class Results:
    """All that is kept of a run.

    Attributes:
        versions: of the packages that the outcomes depend on.
        totals: numbers of the tests that pass.
        rows: by operator.
        excluded: tests that do not pass natively, by reason.
    """

    versions: Mapping[str, str]
    totals: Mapping[str, int]
    rows: Mapping[str, Row]
    excluded: Mapping[str, tuple[str, ...]]


def unexplained(outcomes: Iterable[Outcome]) -> dict[str, str]:
    """Return the errors of tests that fail though nothing excuses them."""
    return {
        item.name: item.error for item in outcomes if item.error and not reason_of(item, HANDLED)
    }


def _subject(model: ModelProto) -> str:
    """Return the operator that a model is all about, ``""`` where there are several."""
    names = operators(model)
    alone = len(names) == 1 and sum(1 for _ in nodes(model)) == 1
    return next(iter(names)) if alone else ""


def _dtype(model: ModelProto) -> str:
    (first, *_) = (*model.graph.input, *model.graph.output)
    code = first.type.tensor_type.elem_type
    name: str = TensorProto.DataType.Name(code)
    return (
        name.lower() if code == TensorProto.BFLOAT16 else str(helper.tensor_dtype_to_np_dtype(code))
    )


def collect(native: Mapping[str, Outcome], fallback: Mapping[str, Outcome]) -> Results:
    """Return the results of two runs, without and with the fallback."""
    rows: dict[str, Row] = defaultdict(Row)
    excluded: dict[str, list[str]] = defaultdict(list)
    for name, item in native.items():
        if item.error:
            excluded[reason_of(item, HANDLED) or "unexplained"].append(name)
        subject = _subject(item.model)
        if not subject:
            continue
        row = rows[subject]
        row.total += 1
        row.native += not item.error
        row.fallback += not fallback[name].error
        if not item.error:
            row.dtypes.add(_dtype(item.model))
            row.ops.add(item.ops)
    return Results(
        {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__},
        {
            "tests": len(native),
            "native": sum(not item.error for item in native.values()),
            "fallback": sum(not item.error for item in fallback.values()),
        },
        dict(sorted(rows.items())),
        {reason: tuple(sorted(names)) for reason, names in sorted(excluded.items())},
    )


_HEAD = """\
# What ONNX's own backend tests say. Made by `python -m tests.conformance --update`, and compared by
# the tests: an entry that is not true any more is a failure.
"""


def render(results: Results) -> str:
    """Return the results as the text of a TOML file."""
    lines = [_HEAD, "[versions]"]
    lines += [f"{name} = {json.dumps(version)}" for name, version in results.versions.items()]
    lines += ["", "[totals]"]
    lines += [f"{name} = {count}" for name, count in results.totals.items()]
    lines += ["", "[operators]"]
    for name, row in results.rows.items():
        numbers = f"total = {row.total}, native = {row.native}, fallback = {row.fallback}"
        ops = sorted(map(sorted, row.ops))
        known = f"dtypes = {json.dumps(sorted(row.dtypes))}, ops = {json.dumps(ops)}"
        lines.append(f"{json.dumps(name)} = {{ {numbers}, {known} }}")
    lines += ["", "[excluded]"]
    for reason, names in results.excluded.items():
        lines += [f"{json.dumps(reason)} = [", *(f"  {json.dumps(name)}," for name in names), "]"]
    return "\n".join(lines) + "\n"


def read(path: Path = PATH) -> Results:
    """Return the results that a file keeps."""
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    rows: dict[str, Row] = {}
    for name, row in found["operators"].items():
        ops = set(map(frozenset[str], row["ops"]))
        numbers = (row["total"], row["native"], row["fallback"])
        rows[name] = Row(*numbers, set(row["dtypes"]), ops)
    excluded = {reason: tuple(names) for reason, names in found["excluded"].items()}
    return Results(found["versions"], found["totals"], rows, excluded)
