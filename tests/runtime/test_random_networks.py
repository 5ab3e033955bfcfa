"""The law behind all: a random network gives what the reference gives, however it is stored."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from tests.networks import networks

from stridewise.graph import Graph

from .graphs import KINDS
from .test_execute import agree, compiled


@pytest.mark.parametrize("how", ["model", *KINDS])
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors])
@given(graph=networks())
def test_every_executor_agrees_on_random_networks(graph: Graph, how: str) -> None:
    agree(graph, compiled(graph, how))
