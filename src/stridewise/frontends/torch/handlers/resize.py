"""Images at other places, by nearest, linear and cubic interpolation: resizes and grids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.reader import Handler, Operand, Reader, Results, Traced
from stridewise.graph import Attr
from stridewise.ops.grid_sample import BORDERS, GRID_MODES
from stridewise.ops.interpolation import Interpolation

__all__ = ["HANDLERS", "RESIZES"]

Attributes: TypeAlias = Callable[..., dict[str, Attr]]
"""From a reader, the shape of the images, and PyTorch's arguments after these to attributes."""


def _extents(
    r: Reader, shape: tuple[int, ...], size: Sequence[int] | None, scales: Sequence[float | None]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the shape of the result, and outputs per input along every axis."""
    spatial = shape[2:]
    if len(spatial) != len(scales):
        raise r.refuse("an image without a batch axis")
    wanted = (
        [int(n * (scale or 1)) for n, scale in zip(spatial, scales, strict=True)]
        if size is None
        else list(size)
    )
    ratios = [
        new / old if scale is None else scale
        for old, new, scale in zip(spatial, wanted, scales, strict=True)
    ]
    return (*shape[:2], *wanted), (1.0, 1.0, *ratios)


def _attrs(
    shape: tuple[int, ...], wanted: tuple[int, ...], ratios: tuple[float, ...]
) -> dict[str, Attr]:
    usual = all(new == old * ratio for old, new, ratio in zip(shape, wanted, ratios, strict=True))
    return {"shape": wanted} if usual else {"shape": wanted, "scales": ratios}


def _interpolated(mode: str) -> Attributes:
    def attributes(
        r: Reader,
        shape: tuple[int, ...],
        size: Sequence[int] | None,
        align_corners: bool,
        *scales: float | None,
    ) -> dict[str, Attr]:
        given = scales or (None,) * (len(shape) - 2)
        coordinates = "align_corners" if align_corners else "half_pixel"
        found = _attrs(shape, *_extents(r, shape, size, given))
        return {"mode": mode, "coordinates": coordinates, **found}

    return attributes


def _smoothed(operator: str) -> Handler:
    """Return the handler of a resize with antialiasing; PyTorch itself says what its weights are.

    It works along one axis after the other, so the images of the rows of the identity are the
    weights of an axis.
    """

    def handler(
        r: Reader,
        x: Operand,
        size: Sequence[int] | None,
        align_corners: bool,
        *scales: float | None,
    ) -> Traced:
        given = scales or (None,) * (len(r.shape(x)) - 2)
        wanted, _ = _extents(r, r.shape(x), size, given)
        for axis, scale in enumerate(given, start=2):
            extent = r.shape(x)[axis]
            rows = torch.eye(extent).reshape(1, 1, extent, extent)
            resize = getattr(torch.ops.aten, operator)
            weights = resize(rows, [wanted[axis], extent], align_corners, scale, None)[0, 0]
            x = r.emit("interpolate", [x, weights], axis=axis)
        return x

    return handler


def _nearest(coordinates: str, rounding: str, reference: str) -> Attributes:
    """Return the attributes of nearest neighbors.

    PyTorch maps coordinates in float32. If that gives another neighbor than the reference, the
    operator is refused.
    """

    def attributes(
        r: Reader, shape: tuple[int, ...], size: Sequence[int] | None, *scales: float | None
    ) -> dict[str, Attr]:
        wanted, ratios = _extents(r, shape, size, scales or (None,) * (len(shape) - 2))
        attrs = _attrs(shape, wanted, ratios)
        for axis in range(2, len(shape)):
            scale = ratios[axis] if "scales" in attrs else None
            ours = Interpolation(
                shape[axis], wanted[axis], "nearest", coordinates, rounding, scale
            ).taps()[0][:, 0]
            given = scales[axis - 2] if scales else None
            line = torch.arange(shape[axis], dtype=torch.float32).reshape(1, 1, -1)
            theirs = getattr(torch.ops.aten, reference)(line, [wanted[axis]], given)
            if not np.array_equal(ours, theirs.reshape(-1).numpy()):
                raise r.refuse("a scale at which rounding decides on neighbors")
        return {"mode": "nearest", "coordinates": coordinates, "rounding": rounding, **attrs}

    return attributes


def _resized(attributes: Attributes) -> Handler:
    def handler(r: Reader, x: Operand, size: Sequence[int] | None, *rest: Any) -> Traced:
        return r.emit("resize", [x], **attributes(r, r.shape(x), size, *rest))

    return handler


_floor = _nearest("asymmetric", "floor", "upsample_nearest1d")
_exact = _nearest("half_pixel", "round_prefer_ceil", "_upsample_nearest_exact1d")


def _sampled(
    r: Reader, x: Operand, grid: Operand, mode: int, border: int, align_corners: bool
) -> Traced:
    """Return images at the places of a grid; PyTorch numbers modes and borders in this order."""
    attrs = {"mode": GRID_MODES[mode], "border": BORDERS[border]}
    return r.emit("grid_sample", [x, grid], **attrs, align_corners=int(align_corners))


def _with_factors(handler: Handler) -> Handler:
    """Return the handler of the form that has factors in a list, or a size."""

    def listed(r: Reader, x: Operand, size: Sequence[int] | None, *rest: Any) -> Results:
        *flags, factors = rest
        return handler(r, x, size, *flags, *(factors or ()))

    return listed


RESIZES: dict[str, Attributes] = {
    "aten._upsample_nearest_exact1d.default": _exact,
    "aten._upsample_nearest_exact2d.default": _exact,
    "aten._upsample_nearest_exact3d.default": _exact,
    "aten.upsample_bicubic2d.default": _interpolated("cubic"),
    "aten.upsample_bilinear2d.default": _interpolated("linear"),
    "aten.upsample_linear1d.default": _interpolated("linear"),
    "aten.upsample_nearest1d.default": _floor,
    "aten.upsample_nearest2d.default": _floor,
    "aten.upsample_nearest3d.default": _floor,
    "aten.upsample_trilinear3d.default": _interpolated("linear"),
}
"""By the resizes that take a size: their attributes."""

_SIZED = {
    "aten._upsample_bicubic2d_aa.default": _smoothed("_upsample_bicubic2d_aa"),
    "aten._upsample_bilinear2d_aa.default": _smoothed("_upsample_bilinear2d_aa"),
    **{name: _resized(attributes) for name, attributes in RESIZES.items()},
}

HANDLERS: dict[str, Handler] = {
    "aten.grid_sampler_2d.default": _sampled,
    "aten.grid_sampler_3d.default": _sampled,
    **_SIZED,
    **{
        name.replace(".default", ".vec"): _with_factors(handler) for name, handler in _SIZED.items()
    },
}
