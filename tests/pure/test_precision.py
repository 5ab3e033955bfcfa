"""Storages: formats with element types, as the planner chooses among them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.pure.plans import TARGET, conv, net, planned, residual

from stridewise.dtypes import dtype_of
from stridewise.formats import Format
from stridewise.graph import Graph
from stridewise.ops.geometry import stored
from stridewise.planner import derive
from stridewise.planner.documents.document import PlanRecord
from stridewise.planner.problem.context import Storages
from stridewise.targets.cost import Roofline
from stridewise.tensor import Quantization, Storage

BF16 = dtype_of("bf16")
NHWC = Format.parse("NHWC")


def derived() -> Graph:
    return derive(residual()).graph


def test_float32_plans_are_written_as_before(golden: Callable[[str, str], None]):
    plan = planned(residual(), Roofline(1e11, 4e10, TARGET.efficiency))
    golden("plan_float32", PlanRecord.of(plan).to_json())


def test_like_bytes_of_like_elements_have_one_name():
    b, pixel = net(1, 32, 1, 1)
    graph = derive(b.build([conv(b, pixel, kernel=1)])).graph
    storages = Storages(graph, TARGET)
    images = Format.parse("NCHW")
    for element in (None, BF16):
        keys = {storages.key(pixel, Storage(fmt, element)) for fmt in (images, NHWC)}
        assert len(keys) == 1
    graph = derived()
    storages, x = Storages(graph, TARGET), graph.inputs[0]
    keys = [
        storages.key(x, NHWC),
        storages.key(x, Storage(NHWC)),
        storages.key(x, Storage(NHWC, dtype_of("f32"))),
    ]
    assert set(keys) == {"NHWC"}
    assert storages.key(x, Storage(NHWC, BF16)) == "NHWC bf16"
    assert storages.storage(x, "NHWC bf16") == Storage(NHWC, BF16)
    scaled = [Storage(NHWC, dtype_of("u8"), Quantization(scale)) for scale in (0.5, 0.25)]
    assert len({storages.key(x, way) for way in scaled}) == 2


def test_a_stored_tensor_has_the_bytes_of_its_elements():
    value = derived().values["x"]
    whole, half = (stored(value, Storage(NHWC, element)) for element in (None, BF16))
    assert (whole.dtype.name, half.dtype.name) == ("float32", "bfloat16")
    assert whole.nbytes == 2 * half.nbytes


def test_a_reorder_joins_two_storages_and_may_convert():
    value = derived().values["x"]
    same = TARGET.reorder_spec(value, Storage(value.origin or NHWC), Storage(NHWC))
    assert str(same) == "reorder src=f32:1x3x12x12:abcd dst=f32:1x3x12x12:acdb"
    half = TARGET.reorder_spec(value, Storage(value.origin or NHWC), Storage(NHWC, BF16))
    assert str(half) == "reorder src=f32:1x3x12x12:abcd dst=bf16:1x3x12x12:acdb"
    assert half.nbytes == same.nbytes * 3 // 4
    with pytest.raises(AssertionError, match="quantized"):
        TARGET.reorder_spec(value, Storage(NHWC), Storage(NHWC, BF16, Quantization(0.5)))


def test_a_storage_as_text_has_the_element_type_where_it_is_not_the_own_one():
    assert (str(Storage(NHWC)), str(Storage(NHWC, BF16))) == ("NHWC", "NHWC bf16")
    quantized = Storage(NHWC, dtype_of("u8"), Quantization(0.5, 3))
    assert str(quantized) == "NHWC u8 (scale 0.5 zero 3)"
