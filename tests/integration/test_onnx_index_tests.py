"""ONNX's own tests of operators that move data: every element type, in the NumPy reference.

Inputs that decide shapes are constants here, as models have them. What can only be known while a
model runs stays an input.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnx.backend.test.case import node as onnx_tests
from onnx.backend.test.case.test_case import TestCase

import stridewise as sw
from stridewise.errors import ModelError
from stridewise.ops.grid_sample import BORDERS

from .models import run_onnxruntime, run_reference
from .onnx_nodes import make, node

MODULES = {
    "AffineGrid": "affinegrid",
    "CenterCropPad": "center_crop_pad",
    "Col2Im": "col2im",
    "Compress": "compress",
    "Concat": "concat",
    "ConstantOfShape": "constantofshape",
    "DepthToSpace": "depthtospace",
    "Expand": "expand",
    "EyeLike": "eyelike",
    "Flatten": "flatten",
    "Gather": "gather",
    "GatherElements": "gatherelements",
    "GatherND": "gathernd",
    "GridSample": "gridsample",
    "NonMaxSuppression": "nonmaxsuppression",
    "NonZero": "nonzero",
    "OneHot": "onehot",
    "Pad": "pad",
    "Range": "rangeop",
    "Reshape": "reshape",
    "Resize": "resize",
    "ReverseSequence": "reversesequence",
    "RoiAlign": "roialign",
    "Scatter": "scatter",
    "ScatterElements": "scatterelements",
    "ScatterND": "scatternd",
    "Shape": "shape",
    "Size": "size",
    "Slice": "slice",
    "SpaceToDepth": "spacetodepth",
    "Split": "split",
    "Squeeze": "squeeze",
    "Tile": "tile",
    "TopK": "topk",
    "Transpose": "transpose",
    "Trilu": "trilu",
    "Unique": "unique",
    "Unsqueeze": "unsqueeze",
    "Upsample": "upsample",
}
"""The operators, and the modules of ONNX that have their tests."""

FROZEN: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Inputs that the shape of the result depends on."""

DATA_DEPENDENT = ("NonMaxSuppression", "NonZero", "Unique")

OTHERS = {
    **dict.fromkeys(
        (
            "test_resize_downsample_scales_linear_align_corners",
            "test_resize_downsample_scales_cubic_align_corners",
        ),
        "corners of an extent that is not rounded; ONNX Runtime, PyTorch and Stridewise round it",
    ),
    **dict.fromkeys(
        (
            "test_reshape_allowzero_reordered",
            "test_split_zero_size_splits_opset13",
            "test_split_zero_size_splits_opset18",
            "test_tril_zero",
            "test_triu_zero",
        ),
        "an input without elements",
    ),
}
"""Tests whose expected results Stridewise does not follow, and why."""


