"""Time and error of int8 files in Stridewise, OpenVINO and ONNX Runtime.

Run it on a quiet machine::

    .venv/bin/python benchmarks/int8.py
    .venv/bin/python benchmarks/int8.py resnet50 --batch 16

Each network is quantized three times with the same images: by ``sw.quantize``, by ONNX Runtime's
``quantize_static`` of the prepared model, as its documentation advises, and of the model as it is,
with batch norms that are not folded. All three runtimes run all files; ONNX Runtime's float32 gives
the reference of the errors. Options, images, races and errors are those of ``precision.py``. The
results are ``results/int8.json``, ``int8.md`` and ``int8.svg``.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from model_tables import table
from precision import (
    CALIBRATION,
    INT8,
    RESULTS,
    Array,
    Options,
    Rows,
    Run,
    by_onnxruntime,
    by_openvino,
    images,
    main,
    ours,
)

import stridewise as sw

QUANTIZERS = ("sw.quantize", "quantize_static", "quantize_static, not prepared")


def quantize_static(
    path: Path, target: Path, name: str, samples: Sequence[Array], *, is_prepared: bool
) -> None:
    """Quantize with ONNX Runtime: uint8 activations, a scale for each channel of weights."""
    module: Any = importlib.import_module("onnxruntime.quantization")
    shapes: Any = importlib.import_module("onnxruntime.quantization.shape_inference")
    left = iter(samples)

    class Reader(module.CalibrationDataReader):
        def get_next(self) -> dict[str, Array] | None:
            x = next(left, None)
            return None if x is None else {name: x}

    prepared = target.with_suffix(".prepared.onnx")
    if is_prepared:
        shapes.quant_pre_process(path, prepared, skip_symbolic_shape=True)
    module.quantize_static(
        prepared if is_prepared else path,
        target,
        Reader(),
        quant_format=module.QuantFormat.QDQ,
        per_channel=True,
        activation_type=module.QuantType.QUInt8,
        weight_type=module.QuantType.QInt8,
    )


def contestants(graph: sw.Graph, path: Path, folder: Path, options: Options) -> dict[str, Run]:
    """Return all runtimes with both files of one model, each loaded."""
    samples, (name,) = images(graph, CALIBRATION, 1), graph.inputs
    files = {who: folder / f"{who}.onnx" for who in QUANTIZERS}
    own, prepared, other = files.values()
    sw.quantize(path, samples, own, method="minmax", threads=options.threads)
    quantize_static(path, prepared, name, samples, is_prepared=True)
    quantize_static(path, other, name, samples, is_prepared=False)
    found: dict[str, Run] = {"onnxruntime float32": by_onnxruntime(path, options)}
    for who, file in files.items():
        found[f"stridewise {who}"] = ours(file, options)
        found[f"openvino {who}"] = by_openvino(file, options, None)
        found[f"onnxruntime {who}"] = by_onnxruntime(file, options)
    return found


def claims(rows: Rows) -> list[str]:
    """Return a table of the times of peers over those of Stridewise, for each file."""
    peers = [(peer, who) for who in QUANTIZERS for peer in ("openvino", "onnxruntime")]
    lines: list[list[str]] = []
    for row in rows:
        times = {name: median(samples) for name, samples in row["samples_ms"].items()}
        ratios = [times[f"{peer} {who}"] / times[f"stridewise {who}"] for peer, who in peers]
        lines.append([f"{row['model']}, batch {row['batch']}", *(f"{x:.2f}" for x in ratios)])
    head = ["network", *(f"{peer}, file of {who}" for peer, who in peers)]
    note = (
        "Median times of peers over those of Stridewise for the same file: above 1, it is faster."
    )
    return [f"{note}\n", *table(head, lines)]


if __name__ == "__main__":
    main(contestants, claims, RESULTS.with_name("int8.json"), INT8)
