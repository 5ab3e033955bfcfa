"""Quantized models beside ONNX Runtime's quantizer, in ONNX Runtime and in OpenVINO."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import stridewise as sw
from stridewise.runtime.machine.machine import this_machine

from .commands import Run, fails, own_cache, run
from .models import in_onnxruntime

__all__ = ["own_cache", "run"]

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32
NETWORKS = {
    "mobilenet_v2": 32, "resnet18": 32, "shufflenet_v2": 32, "squeezenet1_1": 48,
}  # fmt: skip


def images(size: int, count: int, seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.standard_normal((1, 3, size, size)).astype(F32) for _ in range(count)]


def relative(found: list[Array], right: list[Array]) -> float:
    return float(np.linalg.norm(np.subtract(found, right)) / np.linalg.norm(right))


IS_EXACT = this_machine(1).has_int8_products
"""Whether kernels of ONNX Runtime and OpenVINO are exact: without VNNI their sums saturate."""


def input_of(path: Path) -> str:
    (found,) = onnx.load(path).graph.input
    return found.name


def outputs(path: Path, samples: list[Array]) -> list[Array]:
    infer, name = in_onnxruntime(path, joins=IS_EXACT), input_of(path)
    return [next(iter(infer({name: x}).values())) for x in samples]


def by_onnxruntime(path: Path, target: Path, samples: list[Array]) -> None:
    """Quantize with ONNX Runtime: ranges of all values, a scale for each channel of weights."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    name = input_of(path)

    class Reader:
        def __init__(self) -> None:
            self._left = iter(samples)

        def get_next(self) -> dict[str, Array] | None:
            x = next(self._left, None)
            return None if x is None else {name: x}

    quantize_static(
        path, target, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two convolutions, an activation between them, and a matrix product."""
    random, b = np.random.default_rng(3), sw.GraphBuilder("small")

    def weights(*shape: int) -> str:
        return b.constant(random.standard_normal(shape).astype(F32) * F32(0.3), "w")

    x = b.input("x", (1, 3, 10, 10))
    y = b.op("relu", [b.op("conv", [x, weights(8, 3, 3, 3)], {"pads": (1,) * 4}, name="first")])
    y = b.op("conv", [y, weights(4, 8, 3, 3)], {"strides": (2, 2)}, name="second")
    y = b.op("reshape", [b.op("relu", [y])], {"shape": (1, 64)})
    y = b.op("matmul", [y, weights(64, 10)], name="last", output="y")
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    sw.save(b.build([y]), path)
    return path


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_the_error_beside_that_of_onnxruntimes_quantizer(name: str, tmp_path: Path) -> None:
    size = NETWORKS[name]
    path, ours, theirs = (tmp_path / f"{part}.onnx" for part in ("float", "ours", "theirs"))
    sw.save(sw.zoo.build(name, size=size), path)
    calibration, held_out = images(size, 4), images(size, 4, seed=1)
    found = sw.quantize(path, calibration, ours, threads=1)
    by_onnxruntime(path, theirs, calibration)
    right = outputs(path, held_out)
    error = relative(outputs(ours, held_out), right)
    # One scale for both sides of a channel shuffle costs accuracy, and saves steps of rounding.
    assert error <= 1.3 * relative(outputs(theirs, held_out), right)
    stated = relative(outputs(ours, calibration), outputs(path, calibration))
    # The stated error is that of products in float32, which round some numbers the other way.
    assert found.error == pytest.approx(stated, rel=0.05)
    assert not found.left


def test_the_same_results_in_stridewise_onnxruntime_and_openvino(
    small: Path, tmp_path: Path
) -> None:
    openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed")
    path = tmp_path / "small.int8.onnx"
    samples = images(10, 3)
    sw.quantize(small, samples, path)
    right = outputs(path, samples)
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    theirs = openvino.Core().compile_model(path, "CPU", hint)
    ours = sw.compile(path, tune="model", threads=1)
    step = relative(right, outputs(small, samples))
    found = relative([theirs([x])[0] for x in samples], right)
    assert found < step or not IS_EXACT
    assert relative([np.asarray(ours(x)) for x in samples], right) < 1e-5


def test_dilated_means_stay_in_float_as_onnxruntime_has_none_of_integers(tmp_path: Path) -> None:
    random, b = np.random.default_rng(5), sw.GraphBuilder("means")
    w = b.constant(random.standard_normal((3, 3, 3, 3)).astype(F32), "w")
    y = b.op("conv", [b.input("x", (1, 3, 10, 10)), w])
    y = b.op("avg_pool", [y], {"kernel": (2, 2), "dilations": (2, 1), "count_include_pad": 0})
    path, target = tmp_path / "float.onnx", tmp_path / "int8.onnx"
    sw.save(b.build([b.op("conv", [y, w])]), path)
    samples = images(10, 3)
    found = sw.quantize(path, samples, target)
    assert not found.left
    assert relative(outputs(target, samples), outputs(path, samples)) == pytest.approx(
        found.error, rel=0.05
    )


LOADS = """
import sys, numpy, openvino
hint = {"INFERENCE_PRECISION_HINT": "f32"}
model = openvino.Core().compile_model(sys.argv[1], "CPU", hint)
samples = numpy.load(sys.argv[2])
numpy.save(sys.argv[3], numpy.stack([model([x])[0] for x in samples]))
"""
"""Run in a process of its own, which a crash would end."""


@pytest.mark.parametrize("read", [False, True])
def test_concats_before_batch_norms_run_everywhere(read: bool, tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    path, floats = tmp_path / "dense.int8.onnx", tmp_path / "dense.onnx"
    sw.save(dense(read=read), floats)
    samples = images(10, 3)
    found = sw.quantize(floats, samples, path)
    right = outputs(path, samples)
    given, results = tmp_path / "given.npy", tmp_path / "results.npy"
    np.save(given, np.stack(samples))
    command = [sys.executable, "-c", LOADS, *map(str, (path, given, results))]
    subprocess.run(command, check=True, capture_output=True)
    error = relative(right, outputs(floats, samples))
    assert error == pytest.approx(found.error, rel=0.1)
    assert error < 0.05
    assert relative(list(np.load(results)), right) < error or not IS_EXACT
    model = sw.compile(path, tune="model", threads=1)
    assert relative([np.asarray(model(x)) for x in samples], right) < 0.2 * error


def dense(*, read: bool) -> sw.Graph:
    """Return a dense block; a convolution may read one of its concats without a batch norm."""
    b, random = sw.GraphBuilder("dense"), np.random.default_rng(6)

    def row(count: int) -> str:
        return b.constant(random.standard_normal(count).astype(F32) * F32(0.3) + F32(1), "row")

    def conv(x: str, outputs: int, kernel: int) -> str:
        shape = (outputs, b.type(x).shape[1], kernel, kernel)
        data = random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        w = b.constant(data.astype(F32), "w")
        return b.op("conv", [x, w], {"pads": (kernel // 2,) * 4})

    def normed(x: str) -> str:
        count = b.type(x).shape[1]
        return b.op("relu", [b.op("scale_shift", [x, row(count), row(count)])])

    y = b.op("relu", [conv(b.input("x", (1, 3, 10, 10)), 16, 3)])
    others: list[str] = []
    for _ in range(2):
        new = conv(b.op("relu", [conv(normed(y), 16, 1)]), 8, 3)
        y = b.op("concat", [y, new], {"axis": 1})
        others += [conv(y, 8, 1)] if read and not others else []
    return b.build([b.op("concat", [conv(normed(y), 8, 1), *others], {"axis": 1})])


def test_the_graph_in_memory_runs_as_its_file_does(small: Path, tmp_path: Path) -> None:
    graph = sw.quantize(small, images(10, 4)).graph
    path = tmp_path / "small.int8.onnx"
    sw.save(graph, path)
    one, other = (sw.compile(source, tune="model", threads=1) for source in (graph, path))
    assert isinstance(one, sw.CompiledModel)
    assert isinstance(other, sw.CompiledModel)
    assert one.plan.cost_ns == other.plan.cost_ns
    profile = one.profile({one.input_names[0]: images(10, 1)[0]})
    assert sum("u8" in row.formats for row in profile.rows) >= 2
    for x in images(10, 3, seed=9):
        assert np.array_equal(one(x), other(x))


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolutions(groups: int) -> None:
    random, b = np.random.default_rng(5), sw.GraphBuilder("up")
    rows = [(6, 8 // groups, 3, 3), (8,)]
    weights = [b.constant(random.standard_normal(shape).astype(F32), "w") for shape in rows]
    attrs = {"strides": (2, 2), "pads": (1,) * 4, "groups": groups}
    graph = b.build([b.op("conv_transpose", [b.input("x", (1, 6, 5, 7)), *weights], attrs)])
    samples = [random.standard_normal((1, 6, 5, 7)).astype(F32) for _ in range(4)]
    found = sw.quantize(graph, samples)
    model, exact = (sw.compile(item, tune="model") for item in (found.graph, graph))
    pairs = [[np.asarray(item(x)) for item in (model, exact)] for x in samples]
    assert 0 < relative([a for a, _ in pairs], [b for _, b in pairs]) < 2e-2


def test_networks_of_images_and_tokens() -> None:
    """Passes may turn a convolution of tokens into channels-last, but not the first one."""
    random, b = np.random.default_rng(5), sw.GraphBuilder("hybrid")

    def w(*shape: int) -> str:
        return b.constant(random.standard_normal(shape).astype(F32) * F32(0.2), "w")

    def turned(x: str) -> str:
        return b.op("transpose", [x], {"perm": (0, 2, 1)})

    around = {"pads": (1, 1, 1, 1)}
    y = b.op("conv", [b.input("x", (1, 3, 8, 8)), w(8, 3, 3, 3)], around)
    tokens = b.op("matmul", [turned(b.op("reshape", [y], {"shape": (1, 8, 64)})), w(8, 16)])
    y = b.op("reshape", [turned(tokens)], {"shape": (1, 16, 8, 8)})
    y = b.op("relu", [b.op("conv", [y, w(16, 1, 3, 3)], {**around, "groups": 16})])
    tokens = turned(b.op("reshape", [y], {"shape": (1, 16, 64)}))
    graph = b.build([b.op("matmul", [tokens, w(16, 4)])])
    samples = images(8, 4)
    found = sw.quantize(graph, samples)
    assert len(found.rows) == 4
    model, exact = (sw.compile(item, tune="model") for item in (found.graph, graph))
    pairs = [[np.asarray(item(x)) for item in (model, exact)] for x in samples]
    assert 0 < relative([a for a, _ in pairs], [b for _, b in pairs]) < 3e-2


def test_the_file_has_integers_for_all_layers(small: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.int8.onnx"
    found = sw.quantize(small, images(10, 2), path)
    graph = onnx.load(path).graph
    operators = [node.op_type for node in graph.node]
    # Saturation does what the activations do.
    assert "Relu" not in operators
    assert [row.name for row in found.rows] == ["first", "second", "last"]
    integers = {i.name for i in graph.initializer if i.data_type == onnx.TensorProto.INT8}
    assert {f"{row.name}/weight/quantized" for row in found.rows} <= integers


def test_branches_that_are_always_zero_are_computed_in_integers() -> None:
    """The last norm of a residual branch often begins as zero, in networks without training."""
    random, b = np.random.default_rng(5), sw.GraphBuilder("residual")

    def w(*shape: int) -> str:
        return b.constant(random.standard_normal(shape).astype(F32) * F32(0.2), "w")

    around = {"pads": (1, 1, 1, 1)}
    y = b.op("relu", [b.op("conv", [b.input("x", (1, 3, 8, 8)), w(8, 3, 3, 3)], around)])
    zero = b.constant(np.zeros((8, 8, 3, 3), F32), "zero")
    branch = b.op("conv", [b.op("relu", [b.op("conv", [y, w(8, 8, 3, 3)], around)]), zero], around)
    y = b.op("relu", [b.op("add", [branch, y])])
    graph = b.build([b.op("conv", [y, w(4, 8, 1, 1)])])
    samples = images(8, 4)
    model, exact = (
        sw.compile(item, tune="model") for item in (sw.quantize(graph, samples).graph, graph)
    )
    assert isinstance(model, sw.CompiledModel)
    steps = model.profile({"x": samples[0]}).rows
    products = [row.formats for row in steps if "conv" in row.kernel]
    assert len(products) == 4
    assert all("u8" in formats for formats in products)
    pairs = [[np.asarray(item(x)) for item in (model, exact)] for x in samples]
    assert 0 < relative([a for a, _ in pairs], [b for _, b in pairs]) < 2e-2


@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
def test_every_method_and_type(small: Path, tmp_path: Path, activations: Any, method: str) -> None:
    path = tmp_path / "small.int8.onnx"
    samples = images(10, 4)
    found = sw.quantize(small, samples, path, method=method, activations=activations)
    assert found.method == method
    error = relative(outputs(path, samples), outputs(small, samples))
    assert error == pytest.approx(found.error, rel=0.2)
    assert error < 0.05


def test_seven_bits_are_exact_where_pairs_of_products_saturate(small: Path) -> None:
    found = sw.quantize(small, images(10, 1), reduce_range=True)
    constants = found.graph.constants
    weights = [c.array for name, c in constants.items() if name.endswith("weight/quantized")]
    assert max(int(np.abs(array).max()) for array in weights) == 63


def test_layers_stay_in_float_to_keep_a_limit(small: Path, tmp_path: Path) -> None:
    samples, path = images(10, 4), tmp_path / "small.int8.onnx"
    whole = sw.quantize(small, samples)
    limit = 0.6 * whole.error
    found = sw.quantize(small, samples, path, max_error=limit)
    assert 0 < len(found.left) < 3
    assert all(reason == f"the error would exceed {limit:g}" for reason in found.left.values())
    assert found.error <= limit
    assert relative(outputs(path, samples), outputs(small, samples)) <= 1.1 * limit
    least = sw.quantize(small, samples, max_error=1e-9)
    assert len(least.left) == 3
    assert least.error < 1e-6  # the plans of both may differ


def test_an_iterator_is_read_once_and_progress_is_told(small: Path) -> None:
    told: list[tuple[int, int, str]] = []
    found = sw.quantize(
        small, iter(images(10, 5)), progress=lambda *state: told.append(state), threads=1
    )
    assert found.samples == 5
    assert told[-1] == (3, 3, "layers")


# --- what does not fit ----------------------------------------------------------------------------


def with_nan(x: Array) -> Array:
    x[0, 0, 0, 0] = np.nan
    return x


GOOD = images(10, 1)[0]
REFUSED: dict[str, tuple[Any, str]] = {
    "none": ([], "expected at least one sample, found none"),
    "nan": ([GOOD, with_nan(GOOD.copy())], "sample 1, input 'x': expected finite numbers"),
    "shape": ([GOOD[0]], "sample 0: input 'x': expected shape (1, 3, 10, 10), found (3, 10, 10)"),
    "batch axis": ([GOOD[0]], "add the axis of the batch: x[None]"),
    "size": ([GOOD[..., 1:]], "quantize with shapes={'x': (1, 3, 10, 9)}"),
    "dtype": ([GOOD.astype(np.float64)], "sample 0: input 'x': expected dtype float32"),
    "name": ([{"image": GOOD}], "sample 0: expected inputs x, found image"),
    "count": ([(GOOD, GOOD)], "sample 0: expected 1 arrays (x), found 2"),
    "no samples": (3, "calibration: expected an iterable of samples"),
    "a mapping": ({"x": GOOD}, "found dict; for one sample, a list with it"),
    "no file": ("/nowhere.npz", "calibration '/nowhere.npz': expected a folder"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_calibration_that_does_not_fit(small: Path, case: str) -> None:
    given, message = REFUSED[case]
    with pytest.raises(sw.InputError) as caught:
        sw.quantize(small, given)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "guess"}, "method: expected one of 'auto'"),
        ({"activations": "int4"}, "activations: expected one of 'uint8', 'int8'"),
        ({"percentile": 20}, "percentile: expected a number above 50"),
        ({"max_error": 0.0}, "max_error: expected a relative error above 0"),
        ({"max_error": float("nan")}, "max_error: expected a relative error above 0"),
    ],
)
def test_options_that_do_not_fit(small: Path, options: Any, message: str) -> None:
    with pytest.raises(sw.InputError) as caught:
        sw.quantize(small, images(10, 1), **options)
    assert message in str(caught.value)


def test_the_source_is_never_overwritten(small: Path, tmp_path: Path) -> None:
    before = small.read_bytes()
    link = tmp_path / "link.onnx"
    link.symlink_to(small)
    for target in (small, link):
        with pytest.raises(sw.InputError, match="expected another file than the model"):
            sw.quantize(small, images(10, 1), target)
    assert small.read_bytes() == before


def test_a_model_without_layers_to_quantize() -> None:
    b = sw.GraphBuilder("plain")
    x = b.input("x", (1, 4))
    graph = b.build([b.op("matmul", [x, b.op("reshape", [x], {"shape": (4, 1)})])])
    with pytest.raises(sw.ModelError, match="matmul: its second operand is no constant"):
        sw.quantize(graph, [np.ones((1, 4), F32)])


# --- command line ---------------------------------------------------------------------------------


def as_npz(folder: Path) -> Path:
    np.savez(folder / "samples.npz", x=np.concatenate(images(10, 4)))
    return folder / "samples.npz"


def as_npy(folder: Path) -> Path:
    np.save(folder / "samples.npy", np.stack(images(10, 4)))
    return folder / "samples.npy"


def as_folder(folder: Path) -> Path:
    inner = folder / "samples"
    inner.mkdir()
    for number, x in enumerate(images(10, 4)):
        np.save(inner / f"{number}.npy", x)
    return inner


@pytest.mark.parametrize("store", [as_npz, as_npy, as_folder])
def test_files_of_samples(
    run: Run, small: Path, tmp_path: Path, store: Callable[[Path], Path]
) -> None:
    path = tmp_path / "out.onnx"
    done = run("quantize", small, "--calibration", store(tmp_path), "-o", path)
    expected = sw.quantize(small, images(10, 4))
    assert outputs(path, images(10, 1))[0].shape == (1, 10)
    for word in ("first", "second", "last", f"{expected.error:.1e}", "3 of 3 layers in int8"):
        assert word in done.out


def test_what_is_said_about_layers_that_stay_in_float(
    run: Run, small: Path, tmp_path: Path
) -> None:
    given = ("quantize", small, "--calibration", as_npz(tmp_path), "-o", tmp_path / "out.onnx")
    done = run(*given, "--max-error", "1e-12")
    assert "0 of 3 layers in int8" in done.out
    assert "WeightBiasQuantization" in done.out
    # The same bits, or the warning: plans of both may differ.
    assert done.err in (
        "",
        "warning: the error is above 1e-12 although all layers are in float32\n",
    )
    done = run(*given)
    assert "WeightBiasQuantization" not in done.out
    assert not done.err


def test_the_report_as_json(run: Run, small: Path, tmp_path: Path) -> None:
    source, path = as_npz(tmp_path), tmp_path / "out.onnx"
    found = run("quantize", small, "--calibration", source, "-o", path, "--json").json
    assert found == json.loads(sw.quantize(small, images(10, 4)).to_json())


def test_files_that_are_no_samples(run: Run, small: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "cat.jpg").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    (tmp_path / "classes" / "cats").mkdir(parents=True)
    np.savez(tmp_path / "unnamed.npz", np.ones((1, 3, 10, 10), F32))
    np.savez(tmp_path / "other.npz", image=np.ones((1, 3, 10, 10), F32))
    np.savez(tmp_path / "shape.npz", x=np.ones((2, 3, 9, 9), F32))
    (tmp_path / "broken.npz").write_bytes(b"PK")
    for name, message in (
        ("pictures", "expected a .npz or .npy file, found an image"),
        ("empty", "expected a folder with .npz or .npy files, found none"),
        ("classes", "expected a folder with .npz or .npy files, found folders only"),
        ("unnamed.npz", "found arr_0; numpy.savez(file, x=...)"),
        ("other.npz", "expected arrays with the names of the inputs: x, found image"),
        ("shape.npz", "expected samples of shape (1, 3, 10, 10) along a first axis"),
        ("broken.npz", "expected a folder, or a .npz or .npy file"),
    ):
        done = run("quantize", small, "--calibration", tmp_path / name, "-o", path)
        fails(done, message)
    assert not path.exists()
