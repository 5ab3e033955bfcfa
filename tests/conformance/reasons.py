"""Why a test of ONNX is not expected to pass without the fallback, by what its model is.

A reason is a fact about the model. A test that fails without a reason is a bug of Stridewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

from stridewise.frontends.onnx import OPSETS

from .suite import Outcome

__all__ = ["KNOWN", "LISTED", "nodes", "operators", "reason_of"]

_NAMES = """
Abs Add And ArgMax ArgMin AveragePool BatchNormalization Cast Ceil Celu Clip Concat
ConstantOfShape Conv ConvTranspose CumSum DepthToSpace Div Einsum Elu Equal Erf Exp Expand
Flatten Floor Gather GatherElements Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool
Greater GreaterOrEqual GridSample GroupNormalization HardSigmoid HardSwish Identity
InstanceNormalization LRN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LpPool
MatMul Max MaxPool Mean Min Mish Mul Neg NonMaxSuppression Not OneHot Or PRelu Pad Pow Range
ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
ReduceSum ReduceSumSquare Relu Reshape Resize RoiAlign Round ScatterND Selu Shape Sigmoid Size
Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tanh Tile TopK
Transpose Trilu Unsqueeze Upsample Where Xor
"""

LISTED = frozenset(_NAMES.split())
"""The operators that have to run natively, in all that ONNX says of them."""

_CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_DATA_DEPENDENT = frozenset({"Compress", "NonMaxSuppression", "NonZero", "StringSplit", "Unique"})
_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
     "RandomUniformLike"}
)  # fmt: skip
_DTYPES = frozenset(
    {
        TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16,
        TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
        TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
        TensorProto.BOOL,
    }
)  # fmt: skip


# --- what a model holds ---------------------------------------------------------------------------


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Yield the nodes of a model, those of subgraphs and local functions too."""
    for graph in _graphs(model.graph):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def operators(model: ModelProto) -> frozenset[str]:
    """Return what the nodes of a model do; those outside of ONNX's domain with their domain."""
    own = {(function.domain, function.name) for function in model.functions}
    return frozenset(
        node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        for node in nodes(model)
        if (node.domain, node.op_type) not in own
    )


def _types(model: ModelProto) -> Iterator[TypeProto]:
    for graph in _graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            yield value.type


def _codes(model: ModelProto) -> Iterator[int]:
    """Yield the element types of a model: of its values, constants and conversions."""
    for type_ in _types(model):
        if type_.HasField("tensor_type"):
            yield type_.tensor_type.elem_type
    for graph in _graphs(model.graph):
        yield from (item.data_type for item in graph.initializer)
    for node in nodes(model):
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t.data_type
            elif attribute.name in ("to", "dtype") and node.op_type in ("Cast", "BitCast"):
                yield attribute.i


# --- reasons --------------------------------------------------------------------------------------


def _no_tensor(model: ModelProto) -> bool:
    return any(type_.WhichOneof("value") not in (None, "tensor_type") for type_ in _types(model))


def _has(*codes: int) -> Callable[[ModelProto], bool]:
    return lambda model: any(code in codes for code in _codes(model))


def _narrow(model: ModelProto) -> bool:
    usual = _DTYPES | {TensorProto.UNDEFINED, TensorProto.STRING}
    return any(code not in usual for code in _codes(model))


def _among(names: frozenset[str]) -> Callable[[ModelProto], bool]:
    return lambda model: bool(operators(model) & names)


def _random(model: ModelProto) -> bool:
    training = any(node.op_type == "Dropout" and len(node.input) > 2 for node in nodes(model))
    return training or bool(operators(model) & _RANDOM)


def _old(model: ModelProto) -> bool:
    versions = [item.version for item in model.opset_import if item.domain in ("", "ai.onnx")]
    return bool(versions) and max(versions) < OPSETS[0]


def _recurrent(model: ModelProto) -> bool:
    """Return whether a recurrent layer reads weights that are inputs of the model."""
    inputs = {item.name for item in model.graph.input}
    layers = [node for node in nodes(model) if node.op_type in ("GRU", "LSTM", "RNN")]
    return any(name in inputs for node in layers for name in node.input[1:3])


REASONS: tuple[tuple[str, Callable[[ModelProto], bool]], ...] = (
    ("opsets that are too old", _old),
    ("a domain other than ONNX's own", lambda m: any("." in name for name in operators(m))),
    ("sequences, optionals and other values that are no tensors", _no_tensor),
    ("strings", _has(TensorProto.STRING)),
    ("element types that NumPy lacks, but bfloat16", _narrow),
    ("control flow", _among(_CONTROL_FLOW)),
    ("random numbers", _random),
    ("shapes that depend on data", _among(_DATA_DEPENDENT)),
    ("recurrent layers whose weights are no constants", _recurrent),
)
"""Facts that excuse a test, the first that holds counts."""

UNLISTED = "operators beyond those of convolutional networks"

ROUNDED_CORNERS = "corners of an extent that is not rounded; ONNX Runtime and PyTorch round"
ONE_ULP = "half floats rounded at every step, off by one bit, which is more than is allowed"

KNOWN: dict[str, str] = {
    "test_resize_downsample_scales_linear_align_corners": ROUNDED_CORNERS,
    "test_resize_downsample_scales_cubic_align_corners": ROUNDED_CORNERS,
    "test_attention_4d_causal_fp16_expanded": ONE_ULP,
}
"""Single tests with reasons of their own, which hold with the fallback, too."""


def reason_of(outcome: Outcome, handled: frozenset[str]) -> str:
    """Return why a test may fail, ``""`` where nothing excuses it.

    Args:
        outcome: of the test.
        handled: operators that Stridewise does itself.
    """
    if outcome.name in KNOWN:
        return KNOWN[outcome.name]
    for reason, holds in REASONS:
        if holds(outcome.model):
            return reason
    if operators(outcome.model) - handled - LISTED:
        return UNLISTED
    return ""
