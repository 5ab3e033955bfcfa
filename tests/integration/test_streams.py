"""Streams of models from files: many shapes, parts of ONNX Runtime, peers."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from benchmarks.peers import PEERS, USUAL

import stridewise as sw
from stridewise.cli.bench import stridewise_peer

from .open_shapes import classifier, draw


def dynamic(**arguments: Any) -> sw.DynamicModel:
    source = classifier(("N", 3, 8, 8)).SerializeToString()
    model = sw.compile(source, tune="model", threads=2, streams=2, **arguments)
    assert isinstance(model, sw.DynamicModel)
    return model


def test_requests_of_many_shapes() -> None:
    model = dynamic(max_programs=3)
    images = [draw(1 + seed % 4, 3, 8, 8, seed=seed) for seed in range(24)]
    expected = [model(image) for image in images]
    with model:
        found = list(model.map(images))
        named = [model.submit({"x": image}) for image in images]
        assert all(map(np.array_equal, found, expected))
        for future, right in zip(named, expected, strict=True):
            assert np.array_equal(future.result()[model.output_names[0]], right)
    ready = [program for _, program, _ in model._cache.models()]
    assert {program.plan.machine.threads for program in ready} == {1}
    assert all(program._native.program.gate.width == 2 for program in ready)
    memory = model.memory
    assert memory.streams == model.streams == 2
    assert memory.arenas == 2 * sum(program.memory.arena for program in ready)


def test_the_limit_of_programs_counts_all_arenas() -> None:
    (info,) = _made(dynamic(max_program_nbytes=1)).programs.ready
    limit = 3 * info.own_weights + 3 * info.arena
    assert len(_made(dynamic(max_program_nbytes=limit), 4).programs.ready) < 4


def _made(model: sw.DynamicModel, shapes: int = 1) -> sw.DynamicModel:
    for batch in range(1, shapes + 1):
        model(draw(batch, 3, 8, 8))
    return model


def test_a_coroutine_can_wait() -> None:
    model = dynamic()
    images = [draw(1, 3, 8, 8, seed=seed) for seed in range(6)]

    async def ask() -> list[Any]:
        return await asyncio.gather(*(asyncio.wrap_future(model.submit(x)) for x in images))

    assert all(map(np.array_equal, asyncio.run(ask()), map(model, images)))
    model.close()


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("name", ["stridewise", *USUAL])
def test_peers_answer_the_same(name: str, streams: int) -> None:
    if name != "stridewise":
        pytest.importorskip(name)
    source = classifier((1, 3, 8, 8)).SerializeToString()
    inputs = {"x": draw(1, 3, 8, 8)}
    model = sw.compile(source, tune="model", threads=2, streams=streams)
    server = (
        stridewise_peer(model, inputs)
        if name == "stridewise"
        else PEERS[name](source, inputs, 2, streams)
    )
    for count in (2, 5):
        (found,) = server.run(count)
        assert np.abs(found - model(inputs["x"])).max() < 1e-4
    assert server.name == name
