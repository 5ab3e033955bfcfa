"""Graphs of operators that move data, for ``graphs.py``: every executor, every kind of format."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stridewise.graph import Graph

from .net import Net

__all__ = ["INDEX_GRAPHS"]


def _borders(*shape: int) -> Graph:
    """Return borders that are made of the image, around known and unknown axes."""
    b = Net(*shape)
    rank = len(shape) - 2
    y = b.op("tanh", [b.named(b.x)])
    spatial = (0, 0, *(2, 1, 2)[:rank], 0, 0, *(1, 3, 0)[:rank])
    results = []
    for mode in ("reflect", "edge", "wrap"):
        results.append(b.op("pad", [y], {"pads": spatial, "mode": mode}))
        results.append(b.op("pad", [b.x], {"pads": (1, *spatial[1:]), "mode": mode}))
        # A border of channels cuts blocks.
        wide = (0, 1, *(1,) * rank, 0, 2, *(0,) * rank)
        results.append(b.op("pad", [y], {"pads": wide, "mode": mode}))
    return b.build([*results, *(b.named(z) for z in results[::3])])


def _reversals() -> Graph:
    """Return slices that go backwards along some axes, batch and channels too."""
    b = Net(3, 24, 6, 7)
    y = b.named(b.x)
    keys = ("starts", "stops", "steps")
    cuts = [
        ((0, 0, 5, 0), (3, 24, -1, 7), (1, 1, -1, 1)),
        ((0, 0, 4, 6), (3, 24, 0, -1), (1, 1, -2, -3)),
        ((2, 15, 0, 0), (-1, 7, 6, 7), (-1, -1, 1, 1)),
        ((0, 8, 5, 0), (3, 24, -1, 7), (1, 1, -5, 2)),
    ]
    parts = [b.op("slice", [y], dict(zip(keys, cut, strict=True))) for cut in cuts]
    raw = [b.op("slice", [b.x], dict(zip(keys, cut, strict=True))) for cut in cuts[:2]]
    return b.build([*(b.named(part) for part in parts[:2]), *raw, *parts])


def _repeats(channels: int) -> Graph:
    """Return images that are tiled and expanded, along channels too."""
    b = Net(2, channels, 3, 4)
    y = b.named(b.x)
    mean = b.named(b.op("reduce_mean", [y], {"axes": (2, 3)}))
    row = b.op("reduce_max", [y], {"axes": (0, 1, 2), "keepdims": 0})
    results = [
        b.op("tile", [y], {"repeats": (1, 1, 2, 3)}),
        b.op("tile", [y], {"repeats": (2, 1, 1, 2)}),
        b.op("tile", [y], {"repeats": (1, 2, 1, 1)}),
        b.op("expand", [mean], {"shape": (2, channels, 5, 6)}),
        b.op("expand", [mean], {"shape": (3, 1)}),
        b.op("expand", [row], {"shape": (2, channels, 3, 4)}),
    ]
    return b.build([b.named(z) for z in results] + [b.op("tile", [b.x], {"repeats": (2, 3, 1, 2)})])


def _pixels(channels: int, size: int) -> Graph:
    """Return blocks of pixels as channels and back, both ways to count them."""
    b = Net(2, channels * size**2, 3, 4)
    y = b.named(b.x)
    results = []
    for mode in ("DCR", "CRD"):
        attrs = {"block": size, "mode": mode}
        wide = b.op("depth_to_space", [y], attrs)
        results += [b.named(wide), b.op("space_to_depth", [b.op("exp", [wide])], attrs)]
        results.append(b.op("depth_to_space", [b.x], attrs))
    return b.build(results)


def _pixels_nhwc() -> Graph:
    """Return blocks of pixels of an image in NHWC."""
    b = Net(2, 4, 6, 12)
    turned = {"data_format": "NHWC", "block": 2}
    y = b.op("relu", [b.op("depth_to_space", [b.x], turned)])
    return b.build([y, b.op("space_to_depth", [y], {**turned, "mode": "CRD"})])


def _crops() -> Graph:
    """Return crops that are resized, with a border of zeros and one of another value."""
    b = Net(2, 17, 6, 5)
    y = b.named(b.x)
    attrs = {
        "shape": (2, 17, 7, 8), "mode": "linear", "coordinates": "tf_crop_and_resize",
        "roi": (0.0, 0.0, -0.25, 0.25, 1.0, 1.0, 1.0, 1.5),
    }  # fmt: skip
    smooth = {"shape": (2, 17, 3, 3), "mode": "cubic", "antialias": 1, "exclude_outside": 1}
    return b.build([
        b.named(b.op("resize", [y], attrs)),
        b.named(b.op("resize", [y], {**attrs, "extrapolation": 2.5})),
        b.op("resize", [b.x], {**attrs, "mode": "nearest", "extrapolation": -1.0}),
        b.op("resize", [y], smooth),
        b.op("resize", [y], {**smooth, "shape": (2, 17, 7, 4), "scales": (1.0, 1.0, 1.25, 0.9375)}),
    ])  # fmt: skip


def _transposed_repeats() -> Graph:
    """Return repeats and borders behind transposes, which move down through them."""
    b = Net(2, 17, 3, 1)
    y = b.op("transpose", [b.named(b.x)], {"perm": (0, 2, 3, 1)})
    y = b.op("tile", [y], {"repeats": (1, 2, 1, 1)})
    y = b.op("expand", [y], {"shape": (2, 6, 5, 17)})
    y = b.op("pad", [y], {"pads": (0, 1, 2, 0, 0, 1, 1, 0), "mode": "reflect"})
    y = b.op(
        "slice", [y], {"starts": (0, 7, 1, 0), "stops": (2, -1, 8, 17), "steps": (1, -1, 2, 1)}
    )
    return b.build([b.named(b.op("transpose", [y], {"perm": (0, 3, 1, 2)})), b.op("relu", [y])])


def _rolled(b: Net, x: str, axis: int, by: int) -> str:
    """Return a rotation along an axis, as exporters write it."""
    shape = b.type(x).shape
    parts: list[str] = []
    for start, stop in ((by, shape[axis]), (0, by)):
        starts = tuple(start if at == axis else 0 for at in range(len(shape)))
        stops = tuple(stop if at == axis else extent for at, extent in enumerate(shape))
        bounds = {"starts": starts, "stops": stops, "steps": (1,) * len(shape)}
        parts.append(b.op("slice", [x], bounds))
    return b.op("concat", parts, {"axis": axis})


def _windows(batch: int, extent: int, size: int, channels: int) -> Graph:
    """Return shifted windows of tokens, and the image of what is computed of them."""
    b = Net(batch, extent, extent, channels)
    y = _rolled(b, _rolled(b, b.op("tanh", [b.x]), 1, size // 2), 2, size // 2)
    split = (batch, extent // size, size, extent // size, size, channels)
    y = b.op("transpose", [b.op("reshape", [y], {"shape": split})], {"perm": (0, 1, 3, 2, 4, 5)})
    tokens = b.op("reshape", [y], {"shape": (batch * (extent // size) ** 2, size**2, channels)})
    z = b.op("relu", [b.op("matmul", [tokens, b.data(channels, channels)])])
    turned = (batch, extent // size, extent // size, size, size, channels)
    z = b.op("transpose", [b.op("reshape", [z], {"shape": turned})], {"perm": (0, 1, 3, 2, 4, 5)})
    z = b.op("reshape", [z], {"shape": (batch, extent, extent, channels)})
    z = _rolled(b, _rolled(b, z, 1, extent - size // 2), 2, extent - size // 2)
    keys = ("starts", "stops", "steps")
    corners = [
        ((0, i, j, 0), (batch, extent, extent, channels), (1, 2, 2, 1))
        for i in (0, 1)
        for j in (0, 1)
    ]
    patches = [b.op("slice", [z], dict(zip(keys, cut, strict=True))) for cut in corners[:3]]
    even = all(b.type(patch).shape == b.type(patches[0]).shape for patch in patches)
    joined = b.op("concat", patches if even else patches[:1] * 2, {"axis": 3})
    return b.build([b.op("add", [b.x, z]), b.op("exp", [joined]), b.op("abs", [tokens])])


def _samples(*shape: int) -> Graph:
    """Return images at places of grids, which are constant or computed in the run."""
    b = Net(*shape)
    axes = len(shape) - 2
    y, grid = b.named(b.x), (shape[0], *(4, 3, 2)[:axes], axes)
    places = b.op("tanh", [b.input("places", grid)])
    results = []
    # ONNX has cubic interpolation of images alone.
    for mode in ("linear", "nearest", "cubic") if axes == 2 else ("linear", "nearest"):
        for border in ("zeros", "border", "reflection"):
            attrs = {"mode": mode, "border": border, "align_corners": int(border == "border")}
            results.append(b.op("grid_sample", [y, places], attrs))
    fixed = b.constant(b.rng.uniform(-1.3, 1.3, grid).astype("f"))
    results += [b.op("grid_sample", [image, fixed]) for image in (b.x, y)]
    return b.build([*results, *(b.named(z) for z in results[::4])])


def _unfolded(channels: int, kernel: int) -> Graph:
    """Return windows that overlap, gathered along both axes as the exporter writes `F.unfold`."""
    b = Net(2, channels, 6, 7)
    y = b.named(b.x)
    results = []
    for image, stride in ((y, 1), (b.x, 2)):
        z = image
        sizes = [(extent - kernel) // stride + 1 for extent in (6, 7)]
        for axis, size in ((2, sizes[0]), (4, sizes[1])):
            first = np.array(range(kernel))[:, None]
            places = b.constant(first + stride * np.array(range(size)), "places")
            z = b.op("gather", [z, places], {"axis": axis})
        turned = b.op("transpose", [z], {"perm": (0, 1, 2, 4, 3, 5)})
        shape = (2, channels * kernel**2, sizes[0] * sizes[1])
        results.append(b.op("reshape", [turned], {"shape": shape}))
    return b.build(results)


INDEX_GRAPHS: dict[str, Callable[[], Graph]] = {
    "borders_1d": lambda: _borders(2, 24, 5),
    "borders_2d": lambda: _borders(2, 17, 4, 5),
    "borders_3d": lambda: _borders(2, 16, 3, 4, 3),
    "crops": _crops,
    "pixels_3": lambda: _pixels(3, 2),
    "pixels_16": lambda: _pixels(16, 2),
    "pixels_32": lambda: _pixels(32, 3),
    "pixels_nhwc": _pixels_nhwc,
    "repeats_17": lambda: _repeats(17),
    "repeats_32": lambda: _repeats(32),
    "reversals": _reversals,
    "samples_2d": lambda: _samples(2, 17, 5, 6),
    "samples_3d": lambda: _samples(1, 16, 3, 4, 5),
    "transposed_repeats": _transposed_repeats,
    "unfolded_3": lambda: _unfolded(5, 3),
    "unfolded_2": lambda: _unfolded(16, 2),
    "windows_4": lambda: _windows(1, 8, 4, 5),
    "windows_5": lambda: _windows(2, 15, 5, 17),
}
