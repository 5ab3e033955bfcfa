"""Small hand-made ONNX models in the styles of known networks, with seeded random weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper
from tests.operator_tables import entries

__all__ = ["WIDTHS", "small_models"]

F32 = np.float32

WIDTHS = (1, 3, 17, 24, 100)
"""Channel counts that no block size likes."""


class Net:
    """Writes a small ONNX model; every method adds a node and returns its result."""

    def __init__(self, opset: int, channels: int = 3, size: int = 14, seed: int = 0) -> None:
        self.opset, self.channels = opset, channels
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.shape: tuple[int, ...] = (2, channels, size, size)

    def weight(self, data: Any, dtype: Any = F32) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.array(data, dtype), name))
        return name

    def ints(self, *data: int) -> str:
        return self.weight(data, np.int64)

    def node(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        number = len(self.nodes)
        names = [f"v{number}" if not index else f"v{number}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, f"{op}_{number}", **attrs))
        return names[0] if outputs == 1 else names

    def conv(
        self,
        x: str,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        *,
        groups: int = 1,
        bias: bool = False,
        **attrs: Any,
    ) -> str:
        fan_in = inputs // groups * kernel * kernel
        shape = (outputs, inputs // groups, kernel, kernel)
        w = self.weight(self.rng.normal(0, np.sqrt(2 / fan_in), shape))
        names = [w, self.weight(self.rng.normal(0, 0.1, outputs))] if bias else [w]
        if "auto_pad" not in attrs:
            attrs.setdefault("pads", [kernel // 2] * 4)
        return self.node("Conv", x, *names, group=groups, kernel_shape=[kernel, kernel], **attrs)

    def norm(self, x: str, channels: int) -> str:
        ranges = ((0.7, 1.3), (-0.2, 0.2), (-0.2, 0.2), (0.5, 1.5))
        stats = [self.weight(self.rng.uniform(*pair, channels)) for pair in ranges]
        return self.node("BatchNormalization", x, *stats, epsilon=1e-3)

    def conv_norm(self, x: str, inputs: int, outputs: int, kernel: int = 1, **attrs: Any) -> str:
        return self.norm(self.conv(x, inputs, outputs, kernel, **attrs), outputs)

    def clip6(self, x: str) -> str:
        return self.node("Clip", x, self.weight(0), self.weight(6))

    def mean(self, x: str, *axes: int, keepdims: int = 1) -> str:
        if self.opset < 18:
            return self.node("ReduceMean", x, axes=list(axes), keepdims=keepdims)
        return self.node("ReduceMean", x, self.ints(*axes), keepdims=keepdims)

    def gemm(self, x: str, inputs: int, outputs: int, **attrs: Any) -> str:
        w = self.weight(self.rng.normal(0, 1 / np.sqrt(inputs), (outputs, inputs)))
        bias = self.weight(self.rng.normal(size=outputs))
        return self.node("Gemm", x, w, bias, transB=1, **attrs)

    def model(self, *outputs: str, name: str = "small") -> ModelProto:
        """Finish with these results as outputs, their types found by ONNX's own inference."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            self.initializers,
        )
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


# --- blocks at odd widths -------------------------------------------------------------------------


def resnet(width: int) -> ModelProto:
    """A residual block with a projection, one without, and pooling by AveragePool."""
    net = Net(13)
    x = net.node("Relu", net.conv_norm("x", 3, width, 3))
    inner = net.node("Relu", net.conv_norm(x, width, width, 3, strides=[2, 2]))
    inner = net.conv_norm(inner, width, 2 * width, 3)
    skip = net.conv_norm(x, width, 2 * width, 1, strides=[2, 2])
    x = net.node("Relu", net.node("Add", inner, skip))
    inner = net.conv_norm(net.node("Relu", net.conv_norm(x, 2 * width, width)), width, 2 * width)
    x = net.node("Relu", net.node("Sum", x, inner))
    x = net.node("AveragePool", x, kernel_shape=[7, 7])
    return net.model(net.gemm(net.node("Flatten", x), 2 * width, 10))


