"""Fusing attention: what is one operator afterwards, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.networks import F32, Net

from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes.fuse_attention import fuse_attention
from stridewise.targets.onednn.target import ABILITY

from .test_passes import same_results

BATCH, HEADS, TOKENS, DEPTH = 4, 2, 9, 3
SHAPE = (BATCH, HEADS, TOKENS, TOKENS)


class Attention:
    """Attention in four parts, any of which a test replaces."""

    def __init__(self, shape: tuple[int, ...] = (BATCH, HEADS, TOKENS, DEPTH)) -> None:
        self.b = Net("net")
        self.q, self.k, self.v = (self.b.input(name, shape) for name in "qkv")
        self.extra: list[str] = []
        self.scores: Callable[[], str] = self._scores
        self.stepped: Callable[[str], str] = lambda scores: scores
        self.weights: Callable[[str], str] = self.softmax
        self.result: Callable[[str], str] = self._result

    def _scores(self) -> str:
        return self.b.op("matmul", [self.q, self.k], {"trans_b": 1})

    def softmax(self, scores: str) -> str:
        return self.b.op("softmax", [scores], {"axis": len(self.b.type(scores).shape) - 1})

    def _result(self, weights: str) -> str:
        return self.b.op("matmul", [weights, self.v])

    def graph(self) -> Graph:
        y = self.result(self.weights(self.stepped(self.scores())))
        return self.b.build([y, *self.extra])


def fused(graph: Graph) -> tuple[Graph, list[str]]:
    verify(graph, infer)
    found, refusals = fuse_attention(graph, ABILITY)
    verify(found, infer)
    same_results(graph, found)
    return found, [refusal.reason for refusal in refusals]


def is_one(graph: Graph) -> bool:
    operators = [node.op for node in graph.nodes]
    return operators.count("attention") == 1 and not {"softmax", "matmul"} & {*operators}


def _scaled(a: Attention, scores: str) -> str:
    return a.b.op("div", [a.b.op("mul", [a.b.const(0.5), scores]), a.b.const(3)])


def _biased(a: Attention, scores: str) -> str:
    biased = a.b.op("add", [a.b.constant(np.ones((HEADS, TOKENS, TOKENS), F32)), scores])
    return a.b.op("mul", [biased, a.b.const(0.5)])


def _masked(a: Attention, scores: str) -> str:
    mask = a.b.op("greater", [a.b.input("mask", (BATCH, 1, 1, TOKENS)), a.b.const(0)])
    return a.b.op("where", [mask, scores, a.b.const(-50)])


def _causal(a: Attention, scores: str) -> str:
    later = a.b.constant(np.triu(np.ones((TOKENS, TOKENS), np.bool_), 1))
    return a.b.op("where", [later, a.b.const(-inf), scores])


def _in_windows(a: Attention, scores: str) -> str:
    """Add a mask for each of two windows, as shifted windows have it."""
    apart = a.b.op("reshape", [scores], {"shape": (2, 2, HEADS, TOKENS, TOKENS)})
    mask = a.b.input("windows", (1, 2, 1, TOKENS, TOKENS))
    return a.b.op("reshape", [a.b.op("add", [apart, mask])], {"shape": SHAPE})


def _relative(a: Attention, scores: str) -> str:
    """Add biases for rows and columns of an image of 3x3."""
    apart = a.b.op("reshape", [scores], {"shape": (BATCH, HEADS, 3, 3, 3, 3)})
    for name, shape in (("rows", (3, 3, 3, 1)), ("columns", (3, 3, 1, 3))):
        apart = a.b.op("add", [apart, a.b.input(name, (BATCH, HEADS, *shape))])
    return a.b.op("reshape", [apart], {"shape": SHAPE})


def _truth_as_number(a: Attention, scores: str) -> str:
    """Mask by truth values that are 1 and 0 in between, as PyTorch's are."""
    mask = a.b.op("less", [a.b.input("truth", (BATCH, 1, TOKENS, TOKENS)), a.b.const(0)])
    number = a.b.op("where", [mask, a.b.const(1), a.b.const(0)])
    hidden = a.b.op("greater", [number, a.b.const(0.5)])
    return a.b.op("where", [hidden, a.b.const(-7), scores])


STEPS = [_scaled, _biased, _masked, _causal, _in_windows, _relative, _truth_as_number]


@pytest.mark.parametrize("step", STEPS)
def test_steps_between_scores_and_softmax_become_steps_of_attention(
    step: Callable[[Attention, str], str],
):
    a = Attention()
    a.stepped = lambda scores: step(a, scores)
    found, refusals = fused(a.graph())
    assert is_one(found), refusals


@settings(max_examples=40)
@given(steps=st.lists(st.sampled_from(STEPS), max_size=3, unique=True))
def test_any_steps_in_any_order_keep_all_results(steps: list[Callable[[Attention, str], str]]):
    a = Attention()

    def stepped(scores: str) -> str:
        for step in steps:
            scores = step(a, scores)
        return scores

    a.stepped = stepped
    assert is_one(fused(a.graph())[0])


def test_factors_before_all_other_steps_are_one_number():
    a = Attention()
    a.stepped = lambda scores: _biased(a, _scaled(a, scores))
    (node,) = fused(a.graph())[0].nodes
    assert node.float_attr("scale") == pytest.approx(0.5 / 3)
    assert node.get("steps") == ("add", "mul")


