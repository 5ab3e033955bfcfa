"""Models that take and give tensors in the formats that their caller prefers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import stridewise as sw
from stridewise.cli.main import cli
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.tables.load import SHIPPED

from .graphs import THREADS, Net, error, inputs_of

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32


def graph() -> sw.Graph:
    b = Net(2, 16, 6, 5)
    y = b.op("relu", [b.conv(b.conv(b.x, 32, 3), 16)], output="y")
    return b.build([y])


def compiled(**formats: Any) -> sw.CompiledModel:
    return sw.compile(graph(), tune="model", threads=THREADS, **formats)


X = inputs_of(graph())["x"]
Y = run_reference(graph(), {"x": X})["y"]


def test_by_default_everything_is_in_the_models_own_order() -> None:
    model = compiled()
    assert {name: str(fmt) for name, fmt in model.plan.input_formats.items()} == {"x": "NCHW"}
    assert {name: str(fmt) for name, fmt in model.plan.output_formats.items()} == {"y": "NCHW"}
    assert error(model(X), Y) < 1e-5


@pytest.mark.parametrize("fmt", ["NHWC", "NCHW", "CHWN", "nChw16c", "nChw8c"])
def test_one_other_format_on_each_side(fmt: str) -> None:
    model = compiled(input_formats={"x": fmt}, output_formats={"y": fmt})
    stored = sw.reorder(X, "NCHW", fmt)
    found = model(stored)
    assert isinstance(found, np.ndarray)
    assert found.shape == sw.Format.parse(fmt).storage_shape(Y.shape)
    assert (
        error(sw.reorder(found, sw.TensorDesc(Y.shape, "float32", "NCHW", fmt), "NCHW"), Y) < 1e-5
    )
    by_name = model.run({"x": stored})
    np.testing.assert_array_equal(by_name["y"], found)


def test_of_several_formats_the_cheapest_is_picked_and_saves_reorders() -> None:
    own = compiled()
    both = compiled(
        input_formats={"x": ["NCHW", "NHWC"]}, output_formats={"y": ["NCHW", "NHWC", "nChw8c"]}
    )
    assert both.plan.cost_ns < own.plan.cost_ns
    assert len(both.plan.reorders) < len(own.plan.reorders)
    assert both.plan.gap == 0
    chosen = both.plan.input_formats["x"]
    assert str(chosen) == "NHWC"
    found = both(np.ascontiguousarray(X.transpose(0, 2, 3, 1)))
    desc = sw.TensorDesc(Y.shape, "float32", "NCHW", both.plan.output_formats["y"])
    assert error(sw.reorder(found, desc, "NCHW"), Y) < 1e-5


def test_arrays_of_the_users_shape_are_transposed_and_only_where_bytes_differ() -> None:
    model = compiled(input_formats={"x": "NHWC"})
    expected = model(np.ascontiguousarray(X.transpose(0, 2, 3, 1)))
    np.testing.assert_array_equal(model(X), expected)
    channels_last = np.ascontiguousarray(X.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(model(channels_last), expected)
    assert np.shares_memory(model._checked([channels_last])[0], channels_last)


def test_arrays_of_another_shape_are_refused_with_the_shape_wanted() -> None:
    model = compiled(input_formats={"x": "nChw16c"})
    with pytest.raises(sw.InputError) as caught:
        model(X)
    assert str(caught.value) == (
        "input 'x': expected shape (2, 1, 6, 5, 16), which is (2, 16, 6, 5) stored as nChw16c, "
        "found (2, 16, 6, 5); store it with stridewise.reorder, or compile without input_formats"
    )


# --- where the storage and the user's order are of one shape --------------------------------------


class Exported:
    """Something that is no NumPy array but offers DLPack."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def cube() -> sw.Graph:
    b = Net(1, 8, 8, 8)
    return b.build([b.op("relu", [b.conv(b.x, 8, 3)], output="y")])


CUBE = inputs_of(cube())["x"]
CUBE_Y = run_reference(cube(), {"x": CUBE})["y"]
STORED = np.ascontiguousarray(CUBE.transpose(0, 2, 3, 1))
LAST = STORED.transpose(0, 3, 1, 2)  # the user's shape, and the strides of NHWC


