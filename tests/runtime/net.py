"""The builder that graphs for tests are made with."""

from __future__ import annotations

from typing import Any

import numpy as np

from stridewise.ops import GraphBuilder

__all__ = ["F32", "Net"]

F32 = np.float32


class Net(GraphBuilder):
    """A builder that draws the weights."""

    def __init__(self, *shape: int) -> None:
        super().__init__("net")
        self.rng = np.random.default_rng(0)
        self.x = self.input("x", shape or (2, 17, 6, 5))

    def data(self, *shape: int) -> str:
        return self.constant(self.rng.normal(size=shape).astype(F32), "c")

    def conv(
        self,
        x: str,
        outputs: int,
        kernel: int = 1,
        *,
        groups: int = 1,
        bias: bool = True,
        name: str = "",
        **attrs: Any,
    ) -> str:
        shape = self.type(x).shape
        rank = len(shape) - 2
        fan_in = shape[1] // groups * kernel**rank
        w = self.rng.normal(0, 1 / np.sqrt(fan_in), (outputs, shape[1] // groups, *[kernel] * rank))
        inputs = [x, self.constant(w.astype(F32), "w"), *([self.data(outputs)] if bias else [])]
        attrs.setdefault("pads", (kernel // 2,) * (2 * rank))
        return self.op("conv", inputs, {"groups": groups, **attrs}, name=name)

    def named(self, x: str) -> str:
        """Give the axes of a value their names, by a convolution of one tap."""
        return self.conv(x, self.type(x).shape[1])
