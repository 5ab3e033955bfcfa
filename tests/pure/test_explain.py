"""What a plan can be asked: why, what if, regret, moves. Totals against trying everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import inf, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.errors import PlanError
from stridewise.formats import Format
from stridewise.graph import Graph, Refusal
from stridewise.ops.geometry import user_format
from stridewise.planner import Move, Regret
from stridewise.planner.problem.candidates import Candidate
from stridewise.planning import Plan
from stridewise.tensor import Storage

from .plans import F32, KINDS, Oracle, cheap, conv, net, planned, random_costs, residual

SEEDS = st.integers(0, 10_000)


# --- the oracle: every combination of kernels -----------------------------------------------------


class Everything:
    """All combinations of kernels of a small plan, each with the reorders that it then needs."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.graph = plan, plan.graph
        groups = [plan.candidates.nodes[node.name] for node in plan.graph.nodes]
        assert prod(map(len, groups)) < 20_000
        self.all = [(picks, self.cost(picks)) for picks in product(*groups)]

    def stored(self, picks: tuple[Candidate, ...]) -> dict[str, str]:
        """Return the format that each tensor is produced in."""
        key = self.plan.storages.key
        found = {n: key(n, user_format(self.graph.values[n])) for n in self.graph.inputs}
        for node, pick in zip(self.graph.nodes, picks, strict=True):
            for name, fmt in zip(node.outputs, pick.option.makes, strict=True):
                found[name] = key(name, fmt)
        return found

    def cost(self, picks: tuple[Candidate, ...]) -> float:
        """Return the cost of kernels and reorders, or inf where a reorder does not exist."""
        key = self.plan.storages.key
        there = self.stored(picks)
        needed = {(n, key(n, user_format(self.graph.values[n]))) for n in self.graph.outputs}
        for node, pick in zip(self.graph.nodes, picks, strict=True):
            for name, fmt in zip(node.inputs, pick.option.needs, strict=True):
                if fmt is not None:
                    needed.add((name, key(name, fmt)))
        known = self.plan.candidates.reorders
        total = sum(pick.cost_ns for pick in picks)
        for name, goal in needed:
            if goal != there[name]:
                cost = known.get((name, there[name], goal))
                total += inf if cost is None else cost.cost_ns
        return total

    def least(self, allowed: Callable[[tuple[Candidate, ...]], bool]) -> float:
        return min((cost for picks, cost in self.all if allowed(picks)), default=inf)


def small(seed: int) -> Graph:
    """Return one of a few graphs with a shared tensor, a pool, a concat or a flatten."""
    b, x = net(1, 16, 4, 4)
    y = conv(b, x, 16)
    if seed % 3 == 0:
        y = b.op("max_pool", [y], {"kernel": (2, 2)})
    if seed % 2:
        z = conv(b, y, 16)
        return b.build([b.op("concat", [z, y], {"axis": 1}), z])
    z = b.op("add", [conv(b, y, 16), y])
    return b.build([b.op("reshape", [z], {"shape": (1, prod(b.type(z).shape))}), y])


def everything(seed: int) -> tuple[Plan, Everything]:
    plan = planned(small(seed), random_costs(seed))
    return plan, Everything(plan)


def pairs(plan: Plan) -> Iterator[tuple[str, Storage]]:
    """Every tensor that a node makes, with every format that some candidate makes it in."""
    for node in plan.graph.nodes:
        for place, name in enumerate(node.outputs):
            keys = {
                plan.storages.key(name, candidate.option.makes[place])
                for candidate in plan.candidates.nodes[node.name]
            }
            for key in sorted(keys):
                yield name, plan.storages.storage(name, key)


@settings(max_examples=30)
@given(SEEDS)
def test_the_plan_is_the_cheapest_of_all_combinations(seed: int):
    plan, every = everything(seed)
    assert plan.cost_ns == pytest.approx(every.least(lambda _: True))


