"""Write docs/operators.md: which operators of ONNX run, how, and what ONNX's own tests say.

Run it after ``python -m tests.conformance --update``, or after a change of a kernel:
``python docs/make_operators.py``. A test compares what it would write with what is there.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

PAGE = Path(__file__).with_name("operators.md")
sys.path.insert(0, str(PAGE.parents[1]))  # for the tests' results, and their graphs

from tests.conformance.results import Results, Row, read  # noqa: E402
from tests.runtime.graphs import CASES  # noqa: E402

from stridewise.frontends.onnx.table import HANDLERS  # noqa: E402
from stridewise.graph import Graph, Node  # noqa: E402
from stridewise.planner import derive  # noqa: E402
from stridewise.planner.problem.candidates import Candidate, enumerate_candidates  # noqa: E402
from stridewise.planner.problem.fallback_kernel import is_host  # noqa: E402
from stridewise.targets.cost import Roofline  # noqa: E402
from stridewise.targets.machine import Machine  # noqa: E402
from stridewise.targets.onednn.table import OFFERS, TYPED  # noqa: E402
from stridewise.targets.onednn.target import onednn_cpu  # noqa: E402

KINDS = ("plain", "channels-last", "blocked")
_MACHINE = Machine("any CPU", "AVX512_CORE", 2, "oneDNN")
_TARGET = onednn_cpu(_MACHINE)

_TEXT = """\
# Operators

<!-- Made by docs/make_operators.py; change that file instead. -->

This page lists the operators of ONNX, how Stridewise runs them, and the results of ONNX's own
backend tests (`onnx.backend.test`, nodes and whole models). The tests run through
[`stridewise.onnx_backend`](#as-a-backend), with the package `onnx` {onnx}:

| | tests that pass, of {tests} |
|---|---|
| Stridewise alone, `fallback=False` | {native} |
| with ONNX Runtime {onnxruntime} as the fallback | {fallback} |

With the fallback, every test passes that passes in Stridewise alone or in ONNX Runtime alone. The
exceptions are single tests with their own reason below. `tests/conformance` checks this.

## Table

- **Runs as**: *kernels* means native kernels, for float32 at least; element types without one run
  on the NumPy fallback. *NumPy* means the NumPy fallback, a step of the same program. *constants
  and views* take no time in a run. *ONNX Runtime* means the ONNX Runtime fallback. *as in models*
  means that Stridewise imports the operator, but ONNX has no test of it alone in opset 6 or later.
- **Formats**: formats in which kernels store images without a reorder, in some form of the operator
  that the tests execute. If a form has several parts, all of them have kernels for the format.
  `blocked` has 8 or 16 channels per block. The NumPy fallback uses only `plain`, the user's own
  order.
- **Element types**: of the first operand, in tests that pass natively.
- **Native**, **fallback**: number of passing tests of this operator alone, and number of all its
  tests. `-` means that ONNX has none.

{table}

For these operators, no test passes, with or without the fallback: {neither}.

## Native failures and their reasons

Each failing test has a reason that applies to its model. A failure without a reason is a fault, and
so is a listed test that passes. The names are in `tests/conformance/results.toml`.

{reasons}

## As a backend

```python
import numpy as np
from onnx import helper
from stridewise.onnx_backend import Backend

node = helper.make_node("Relu", ["x"], ["y"])
(y,) = Backend.run_node(node, [np.array([-1, 2], np.float32)])  # also prepare and run_model
```

`Backend` implements `onnx.backend.base.Backend`. `prepare`, `run_model` and `run_node` accept
the keyword arguments of `stridewise.compile`.
"""


def _kinds(graph: Graph) -> Iterable[tuple[str, str]]:
    """Yield operators and the kinds of format that kernels store their results in."""
    derived = derive(graph).graph
    oracle = Roofline(1e11, 4e10, _TARGET.efficiency)
    found = enumerate_candidates(derived, _TARGET, oracle)
    for node in derived.nodes:
        for candidate in found.nodes[node.name]:
            if not is_host(candidate.option):
                yield from ((node.op, kind) for kind in _kinds_of(derived, node, candidate))


def _kinds_of(graph: Graph, node: Node, candidate: Candidate) -> Iterable[str]:
    name = node.outputs[0]
    made = candidate.option.outputs[0]
    yield from (kind for kind, fmt in _TARGET.formats(graph.values[name]).items() if fmt == made)


def formats() -> dict[str, tuple[str, ...]]:
    """Return the kinds of format that kernels of each operator support."""
    found: dict[str, set[str]] = defaultdict(set)
    for make in CASES.values():
        for op, kind in _kinds(make()):
            found[op].add(kind)
    return {op: tuple(kind for kind in KINDS if kind in kinds) for op, kinds in found.items()}


def _has_kernels(op: str) -> bool:
    return op in OFFERS or op in TYPED


def _runs_as(name: str, row: Row) -> str:
    if not row.native:
        if name in HANDLERS[""]:
            return "as in models"
        return "ONNX Runtime" if row.fallback else "-"
    kinds = {_has_kernels(op) for ops in row.ops for op in ops}
    return {
        frozenset(): "constants and views",
        frozenset({True}): "kernels",
        frozenset({False}): "NumPy",
        frozenset({True, False}): "kernels and NumPy",
    }[frozenset(kinds)]


def _formats_of(row: Row, known: Mapping[str, tuple[str, ...]]) -> str:
    """Return the formats that all parts of some form of an operator work in."""
    found: set[str] = set()
    for ops in filter(None, row.ops):
        parts = [set(known.get(op, ())) if _has_kernels(op) else {"plain"} for op in ops]
        found |= set.intersection(*parts)
    return ", ".join(kind for kind in KINDS if kind in found)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(results: Results) -> str:
    """Return a row for each operator that some test of passes, or that has a handler."""
    known = formats()
    lines = [_line(("operator", "runs as", "formats", "element types", "native", "fallback"))]
    lines.append(_line(["---"] * 6))
    for name in sorted({*results.rows, *HANDLERS[""]}):
        row = results.rows.get(name, Row())
        if not (row.native or row.fallback or name in HANDLERS[""]):
            continue
        numbers = [f"{count}/{row.total}" for count in (row.native, row.fallback)]
        lines.append(
            _line(
                (
                    f"`{name}`",
                    _runs_as(name, row),
                    _formats_of(row, known),
                    ", ".join(sorted(row.dtypes)),
                    *(numbers if row.total else ["-", "-"]),
                )
            )
        )
    return "\n".join(lines)


def _reasons(results: Results) -> str:
    lines = [_line(("reason", "tests")), _line(["---"] * 2)]
    lines += [_line((reason, str(len(names)))) for reason, names in results.excluded.items()]
    return "\n".join(lines)


def generated() -> str:
    """Return the page as it should be."""
    results = read()
    neither = [
        f"`{name}`"
        for name, row in results.rows.items()
        if not (row.native or row.fallback or name in HANDLERS[""])
    ]
    return _TEXT.format(
        **results.versions,
        **results.totals,
        table=table(results),
        reasons=_reasons(results),
        neither=", ".join(neither),
    )


def main() -> None:
    """Write the page."""
    PAGE.write_text(generated(), encoding="utf-8")


if __name__ == "__main__":
    main()
