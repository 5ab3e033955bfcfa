"""The law behind all: a random network gives what the reference gives, however it is stored."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from tests.networks import networks
from tests.twins import Twins, twins

from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.planner import derive

from .graphs import KINDS
from .test_execute import agree, compiled


@pytest.mark.parametrize("how", ["model", *KINDS])
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors])
@given(graph=networks())
def test_every_executor_agrees_on_random_networks(graph: Graph, how: str) -> None:
    agree(graph, compiled(graph, how))


@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
@given(pair=twins())
def test_every_executor_agrees_on_networks_in_channels_last(pair: Twins) -> None:
    for how in ("model", *KINDS):
        agree(pair.last, compiled(pair.last, how))


@pytest.mark.parametrize("how", ["model", *KINDS])
def test_channels_last_kernels_run_on_values_without_an_origin(how: str) -> None:
    b = GraphBuilder("g", data_format="NHWC")
    x = b.input("x", (2, 5, 5, 17))
    y = b.op("transpose", [b.conv2d(x, 17, 3, padding=1)], {"perm": (0, 2, 1, 3)})
    z = b.relu(b.op("tanh", [y]))
    graph = b.build([b.conv2d(b.add(z, b.conv2d(z, 17, 1)), 9, 1), b.max_pool2d(z, 2)])
    assert derive(graph).conflicts
    agree(graph, compiled(graph, how))


@pytest.mark.parametrize("how", ["model", *KINDS])
def test_operands_of_post_ops_with_other_axes_are_read_in_the_users_order(how: str) -> None:
    for data_format, shape in (("NCHW", (2, 17, 5, 5)), ("NHWC", (2, 5, 5, 17))):
        b = GraphBuilder("g", data_format=data_format)
        x = b.input("x", shape)
        near = b.conv2d(x, 17, 3, padding=1)
        spatial = (0, 1, 3, 2) if data_format == "NCHW" else (0, 2, 1, 3)
        turned = b.relu(b.relu(b.op("transpose", [b.conv2d(near, 17, 1)], {"perm": spatial})))
        graph = b.build([b.relu(b.add(turned, b.conv2d(near, 17, 1)))])
        assert derive(graph).conflicts
        agree(graph, compiled(graph, how))
