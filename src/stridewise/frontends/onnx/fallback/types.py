"""Types of the values of a model with foreign nodes, as ONNX and ONNX Runtime infer them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import onnx
from onnx import ModelProto, NodeProto, TypeProto, ValueInfoProto, defs, shape_inference

from stridewise.classes import dataclass
from stridewise.errors import UnsupportedError
from stridewise.frontends.onnx.fallback import runtime
from stridewise.frontends.onnx.reading.importer import Importer
from stridewise.frontends.onnx.reading.inputs import stored_names
from stridewise.frontends.onnx.reading.proto import OnnxNode, reads_of
from stridewise.frontends.onnx.reading.tensors import dtype_of_code, is_known
from stridewise.frontends.onnx.writing.initializers import declare, inline
from stridewise.graph import TensorType
from stridewise.ops.registry import Array

__all__ = ["ValueTypes", "inferred", "open_inputs", "static_type"]

_SMALL = 1024
"""Greatest number of elements of constants for type inference, such as shapes and axes."""


def open_inputs(model: ModelProto) -> dict[str, ValueInfoProto]:
    """Return the inputs that a graph cannot hold: sequences, strings and others."""
    given = stored_names(model)
    found: dict[str, ValueInfoProto] = {}
    for item in model.graph.input:
        kind = item.type.WhichOneof("value")
        if item.name in given or kind is None:
            continue
        if kind != "tensor_type" or not is_known(item.type.tensor_type.elem_type):
            found[item.name] = item
    return found


def static_type(type_: TypeProto) -> TensorType | None:
    """Return a tensor type with known shape and supported element type, None for others."""
    if type_.WhichOneof("value") != "tensor_type":
        return None
    tensor = type_.tensor_type
    if not tensor.HasField("shape") or not is_known(tensor.elem_type):
        return None
    if not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in tensor.shape.dim):
        return None
    return TensorType(
        dtype_of_code(tensor.elem_type, ""), tuple(int(dim.dim_value) for dim in tensor.shape.dim)
    )


def inferred(model: ModelProto) -> dict[str, TypeProto]:
    """Return the types of a model's outputs by ONNX's type inference."""
    try:
        model = shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # native code; a value without a type is open
        return {}
    # A type without a value says as much as none.
    known = (item for item in model.graph.output if item.type.WhichOneof("value") is not None)
    return {item.name: item.type for item in known}


def _with_defaults(node: OnnxNode) -> NodeProto:
    """Return the node with all attributes that have a default.

    ONNX's inference assumes other values than the defaults of some, such as STFT's ``onesided``.
    """
    copied = NodeProto()
    copied.CopyFrom(node.proto)
    if defs.has(node.op_type, node.opset, node.domain):
        known = defs.get_schema(node.op_type, node.opset, node.domain).attributes
        given = {item.name for item in copied.attribute}
        defaults = (item.default_value for name, item in known.items() if name not in given)
        copied.attribute.extend(item for item in defaults if item.name)
    return copied


@dataclass(slots=True)
class ValueTypes:
    """Types of the values of a model.

    Attributes:
        model: the model.
        importer: has the types of all values that a graph can hold.
        lenient: whether the types of results stay unknown if ONNX Runtime refuses a node. Else
            that is an error.
        open: values that a graph cannot hold, with their types, None for an unknown type.
    """

    model: ModelProto
    importer: Importer
    lenient: bool
    open: dict[str, TypeProto | None] = field(default_factory=dict[str, "TypeProto | None"])

    def node_model(self, node: OnnxNode) -> ModelProto:
        """Return a model of one node; inputs have types, small constants also data."""
        graph = onnx.GraphProto(name="node", node=[_with_defaults(node)])
        for name in reads_of(node.proto):
            data = None if name in self.open else self.constant(name)
            if data is not None and data.size <= _SMALL:
                graph.initializer.append(inline(name, data))
            else:
                graph.input.append(self.declared(name))
        # Type inference adds the types of outputs.
        graph.output.extend(ValueInfoProto(name=name) for name in node.outputs if name)
        return ModelProto(
            ir_version=self.model.ir_version,
            opset_import=self.model.opset_import,
            functions=self.model.functions,
            graph=graph,
        )

    def constant(self, name: str) -> Array | None:
        """Return a constant's data, None for other values and unsupported types."""
        try:
            return self.importer.const(name)
        except UnsupportedError:
            return None

    def declared(self, name: str) -> ValueInfoProto:
        """Return name and type of a value, as far as the type is known."""
        if name in self.open:
            return ValueInfoProto(name=name, type=self.open[name])
        raw = self.importer.initializer(name)
        if raw is not None and not is_known(raw.data_type):
            return onnx.helper.make_tensor_value_info(name, raw.data_type, list(raw.dims))
        return declare(name, self.importer.type(name))

    def define_results(self, node: OnnxNode) -> None:
        """Define the results of a foreign node by their types."""
        model = self.node_model(node)
        found = inferred(model) | self._carried(node)
        names = [name for name in node.outputs if self.importer.used(name)]
        if any(static_type(found.get(name, TypeProto())) is None for name in names):
            for name, type_ in self.ask(model, node).items():
                # ONNX's inference knows more of a sequence than the text of its type says.
                if name not in found or static_type(type_) is not None:
                    found[name] = type_
        for name in names:
            type_ = found.get(name)
            static = None if type_ is None else static_type(type_)
            if static is None:
                self.open[name] = type_
            else:
                self.importer.assume(name, static)

    def ask(self, model: ModelProto, node: OnnxNode) -> Mapping[str, TypeProto]:
        """Return the types of results as ONNX Runtime infers them.

        Raises:
            UnsupportedError: it refuses the node, and the survey is not lenient.
        """
        try:
            return runtime.result_types(model.SerializeToString(), node.where)
        except UnsupportedError:
            if self.lenient:
                return {}
            raise

    def _carried(self, node: OnnxNode) -> dict[str, TypeProto]:
        """Return the types of the loop-carried values, if no iteration changes them.

        ONNX's inference assumes that iterations may change the shapes.
        """
        attributes = {item.name: item.g for item in node.proto.attribute}
        carried = node.inputs[2:]
        if (node.domain, node.op_type) != ("", "Loop") or "body" not in attributes:
            return {}
        if not carried or not all(carried) or any(name in self.open for name in carried):
            return {}
        body = onnx.GraphProto()
        body.CopyFrom(attributes["body"])
        given = [self.declared(name).type for name in carried]
        results = [item.name for item in body.output][1 : len(given) + 1]
        if len(body.input) != len(given) + 2 or len(results) != len(given):
            return {}
        for item, type_ in zip(list(body.input)[2:], given, strict=True):
            item.type.CopyFrom(type_)
        own = {item.name for item in (*body.input, *body.initializer)}
        own |= {name for inner in body.node for name in inner.output}
        outer = [name for name in reads_of(node.proto) if name not in own and name not in self.open]
        body.input.extend(map(self.declared, outer))
        del body.output[:]
        body.output.extend(ValueInfoProto(name=name) for name in results)
        found = inferred(
            ModelProto(
                ir_version=self.model.ir_version, opset_import=self.model.opset_import, graph=body
            )
        )
        before = [static_type(type_) for type_ in given]
        after = [static_type(found.get(name, TypeProto())) for name in results]
        if before != after:
            return {}
        return dict(zip(node.outputs, given, strict=False))
