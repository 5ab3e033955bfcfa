"""External data, damaged files, and all that the import of ONNX refuses, with its message."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from stridewise.errors import ModelError
from stridewise.frontends.onnx import OPSETS, import_model

from .models import F32
from .onnx_nodes import computed_branches, fails, make, node
from .small_models import small_models

SMALL = small_models()


# --- external data --------------------------------------------------------------------------------


def external(folder: Path, location: str, nbytes: int = 24, **entries: int) -> Path:
    """A model whose initializer of six floats is in a file of its own."""
    tensor = TensorProto(name="w", dims=[6], data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    model = make(node("Add", "x", "w"), shape=(1, 6), constants={"w": tensor})
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    (folder / "weights.bin").write_bytes(np.arange(nbytes // 4, dtype=F32).tobytes())
    return path


def test_external_data(tmp_path: Path) -> None:
    path = external(tmp_path, "weights.bin", nbytes=32, offset=8, length=24)
    array = import_model(path).constants["w"].array
    assert array.tolist() == [2, 3, 4, 5, 6, 7]
    assert not array.flags.writeable
    assert import_model(str(path)) == import_model(path)
    fails(path.read_bytes(), "initializer 'w'", "external data in 'weights.bin'", "by its path")


@pytest.mark.parametrize(
    ("location", "entries", "found"),
    [
        ("../weights.bin", {}, "inside of the model's folder, found '../weights.bin'"),
        ("/etc/passwd", {}, "inside of the model's folder, found '/etc/passwd'"),
        ("link.bin", {}, "inside of the model's folder, found 'link.bin'"),
        ("", {}, "inside of the model's folder, found ''"),
        ("gone.bin", {}, "external data in 'gone.bin', found no such file"),
        ("weights.bin", {"offset": 4}, "24 bytes of data, found 24 bytes in 'weights.bin'"),
        ("weights.bin", {"offset": -4}, "read from byte -4 on"),
        ("weights.bin", {"length": 8}, "24 bytes of data, found external data of 8 bytes"),
    ],
)
def test_external_data_that_cannot_be_read(
    tmp_path: Path, location: str, entries: dict[str, int], found: str
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "weights.bin").write_bytes(bytes(24))
    (tmp_path / "model/link.bin").symlink_to(tmp_path / "weights.bin")
    path = external(tmp_path / "model", location, **entries)
    fails(path, "node 'n' (Add): initializer 'w'", found)


# --- files that are no models ---------------------------------------------------------------------


def test_files_that_are_no_models(tmp_path: Path) -> None:
    fails(tmp_path / "gone.onnx", "gone.onnx'", "no such file", "check the path")
    fails(tmp_path, "expected a file, found a directory")
    content = SMALL["legacy"].SerializeToString()
    for name, data, found in [
        ("empty", b"", "an empty file"),
        ("short", content[: len(content) // 2], "truncated"),
        ("text", b"hello, world\n" * 50, "lines of text"),
        ("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        ("png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "264 bytes"),
        ("no graph", ModelProto(ir_version=8).SerializeToString(), "a graph, found none"),
    ]:
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(data)
        fails(path, f"{name}.onnx'", found)
    fails(b"", "model: expected an ONNX model, found an empty file")


def test_damage_never_escapes_as_another_error() -> None:
    rng = np.random.default_rng(0)
    contents = [SMALL[name].SerializeToString() for name in ("legacy", "shape_driven", "products")]
    messages: list[str] = []
    for turn in range(300):
        data = bytearray(contents[turn % 3])
        for position in rng.integers(len(data), size=1 + turn % 4):
            data[position] = rng.integers(256)
        try:
            import_model(bytes(data[: rng.integers(len(data))] if turn % 5 == 0 else data))
        except ModelError as error:
            messages.append(str(error))
    assert len(messages) > 150
    assert not any("\n" in message for message in messages)


# --- models that are refused ----------------------------------------------------------------------


def test_opsets() -> None:
    first, last = OPSETS
    assert import_model(make(node("Relu"), opset=last)).outputs == ("y",)
    fails(make(node("Relu"), opset=first - 1), f"an operator of opset {first} to {last}, found")
    for opset in (-1, 0, last + 1):
        fails(make(node("Relu"), opset=opset), f"opset from {first} to {last}, found {opset}")
    model = make(node("Relu"))
    del model.opset_import[:]
    fails(model, "found none", "version_converter")


def test_operators_that_are_not_supported() -> None:
    fails(
        make(node("NonZero")),
        "node 'n' (NonZero)",
        "found 'NonZero' of domain 'ai.onnx' (opset 13)",
        "replace it by supported operators",
    )
    fails(make(node("Relu", domain="com.acme")), "'Relu' of domain 'com.acme'")
    noise = helper.make_node("RandomNormal", [], ["y"], shape=[2])
    fails(make(noise), "node 'y'", "'RandomNormal'")
    fails(make(node("RandomNormalLike", "c"), constants={"c": F32([1])}), "'RandomNormalLike'")
    branch = make(node("Relu")).graph
    del branch.input[:]
    model = make(*computed_branches(branch))
    fails(model, "node 'n' (If)", "without control flow", "fixed conditions")


def test_local_functions_are_inlined() -> None:
    model = make(node("Twice", domain="local"))
    model.opset_import.append(helper.make_opsetid("local", 1))
    body = [node("Add", "a", "a", outputs=["b"])]
    opsets = [helper.make_opsetid("", 13)]
    model.functions.append(helper.make_function("local", "Twice", ["a"], ["b"], body, opsets))
    assert [item.op for item in import_model(model).nodes] == ["add"]
    model.functions[0].opset_import[0].version = 7  # the inliner leaves it, the import does not
    assert [item.op for item in import_model(model).nodes] == ["add"]


def test_element_types_that_are_not_supported() -> None:
    fails(make(node("Relu"), dtype=TensorProto.COMPLEX64), "input 'x'", "complex64", "float32")
    text = helper.make_tensor("c", TensorProto.STRING, [1], [b"a"])
    fails(make(node("Identity", "c"), constants={"c": text}), "initializer 'c'", "found string")
    tiny = TensorProto(name="w", dims=[1], data_type=TensorProto.FLOAT8E5M2, raw_data=bytes(1))
    fails(make(node("Add", "x", "w"), constants={"w": tiny}), "initializer 'w'", "float8e5m2")
    fails(make(node("Cast", to=TensorProto.STRING)), "attribute 'to'", "found string")
    model = make(node("Relu"))
    model.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT
    fails(model, "input 'x': expected a tensor, found sequence_type")


def test_graphs_that_are_not_sound() -> None:
    fails(make(node("Relu", "gone")), "node 'n' (Relu)", "found 'gone'", "sort the nodes")
    loop = [node("Relu", "b", outputs=["a"]), node("Relu", "a", outputs=["b"])]
    fails(make(*loop, outputs=["b"]), "found 'b'", "a cycle cannot be imported")
    fails(make(node("Relu"), node("Abs")), "defined once, found another definition of 'y'")
    fails(make(node("Relu"), outputs=["z"]), "output 'z': expected a node that gives it")
    fails(make(node("Add", "x", "")), "node 'n' (Add): expected input 1, found none")


def test_data_that_do_not_fit_the_shape() -> None:
    short = TensorProto(name="w", dims=[2, 3], data_type=TensorProto.FLOAT, raw_data=bytes(20))
    fails(make(node("Add", "x", "w"), constants={"w": short}),
          "initializer 'w': expected 24 bytes of data, found 20")  # fmt: skip
    listed = TensorProto(name="w", dims=[2, 3], data_type=TensorProto.FLOAT, float_data=[1, 2])
    fails(make(node("Add", "x", "w"), constants={"w": listed}), "found 2 elements")
    negative = TensorProto(name="w", dims=[-1], data_type=TensorProto.FLOAT)
    fails(make(node("Add", "x", "w"), constants={"w": negative}), "shape [-1]")


def stats(count: int = 3) -> dict[str, Any]:
    return {name: np.ones(count, F32) for name in "gbmv"}


REFUSED: list[tuple[str, ModelProto, tuple[str, ...]]] = [
    ("shape mismatch", make(node("Add", "x", "c"), constants={"c": np.zeros(5, F32)}),
     ("node 'n' (Add)", "shapes that broadcast")),
    ("dtype mismatch", make(node("Add", "x", "c"), constants={"c": np.int64([1])}),
     ("node 'n' (Add)", "float32", "int64")),
    ("attribute type", make(node("LeakyRelu", alpha=1)),
     ("attribute 'alpha' to be a float, found an integer",)),
    ("attribute list", make(node("Transpose", perm=[1.5, 2.5])),
     ("attribute 'perm' to be a list of integers, found a list",)),
    ("attribute absent", make(node("Concat", "x", "x")),
     ("attribute 'axis' to be an integer, found none",)),
    ("axis", make(node("Concat", "x", "x", axis=4)), ("an axis from -4 to 3, found 4",)),
    ("kernel", make(node("Conv", "x", "w", kernel_shape=[5, 5]),
                    constants={"w": np.zeros((4, 3, 3, 3), F32)}),
     ("kernel_shape [5, 5] in the weights, found [3, 3]",)),
    ("strides", make(node("MaxPool", kernel_shape=[2, 2], strides=[2])),
     ("parameters for 2 spatial axes", "strides (2,)")),
    ("zero stride", make(node("MaxPool", kernel_shape=[2, 2], strides=[0, 1])), ("positive",)),
    ("auto_pad", make(node("MaxPool", kernel_shape=[2, 2], auto_pad="BIG")), ("found BIG",)),
    ("saved statistics", make(node("BatchNormalization", "x", *"gbmv", outputs=["y", *"nwst"]),
                              constants=stats(), outputs=["y", "s"]),
     ("no reader of the statistics of the batch", "opset 14")),
    ("pixel norm", make(node("BatchNormalization", "x", *"gbmv", spatial=0),
                        constants=stats(), opset=8), ("scale of shape [3, 8, 8], found [3]",)),
    ("norm of another width", make(node("BatchNormalization", "x", *"gbmv"), constants=stats(4)),
     ("scale of shape [3], found [4]",)),
    ("negative variance", make(node("BatchNormalization", "x", *"gbmv"),
                               constants={**stats(), "v": F32([1, -1, 1])}),
     ("variances of 0 or more, found -0.99", "damaged")),
    ("computed norm", make(node("Flatten", outputs=["f"]),
                           node("BatchNormalization", "x", "f", *"bmv"), constants=stats()),
     ("scale of shape [3], found [1, 192]",)),
    ("training dropout", make(node("Dropout", "x", "", "t"), constants={"t": True}),
     ("training_mode=false, found true",)),
    ("mirror", make(node("Pad", "x", "p", mode="mirror"), constants={"p": [0, 0, 1, 1] * 2}),
     ("mode constant, reflect, edge, wrap, found 'mirror'",)),
    ("pads of more", make(node("Pad", "x", "p"), constants={"p": [0, 0, -5, 0, 0, 0, -4, 0]}),
     ("pads that take no more than there is of [1, 3, 8, 8]",)),
    ("pads", make(node("Pad", "x", "p"), constants={"p": [1, 1]}), ("8 pads, found [1, 1]",)),
    ("standing still", make(node("Slice", "x", "s", "e", "a", "t"),
                            constants={"s": [-1], "e": [-99], "a": [1], "t": [0]}),
     ("steps other than 0, found [0]",)),
    ("crop", make(node("Resize", "x", "r", "s",
                       coordinate_transformation_mode="tf_crop_and_resize"),
                  constants={"r": F32([0, 1]), "s": F32([1, 1, 2, 2])}),
     ("a region of 8 numbers, found [0.0, 1.0]",)),
    ("index", make(node("Gather", "x", "i", axis=1), constants={"i": [3]}),
     ("indices from -3 to 2, found [3]",)),
    ("index that is read", make(node("GatherND", "c", "i"), constants={"c": [1.0], "i": [[2]]}),
     ("indices from -1 to 0, found 2",)),
    ("k", make(node("TopK", "x", "k", outputs=["y", "i"]), constants={"k": [9]}),
     ("one k from 0 to 8, found [9]",)),
    ("depth", make(node("OneHot", "x", "d", "v"), constants={"d": [1, 2], "v": F32([0, 1])}),
     ("one depth, found [1, 2]",)),
    ("eye", make(node("EyeLike")), ("a matrix, found f32[1,3,8,8]",)),
    ("blocks", make(node("DepthToSpace", blocksize=2)), ("a multiple of 4 channels",)),
    ("boxes", make(node("NonZero")), ("as many columns as there are elements other than zero",)),
    ("range", make(node("ReduceMax", outputs=["m"]), node("Range", "m", "m", "m")),
     ("the start of the range to be constant",)),
    ("reduction", make(node("ScatterND", "x", "i", "x", reduction="or"), opset=16,
                       constants={"i": [[0]]}),
     ("reduction none, add, mul, max, min, found 'or'",)),
    ("split", make(node("Split", "x", "s", outputs=["y", "z"], axis=1), constants={"s": [1, 1]}),
     ("2 parts of an extent of 3, found sizes [1, 1]",)),
    ("reshape", make(node("Reshape", "x", "s"), constants={"s": [5, -1]}),
     ("a new shape of 192 elements, as in [1, 3, 8, 8], found [5, -1]",)),
    ("computed shape", make(node("Cast", to=TensorProto.INT64, outputs=["s"]),
                            node("Reshape", "x", "s")), ("the new shape to be constant",)),
    ("squeeze", make(node("Squeeze", "x", "a"), constants={"a": [1]}), ("axes of extent 1",)),
    ("vector gemm", make(node("Gemm", "x", "x")), ("matrices, found 'x' of shape [1, 3, 8, 8]",)),
    ("string constant", make(helper.make_node("Constant", [], ["y"], value_string="a")),
     ("node 'y' (Constant)", "found value_string")),
    ("nonsense", make(node("Range", "a", "a", "z"), constants={"a": 1, "z": 0}),
     ("node 'n' (Range)", "inputs and attributes that fit it")),
    ("integer bias", make(node("Conv", "x", "w", "b"),
                          constants={"w": np.ones((4, 3, 3, 3), F32), "b": np.ones(4, np.int32)}),
     ("a bias of dtype float32, found int32",)),
    ("transposed integer bias", make(node("ConvTranspose", "x", "w", "b"),
                                     constants={"w": np.ones((3, 4, 3, 3), F32),
                                                "b": np.ones(4, np.int32)}),
     ("a bias of dtype float32, found int32",)),
    ("integer statistics", make(node("BatchNormalization", "x", "s", "s", "i", "s"),
                                constants={"s": np.ones(3, F32), "i": np.ones(3, np.int32)}),
     ("of a float dtype, found int32",)),
    ("float indices", make(node("Gather", "x", "i"), constants={"i": F32([1])}),
     ("integers as indices, found float32",)),
    ("resize scales", make(node("Resize", "x", "", "s"), constants={"s": F32([2, 2])}),
     ("4 scales or sizes, found [2.0, 2.0]",)),
    ("resize to nothing", make(node("Resize", "x", "", "s"), constants={"s": F32([1, 1, 0.1, 1])}),
     ("positive sizes, found [1, 3, 0, 8]",)),
    ("resize mode", make(node("Resize", "x", "", "s", mode="area"),
                         constants={"s": F32([1, 1, 2, 2])}),
     ("mode nearest, linear, cubic, found area",)),
    ("resize by data", make(node("Relu", outputs=["s"]), node("Resize", "x", "", "", "s"),
                            shape=(4,)), ("the sizes to be known before", "value of input 'x'")),
    ("transposed kernel", make(node("ConvTranspose", "x", "w", kernel_shape=[2, 2]),
                               constants={"w": np.ones((3, 1, 3, 3), F32)}),
     ("kernel_shape [2, 2] in the weights, found [3, 3]",)),
    ("transposed same", make(node("ConvTranspose", "x", "w", auto_pad="SAME_UPPER", strides=[2, 2]),
                             constants={"w": np.ones((3, 1, 1, 1), F32)}),
     ("auto_pad=SAME_UPPER to cut the output [15, 15], found a wanted shape of [16, 16]",
      "give pads and output_padding")),
    ("transposed shape", make(node("ConvTranspose", "x", "w", output_shape=[9]),
                              constants={"w": np.ones((3, 1, 3, 3), F32)}),
     ("output_shape: 2 spatial extents, found [9]",)),
    ("transposed pads", make(node("ConvTranspose", "x", "w", pads=[1, 1]),
                             constants={"w": np.ones((3, 1, 3, 3), F32)}),
     ("pads: 4 integers of 0 or more, found [1, 1]",)),
    ("transposed window", make(node("ConvTranspose", "x", "x", output_padding=[1, 0]),
                               shape=(3, 3, 3, 3)),
     ("the weights, where output_padding reaches the stride, to be constant",)),
    ("repeats", make(node("Tile", "x", "a"), constants={"a": [1, 2]}),
     ("node 'n' (Tile)", "4 repeats of 0 or more, found (1, 2)")),
]  # fmt: skip


@pytest.mark.parametrize(("model", "parts"), [pytest.param(m, p, id=i) for i, m, p in REFUSED])
def test_refusals(model: ModelProto, parts: tuple[str, ...]) -> None:
    fails(model, *parts)


def test_messages_have_four_parts() -> None:
    with pytest.raises(ModelError) as caught:
        import_model(make(node("NonZero")))
    assert re.fullmatch(r"node 'n' \(NonZero\): expected .+, found .+; .+", str(caught.value))
