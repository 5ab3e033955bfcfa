"""Attributes of ONNX nodes: handlers read every one, and unknown ones are an error."""

from __future__ import annotations

import dataclasses
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, defs, helper
from onnx.backend.test.case.node import collect_testcases

import stridewise as sw
from stridewise.errors import DamageError
from stridewise.frontends.onnx import table
from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.registry import open_model

from .onnx_nodes import make, node

WITHOUT_EFFECT = {
    "BatchNormalization": {"momentum"},  # only training has running statistics
    "Cast": {"round_mode", "saturate"},  # of 8-bit floats, which run in the fallback
    "CastLike": {"round_mode", "saturate"},
    "Constant": {*defs.get_schema("Constant").attributes} - {"value"},  # a node has one of them
    "Dropout": {"ratio", "seed"},  # only training drops elements
    "GroupNormalization": {"stash_type"},  # the precision of sums; float32 has enough
    # Factors of activations that are refused.
    **{op: {"activation_alpha", "activation_beta"} for op in ("GRU", "LSTM", "RNN")},
    "QuantizeLinear": {"saturate"},
    "Range": {"stash_type"},  # read where ranges are computed, before handlers
    "TopK": {"sorted"},  # any order is right without it
}


class Recording(dict[str, object]):
    """Attributes that note which of them are read."""

    def __init__(self, items: Mapping[str, object], read: set[str]) -> None:
        super().__init__(items)
        self.read = read

    def __getitem__(self, key: str) -> object:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: object = None) -> object:
        self.read.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.read.add(str(key))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self.read |= set(super().keys())
        return super().__iter__()


def forms() -> dict[object, tuple[ModelProto, dict[str, np.ndarray]]]:
    """Return a test of ONNX for each operator and set of attributes, with values of its inputs."""
    found: dict[object, tuple[ModelProto, dict[str, np.ndarray]]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        if case.model is None or len(case.model.graph.node) != 1 or not case.data_sets:
            continue
        only = case.model.graph.node[0]
        arrays = zip(case.model.graph.input, case.data_sets[0][0], strict=False)
        values = {
            item.name: value
            for item, value in arrays
            if isinstance(value, np.ndarray | np.generic)
            and value.ndim < 2
            and (value.dtype.kind in "iub" or item.name in ("scales", "roi", "constant_value"))
        }
        key = (only.op_type, frozenset(item.name for item in only.attribute), len(values))
        found.setdefault(key, (case.model, values))
    return found


def test_handlers_read_all_attributes(monkeypatch):
    read: defaultdict[str, set[str]] = defaultdict(set)

    def recording(handler: Handler) -> Handler:
        def handle(imp: Importer, given: OnnxNode) -> None:
            attrs = Recording(given.attrs, read[given.op_type])
            handler(imp, dataclasses.replace(given, attrs=attrs))

        return handle

    handlers = table.HANDLERS[""]
    for op, handler in list(handlers.items()):
        monkeypatch.setitem(handlers, op, recording(handler))
    for model, values in forms().values():
        rest = dict([*values.items()][1:])
        for given in ({}, values, rest) if values else ({},):
            try:
                open_model(model, fallback=True).graph(values=given)
            except sw.StridewiseError:
                continue
    missing = dict[str, set[str]]()
    for op in read:
        missing[op] = {*defs.get_schema(op).attributes} - read[op] - WITHOUT_EFFECT.get(op, set())
    assert {op: keys for op, keys in missing.items() if keys} == {}
    assert len(read) > 0.9 * len(handlers)


@pytest.mark.parametrize(
    ("op", "attrs", "inputs", "message"),
    [
        ("Relu", {"alpha": 0.5}, 1, "attributes of opset .* among: none, found 'alpha'"),
        ("Softmax", {"axes": 1}, 1, "among: axis, found 'axes'"),
        ("Relu", {}, 2, "at most 1 inputs, found 2"),
        ("Add", {}, 1, "at least 2 inputs, found 1"),
        # ONNX's shape inference and ONNX Runtime end the process on these two.
        ("LayerNormalization", {"axis": 2**63 - 1}, 2, "an axis from -4 to 3"),
        ("Sum", {}, 0, "input 1, found none"),
    ],
)
def test_what_the_operator_does_not_have_is_an_error(op, attrs, inputs, message):
    operands = ("x",) * inputs or ("x", "")
    with pytest.raises(DamageError, match=message):
        open_model(make(node(op, *operands, **attrs), opset=17), fallback=True).graph()


def test_nodes_of_subgraphs_are_checked():
    branch = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["z"], alpha=0.5)],
        "branch",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    choice = node("If", "c", then_branch=branch, else_branch=branch)
    with pytest.raises(DamageError, match="among: none, found 'alpha'"):
        open_model(make(choice, constants={"c": True}), fallback=True).graph()
