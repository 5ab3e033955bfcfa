"""Cases of operators that move data, for ``test_ops.py``, and what their inference refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stridewise.graph import Attr, Graph
from stridewise.ops.interpolation import COORDINATES, ROUNDINGS
from stridewise.ops.pad import PAD_MODES

from .onnx_case import CHANNELS, F32, Array, Case, Rng, draw, image, ints

__all__ = ["INDEX_CASES", "INDEX_REFUSED", "onnxruntime_differs"]


def any_type(rng: Rng, array: Array) -> Array:
    """Return numbers as one of the element types that all of these operators take."""
    dtype = rng.choice(["float32", "float64", "float16", "int64", "int32", "uint8", "int8"])
    return (10 * array).astype(np.int8).astype(dtype)


def any_image(rng: Rng, rank: int | None = None) -> Array:
    return any_type(rng, image(rng, rank))


def some_indices(rng: Rng, extent: int, *shape: int) -> Array:
    return np.asarray(rng.integers(-extent, extent, shape))


# --- reading and writing by index -----------------------------------------------------------------


def gather(rng: Rng) -> Case:
    x = any_image(rng)
    axis = int(rng.integers(x.ndim))
    indices = some_indices(rng, x.shape[axis], 2, 3)
    return Case([x, indices], [("Gather", ["x0", "x1"], {"axis": axis})], {"axis": axis})


def rearrange(rng: Rng) -> Case:
    """Return a transpose of an image whose columns are rotated, as two copies."""
    x = any_type(rng, draw(rng, 3, 4))
    turn = int(rng.integers(1, 4))
    boxes = (0, turn, 0, 4 - turn, 1, 0, 3, 4, 0, 0, 4 - turn, turn, 1, 0, 3, 4)
    columns = np.roll(np.arange(4), -turn)
    nodes = [("Gather", ["x0", "columns"], {"axis": 1}), ("Transpose", ["y0"], {"perm": [1, 0]})]
    return Case([x], nodes, {"boxes": boxes, "shape": (4, 3)}, {"columns": columns})


def gather_elements(rng: Rng) -> Case:
    x = any_image(rng)
    axis = int(rng.integers(x.ndim))
    indices = some_indices(rng, x.shape[axis], *x.shape)
    return Case([x, indices], [("GatherElements", ["x0", "x1"], {"axis": axis})], {"axis": axis})


def gather_nd(rng: Rng) -> Case:
    x = any_image(rng, 2)
    batch = int(rng.integers(3))
    depth = int(rng.integers(1, 5 - batch))
    points = [rng.integers(0, x.shape[batch + d], (*x.shape[:batch], 3)) for d in range(depth)]
    attrs = {"batch_dims": batch}
    return Case([x, np.stack(points, -1)], [("GatherND", ["x0", "x1"], attrs)], attrs)


def reduction(rng: Rng) -> str:
    return str(rng.choice(["none", "add", "mul", "max", "min"]))


def scatter_elements(rng: Rng) -> Case:
    x = image(rng)
    axis, how = int(rng.integers(x.ndim)), reduction(rng)
    indices = some_indices(rng, x.shape[axis], *x.shape)
    if how == "none":
        # In which order updates of one place come, ONNX leaves open.
        indices = np.argsort(draw(rng, *x.shape), axis)
    attrs: dict[str, Attr] = {"axis": axis, "reduction": how}
    node = ("ScatterElements", ["x0", "x1", "x2"], dict(attrs))
    return Case([x, indices, draw(rng, *x.shape)], [node], attrs, rtol=1e-5)


def scatter_nd(rng: Rng) -> Case:
    x = image(rng, 2)
    how = reduction(rng)
    points = rng.choice(x.shape[1], 1 if how == "none" else 3)
    indices = np.stack([rng.integers(0, x.shape[0], len(points)), points], -1)
    updates = draw(rng, len(points), *x.shape[2:])
    node = ("ScatterND", ["x0", "x1", "x2"], {"reduction": how})
    return Case([x, indices, updates], [node], {"reduction": how}, rtol=1e-5)


def one_hot(rng: Rng) -> Case:
    indices = rng.integers(-7, 7, (2, 3, 4))
    axis, depth = int(rng.integers(4)), 5
    values = any_type(rng, np.array([0.2, 0.5]))
    node = ("OneHot", ["x0", "depth", "x1"], {"axis": axis})
    attrs = {"axis": axis, "depth": depth}
    return Case([indices, values], [node], attrs, {"depth": np.array(depth)})


def top_k(rng: Rng) -> Case:
    x = np.round(4 * image(rng)).astype(F32)  # with equal elements
    axis = int(rng.integers(x.ndim))
    k = int(rng.integers(1, x.shape[axis] + 1))
    largest = int(rng.integers(2))
    theirs = {"axis": axis, "largest": largest}
    # ONNX's reference takes the last of equal elements where it looks for the least.
    place = int(rng.integers(2)) if largest else 0
    attrs = {"axis": axis, "k": k, "largest": largest}
    nodes = [("TopK", ["x0", "k"], theirs)]
    return Case([x], nodes, attrs, {"k": np.array([k])}, output=place, result=place)


def trilu(rng: Rng) -> Case:
    x = any_image(rng)
    k, upper = int(rng.integers(-9, 10)), int(rng.integers(2))
    node = ("Trilu", ["x0", "k"], {"upper": upper})
    return Case([x], [node], {"k": k, "upper": upper}, {"k": np.array(k)})


def reverse_sequence(rng: Rng) -> Case:
    x = any_image(rng)
    time = int(rng.integers(2))
    lengths = rng.integers(1, x.shape[time] + 1, x.shape[1 - time])
    attrs = {"batch_axis": 1 - time, "time_axis": time}
    return Case([x, lengths], [("ReverseSequence", ["x0", "x1"], dict(attrs))], attrs)


# --- parts, borders, repeats ----------------------------------------------------------------------


def slice_(rng: Rng) -> Case:
    x = any_image(rng, 2)
    steps = ints(rng.choice([-3, -2, -1, 1, 2, 3], 4))
    starts, stops, ends = [], [], []
    for extent, step in zip(x.shape, steps, strict=True):
        low, high = sorted(ints(rng.integers(0, extent, 2)))
        starts.append(low if step > 0 else high)
        stops.append(high + 1 if step > 0 else low - 1)
        ends.append(stops[-1] if stops[-1] >= 0 else -extent - 1)
    lists = {"starts": starts, "ends": ends, "axes": range(4), "steps": steps}
    constants = {key: np.array(values) for key, values in lists.items()}
    attrs = {"starts": tuple(starts), "stops": tuple(stops), "steps": steps}
    return Case([x], [("Slice", ["x0", *constants], {})], attrs, constants)


def pad(rng: Rng) -> Case:
    x = any_image(rng, 2)
    pads = ints(rng.integers(0, 4, 8))
    mode = str(rng.choice(PAD_MODES))
    attrs: dict[str, Attr] = {"pads": pads, "mode": mode}
    constants = {"pads": np.array(pads)}
    arrays: list[Array | None] = [x]
    inputs = ["x0", "pads"]
    if mode == "constant":
        value = np.array(rng.integers(0, 3)).astype(x.dtype)
        inputs.append("x1" if rng.integers(2) else "value")
        if inputs[-1] == "x1":
            arrays.append(value)
        else:
            attrs["value"], constants["value"] = value.item(), value
    return Case(arrays, [("Pad", inputs, {"mode": mode})], attrs, constants)


def tile(rng: Rng) -> Case:
    x = any_image(rng)
    repeats = ints(rng.integers(1, 4, x.ndim))
    constants = {"repeats": np.array(repeats)}
    return Case([x], [("Tile", ["x0", "repeats"], {})], {"repeats": repeats}, constants)


def expand(rng: Rng) -> Case:
    x = any_type(rng, draw(rng, 1, int(rng.choice(CHANNELS)), 1))
    shape = (2, 3, x.shape[1], 4)[int(rng.integers(2)) :]
    constants = {"shape": np.array(shape)}
    return Case([x], [("Expand", ["x0", "shape"], {})], {"shape": shape}, constants)


# --- images ---------------------------------------------------------------------------------------


def depth_to_space(rng: Rng) -> Case:
    size, mode = int(rng.integers(1, 4)), str(rng.choice(["DCR", "CRD"]))
    x = any_type(rng, draw(rng, 2, size**2 * int(rng.choice([1, 3, 8])), 3, 4))
    node = ("DepthToSpace", ["x0"], {"blocksize": size, "mode": mode})
    return Case([x], [node], {"block": size, "mode": mode})


def space_to_depth(rng: Rng) -> Case:
    size = int(rng.integers(1, 4))
    x = any_type(rng, draw(rng, 2, int(rng.choice([1, 3, 8])), 2 * size, 3 * size))
    return Case([x], [("SpaceToDepth", ["x0"], {"blocksize": size})], {"block": size})


def resize(rng: Rng) -> Case:
    x = image(rng, 2, 2)
    modes = [("nearest", rounding) for rounding in ROUNDINGS] + [("linear", ""), ("cubic", "")] * 3
    mode, rounding = modes[rng.integers(len(modes))]
    coordinates = str(rng.choice(COORDINATES))
    shape = (*x.shape[:2], *ints(rng.integers(1, 12, 2)))
    theirs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    attrs: dict[str, Attr] = {"shape": shape, "mode": mode, "coordinates": coordinates}
    if rounding:
        attrs["rounding"] = theirs["nearest_mode"] = rounding
    elif rng.integers(2):
        attrs["antialias"] = theirs["antialias"] = 1
    if mode == "cubic":
        attrs["cubic"] = theirs["cubic_coeff_a"] = -0.5
        attrs["exclude_outside"] = theirs["exclude_outside"] = int(rng.integers(2))
    constants = {"none": np.zeros(0, F32), "sizes": np.array(shape)}
    if coordinates == "tf_crop_and_resize":
        region = (0.0, 0.0, *rng.uniform(-0.5, 0.5, 2), 1.0, 1.0, *rng.uniform(0.5, 1.5, 2))
        constants["roi"] = np.array(region, F32)
        attrs["roi"] = tuple(map(float, constants["roi"]))
        attrs["extrapolation"] = theirs["extrapolation_value"] = -1.5
    inputs = ["x0", "roi" if "roi" in constants else "none", "none", "sizes"]
    return Case([x], [("Resize", inputs, theirs)], attrs, constants, rtol=1e-5)


def grid_sample(rng: Rng) -> Case:
    x = draw(rng, 2, 3, *ints(rng.integers(2, 5, int(rng.integers(2, 4)))))
    rank = x.ndim - 2
    grid = rng.uniform(-1.5, 1.5, (2, *(3,) * rank, rank)).astype(F32)
    attrs: dict[str, Attr] = {
        "align_corners": int(rng.integers(2)),
        "mode": str(rng.choice(["linear", "nearest"] if rank > 2 else ["linear", "cubic"])),
    }
    # ONNX's reference of a cubic clamps places before it reads beyond the edge, but not all.
    borders = ["zeros", "reflection"] + ["border"] * (attrs["mode"] != "cubic")
    border = str(rng.choice(borders))
    node = ("GridSample", ["x0", "x1"], {**attrs, "padding_mode": border})
    return Case([x, grid], [node], {**attrs, "border": border}, rtol=1e-5)


def affine_grid(rng: Rng) -> Case:
    rank = int(rng.integers(2, 4))
    size = (2, 3, *ints(rng.integers(2, 6, rank)))
    aligned = {"align_corners": int(rng.integers(2))}
    node = ("AffineGrid", ["x0", "size"], aligned)
    constants = {"size": np.array(size)}
    return Case([draw(rng, 2, rank, rank + 1)], [node], {**aligned, "size": size}, constants)


def roi_align(rng: Rng) -> Case:
    x = draw(rng, 2, 3, 7, 9)
    low = rng.uniform(-1, 8, (4, 2))
    rois = np.concatenate([low, low + rng.uniform(0, 12, (4, 2))], 1).astype(F32)
    batch = rng.integers(0, 2, 4)
    half = int(rng.integers(2))
    attrs: dict[str, Attr] = {
        "mode": str(rng.choice(["avg", "max"])),
        "sampling_ratio": int(rng.integers(3)),
    }
    theirs: dict[str, Any] = {
        **attrs,
        "coordinate_transformation_mode": "half_pixel" if half else "output_half_pixel",
        "output_height": 3,
        "output_width": 2,
        "spatial_scale": 0.75,
    }
    ours = {**attrs, "half_pixel": half, "scale": 0.75, "size": (3, 2)}
    return Case([x, rois, batch], [("RoiAlign", ["x0", "x1", "x2"], theirs)], ours, rtol=1e-5)


def max_roi_pool(rng: Rng) -> Case:
    """Regions of one bin, which are plain maxima: ONNX's reference lacks the operator."""
    x = draw(rng, 2, 3, 7, 9)
    top, left = ints(rng.integers(0, 4, 2))
    bottom, right = ints(rng.integers(4, 7, 2))
    image = int(rng.integers(2))
    rois = np.array([[image, left, top, right, bottom]], F32)
    constants = {
        "starts": np.array([image, top, left]),
        "ends": np.array([image + 1, bottom + 1, right + 1]),
        "axes": np.array([0, 2, 3]),
        "sides": np.array([2, 3]),
    }
    nodes = [
        ("Slice", ["x0", "starts", "ends", "axes"], {}),
        ("ReduceMax", ["y0", "sides"], {"keepdims": 1}),
    ]
    return Case([x, rois], nodes, {"scale": 1.0, "size": (1, 1)}, constants)


