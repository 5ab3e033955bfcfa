"""Attributes of local functions: given, defaults, and passed on, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from onnx import AttributeProto, FunctionProto, NodeProto, helper
from tests.integration.models import run_onnxruntime
from tests.integration.onnx_nodes import make, node

import stridewise as sw

_SLOPES = st.none() | st.sampled_from((0.2, 0.5, -1.5))


def _function(name: str, slope: float | None, nodes: list[NodeProto], opset: int) -> FunctionProto:
    """A function of one attribute ``slope``, with a default if it is given."""
    defaults = [] if slope is None else [helper.make_attribute("slope", slope)]
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    names = ["slope"] if slope is None else []
    return helper.make_function(
        "local", name, ["a"], ["b"], nodes, opsets, names, attribute_protos=defaults
    )


def _passed(found: NodeProto, name: str) -> NodeProto:
    """The node, whose attribute of that name is the function's ``slope``."""
    kind = AttributeProto.FLOAT
    found.attribute.append(AttributeProto(name=name, ref_attr_name="slope", type=kind))
    return found


@given(_SLOPES, _SLOPES, _SLOPES, st.booleans(), st.sampled_from((13, 16)))
def test_attributes_have_their_defaults(
    called: float | None, outer: float | None, inner: float | None, passes: bool, opset: int
) -> None:
    leaky = _passed(node("LeakyRelu", "a", outputs=["b"]), "alpha")
    call = node("Inner", "a", outputs=["b"], domain="local")
    attrs: dict[str, Any] = {} if called is None else {"slope": called}
    model = make(node("Outer", domain="local", **attrs), shape=(2, 5), opset=13)
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.extend(
        [
            _function("Inner", inner, [leaky], opset),
            _function("Outer", outer, [_passed(call, "slope") if passes else call], opset),
        ]
    )
    x = np.linspace(-3, 3, 10, dtype=np.float32).reshape(2, 5)
    found = sw.compile(model, tune="model", fallback=False).run({"x": x})["y"]
    given_ = called if called is not None else outer
    # Without a value, the default of the inner function or of ONNX's operator holds.
    slopes = (given_ if passes else None, inner, 0.01)
    slope = next(item for item in slopes if item is not None)
    np.testing.assert_allclose(found, np.where(x < 0, np.float32(slope) * x, x), rtol=1e-6)
    if given_ is not None and opset == 13:
        expected = run_onnxruntime(model, {"x": x}, joins=False)["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