def mobilenet_v2(width: int) -> ModelProto:
    """Inverted residuals: Clip, depthwise, linear bottleneck, and a 1x1 head."""
    net = Net(13)
    x = net.clip6(net.conv_norm("x", 3, width, 3, strides=[2, 2]))
    inner = net.clip6(net.conv_norm(x, width, 3 * width))
    inner = net.clip6(net.conv_norm(inner, 3 * width, 3 * width, 3, groups=3 * width))
    x = net.node("Add", net.conv_norm(inner, 3 * width, width), x)
    x = net.conv(net.node("GlobalAveragePool", x), width, 10, bias=True)
    return net.model(net.node("Squeeze", x, net.ints(2, 3)))


def mobilenet_v3(width: int) -> ModelProto:
    """HardSwish, a squeeze-and-excite gate by HardSigmoid, kernel 5, stride 2."""
    net = Net(14)
    x = net.node("HardSwish", net.conv_norm("x", 3, width, 3))
    x = net.node("HardSwish", net.conv_norm(x, width, width, 5, groups=width, strides=[2, 2]))
    gate = net.conv(net.node("GlobalAveragePool", x), width, max(width // 4, 1), bias=True)
    gate = net.conv(net.node("Relu", gate), max(width // 4, 1), width, bias=True)
    gate = net.node("HardSigmoid", gate, alpha=1 / 6, beta=0.5)
    x = net.conv_norm(net.node("Mul", x, gate), width, width)
    return net.model(net.gemm(net.node("Flatten", net.mean(x, 2, 3)), width, 10))


def efficientnet(width: int) -> ModelProto:
    """x * sigmoid(x), a gate by ReduceMean, and softmax."""
    net = Net(18)

    def swish(x: str) -> str:
        return net.node("Mul", x, net.node("Sigmoid", x))

    x = swish(net.conv_norm("x", 3, width, 3, strides=[2, 2]))
    inner = swish(net.conv_norm(x, width, width, 3, groups=width))
    gate = swish(net.conv(net.mean(inner, 2, 3), width, max(width // 4, 1), bias=True))
    gate = net.node("Sigmoid", net.conv(gate, max(width // 4, 1), width, bias=True))
    inner = net.conv_norm(net.node("Mul", gate, inner), width, width)
    x = net.mean(net.node("Add", inner, x), 2, 3, keepdims=0)
    return net.model(net.node("Softmax", net.gemm(x, width, 10)))


def densenet(width: int) -> ModelProto:
    """Concatenation, norms before convolutions, and scales by unsqueezed constants."""
    net = Net(13)
    x, total = net.conv("x", 3, width, 3), width
    for _ in range(3):
        scale = net.weight(net.rng.uniform(0.7, 1.3, total))
        scaled = net.node("Mul", net.norm(x, total), net.node("Unsqueeze", scale, net.ints(1, 2)))
        x = net.node("Concat", x, net.conv(net.node("Relu", scaled), total, 5, 3), axis=1)
        total += 5
    x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return net.model(net.node("GlobalMaxPool", x))


# --- single features ------------------------------------------------------------------------------


def padded() -> ModelProto:
    """Pads before convolutions, one with a value, one negative; SAME at odd sizes."""
    net = Net(13, size=13)
    x = net.node("Pad", "x", net.ints(0, 0, 1, 1, 0, 0, 2, 2))
    x = net.conv(x, 3, 17, 3, pads=[0, 0, 0, 0], strides=[2, 2])
    x = net.node("Pad", x, net.ints(0, 0, 1, -1, 0, 0, 1, -2), net.weight(0.5))
    x = net.conv(x, 17, 9, 3, auto_pad="SAME_UPPER", strides=[2, 2])
    return net.model(net.conv(x, 9, 6, 4, auto_pad="SAME_LOWER", bias=True))


def pools() -> ModelProto:
    """Pools with ceil_mode, padding, counted padding and dilation."""
    net = Net(19, size=15)
    two = {"kernel_shape": [3, 3], "strides": [2, 2]}
    results = [
        net.node("MaxPool", "x", ceil_mode=1, **two),
        net.node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        net.node("MaxPool", "x", kernel_shape=[3, 3], dilations=[2, 2], pads=[1] * 4),
        net.node("AveragePool", "x", pads=[1] * 4, **two),
        net.node("AveragePool", "x", pads=[1] * 4, count_include_pad=1, **two),
        net.node("AveragePool", "x", kernel_shape=[2, 2], strides=[3, 3], ceil_mode=1),
        net.node("AveragePool", "x", auto_pad="SAME_UPPER", **two),
    ]
    return net.model(*results, name="pools")


def windows() -> ModelProto:
    """Dilated and grouped convolutions."""
    net = Net(11, channels=6)
    x = net.conv("x", 6, 12, 3, groups=3, dilations=[2, 2], pads=[2] * 4, bias=True)
    x = net.node("LRN", x, size=5, alpha=1e-2, beta=0.7, bias=1.5)
    return net.model(net.conv(x, 12, 7, 5, strides=[3, 2]))


def volumes(rank: int) -> ModelProto:
    """Convolution and pools over one or three spatial axes."""
    net = Net(13)
    net.shape = (2, 5, *(9, 8, 7)[:rank])
    ones, twos = [1] * rank, [2] * rank
    w = net.weight(net.rng.normal(0, 0.2, (11, 5, *[3] * rank)))
    x = net.node("Conv", "x", w, kernel_shape=[3] * rank, pads=ones * 2, strides=twos)
    x = net.node("Relu", net.norm(x, 11))
    x = net.node("AveragePool", x, kernel_shape=twos, strides=ones)
    return net.model(net.node("GlobalAveragePool", x))


def transposed() -> ModelProto:
    """Transposed convolutions: every way to say how large the result is, a norm, groups."""
    net = Net(13, channels=6, size=5)

    def up(x: str, inputs: int, outputs: int, kernel: int, groups: int = 1, **attrs: Any) -> str:
        w = net.weight(net.rng.normal(0, 0.3, (inputs, outputs // groups, kernel, kernel)))
        names = [w] if groups > 1 else [w, net.weight(net.rng.normal(size=outputs))]
        return net.node("ConvTranspose", x, *names, group=groups, **attrs)

    two = {"strides": [2, 2]}
    x = net.node("Relu", net.norm(up("x", 6, 12, 4, pads=[1] * 4, **two), 12))
    y = net.norm(up(x, 12, 8, 3, groups=2, pads=[1, 0, 2, 1], output_padding=[1, 1], **two), 8)
    return net.model(
        y,
        up("x", 6, 5, 3, output_shape=[10, 12], **two),
        up("x", 6, 5, 3, output_shape=[12, 13], strides=[3, 2], dilations=[1, 2]),
        up("x", 6, 5, 3, auto_pad="SAME_UPPER", **two),
        up("x", 6, 5, 4, auto_pad="SAME_LOWER", strides=[3, 3]),
        up("x", 6, 5, 4, auto_pad="SAME_UPPER", output_shape=[9, 8], **two),
        up("x", 6, 5, 3, auto_pad="VALID", output_padding=[1, 0], dilations=[2, 1], **two),
        up("x", 6, 6, 3, groups=6, dilations=[2, 2]),
    )


def transposed_volumes(rank: int) -> ModelProto:
    """A transposed convolution over one or three spatial axes."""
    net = Net(13)
    net.shape = (2, 5, *(5, 4, 3)[:rank])
    w = net.weight(net.rng.normal(0, 0.3, (5, 7, *(3, 2, 4)[:rank])))
    return net.model(net.node("ConvTranspose", "x", w, strides=[2] * rank, pads=[1, 0] * rank))


def resized() -> ModelProto:
    """Resizing as exporters write it, in an image of known and in one of unknown axes."""
    net = Net(18, size=6)
    none = ""
    x = net.conv("x", 3, 17, 3)
    ways: list[dict[str, Any]] = [
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        {"mode": "linear"},
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
        {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"},
        {"mode": "cubic", "cubic_coeff_a": -0.5, "coordinate_transformation_mode": "asymmetric"},
    ]
    results = [
        net.node("Resize", image, none, *how, **way)
        for image in (x, "x")
        for way in ways
        for how in (
            (net.weight([1, 1, 2, 2]),),
            (net.weight([1, 1, 1.6, 0.6]),),
            (none, net.ints(2, 17 if image == x else 3, 9, 13)),
        )
    ]
    results.append(net.node("Resize", x, none, none, net.ints(9, 3), axes=[2, 3], mode="linear"))
    return net.model(*results)


def upsampled() -> ModelProto:
    """Upsample of opset 9, its scales an input."""
    net = Net(9, size=5)
    x = net.conv("x", 3, 8, 3)
    scales = net.weight([1, 1, 2, 3])
    return net.model(
        net.node("Upsample", x, scales), net.node("Upsample", x, scales, mode="linear")
    )


def upsampled_7() -> ModelProto:
    """Upsample of opset 7, its scales an attribute."""
    net = Net(7, size=5)
    x = net.conv("x", 3, 8, 3)
    return net.model(net.node("Upsample", x, scales=[1.0, 1.0, 2.0, 2.0], mode="nearest"))


def shuffle() -> ModelProto:
    """Split, slices with steps, concatenation and a channel shuffle."""
    net = Net(13, channels=12)
    left, middle, right = net.node("Split", "x", net.ints(3, 4, 5), outputs=3, axis=1)
    part = net.node(
        "Slice", "x", net.ints(-9, 0), net.ints(2**40, 12), net.ints(1, 3), net.ints(2, 1)
    )
    part = net.node("Pad", part, net.ints(0, 0, 0, 0, 0, 0, 0, 2))
    x = net.node("Concat", right, left, net.node("Relu", middle), part, axis=-3)
    x = net.node("Slice", x, net.ints(0), net.ints(-1), net.ints(1))
    x = net.node("Reshape", x, net.ints(2, 4, -1, 14, 14))
    x = net.node("Reshape", net.node("Transpose", x, perm=[0, 2, 1, 3, 4]), net.ints(0, 16, 14, -1))
    halves = net.node("Split", x, outputs=2, axis=1)
    return net.model(net.node("Mul", *halves))


def nhwc() -> ModelProto:
    """An input and a head in NHWC around a convolution in NCHW."""
    net = Net(13)
    net.shape = (2, 14, 13, 3)
    x = net.conv_norm(net.node("Transpose", "x", perm=[0, 3, 1, 2]), 3, 17, 3)
    x = net.node("Transpose", net.node("Relu", x), perm=[0, 2, 3, 1])
    x = net.node("Add", x, net.weight(net.rng.normal(size=17)))
    return net.model(net.node("Softmax", x, axis=-1), net.mean(x, 1, 2, keepdims=0))


def shape_driven() -> ModelProto:
    """Shape, Gather, Unsqueeze, Concat, Reshape, as ``x.view(x.size(0), -1)`` is exported."""
    net = Net(13)
    x = net.node("Relu", net.conv("x", 3, 6, 3, strides=[2, 2]))
    batch = net.node("Gather", net.node("Shape", x), net.weight(0, np.int64))
    rest = net.node("ConstantOfShape", net.ints(1), value=numpy_helper.from_array(-np.ones(1, int)))
    shape = net.node("Concat", net.node("Unsqueeze", batch, net.ints(0)), rest, axis=0)
    flat = net.node("Reshape", x, shape)
    area = net.node("ReduceProd", net.node("Slice", net.node("Shape", x), net.ints(2), net.ints(4)))
    half = net.node("Div", net.node("Cast", area, to=TensorProto.INT64), net.ints(7))
    where = net.node("Where", net.node("Less", half, net.ints(0)), net.ints(1), half)
    tiles = net.node("Concat", net.ints(0), where, net.ints(-1), axis=0)
    return net.model(net.gemm(flat, 294, 10), net.node("Reshape", x, tiles))


def products() -> ModelProto:
    """Gemm and MatMul in all their forms."""
    net = Net(13)
    net.shape = (6, 8)

    def net_weight(*shape: int) -> str:
        return net.weight(net.rng.normal(size=shape))

    x = net.gemm("x", 8, 6, alpha=0.5, beta=2.0)
    y = net.node("Gemm", x, net_weight(6, 5), transA=1)
    z = net.node("Gemm", x, "x", net_weight(6, 1), alpha=0.5, beta=0.25)
    w = net.node("Add", net.node("MatMul", "x", net_weight(8, 17)), net_weight(17))
    v = net.node("MatMul", net.node("Unsqueeze", x, net.ints(0)), net_weight(3, 6, 4))
    u = net.node("Gemm", x, x, net.weight(0.5), transB=1)
    return net.model(y, z, w, v, u)


def functions() -> ModelProto:
    """Every elementwise function, and operators of several operands."""
    net = Net(20, size=4)
    positive = net.node("Add", net.node("Abs", "x"), net.weight(0.5))
    plain = ("Elu", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Neg", "Relu",
             "Sigmoid", "Softplus", "Tanh")  # fmt: skip
    results = [net.node(op, "x") for op in plain]
    results += [net.node(op, positive) for op in ("Log", "Sqrt", "Reciprocal")]
    third = net.weight(0.7)
    results += [net.node(op, "x", positive, third) for op in ("Max", "Mean", "Min", "Sum")]
    results += [net.node(op, "x", positive) for op in ("Add", "Div", "Mul", "Sub")]
    results += [net.node("Pow", positive, net.weight(e)) for e in (-1.0, 0.5, 2.0)]
    results += [
        net.node("LogSoftmax", "x", axis=1),
        net.node("Elu", "x", alpha=0.3),
        net.node("Clip", "x", "", net.weight(0.3)),
        net.node("Clip", "x", net.node("ReduceMin", positive, keepdims=0), net.weight(0.9)),
        net.node("ReduceMax", "x", net.ints(-1, 1), keepdims=0),
        net.node("ReduceSum", "x", net.ints(2)),
        net.node("ReduceMin", "x"),
    ]
    return net.model(*results)


def legacy() -> ModelProto:
    """What opset 9 writes as attributes, and softmax over several axes."""
    net = Net(9)
    x = net.node("Pad", "x", pads=[0, 0, 1, 1, 0, 0, 1, 1], value=0.25)
    x = net.node("Clip", net.conv(x, 3, 8, 3, pads=[0] * 4), min=-1.0, max=1.0)
    x = net.node("Slice", x, axes=[1, 3], starts=[1, -8], ends=[7, 100])
    scale = net.node("Unsqueeze", net.weight(net.rng.uniform(0.5, 1, 6)), axes=[1, 2])
    x = net.node("Dropout", net.node("Mul", x, scale), ratio=0.5)
    left, right = net.node("Split", x, outputs=2, axis=1, split=[2, 4])
    soft = net.node("Softmax", left, axis=1)
    x = net.node("GlobalAveragePool", right)
    rows = net.node("Squeeze", x, axes=[2, 3])
    return net.model(soft, net.node("LogSoftmax", rows), net.node("Softmax", x))


def aliases() -> ModelProto:
    """Outputs that are other names of values, of the input, and of constants."""
    net = Net(13)
    y = net.node("Relu", "x")
    const = net.node("Mul", net.weight([1.0, 2.0]), net.weight(3.0))
    total = net.node("Add", y, net.node("Reshape", const, net.ints(2, 1, 1, 1)))
    return net.model(
        y, net.node("Identity", y), net.node("Dropout", y), net.node("Identity", "x"), const, total
    )


_BLOCKS: tuple[Callable[[int], ModelProto], ...] = (
    densenet, efficientnet, mobilenet_v2, mobilenet_v3, resnet,
)  # fmt: skip
_FEATURES: dict[str, Callable[[], ModelProto]] = {
    "aliases": aliases,
    "functions": functions,
    "legacy": legacy,
    "nhwc": nhwc,
    "padded": padded,
    "pools": pools,
    "products": products,
    "resized": resized,
    "shape_driven": shape_driven,
    "shuffle": shuffle,
    "transposed": transposed,
    "transposed_volumes_1d": partial(transposed_volumes, 1),
    "transposed_volumes_3d": partial(transposed_volumes, 3),
    "upsampled": upsampled,
    "upsampled_7": upsampled_7,
    "volumes_1d": partial(volumes, 1),
    "volumes_3d": partial(volumes, 3),
    "windows": windows,
}


def small_models() -> dict[str, ModelProto]:
    """All small models by name; every block once for each of :data:`WIDTHS`."""
    found = {f"{build.__name__}_{width}": build(width) for build in _BLOCKS for width in WIDTHS}
    features = _FEATURES | entries("MODELS")
    return found | {name: build() for name, build in features.items()}