def col2im(rng: Rng) -> Case:
    rank = int(rng.integers(1, 4))
    block, strides = ints(rng.integers(1, 4, rank)), ints(rng.integers(1, 3, rank))
    dilations, pads = ints(rng.integers(1, 3, rank)), ints(rng.integers(0, 2, 2 * rank))
    counts = ints(rng.integers(2, 4, rank))
    image = tuple(
        (count - 1) * stride + dilation * (size - 1) + 1 - begin - end
        for count, stride, dilation, size, begin, end in zip(
            counts, strides, dilations, block, pads[:rank], pads[rank:], strict=True
        )
    )
    if min(image) < 1:
        pads = (0,) * (2 * rank)
        image = tuple(
            (count - 1) * stride + dilation * (size - 1) + 1
            for count, stride, dilation, size in zip(counts, strides, dilations, block, strict=True)
        )
    x = draw(rng, 2, 3 * int(np.prod(block)), int(np.prod(counts)))
    theirs: dict[str, Attr] = {"strides": strides, "dilations": dilations, "pads": pads}
    constants = {"image": np.array(image), "block": np.array(block)}
    node = ("Col2Im", ["x0", "image", "block"], dict(theirs))
    return Case([x], [node], {**theirs, "image": image, "block": block}, constants, rtol=1e-5)


