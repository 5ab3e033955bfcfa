"""Quantization with one scale, and the rounding to the numbers that stored integers stand for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tests.pure.onnx_case import Case, Rng, image


def _case(op: str, stored: str = "") -> Callable[[Rng], Case]:
    def make(rng: Rng) -> Case:
        dtype = stored or str(rng.choice(["int8", "uint8"]))
        limits = np.iinfo(dtype)
        scale = np.array(np.exp(rng.standard_normal() - 3), np.float32)
        zero = np.array(rng.integers(limits.min, limits.max + 1), dtype)
        x, numbers = image(rng), {"scale": float(scale), "zero_point": int(zero)}
        attrs: dict[str, object] = {"dtype": dtype, **numbers}
        forth = ("QuantizeLinear", ["x0", "scale", "zero"], {})
        nodes = [forth, ("DequantizeLinear", ["y0", "scale", "zero"], {})]
        if op == "quantize":
            nodes = [forth]
        elif op == "dequantize":
            x = rng.integers(limits.min, limits.max + 1, x.shape).astype(dtype)
            nodes = [("DequantizeLinear", ["x0", "scale", "zero"], {})]
        else:
            attrs = {"alpha": numbers["scale"], "beta": float(zero)}
        return Case([x], nodes, attrs, {"scale": scale, "zero": zero})

    return make


CASES = {
    "dequantize": _case("dequantize"),
    "quantize": _case("quantize"),
    "snap_s8": _case("snap_s8", "int8"),
    "snap_u8": _case("snap_u8", "uint8"),
}