def of_cube(fmt: str = "NHWC") -> sw.CompiledModel:
    return sw.compile(cube(), tune="model", threads=THREADS, input_formats={"x": fmt})


def spaced(array: Array) -> Array:
    """The same elements with gaps between them, axes in the same order."""
    order = np.argsort(array.strides)[::-1]
    wide = np.zeros([2 * array.shape[axis] for axis in order], array.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in order)].transpose(np.argsort(order))
    view[...] = array
    return view


def reversed_rows(array: Array) -> Array:
    """The same elements, rows from last to first in memory."""
    order = np.argsort(array.strides)[::-1]
    back = np.argsort(order)
    return np.ascontiguousarray(array.transpose(order)[:, ::-1])[:, ::-1].transpose(back)


@pytest.mark.parametrize("change", [lambda x: x, spaced, reversed_rows])
@pytest.mark.parametrize("wrap", [lambda x: x, Exported])
def test_strides_of_the_format_mean_the_users_order(change: Any, wrap: Any) -> None:
    model = of_cube()
    given = change(LAST)
    assert given.shape == CUBE.shape
    assert error(model(wrap(given)), CUBE_Y) < 1e-5
    assert error(model.run({"x": wrap(given)})["y"], CUBE_Y) < 1e-5


def test_strides_of_the_format_are_read_where_they_are() -> None:
    for given in (LAST, Exported(LAST)):
        assert np.shares_memory(of_cube()._checked([given])[0], STORED)


@pytest.mark.parametrize("change", [lambda x: x, spaced, reversed_rows])
def test_arrays_of_numpy_in_the_order_of_their_shape_are_what_is_stored(change: Any) -> None:
    assert error(of_cube()(change(STORED)), CUBE_Y) < 1e-5


def test_strides_that_do_not_tell_are_refused_with_both_readings() -> None:
    model = of_cube()
    with pytest.raises(sw.InputError) as caught:
        model(Exported(CUBE))
    assert str(caught.value) == (
        "input 'x': expected strides that tell NCHW from NHWC, both of shape (1, 8, 8, 8), "
        "found strides of (2048, 256, 32, 4) bytes in Exported; give NCHW with the strides of NHWC "
        "(in PyTorch: channels_last), or what is stored as NHWC as a C-contiguous NumPy array"
    )
    sideways = np.ascontiguousarray(CUBE.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    row = np.broadcast_to(CUBE[:, :, :1, :1], CUBE.shape)
    for given in (Exported(STORED), sideways, row):
        with pytest.raises(sw.InputError, match="expected strides that tell NCHW from NHWC"):
            model(given)


def test_elements_that_are_all_in_one_place_are_the_same_in_any_order() -> None:
    model = of_cube()
    same = np.full(CUBE.shape, 3, F32)
    expected = run_reference(cube(), {"x": same})["y"]
    one = np.broadcast_to(F32(3), CUBE.shape)
    assert error(model(one), expected) < 1e-5


@pytest.mark.parametrize("shape", [(8, 1, 1, 1), (1, 8, 1, 1), (2, 1, 1, 1)])
def test_axes_of_extent_1_leave_nothing_to_tell(shape: tuple[int, ...]) -> None:
    b = Net(*shape)
    small = b.build([b.conv(b.x, 4)])
    x = inputs_of(small)["x"]
    expected = run_reference(small, {"x": x})[small.outputs[0]]
    model = sw.compile(small, tune="model", threads=THREADS, input_formats={"x": "NHWC"})
    for given in (x, Exported(x), Exported(np.ascontiguousarray(x.transpose(0, 2, 3, 1)))):
        assert error(model(given), expected) < 1e-5


def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed: pip install torch==2.13.0"
    )
    model = of_cube()
    tensor = torch.from_numpy(CUBE).contiguous(memory_format=torch.channels_last)
    assert error(model(tensor), CUBE_Y) < 1e-5
    assert error(model(tensor[:, :, :, :].expand(1, 8, 8, 8)), CUBE_Y) < 1e-5
    for contiguous in (torch.from_numpy(CUBE), torch.from_numpy(STORED)):
        with pytest.raises(sw.InputError, match=r"found strides of .* bytes in Tensor; give NCHW"):
            model(contiguous)
    assert error(model(torch.from_numpy(STORED).numpy()), CUBE_Y) < 1e-5
    other = compiled(input_formats={"x": "NHWC"})
    for view in (torch.from_numpy(X), torch.from_numpy(X).permute(0, 2, 3, 1).contiguous()):
        assert error(other(view), Y) < 1e-5
    with pytest.raises(sw.InputError, match=r"an array .*, found Tensor: .*requires? grad"):
        model(tensor.clone().requires_grad_())