INDEX_CASES: dict[str, Callable[[Rng], Case]] = {
    "affine_grid": affine_grid,
    "col2im": col2im,
    "depth_to_space": depth_to_space,
    "expand": expand,
    "gather": gather,
    "gather_elements": gather_elements,
    "gather_nd": gather_nd,
    "grid_sample": grid_sample,
    "max_roi_pool": max_roi_pool,
    "one_hot": one_hot,
    "rearrange": rearrange,
    "pad": pad,
    "resize": resize,
    "reverse_sequence": reverse_sequence,
    "roi_align": roi_align,
    "scatter_elements": scatter_elements,
    "scatter_nd": scatter_nd,
    "slice": slice_,
    "space_to_depth": space_to_depth,
    "tile": tile,
    "top_k": top_k,
    "trilu": trilu,
}

_ONNXRUNTIME_TYPES = {
    "depth_to_space": ("float32", "float64", "uint8", "int8"),
    "one_hot": ("float32", "int64", "int32"),
    "space_to_depth": ("float32", "float64", "uint8", "int8"),
    "trilu": ("float32", "float64", "int64"),
}
"""Operators that ONNX Runtime has for some element types of the result only, and which."""


def onnxruntime_differs(graph: Graph) -> bool:
    """Return whether ONNX Runtime refuses a node that ONNX allows, or computes something else."""
    (node,) = graph.nodes
    found = graph.value(node.outputs[0]).dtype.name
    if found not in _ONNXRUNTIME_TYPES.get(node.op, (found,)):
        return True
    if node.op == "pad" and node.str_attr("mode") == "reflect":
        # It refuses borders that are longer than the image.
        pads, shape = node.ints_attr("pads"), graph.value(node.inputs[0]).shape
        return any(pad >= extent for pad, extent in zip(pads, (*shape, *shape), strict=True))
    # It passes over the dilations of anything but two axes.
    dilated = node.op == "col2im" and max(node.ints_attr("dilations")) > 1
    return dilated and len(node.ints_attr("image")) != 2