@settings(max_examples=30)
@given(SEEDS)
def test_why_says_what_each_candidate_would_cost_in_total(seed: int):
    plan, every = everything(seed)
    for position, node in enumerate(plan.graph.nodes):
        why = plan.why(node.name)
        assert why.node == node.name
        assert why.total_ns == plan.cost_ns
        assert why.chosen is plan.decisions[position].chosen
        assert {id(item.candidate) for item in why.alternatives} == {
            id(candidate) for candidate in plan.decisions[position].rejected
        }
        for item in why.alternatives:
            total = every.least(lambda picks, i=item, p=position: picks[p] is i.candidate)
            assert item.total_delta_ns == pytest.approx(total - plan.cost_ns)
            alone = item.candidate.cost_ns - why.chosen.cost_ns
            assert item.node_delta_ns == pytest.approx(alone)
            assert item.total_delta_ns >= 0
        totals = [item.total_delta_ns for item in why.alternatives]
        assert totals == sorted(totals)


@settings(max_examples=30)
@given(SEEDS)
def test_what_if_is_the_cheapest_plan_that_makes_the_tensor_so(seed: int):
    plan, every = everything(seed)
    for name, fmt in pairs(plan):
        key = plan.storages.key(name, fmt)
        wanted = every.least(lambda picks, n=name, k=key: every.stored(picks)[n] == k)
        if wanted == inf:
            with pytest.raises(PlanError, match="no combination of kernels"):
                plan.what_if({name: fmt})
            continue
        found = plan.what_if({name: fmt})
        assert found.cost_ns == pytest.approx(wanted)
        assert found.gap <= 1e-9
        assert plan.storages.key(name, found.made(name)) == key
        total = sum(d.chosen.cost_ns for d in found.decisions)
        assert found.cost_ns == pytest.approx(total + sum(r.cost_ns for r in found.reorders))


@settings(max_examples=30)
@given(SEEDS)
def test_regret_is_what_forcing_a_format_costs_and_its_parts_sum_to_it(seed: int):
    plan, every = everything(seed)
    regrets = plan.regrets()
    own = {(n, plan.storages.key(n, plan.made(n))) for n, _ in pairs(plan)}
    others = {(n, plan.storages.key(n, f)) for n, f in pairs(plan)} - own
    assert {(r.tensor, plan.storages.key(r.tensor, r.storage)) for r in regrets} == others
    for regret in regrets:
        key = plan.storages.key(regret.tensor, regret.storage)
        total = every.least(lambda picks, r=regret, k=key: every.stored(picks)[r.tensor] == k)
        assert regret.total_ns == pytest.approx(total - plan.cost_ns)
        assert regret.total_ns >= 0
        if regret.total_ns < inf:
            assert regret.kernel_ns + regret.reorder_ns == pytest.approx(regret.total_ns, abs=1e-9)
    for name in dict.fromkeys(name for name, _ in pairs(plan)):
        assert plan.regret(name) == tuple(r for r in regrets if r.tensor == name)


@settings(max_examples=20)
@given(SEEDS, st.data())
def test_two_storages_at_once_are_the_cheapest_with_both(seed: int, data: Any):
    plan, every = everything(seed)
    chosen = dict(data.draw(st.lists(st.sampled_from(list(pairs(plan))), min_size=2, max_size=2)))
    keys = {name: plan.storages.key(name, fmt) for name, fmt in chosen.items()}
    wanted = every.least(lambda picks: keys.items() <= every.stored(picks).items())
    if wanted == inf:
        with pytest.raises(PlanError):
            plan.what_if(chosen)
        return
    at_once = plan.what_if(chosen)
    assert at_once.cost_ns == pytest.approx(wanted)
    after = plan
    for name, fmt in chosen.items():
        after = after.what_if({name: fmt})
    assert after.cost_ns == pytest.approx(wanted)
    assert {pin.tensor for pin in after.pins} == set(chosen)
    # What is asked of a plan with pins keeps to them.
    for node in after.graph.nodes:
        assert all(item.total_delta_ns >= 0 for item in after.why(node.name).alternatives)
    assert not {regret.tensor for regret in after.regrets()} & set(chosen)
    freed = after.what_if({name: after.made(name) for name in chosen})
    assert freed.cost_ns == pytest.approx(wanted)


