"""Dropout in inference; what draws has tests in ``tests/training``."""

from __future__ import annotations

import numpy as np
from tests.pure.onnx_case import Case, Rng, image

F32 = np.float32


def _case(rng: Rng) -> Case:
    share = float(F32(rng.choice([0.1, 0.5])))
    nodes = [("Dropout", ["x0", "ratio"], {})]
    return Case([image(rng, 2)], nodes, {"share": share}, {"ratio": np.array(share, F32)})


CASES = {"dropout": _case}

REFUSED = [
    ("dropout", [(2, 3)], {"share": 1.0}, "a share from 0 to below 1, found 1.0"),
    ("dropout", [(2, 3)], {"stream": -1}, "a stream from 0 to 2**32 - 1, found -1"),
    ("dropout", [(2, 3), (3,)], {}, "a counter f32[4], found f32[3]"),
]

GRADIENTS = {"dropout": lambda b: b.op("dropout", [b.draw(2, 3)], {"share": 0.3})}
