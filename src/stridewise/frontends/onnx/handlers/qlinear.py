"""Operators of ONNX Runtime on quantized tensors: ONNX's on real numbers, between integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stridewise.classes import dataclass
from stridewise.frontends.onnx.handlers import (
    concat,
    elementwise,
    logic,
    matmul,
    plain,
    pool,
    reduce,
    softmax,
)
from stridewise.frontends.onnx.handlers.quantize import real_of, store_real
from stridewise.frontends.onnx.reading.importer import Handler, Importer, scalar
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.reading.schema import check_schema

__all__ = ["CONTRIB"]

_HANDLERS: Mapping[str, Handler] = {
    name: handler
    for family in (concat, elementwise, logic, matmul, plain, pool, reduce, softmax)
    for name, handler in family.HANDLERS.items()
}


@dataclass(frozen=True, slots=True)
class _Form:
    """The inputs of an operator.

    Attributes:
        op: the operator of ONNX that it is on real numbers.
        operands: the position of each operand, whose scale and zero point follow it.
        result: the position of the scale of the result, whose zero point follows it.
        plain: positions of inputs that come first and are not quantized.
    """

    op: str
    operands: tuple[int, ...] = (0,)
    result: int = 3
    plain: tuple[int, ...] = ()


_FORMS = {
    "QLinearAdd": _Form("Add", (0, 3), 6),
    "QLinearAveragePool": _Form("AveragePool"),
    "QLinearGlobalAveragePool": _Form("GlobalAveragePool"),
    "QLinearLeakyRelu": _Form("LeakyRelu"),
    "QLinearMul": _Form("Mul", (0, 3), 6),
    "QLinearReduceMean": _Form("ReduceMean"),
    "QLinearSigmoid": _Form("Sigmoid"),
    "QLinearSoftmax": _Form("Softmax"),
    "QLinearWhere": _Form("Where", (1, 4), 7, (0,)),
}

_REDUCTIONS_BY_ATTRIBUTE = 13
"""The opset of the ReduceMean whose axes are an attribute, as they are here."""


def _compute(imp: Importer, node: OnnxNode, form: _Form) -> None:
    if node.integer("channels_last", 0):
        expected, fix = "channels_last=0", "quantize the model in its own order of axes"
        raise node.unsupported(expected, "1", fix, "its tensors are in another order")
    operands = [node.required(index) for index in form.plain]
    operands += [
        real_of(
            imp, node, f"operand{index}", node.required(index), node.required(index + 1),
            node.input(index + 2), 1,
        )
        for index in form.operands
    ]  # fmt: skip
    opset = node.integer("opset", node.opset)
    opset = min(opset, _REDUCTIONS_BY_ATTRIBUTE) if form.op == "ReduceMean" else opset
    attrs = {
        key: value for key, value in node.attrs.items() if key not in ("channels_last", "opset")
    }
    real = f"{node.outputs[0]}/real"
    inner = replace(
        node, op_type=form.op, domain="", name="", inputs=tuple(operands), outputs=(real,),
        attrs=attrs, opset=opset,
    )  # fmt: skip
    check_schema(inner)
    _HANDLERS[form.op](imp, inner)
    first = node.required(form.operands[0])
    store_real(imp, node, real, node.required(form.result), node.input(form.result + 1), first)


def _handler(form: _Form) -> Handler:
    return lambda imp, node: _compute(imp, node, form)


def _concat(imp: Importer, node: OnnxNode) -> None:
    _compute(imp, node, _Form("Concat", tuple(range(2, len(node.inputs), 3)), 0))


def _gemm(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX Runtime, QGemm: C has the scale alpha * a_scale * b_scale."""
    a, b, b_scale = node.required(0), node.required(3), node.required(4)
    axis = 0 if node.integer("transB", 0) else 1
    operands = [
        real_of(imp, node, "a", a, node.required(1), node.input(2), 1),
        real_of(imp, node, "b", b, b_scale, node.input(5), axis),
    ]
    if node.input(6):
        factor = imp.step(node, "c.scale", "mul", [node.required(1), b_scale])
        alpha = node.number("alpha", 1.0)
        if alpha != 1:
            factor = imp.step(
                node, "c.scaled", "mul", [factor, scalar(imp, node, "alpha", alpha, factor)]
            )
        operands.append(real_of(imp, node, "c", node.input(6), factor, "", -1))
    has_scale = bool(node.input(7))
    real = f"{node.outputs[0]}/real" if has_scale else node.outputs[0]
    inner = replace(
        node, op_type="Gemm", domain="", name="", inputs=tuple(operands), outputs=(real,)
    )
    check_schema(inner)
    _HANDLERS["Gemm"](imp, inner)
    if has_scale:
        store_real(imp, node, real, node.input(7), node.input(8), a)


CONTRIB: dict[str, Handler] = {
    **{name: _handler(form) for name, form in _FORMS.items()},
    "QGemm": _gemm,
    "QLinearConcat": _concat,
}
"""The handlers, in the domain ``com.microsoft``."""