# --- spellings ------------------------------------------------------------------------------------


def chain() -> Plan:
    b, x = net()
    w = b.constant(np.ones((32, 32, 1, 1), F32), "w")
    first = b.op("conv", [x, w], name="first", output="mid")
    return planned(b.build([b.op("conv", [first, w], name="second", output="end")]), cheap("plain"))


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("plain", "NCHW"),
        ("NCHW", "NCHW"),
        ("nchw", "NCHW"),
        ("bfyx", "NCHW"),
        ("channels-last", "NHWC"),
        ("Channels-Last", "NHWC"),
        ("nhwc", "NHWC"),
        ("NhWc", "NHWC"),
        ("byxf", "NHWC"),
        ("blocked", "nChw16c"),
        ("nchw16c", "nChw16c"),
        ("NCHW16c", "nChw16c"),
        ("aBcd16b", "nChw16c"),
        ("b_fs_yx_fsv16", "nChw16c"),
        (Format.parse("nChw16c"), "nChw16c"),
    ],
)
@pytest.mark.parametrize("key", ["mid", "first"])
def test_tensors_nodes_and_formats_in_any_spelling(spelled: str | Format, name: str, key: str):
    found = chain().what_if({key: spelled})
    assert str(found.storage("mid").storage.format) == name
    assert [str(pin) for pin in found.pins] == [f"mid in {name}"]
    assert found.name == f"what if mid in {name}"
    assert found.compare()[0].name == found.name
    assert found.compare()[1].name == "planned"
    assert f"given: mid in {name}" in found.explain()


def test_a_format_that_is_not_on_offer_lists_those_that_are():
    with pytest.raises(PlanError) as caught:
        chain().what_if({"first": "nChw8c"})
    assert str(caught.value) == (
        "tensor 'mid': expected one of the formats on offer: NCHW (plain), NHWC (channels-last), "
        "nChw16c (blocked), found 'nChw8c'"
    )


def test_an_input_comes_as_the_caller_has_it():
    plan = chain()
    assert plan.what_if({"x": "NCHW"}).cost_ns == plan.cost_ns
    with pytest.raises(PlanError) as caught:
        plan.what_if({"x": "nhwc"})
    assert str(caught.value) == (
        "tensor 'x': expected one of the formats on offer: NCHW (plain), found 'nhwc'; "
        "inputs come as the caller has them"
    )


def test_formats_of_equal_bytes_are_one():
    b, x = net(1, 32, 1, 1)
    w = b.constant(np.ones((32, 32, 1, 1), F32), "w")
    plan = planned(b.build([b.op("conv", [x, w], name="c", output="y")]), cheap("plain"))
    for spelled in ("nhwc", "nchw", "blocked"):
        assert plan.what_if({"y": spelled}).cost_ns <= plan.cost_ns + 200
    assert plan.regret("y") == ()