@cache
def cases() -> dict[str, TestCase]:
    """The tests of :data:`MODULES` by name, without those of functions that are written out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in MODULES.values():
            # The tests register themselves; collecting them all would take seconds.
            import_module(f"onnx.backend.test.case.node.{name}")
    return {
        case.name: case
        for case in onnx_tests._NodeTestCases
        if case.model is not None
        and {n.op_type for n in case.model.graph.node} <= set(MODULES)
        and len(case.model.graph.node) == 1
    }


def frozen(case: TestCase) -> tuple[ModelProto, dict[str, np.ndarray], list[np.ndarray]]:
    """Return the model with what decides shapes as constants, its inputs, and what it gives."""
    (feeds, wanted) = case.data_sets[0]
    model = ModelProto()
    model.CopyFrom(case.model)
    (only,) = model.graph.node
    arrays = dict(zip((item.name for item in model.graph.input), feeds, strict=True))
    for index in FROZEN.get(only.op_type, ()):
        name = only.input[index] if index < len(only.input) else ""
        if name:
            tensor = numpy_helper.from_array(np.asarray(arrays.pop(name)), name)
            model.graph.initializer.append(tensor)
    return model, {name: np.asarray(data) for name, data in arrays.items()}, wanted


def has_strings(case: TestCase) -> bool:
    values = (*case.model.graph.input, *case.model.graph.output)
    return any(item.type.tensor_type.elem_type == helper.TensorProto.STRING for item in values)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_images_are_sampled_as_onnxruntime_does(mode: str, border: str, aligned: int) -> None:
    rng = np.random.default_rng(0)
    attrs = {"mode": mode, "padding_mode": border, "align_corners": aligned}
    model = make(node("GridSample", "x", "g", **attrs), shape=(2, 3, 5, 4), opset=16)
    grid = rng.uniform(-2, 2, (2, 7, 6, 2)).astype(np.float32)
    model.graph.input.append(helper.make_tensor_value_info("g", 1, grid.shape))
    feeds = {"x": rng.normal(size=(2, 3, 5, 4)).astype(np.float32), "g": grid}
    found, expected = run_reference(sw.load(model), feeds), run_onnxruntime(model, feeds)
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["RoiAlign", "MaxRoiPool"])
def test_regions_are_pooled_as_onnxruntime_does(op: str) -> None:
    rng = np.random.default_rng(1)
    corners = rng.uniform(-2, 9, (40, 4))
    rois = np.concatenate([corners[:, :2], corners[:, :2] + np.abs(corners[:, 2:])], 1)
    batch = rng.integers(0, 2, 40)
    feeds = {"x": rng.normal(size=(2, 3, 7, 9)).astype(np.float32)}
    if op == "RoiAlign":
        feeds |= {"r": rois.astype(np.float32), "b": batch}
        attrs: dict[str, Any] = {"output_height": 4, "output_width": 3, "spatial_scale": 0.8}
    else:
        feeds["r"] = np.concatenate([batch[:, None], np.abs(rois)], 1).astype(np.float32)
        attrs = {"pooled_shape": [4, 3], "spatial_scale": 0.8}
    model = make(node(op, *feeds, **attrs), shape=(2, 3, 7, 9), opset=16)
    for name in list(feeds)[1:]:
        code = helper.np_dtype_to_tensor_dtype(feeds[name].dtype)
        model.graph.input.append(helper.make_tensor_value_info(name, code, feeds[name].shape))
    found, expected = run_reference(sw.load(model), feeds), run_onnxruntime(model, feeds)
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", cases())
def test_the_reference_gives_what_onnx_expects(name: str) -> None:
    case = cases()[name]
    model, feeds, wanted = frozen(case)
    (only,) = model.graph.node
    if only.op_type in DATA_DEPENDENT or has_strings(case):
        with pytest.raises(
            ModelError,
            match="which no shape can tell" if only.op_type in DATA_DEPENDENT else "found string",
        ):
            sw.load(model, fallback=False)
        return
    if name in OTHERS:
        pytest.skip(OTHERS[name])
    graph = sw.load(model)
    found = run_reference(graph, {key: feeds[key] for key in graph.inputs})
    for result, expected in zip(found.values(), wanted, strict=True):
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        pair = [result, expected]
        if result.dtype.name == "bfloat16":
            pair = [item.astype(np.float32) for item in pair]
        np.testing.assert_allclose(*pair, rtol=max(case.rtol, 1e-5), atol=1e-6)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("sizes", [[7, 8], [5, 2], [9, 3]])
def test_aspect_ratios_survive_the_export(policy: str, sizes: list[int], tmp_path: Path) -> None:
    resize = node("Resize", "x", "", "", "s", keep_aspect_ratio_policy=policy, axes=[2, 3])
    model = make(resize, shape=(1, 2, 5, 3), constants={"s": sizes}, opset=18)
    x = np.random.default_rng(0).normal(size=(1, 2, 5, 3)).astype(np.float32)
    graph = sw.load(model)
    sw.save(graph, tmp_path / "m.onnx")
    expected = run_reference(graph, {"x": x})["y"]
    np.testing.assert_array_equal(
        run_reference(sw.load(tmp_path / "m.onnx"), {"x": x})["y"], expected
    )
    np.testing.assert_allclose(run_onnxruntime(model, {"x": x})["y"], expected, rtol=1e-6)
