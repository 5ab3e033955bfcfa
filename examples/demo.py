"""The main job on a real model: compile ResNet-50, show the plan, check it, time it.

The model is the ResNet-50 that comes with the onnx package. Its own weights are all equal, so its
shipped output proves that it loads, not that the arithmetic is right; for that it gets seeded
random weights and is compared with another implementation.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
from benchmarks.peers import PEERS, USUAL
from onnx import ModelProto, numpy_helper
from onnx.reference import ReferenceEvaluator

import stridewise as sw
from stridewise.cli.bench import compare, print_timings
from stridewise.cli.console import OUT, measuring
from stridewise.frontends.onnx import randomize, read_model

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
MODEL = LIGHT / "light_resnet50.onnx"
RTOL, ATOL = 1e-3, 1e-7  # what onnx's own backend tests allow for this model


def check_shipped(path: Path) -> None:
    """Run the model as it is and compare with the output that was shipped beside it."""
    model = sw.compile(path, tune="model")
    shape = model.plan.graph.values[model.input_names[0]].shape
    count = int(np.prod(shape))
    image = (np.arange(count).reshape(shape) / count).astype(np.float32)  # as onnx's tests do
    expected = numpy_helper.to_array(onnx.load_tensor(path.with_name(f"{path.stem}_output_0.pb")))
    np.testing.assert_allclose(model(image), expected, RTOL, ATOL)
    OUT.print(f"1. {path.name} as shipped gives the output shipped with it")


def reference(model: ModelProto, inputs: dict[str, np.ndarray]) -> tuple[str, np.ndarray]:
    """Return the output that another implementation computes, and its name."""
    if find_spec("onnxruntime") is not None:
        peer = PEERS["onnxruntime"](model.SerializeToString(), inputs, 2, 1)
        return f"ONNX Runtime {peer.version}", peer.run(1)[0]
    return "ONNX's reference evaluator", ReferenceEvaluator(model).run(None, inputs)[0]


def main() -> None:
    """Run the demonstration; an assertion fails where an output is wrong."""
    check_shipped(MODEL)

    seeded = randomize(read_model(MODEL), seed=0)
    with measuring() as progress:
        model = sw.compile(seeded, progress=progress)
    OUT.print("\n2. The plan for the same network with seeded random weights\n")
    print(model.plan.explain())
    memory = model.memory
    OUT.print(
        f"memory: arena {memory.arena / 1e6:.1f} MB (at least {memory.arena_lower_bound / 1e6:.1f}"
        f" is needed), packed weights {memory.packed_weights / 1e6:.1f} MB"
    )

    name = model.input_names[0]
    shape = model.plan.graph.values[name].shape
    inputs = {name: np.random.default_rng(1).standard_normal(shape, np.float32)}
    name_of_reference, expected = reference(seeded, inputs)
    error = np.linalg.norm(model(inputs[name]) - expected) / np.linalg.norm(expected)
    # In float32, rounding in sums of thousands of products moves the logits by about 1e-5. The
    # softmax makes that the relative error of its result.
    assert error < 3e-5, f"relative error {error} against {name_of_reference}"
    OUT.print(f"\n3. Its output agrees with {name_of_reference}: relative error {error:.1e}\n")

    installed = {name: PEERS[name] for name in USUAL if find_spec(name) is not None}
    timings = compare(model, seeded.SerializeToString(), installed, runs=30)
    print_timings(timings, f"4. ResNet-50, batch 1, {model.plan.machine}")
    if "openvino" not in installed:
        OUT.print("OpenVINO is not installed: pip install 'stridewise\\[bench]'")


if __name__ == "__main__":
    main()