def test_formats_that_do_not_go_together_say_what_is_on_offer():
    b, x = net(1, 6, 6, 32)

    # The reshape reads plain bytes only, and there is no reorder if the library refuses it.
    def price(spec: Any) -> Any:
        return Refusal("onednn", str(spec), "none") if spec.kind == "reorder" else 1.0

    w = b.constant(np.ones((8, 6, 1, 1), F32), "w")
    y = b.op("conv", [x, w], name="c", output="y")
    plan = planned(b.build([b.op("reshape", [y], {"shape": (1, 8 * 6 * 32)})]), Oracle(price))
    with pytest.raises(PlanError) as caught:
        plan.what_if({"y": "nhwc"})
    assert str(caught.value) == (
        "what if y in NHWC: expected formats that go together (on offer for y: NCHW (plain), "
        "NHWC (channels-last), nChw16c (blocked)), found no combination of kernels; "
        "give fewer tensors"
    )
    (last,) = [regret for regret in plan.regret("y") if str(regret.storage) == "NHWC"]
    assert last.total_ns == inf
    assert str(last) == "y: NHWC here is impossible"
    assert "impossible" in str(plan.why("c"))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.why("frist"), "expected the name of a node, found 'frist'; did you mean 'fir"),
        (lambda p: p.why(None), "expected the name of a node, found None"),
        (lambda p: p.what_if({"mdi": "nhwc"}), "expected the name of a tensor or node, found 'mdi"),
        (lambda p: p.regret("zzzzzz"), "found 'zzzzzz'; known: x, mid, end, first, second"),
        (lambda p: p.what_if({"w": "nhwc"}), "expected a tensor that is computed, found the const"),
        (lambda p: p.refusals_of("secnd"), "the name of a node or tensor, found 'secnd'; did you"),
    ],
)
def test_unknown_names_are_refused_with_those_that_come_close(ask: Any, message: str):
    with pytest.raises(PlanError) as caught:
        ask(chain())
    assert message in str(caught.value)
    assert str(caught.value).startswith("plan of 'g': ")


# --- texts ----------------------------------------------------------------------------------------


def test_why_as_text_has_the_choice_the_others_and_what_was_refused():
    def price(spec: Any) -> Any:
        if spec.kind == "convolution" and "16b" in str(spec):
            return Refusal("onednn", str(spec), "none")
        return {"reorder": 700.0}.get(spec.kind, 2e6 if "acdb" in str(spec) else 1e6)

    b, x = net()
    w = b.constant(np.ones((32, 32, 1, 1), F32), "w")
    conv = b.op("conv", [x, w], {"strides": (2, 2)}, name="c", output="y")
    plan = planned(b.build([conv]), Oracle(price))
    refused = plan.refusals_of("c")
    assert [refusal.reason for refusal in refused] == [
        "direct, blocked: the library has no such kernel"
    ]
    assert plan.refusals_of("y") == ()
    assert str(plan.why("c")) == (
        "c: direct, plain [jit], NCHW: 1.000 ms of the plan's 1.000 ms\n"
        "otherwise the whole plan would cost more:\n"
        "       +1.4 us  1x1, blocked [jit], nChw16c; the node alone +0.0 ns\n"
        "     +1.001 ms  direct, channels-last [jit], NHWC; the node alone +1.000 ms\n"
        "     +1.001 ms  1x1, channels-last [jit], NHWC; the node alone +1.000 ms\n"
        "not offered:\n"
        "  onednn: c: direct, blocked: the library has no such kernel\n"
    )


def test_regret_as_text_has_its_parts():
    fmt = Storage(Format.parse("NHWC"))
    assert str(Regret("relu1", fmt, 310_000.0, 50_000.0, 260_000.0)) == (
        "relu1: NHWC here would cost +310.0 us: 50.0 kernel, 260.0 reorder"
    )
    assert str(Regret("t", fmt, 2e6, 5e6, -3e6)) == (
        "t: NHWC here would cost +2.000 ms: 5.000 kernel, -3.000 reorder"
    )


def test_regrets_of_some_tensors_or_of_the_largest_ones_only():
    plan = planned(residual(), random_costs(3))
    every = plan.regrets()
    nbytes = {name: plan.storage(name).nbytes for name in {r.tensor for r in every}}
    few = plan.regrets(limit=2)
    kept = {regret.tensor for regret in few}
    assert 1 <= len(kept) <= 2
    assert few == tuple(regret for regret in every if regret.tensor in kept)
    assert min(nbytes[name] for name in kept) >= max(
        size for name, size in nbytes.items() if name not in kept
    )
    assert plan.regrets(limit=0) == ()
    node = plan.graph.nodes[1]
    assert plan.regrets([node.name, node.outputs[0]]) == plan.regret(node.outputs[0])
    with pytest.raises(PlanError, match="limit: expected 0 or more tensors, found -1"):
        plan.regrets(limit=-1)


def test_a_plan_keeps_a_short_name():
    assert repr(chain()) == "Plan('g', planned, 2 nodes, 0 reorders, 0.000 ms)"


