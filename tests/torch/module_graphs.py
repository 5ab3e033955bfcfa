"""Graphs for training of PyTorch's modules: each layer is built again by the graph builder."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx, nn

import stridewise as sw
from stridewise.graph import Graph

__all__ = ["graph_of"]


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().numpy().copy()


class _Reader:
    """Walks a traced module; values are names in the graph, or what the trace has."""

    def __init__(self, module: nn.Module, shape: tuple[int, ...]) -> None:
        self.traced = fx.symbolic_trace(module)
        self.b = sw.GraphBuilder("net", training=True)
        self.shape = shape
        self.modules = dict(self.traced.named_modules())

    def read(self) -> Graph:
        known: dict[fx.Node, Any] = {}
        for node in self.traced.graph.nodes:
            args = fx.map_arg(node.args, lambda item: known[item])
            kwargs = fx.map_arg(node.kwargs, lambda item: known[item])
            if node.op == "placeholder":
                known[node] = self.b.input("x", self.shape)
            elif node.op == "output":
                return self.b.build([args[0]])
            elif node.op == "get_attr":
                tensor = operator.attrgetter(node.target)(self.traced)
                known[node] = self.b.parameter(_array(tensor), str(node.target))
            elif node.op == "call_module":
                known[node] = self.module(str(node.target), args[0])
            else:
                known[node] = self.call(node.target, list(args), dict(kwargs))
        raise AssertionError("a trace without an output")

    def module(self, name: str, x: str) -> str:  # noqa: PLR0911 (a table of layers)
        layer, b = self.modules[name], self.b
        match layer:
            case nn.Conv2d():
                bias = False if layer.bias is None else _array(layer.bias)
                return b.conv2d(
                    x, layer.out_channels, layer.kernel_size, strides=layer.stride,
                    padding=layer.padding, dilation=layer.dilation, groups=layer.groups,
                    weights=_array(layer.weight), bias=bias, name=name,
                )  # fmt: skip
            case nn.BatchNorm2d():
                return b.batch_norm(
                    x, epsilon=layer.eps, momentum=layer.momentum, name=name,
                    scale=_array(layer.weight), shift=_array(layer.bias),
                    mean=_array(layer.running_mean), variance=_array(layer.running_var),
                )  # fmt: skip
            case nn.Linear():
                bias = False if layer.bias is None else _array(layer.bias)
                weights = _array(layer.weight)
                return b.dense(x, layer.out_features, weights=weights, bias=bias, name=name)
            case nn.MaxPool2d():
                return b.max_pool2d(
                    x, layer.kernel_size, strides=layer.stride, padding=layer.padding
                )
            case nn.AvgPool2d():
                return b.avg_pool2d(
                    x, layer.kernel_size, strides=layer.stride, padding=layer.padding
                )
            case nn.AdaptiveAvgPool2d():
                return self.adaptive(x, layer.output_size)
            case nn.LayerNorm():
                scale, shift = _array(layer.weight), _array(layer.bias)
                return b.layer_norm(x, scale=scale, shift=shift, epsilon=layer.eps, name=name)
            case nn.Flatten():
                return self.flatten(x, layer.start_dim)
            case nn.Dropout() if not layer.p:
                return x
            case nn.Hardsigmoid() | nn.Hardswish():
                op = "hard_swish" if isinstance(layer, nn.Hardswish) else "hard_sigmoid"
                return b.op(op, [x], {"alpha": 1 / 6, "beta": 0.5})
            case _:
                pass
        plain = {nn.ReLU: "relu", nn.SiLU: "swish", nn.Sigmoid: "sigmoid", nn.GELU: "gelu"}
        if type(layer) in plain:
            return b.op(plain[type(layer)], [x])
        assert isinstance(layer, nn.ReLU6), f"no layer for {layer}"
        return b.op("clip", [x], {"alpha": 0.0, "beta": 6.0})

    def adaptive(self, x: str, size: Any) -> str:
        if size == self.b.type(x).shape[2:]:
            return x
        assert size in (1, (1, 1))
        return self.b.op("reduce_mean", [x], {"axes": (2, 3), "keepdims": 1})

    def flatten(self, x: str, start: int = 1) -> str:
        shape = self.b.type(x).shape
        rows = (*shape[:start], int(np.prod(shape[start:])))
        return self.b.op("reshape", [x], {"shape": rows})

    def call(self, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        b = self.b
        name = target if isinstance(target, str) else target.__name__
        table: dict[str, Callable[[], Any]] = {
            "add": lambda: b.op("add", args),
            "iadd": lambda: b.op("add", args),
            "mul": lambda: b.op("mul", args),
            "cat": lambda: b.op("concat", args[0], {"axis": args[1]}),
            "relu": lambda: b.op("relu", [args[0]]),
            "flatten": lambda: self.flatten(*args),
            "adaptive_avg_pool2d": lambda: self.adaptive(*args),
            "permute": lambda: b.op("transpose", [args[0]], {"perm": self.perm(args[1:])}),
            "stochastic_depth": lambda: args[0],
            "mean": lambda: b.op("reduce_mean", [args[0]], {"axes": (2, 3), "keepdims": 0}),
            "layer_norm": lambda: self.functional_norm(*args, **kwargs),
        }
        assert name in table, f"no function for {name}"
        assert name != "stochastic_depth" or args[1] == 0.0
        return table[name]()

    @staticmethod
    def perm(given: list[Any]) -> tuple[int, ...]:
        return tuple(given[0] if isinstance(given[0], list | tuple) else given)

    def functional_norm(self, x: str, _shape: Any, weight: str, bias: str, eps: float) -> str:
        return self.b.op("layer_norm", [x, weight, bias], {"axes": (3,), "epsilon": eps})


def graph_of(module: nn.Module, shape: tuple[int, ...]) -> Graph:
    """Return a graph with the layers and weights of a module, for training."""
    return _Reader(module, shape).read()
