"""The result of quantization: the graph, and what happened to each layer."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from stridewise.graph import Graph

__all__ = ["LayerReport", "Quantized"]


@dataclass(frozen=True, slots=True)
class LayerReport:
    """One layer with weights.

    Attributes:
        name: of the node.
        op: its operator.
        low: least number that its quantized operand represents.
        high: the greatest one.
        error: relative error of the outputs if this layer alone is quantized.
        reason: why it stays in float; "" if it is quantized.
    """

    name: str
    op: str
    low: float
    high: float
    error: float
    reason: str = ""

    @property
    def is_quantized(self) -> bool:
        """Whether it computes with integers."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantized model, and how it was made.

    Attributes:
        graph: with nodes ``quantize_linear`` and ``dequantize_linear``.
        error: relative error of the outputs against the float model, on the samples that were kept
            for this; simulated in float32; results of integer kernels may differ by one step of the
            quantization.
        method: how ranges were chosen.
        is_equalized: whether channels of neighboring layers were equalized.
        is_corrected: whether biases make up for the mean error of weights.
        samples: number of samples that ranges come from.
        rows: one for each layer with weights, in order.
    """

    graph: Graph
    error: float
    method: str
    is_equalized: bool
    is_corrected: bool
    samples: int
    rows: tuple[LayerReport, ...]

    @property
    def left(self) -> dict[str, str]:
        """The layers that stay in float, and why."""
        return {row.name: row.reason for row in self.rows if row.reason}

    def to_json(self) -> str:
        """Return everything but the graph as JSON."""
        names = ("error", "method", "is_equalized", "is_corrected", "samples")
        document = {name: getattr(self, name) for name in names}
        document["layers"] = [asdict(row) for row in self.rows]
        return json.dumps(document, indent=2)

    def __str__(self) -> str:
        """Return a table."""
        width = max((len(row.name) for row in self.rows), default=5)
        lines = [f"{'layer':{width}}  {'range':>24}  {'error':>8}  in float because"]
        for row in self.rows:
            span = f"{row.low:.4g} .. {row.high:.4g}"
            lines.append(f"{row.name:{width}}  {span:>24}  {row.error:8.1e}  {row.reason}".rstrip())
        return "\n".join([*lines, self.summary]) + "\n"

    @property
    def summary(self) -> str:
        """What was done, in one line."""
        count = sum(row.is_quantized for row in self.rows)
        extras = [
            word
            for word, used in (
                ("equalized channels", self.is_equalized),
                ("corrected biases", self.is_corrected),
            )
            if used
        ]
        found = f"{count} of {len(self.rows)} layers in int8, relative error {self.error:.1e}"
        return ", ".join([found, f"ranges by {self.method} of {self.samples} samples", *extras])