# --- moves and views ------------------------------------------------------------------------------


def moving() -> Graph:
    """Return a graph of which a concat, a transpose, a slice and a pad are not for free."""
    b, x = net(2, 32, 6, 6)
    y = conv(b, x, 16)
    both = b.op("concat", [y, conv(b, x, 16)], {"axis": 1}, name="copied")
    cut = {"starts": (0, 0, 1, 0), "stops": (2, 32, 5, 6), "steps": (1, 1, 1, 1)}
    padded = b.op("pad", [b.op("slice", [both], cut, name="cut")],
                  {"pads": (0, 0, 1, 1, 0, 0, 1, 1), "value": 0.5}, name="padded")  # fmt: skip
    z = conv(b, padded, 8)
    flat = (2, prod(b.type(z).shape[1:]))
    return b.build([b.op("reshape", [z], {"shape": flat}, name="flat")])


def test_moves_are_the_steps_that_compute_nothing():
    plan = planned(moving(), cheap("channels-last"))
    moves = {(move.node_or_tensor, move.kind): move for move in plan.moves}
    assert len(moves) == len(plan.moves)
    for reorder in plan.reorders:
        move = moves.pop((reorder.tensor, "reorder"))
        assert (move.nbytes, move.cost_ns) == (reorder.nbytes, reorder.cost_ns)
    count = {name: prod(plan.graph.values[name].shape) for name in plan.graph.values}
    of = {node.name: count[node.outputs[0]] for node in plan.graph.nodes}
    assert {(name, kind): move.nbytes for (name, kind), move in moves.items()} == {
        ("copied", "copy"): 4 * of["copied"],
        ("cut", "copy"): 4 * of["cut"],
        ("padded", "fill"): 4 * of["padded"],
        ("padded", "copy"): 4 * of["cut"],
    }
    for name in ("copied", "cut", "padded"):
        own = sum(move.cost_ns for (node, _), move in moves.items() if node == name)
        assert own == pytest.approx(plan.decision(name).chosen.cost_ns)
    assert plan.views == ("flat",)
    assert "0 of 1 concat, 0 of 1 slice, 0 of 1 pad and 1 reshape move no byte" in plan.explain()


def test_views_and_pieces_produced_in_place_move_no_byte():
    b, x = net()
    y = conv(b, x)
    both = b.op("concat", [conv(b, y, 16), conv(b, y, 16)], {"axis": 1}, name="cat")
    flat = b.op("reshape", [both], {"shape": (1, 32 * 36)}, name="flat")
    plan = planned(b.build([flat]), cheap("plain"))
    assert plan.views == ("cat", "flat")
    assert plan.moves == ()
    assert "1 concat and 1 reshape move no byte" in plan.explain()
    assert "no step only moves bytes" in plan.explain()


@settings(max_examples=20)
@given(SEEDS)
def test_no_node_both_moves_and_is_a_view(seed: int):
    plan = planned(moving(), random_costs(seed))
    copied = {move.node_or_tensor for move in plan.moves if move.kind != "reorder"}
    assert not copied & set(plan.views)
    assert all(move.nbytes > 0 and move.cost_ns >= 0 for move in plan.moves)
    assert [m for m in plan.moves if m.kind == "reorder"] == [
        Move(r.tensor, "reorder", r.nbytes, r.cost_ns) for r in plan.reorders
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_what_if_every_tensor_is_of_one_kind_is_the_uniform_plan(kind: str):
    plan = planned(residual(), random_costs(11))
    uniform = {}
    for node in plan.graph.nodes:
        for name in node.outputs:
            offered = {str(fmt) for tensor, fmt in pairs(plan) if tensor == name}
            wanted = plan.target.formats(plan.graph.values[name]).get(kind)
            if wanted is not None and str(wanted) in offered:
                uniform[name] = kind
    known = {item.name: item.cost_ns for item in plan.compare()}
    assert plan.what_if(uniform).cost_ns == pytest.approx(known[f"all {kind}"])
