"""The kernel of recurrent layers on every instruction set and with any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.ops.recurrent import CELLS
from stridewise.runtime.simulation.reference import run_reference

from .graphs import error
from .winograd_layers import CORE, F32, KERNELS, Array

KINDS = [cell for cell in CELLS if cell != "gru_reset_first"]


def layer(cell: str, direction: str, steps: int, rows: int, units: int) -> dict[str, Array]:
    """Return the operands of a layer with a bias, if its cell takes one, and first states."""
    rng, count = np.random.default_rng(0), 1 + (direction == "bidirectional")

    def drawn(*shape: int) -> Array:
        return rng.uniform(-1, 1, shape).astype(F32)

    found = {"gates": drawn(steps, rows, count * CELLS[cell] * units)}
    found["weights"] = drawn(count, CELLS[cell] * units, units) * F32(units**-0.5)
    if cell == "gru":
        found["bias"] = drawn(count, units)
    found["state"] = drawn(count, rows, units)
    if cell == "lstm":
        found["cell"] = drawn(count, rows, units)
    return found


def wanted(cell: str, direction: str, operands: dict[str, Array]) -> list[Array]:
    b = sw.GraphBuilder()
    names = {name: b.input(name, array.shape) for name, array in operands.items()}
    inputs = [names.get(name, "") for name in ("gates", "weights", "bias", "state", "cell")]
    while not inputs[-1]:
        inputs.pop()
    outputs = b.node("recurrent", inputs, {"cell": cell, "direction": direction})
    found = run_reference(b.build(list(outputs)), operands)
    return [np.asarray(found[name]) for name in outputs]


def found(
    cell: str, direction: str, operands: dict[str, Array], kernel: tuple[int, str], threads: int
) -> list[Array]:
    (lanes, isa), count = kernel, len(operands["state"])
    steps, rows, width = operands["gates"].shape
    units = width // (count * CELLS[cell])
    src, dst = (
        CORE.MemoryDesc((steps, rows, extent), "f32", "abc") for extent in (width, count * units)
    )
    op = CORE.Recurrent(
        cell, direction, src, dst, has_bias="bias" in operands, has_state=True,
        has_cell="cell" in operands, threads=threads, lanes=lanes, isa=isa,
    )  # fmt: skip
    assert op.impl == f"recurrent:{isa}"
    packed = op.arg_desc(CORE.ARG_WEIGHTS)
    weights = CORE.Buffer(packed.nbytes)
    given_weights = operands["weights"].reshape(packed.dims)
    CORE.prepack_into(
        given_weights, CORE.MemoryDesc(packed.dims, "f32", "abc"), packed, weights, 0, 1
    )
    inputs = [array for name, array in operands.items() if name != "weights"]
    of = {"gates": "ARG_SRC", "bias": "ARG_BIAS", "state": "ARG_SRC_1", "cell": "ARG_SRC_2"}
    named = [name for name in operands if name != "weights"]
    places: dict[int, tuple[int, int]] = {CORE.ARG_WEIGHTS: (1, 0), CORE.ARG_DST: (3, 0)}
    places |= {getattr(CORE, of[name]): (2, index) for index, name in enumerate(named)}
    results = [np.full((steps, rows, count * units), np.nan, F32)]
    if cell == "lstm":
        places[CORE.ARG_DST_1] = (3, 1)
        results.append(np.full((count, rows, units), np.nan, F32))
    program = CORE.Program(
        0, [weights], [a.nbytes for a in inputs], [a.nbytes for a in results], threads
    )
    program.add_primitive(op, [(a, op.arg_desc(a), *places[a], 0) for a in op.args])
    program.freeze()
    program.run([np.ascontiguousarray(a).reshape(-1) for a in inputs], results)
    return results


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=30)
@given(
    cell=st.sampled_from(KINDS),
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 20), st.integers(1, 40)),
)
def test_it_computes_the_definition(kernel: Any, cell: str, direction: str, sizes: Any):
    operands = layer(cell, direction, *sizes)
    right = wanted(cell, direction, operands)
    for ours, theirs in zip(found(cell, direction, operands, kernel, 2), right, strict=True):
        assert error(ours, theirs) < 1e-5


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("cell", KINDS)
@pytest.mark.parametrize("rows", [1, 13, 64])
def test_results_do_not_depend_on_threads(kernel: Any, cell: str, rows: int):
    operands = layer(cell, "bidirectional", 3, rows, 35)
    first = found(cell, "bidirectional", operands, kernel, 1)
    for threads in (2, 3, 8):
        for ours, same in zip(
            found(cell, "bidirectional", operands, kernel, threads), first, strict=True
        ):
            np.testing.assert_array_equal(ours, same)
