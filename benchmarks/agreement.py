"""How far the results of runtimes are apart for int8 files, and one runtime's from its own.

Run it at any time; nothing is timed::

    .venv/bin/python benchmarks/agreement.py efficientnet_b0 --images 24

Each network is quantized by ``sw.quantize`` and by ``quantize_static``, as in ``int8.py``. Each
file runs in ONNX Runtime, in ONNX Runtime node by node (without the kernels that join quantized
operators), in ONNX Runtime on images that were multiplied by 1 + 1e-6, and in Stridewise with
integers and in float32. The table has the relative difference of each to the first one, and the
part of the images with the same greatest output.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from int8 import quantize_static
from model_tables import table
from precision import CALIBRATION, Array, images

import stridewise as sw

_SHAKEN = np.float32(1 + 1e-6)


def by_onnxruntime(path: Path, samples: Sequence[Array], *, joins: bool = True) -> list[Array]:
    """Run a file of one input, with or without joined operators."""
    module: Any = importlib.import_module("onnxruntime")
    settings = module.SessionOptions()
    if not joins:
        settings.graph_optimization_level = module.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = module.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return [session.run(None, {name: x})[0] for x in samples]


def ours(path: Path, samples: Sequence[Array], dtype: Literal["model", "float32"]) -> list[Array]:
    """Run a file with integers or in float32."""
    model = sw.compile(path, tune="model", dtype=dtype)
    return [np.asarray(model(x)) for x in samples]


def results(path: Path, samples: Sequence[Array]) -> dict[str, list[Array]]:
    """Return the outputs of one file for each image, by who computed them."""
    return {
        "ONNX Runtime": by_onnxruntime(path, samples),
        "ONNX Runtime, node by node": by_onnxruntime(path, samples, joins=False),
        "ONNX Runtime, images times 1 + 1e-6": by_onnxruntime(path, [x * _SHAKEN for x in samples]),
        "Stridewise": ours(path, samples, "model"),
        "Stridewise, float32": ours(path, samples, "float32"),
    }


def compared(file: str, found: dict[str, list[Array]]) -> list[list[str]]:
    """Return a row for each runtime but the first."""
    first, *others = found
    rows: list[list[str]] = []
    for who in others:
        pairs = list(zip(found[who], found[first], strict=True))
        off = [float(np.linalg.norm(x - right) / np.linalg.norm(right)) for x, right in pairs]
        same = np.mean([x.argmax() == right.argmax() for x, right in pairs])
        rows.append([file, who, f"{np.median(off):.1e}", f"{max(off):.1e}", f"{100 * same:.0f} %"])
    return rows


def main() -> None:
    """Quantize, run and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=["efficientnet_b0"])
    parser.add_argument("--images", type=int, default=24)
    options = parser.parse_args()
    rows: list[list[str]] = []
    for network in options.networks:
        graph = sw.zoo.build(network)
        (name,) = graph.inputs
        samples, others = images(graph, CALIBRATION, 1), images(graph, options.images, 99)
        with tempfile.TemporaryDirectory() as folder:
            files = (Path(folder) / f"{item}.onnx" for item in ("float", "own", "static"))
            path, own, static = files
            sw.save(graph, path)
            sw.quantize(path, samples, own, method="minmax")
            quantize_static(path, static, name, samples, is_prepared=True)
            for who, file in (("sw.quantize", own), ("quantize_static", static)):
                rows += compared(f"{network}, {who}", results(file, others))
    print("\n".join(table(["file", "against ONNX Runtime", "median", "most", "same top-1"], rows)))


if __name__ == "__main__":
    main()