X = (1, 4, 5, 5)
ALL = {"starts": (0,), "stops": (4,), "steps": (1,)}

INDEX_REFUSED: list[tuple[str, list[tuple[int, ...] | None], dict[str, Attr], str]] = [
    ("slice", [(4,)], {**ALL, "stops": (5,)}, "0 <= start <= stop <= 4, or a step below 0"),
    ("slice", [(4,)], {**ALL, "steps": (-1,)}, "0 <= start <= stop <= 4, or a step below 0"),
    ("slice", [(4,)], {**ALL, "steps": (0,)}, "0 <= start <= stop <= 4, or a step below 0"),
    ("slice", [X], ALL, "starts, stops and steps for 4 axes"),
    ("pad", [(4,)], {"pads": (1,)}, "2 pads, found (1,)"),
    ("pad", [(4,)], {"pads": (1, -1)}, "2 pads, found (1, -1)"),
    ("pad", [(4,)], {"pads": (1, 1), "mode": "mirror"}, "mode constant, reflect, edge, wrap"),
    ("pad", [(0,)], {"pads": (1, 1), "mode": "edge"}, "elements to make a border of"),
    ("pad", [(4,), (2,)], {"pads": (1, 1)}, "a value of float32, found f32[2]"),
    ("gather", [X, (1,)], {"axis": 4}, "an axis below 4, found 4"),
    ("gather", [X, (1,)], {"axis": 0}, "integers as input 1, found f32[1]"),
    ("tile", [X], {"repeats": (1, 2)}, "4 repeats of 0 or more, found (1, 2)"),
    ("tile", [(3,)], {"repeats": (-1,)}, "1 repeats of 0 or more, found (-1,)"),
    ("expand", [X], {"shape": (3,)}, "a shape that [1, 4, 5, 5] broadcasts with, found (3,)"),
    ("top_k", [X], {"axis": 4, "k": 1}, "an axis below 4, found 4"),
    ("top_k", [X], {"axis": 1, "k": 5}, "k from 0 to 4, found 5"),
    ("trilu", [(4,)], {}, "matrices, found f32[4]"),
    ("one_hot", [(4,), (3,)], {"axis": 0, "depth": 3}, "two values, off and on, found f32[3]"),
    ("one_hot", [(4,), (2,)], {"axis": 2, "depth": 3}, "an axis up to 1, found 2"),
    ("one_hot", [(4,), (2,)], {"axis": 0, "depth": 0}, "a positive depth, found 0"),
    ("depth_to_space", [X], {"block": 3}, "a multiple of 9 channels, found f32[1,4,5,5]"),
    ("depth_to_space", [(4, 4)], {"block": 2}, "an input of rank 4, found f32[4,4]"),
    ("depth_to_space", [X], {"block": 2, "mode": "RCD"}, "mode DCR or CRD, found RCD"),
    ("space_to_depth", [X], {"block": 2}, "an image of whole blocks of 2, found f32[1,4,5,5]"),
    ("grid_sample", [X, (1, 2, 2, 3)], {}, "a grid of batch 1 and 2 coordinates"),
    ("grid_sample", [X, (1, 2, 2, 2)], {"mode": "area"}, "mode linear, nearest, cubic, found area"),
    ("affine_grid", [(1, 2, 3)], {"size": (1, 3, 4)}, "a size [N, C, H, W] or [N, C, D, H, W]"),
    ("affine_grid", [(1, 3, 3)], {"size": (1, 3, 4, 4)}, "1 matrices of 2 by 3, found f32[1,3,3]"),
    ("max_roi_pool", [X, (3, 4)], {"size": (1, 1)}, "regions of an image and 4 corners of float32"),
    ("max_roi_pool", [X, (3, 5)], {"size": (1,)}, "a size of two positive extents, found (1,)"),
    ("col2im", [(1, 5, 4)], {"image": (3, 3), "block": (2, 2)}, "a multiple of 4 rows"),
    ("col2im", [(1, 4, 5)], {"image": (3, 3), "block": (2, 2)}, "a column for each of (2, 2)"),
    ("col2im", [(1, 4, 4)], {"image": (3, 3), "block": (2,)}, "an image, and parameters for all"),
    ("resize", [X], {"shape": X, "mode": "nearest", "antialias": 1}, "antialias=0 for nearest"),
    ("resize", [X], {"shape": X, "mode": "linear", "scales": (1.0,)}, "4 numbers as scales"),
]
