"""Post-ops of products of integers, and the order of their predicted costs."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.graph import PostOp, Refusal
from stridewise.runtime.tuning.oracle import in_order
from stridewise.targets.cost import KernelCost, Source
from stridewise.targets.kernels import Arg, KernelSpec, MemorySpec, input_of
from stridewise.targets.onednn.integers import Chain
from stridewise.tensor import Grid

IMAGE = MemorySpec((1, 2, 1, 1), "acdb")
OPERAND = 3.0

numbers = st.floats(-8, 8, width=32)
factors = st.floats(0.125, 8, width=32)
steps = st.one_of(
    st.tuples(st.just("linear"), factors, numbers),
    st.tuples(st.just("clip"), st.floats(-8, 0), st.floats(0, 8)),
    st.tuples(st.just("add"), factors, st.integers(0, 255)),
    st.tuples(st.just("second"), factors, st.just(0)),
)


def chain_of(items: list[tuple[str, float, float]]) -> Chain:
    chain = Chain()
    for index, (what, first, second) in enumerate(items):
        if what == "add":
            grid = Grid("u8", (first,), (int(second),))
            chain.binary(PostOp("add", operand=index), IMAGE, grid)
        elif what == "second":
            chain.second("mul", IMAGE, Arg("", input_of(index)), Grid("u8", (first,), (0,)))
        else:
            chain.eltwise(what, first, second)
    return chain


def value_of(chain: Chain, x: float) -> float:
    """Apply post-ops; the argument of each binary one must be named by its place."""
    roles = {arg.role for arg in chain.args}
    for place, post in enumerate(chain.specs):
        if post.kind == "binary":
            roles.remove(f"post{place}")
            x = x * OPERAND if post.algorithm == "mul" else x + OPERAND
        elif post.algorithm == "clip":
            x = min(max(x, post.alpha), post.beta)
        else:
            assert post.algorithm == "linear"
            x = post.alpha * x + post.beta
    assert not roles
    return x


@given(st.lists(steps, max_size=5), numbers, st.booleans())
def test_a_linear_function_that_is_taken_comes_before_the_rest(
    items: list[tuple[str, float, float]], x: float, has_term: bool
) -> None:
    right, chain = value_of(chain_of(items), x), chain_of(items)
    factor, term = chain.taken_linear(has_term=has_term)
    assert has_term or not term
    assert value_of(chain, factor * x + term) == pytest.approx(right, rel=1e-9, abs=1e-9)
    if has_term and chain.specs:
        first = chain.specs[0]
        assert first.algorithm != "linear" or (factor, term) != (1.0, 0.0)


@given(st.lists(steps, max_size=5), numbers)
def test_a_factor_that_is_taken_comes_after_the_rest(
    items: list[tuple[str, float, float]], x: float
) -> None:
    right, chain = value_of(chain_of(items), x), chain_of(items)
    factor = chain.taken_last()
    assert factor * value_of(chain, x) == pytest.approx(right, rel=1e-9, abs=1e-9)


def test_a_falling_function_stays() -> None:
    chain = chain_of([("linear", -1.0, 2.0)])
    assert chain.taken_linear(has_term=True) == (1.0, 0.0)
    assert len(chain.specs) == 1


def product(source: str, result: str, channels: int) -> KernelSpec:
    weights = MemorySpec((channels, 2, 1, 1), "any", dtype="s8" if source == "u8" else source)
    dst = MemorySpec((1, channels, 1, 1), "acdb", dtype=result)
    src = MemorySpec((1, 2, 1, 1), "acdb", dtype=source)
    return KernelSpec("convolution", (("src", src), ("weights", weights), ("dst", dst)))


SPECS = [
    product(source, result, channels)
    for source in ("u8", "f32")
    for result in ("u8", "f32")
    for channels in (2, 3)
]
SOURCES: list[Source] = ["calibrated", "model", "cached", "measured"]


def cost(ns: float, source: Source) -> tuple[KernelCost]:
    return (KernelCost(ns, "", source),)


known = st.one_of(
    st.builds(cost, st.floats(1, 1e6), st.sampled_from(SOURCES)),
    st.just(Refusal("onednn", "", "none")),
)


@given(st.dictionaries(st.sampled_from(SPECS), known))
def test_storing_real_numbers_is_predicted_to_cost_no_less(
    costs: dict[KernelSpec, tuple[KernelCost, ...] | Refusal],
) -> None:
    found = in_order(costs)
    assert found.keys() == costs.keys()
    for spec, before in costs.items():
        after = found[spec]
        if isinstance(before, Refusal) or isinstance(after, Refusal):
            assert after is before
            continue
        src, dst = (spec.memory(role) for role in ("src", "dst"))
        assert src is not None
        assert dst is not None
        twin = costs.get(product("u8", "u8", dst.dims[1]))
        least = -inf if twin is None or isinstance(twin, Refusal) else twin[0].cost_ns
        is_raised = (src.dtype, dst.dtype) == ("u8", "f32")
        is_raised = is_raised and before[0].source in ("calibrated", "model")
        right = max(before[0].cost_ns, least) if is_raised else before[0].cost_ns
        assert np.isclose(after[0].cost_ns, right)