def test_matrices_of_all_heads_in_one_axis_are_found():
    a = Attention((BATCH * HEADS, TOKENS, DEPTH))
    a.stepped = lambda scores: a.b.op("reshape", [scores], {"shape": SHAPE})
    a.result = lambda weights: a.b.op(
        "matmul",
        [a.b.op("reshape", [weights], {"shape": (BATCH * HEADS, TOKENS, TOKENS)}), a.v],
    )
    assert is_one(fused(a.graph())[0])


def test_a_transposed_result_is_found():
    a = Attention()
    turned = {"perm_a": (0, 1, 3, 2), "perm_b": (0, 1, 3, 2), "perm": (0, 2, 1, 3)}
    a.result = lambda weights: a.b.op("matmul", [a.v, weights], turned)
    assert is_one(fused(a.graph())[0])


@pytest.mark.parametrize("zeroed", ["empty", "nan"])
def test_undefined_weights_that_become_0_are_found(zeroed: str):
    a = Attention()

    def weights(scores: str) -> str:
        found = a.b.op("softmax", [scores], {"axis": 3})
        if zeroed == "nan":
            test = a.b.op("is_nan", [found])
        else:
            most = a.b.op("reduce_max", [scores], {"axes": (3,), "keepdims": 1})
            test = a.b.op("equal", [most, a.b.const(-inf)])
        return a.b.op("where", [test, a.b.const(0), found])

    def stepped(scores: str) -> str:
        mask = np.zeros((TOKENS, TOKENS), np.bool_)
        mask[3] = True
        return a.b.op("where", [a.b.constant(mask), a.b.const(-inf), scores])

    a.weights, a.stepped = weights, stepped
    found, refusals = fused(a.graph())
    assert is_one(found), refusals
    (node,) = found.nodes
    assert node.str_attr("zeroed") == zeroed


def test_keys_that_all_heads_share_are_found():
    a = Attention()
    a.k, a.v = (a.b.input(name, (BATCH, 1, TOKENS, DEPTH)) for name in ("keys", "values"))
    assert is_one(fused(a.graph())[0])


# --- what stays -----------------------------------------------------------------------------------


def _returned(a: Attention, scores: str) -> str:
    a.extra.append(a.b.op("relu", [scores]))
    return scores


def _between(op: str) -> Callable[[Attention], None]:
    def change(a: Attention) -> None:
        a.stepped = lambda scores: a.b.op(op, [scores])

    return change


def _read_scores(a: Attention) -> None:
    a.stepped = lambda scores: _returned(a, scores)


def _read_weights(a: Attention) -> None:
    a.weights = lambda scores: _returned(a, a.softmax(scores))


def _other_axis(a: Attention) -> None:
    a.weights = lambda scores: a.b.op("softmax", [scores], {"axis": 2})


def _constant_keys(a: Attention) -> None:
    a.k = a.b.constant(np.ones((BATCH, HEADS, TOKENS, DEPTH), F32))


def _with_bias(a: Attention) -> None:
    bias = a.b.constant(np.ones(TOKENS, F32))
    a.scores = lambda: a.b.op("matmul", [a.q, a.k, bias], {"trans_b": 1})


def _turned_scores(a: Attention) -> None:
    turned = {"trans_b": 1, "perm": (0, 1, 3, 2)}
    a.scores = lambda: a.b.op("matmul", [a.q, a.k], turned)


def _turned_weights(a: Attention) -> None:
    a.result = lambda weights: a.b.op("matmul", [weights, a.v], {"trans_a": 1})


def _more_values(a: Attention) -> None:
    a.q, a.k = (a.b.input(name, (1, HEADS, TOKENS, DEPTH)) for name in ("few", "keys"))


def _few_queries(a: Attention) -> None:
    a.q = a.b.input("query", (BATCH, HEADS, 1, DEPTH))


def _other_rows(a: Attention) -> None:
    """Take the softmax over halves of rows."""
    halves = (BATCH, HEADS, 3 * TOKENS, 3)
    a.stepped = lambda scores: a.b.op("reshape", [scores], {"shape": halves})
    a.result = lambda weights: a.b.op(
        "matmul", [a.b.op("reshape", [weights], {"shape": SHAPE}), a.v]
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_between("relu"), "it stands between no products"),
        (_read_scores, "it stands between no products"),
        (_read_weights, "it stands between no products"),
        (_other_axis, "its softmax is not over rows"),
        (_constant_keys, "its products have constants"),
        (_with_bias, "its products have constants, biases"),
        (_turned_scores, "its scores are transposed"),
        (_turned_weights, "its weights are transposed"),
        (_more_values, "its values have more matrices"),
        (_few_queries, "products and softmax are faster apart"),
        (_other_rows, "its softmax is not over the rows of its scores"),
    ],
)
def test_what_is_no_attention_stays(change: Callable[[Attention], None], reason: str):
    a = Attention()
    change(a)
    found, refusals = fused(a.graph())
    assert "attention" not in [node.op for node in found.nodes]
    assert any(refusal.startswith(reason) for refusal in refusals), refusals


def test_targets_without_the_kernel_have_no_attention():
    import stridewise as sw

    graph = Attention().graph()
    assert "softmax" in [node.op for node in sw.plan(graph, target="ascend").graph.nodes]