# --- what else shows or runs such plans -----------------------------------------------------------

FORMATS: list[dict[str, Any]] = [
    {"input_formats": {"x": "NHWC"}},
    {"output_formats": {"y": "nChw8c"}},
    {"input_formats": {"x": ["NCHW", "NHWC"]}, "output_formats": {"y": ["NCHW", "NHWC"]}},
]


@pytest.mark.parametrize("formats", FORMATS)
def test_reports_show_the_formats_of_the_caller(formats: dict[str, Any]) -> None:
    model = compiled(**formats)
    (name, fmt), *_ = (*model.plan.input_formats.items(),)
    assert str(fmt) in model.report_html({name: sw.reorder(X, "NCHW", fmt)}, runs=1)


@pytest.mark.parametrize("target", list(SHIPPED))
@pytest.mark.parametrize("formats", FORMATS)
def test_simulated_models_take_them_too(formats: dict[str, Any], target: str) -> None:
    model = sw.compile(graph(), target=target, **formats)
    found = model(sw.reorder(X, "NCHW", model.plan.input_formats["x"]))
    desc = sw.TensorDesc(Y.shape, "float32", "NCHW", model.plan.output_formats["y"])
    assert error(sw.reorder(found, desc, "NCHW"), Y) < 2e-2
    np.testing.assert_array_equal(model.run({"x": X})["y"], found)


def test_an_input_can_be_asked_for_in_the_format_that_it_has() -> None:
    plan = sw.plan(cube(), tune="model", input_formats={"x": "NHWC"})
    assert plan.what_if({"x": "NHWC"}).cost_ns == pytest.approx(plan.cost_ns)


def test_the_command_line_takes_files_in_the_users_order_whatever_the_plan(tmp_path: Any) -> None:
    sw.save(cube(), tmp_path / "cube.onnx")
    np.save(tmp_path / "x.npy", CUBE)
    for fmt in ("NHWC", "nChw8c"):
        plan = sw.plan(tmp_path / "cube.onnx", tune="model", input_formats={"x": fmt})
        plan.save(tmp_path / "plan.json")
        given = ("--plan", tmp_path / "plan.json", "--input", f"x={tmp_path / 'x.npy'}")
        words = ("run", tmp_path / "cube.onnx", "--tune", "model", *given)
        words = (*words, "--output", tmp_path / "y.npz")
        found = CliRunner().invoke(cli, [*map(str, words)])
        assert found.exit_code == 0, found.output
        assert error(np.load(tmp_path / "y.npz")["y"], CUBE_Y) < 1e-5


def test_tuned_models_take_them_too(tmp_path: Any) -> None:
    formats = {"x": ["NCHW", "NHWC"]}
    model = sw.compile(graph(), threads=THREADS, cache_dir=tmp_path, input_formats=formats)
    fmt = str(model.plan.input_formats["x"])
    assert error(model(sw.reorder(X, "NCHW", fmt)), Y) < 1e-5
    planned = sw.plan(graph(), threads=THREADS, cache_dir=tmp_path, input_formats=formats)
    assert planned.cost_ns == model.plan.cost_ns


def test_a_graph_that_hands_an_input_through_reorders_it() -> None:
    b = Net(1, 16, 4, 4)
    b.conv(b.x, 16)
    y = b.conv(b.x, 16)
    own = b.build([y, "x"])
    model = sw.compile(
        own, tune="model", threads=THREADS,
        input_formats={"x": "NHWC"}, output_formats={"x": "NCHW"},
    )  # fmt: skip
    x = inputs_of(own)["x"]
    found = model.run({"x": np.ascontiguousarray(x.transpose(0, 2, 3, 1))})
    np.testing.assert_array_equal(found["x"], x)
    assert error(found[y], run_reference(own, {"x": x})[y]) < 1e-5
