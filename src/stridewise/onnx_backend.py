"""Stridewise as a backend of ONNX: the interface that ONNX's own conformance tests run.

>>> import numpy as np
>>> from onnx import helper
>>> from stridewise.onnx_backend import Backend
>>> node = helper.make_node("Relu", ["x"], ["y"])
>>> Backend.run_node(node, [np.array([-1.0, 2.0], np.float32)], tune="model")[0]
array([0., 2.], dtype=float32)

The module imports ``onnx``, so ``import stridewise`` does not import it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, ValueInfoProto, defs, helper
from onnx.backend import base

from stridewise.api.compiling import compile as compile_model
from stridewise.errors import InputError, StridewiseError
from stridewise.frontends.onnx import OPSETS
from stridewise.runtime.execution.model import Model

__all__ = ["Backend", "BackendRep"]

Array = NDArray[Any]


def _declared(name: str, dtype: np.dtype[Any], shape: Sequence[int]) -> ValueInfoProto:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, code, shape)


def _outputs(
    node: NodeProto, known: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None
) -> list[ValueInfoProto]:
    """Return the outputs of a node that have a name, with their types if these are known."""
    if known is None:
        return [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    pairs = zip(node.output, known, strict=False)
    return [_declared(name, dtype, shape) for name, (dtype, shape) in pairs if name]


class BackendRep(base.BackendRep):
    """A compiled model with ONNX's backend interface.

    Attributes:
        model: the result of :func:`stridewise.compile`.
    """

    def __init__(self, model: Model) -> None:
        """Wrap a compiled model."""
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        Args:
            inputs: arrays in the order of the model's inputs, one array, or a mapping by name.
            kwargs: none.

        Returns:
            The outputs, a named tuple that can also be indexed by name.

        Raises:
            InputError: an input has the wrong name, shape or dtype, their number is wrong, or other
                arguments are given.
            ExecutionError: a kernel fails.
        """
        if kwargs:
            found = ", ".join(kwargs)
            raise InputError.at("BackendRep.run", expected="inputs alone", found=found)
        outputs = self.model.run(self._named(inputs))
        names = self.model.output_names
        return base.namedtupledict("Outputs", names)(*(outputs[name] for name in names))

    def _named(self, inputs: Any) -> Mapping[str, Any]:
        if isinstance(inputs, Mapping):
            return cast("Mapping[str, Any]", inputs)
        given: list[Any] = [inputs] if hasattr(inputs, "dtype") else list(inputs)
        names = self.model.input_names
        if len(given) != len(names):
            wanted = f"{len(names)} ({', '.join(names)})"
            raise InputError.at("inputs", expected=wanted, found=str(len(given)))
        # ONNX passes scalars as NumPy scalars.
        scalars = [np.asarray(item) if np.isscalar(item) else item for item in given]
        return dict(zip(names, scalars, strict=True))


class Backend(base.Backend):
    """Compiles and runs ONNX models by :func:`stridewise.compile`.

    Keyword arguments of :meth:`prepare` are those of ``compile``. ONNX's tests pass none; a
    subclass for these tests sets :attr:`options`.

    Attributes:
        options: default arguments of ``compile`` for every model.
    """

    options: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Return whether the model can be compiled, by compiling it."""
        try:
            cls.prepare(model, device, **kwargs)
        except StridewiseError:
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> BackendRep:
        """Compile a model.

        Args:
            model: the model.
            device: ``"CPU"``.
            kwargs: arguments of :func:`stridewise.compile`.

        Raises:
            InputError: there is no such device.
            StridewiseError: as ``compile`` does.
        """
        if not cls.supports_device(device):
            raise InputError.at("device", expected="'CPU'", found=repr(device))
        return BackendRep(compile_model(model, **{**cls.options, **kwargs}))

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Compile a model and run it once; see :meth:`prepare` and :meth:`BackendRep.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run a single node.

        Args:
            node: the node.
            inputs: arrays in the order of the node's inputs, without absent ones.
            device: ``"CPU"``.
            outputs_info: dtype and shape of each output, None if they are unknown.
            kwargs: ``opset_version``, by default the newest supported one, and arguments of
                ``compile``.

        Raises:
            InputError: the number of inputs is wrong.
            ModelError: the node is not valid ONNX, or not supported.
        """
        opset = int(kwargs.pop("opset_version", min(OPSETS[1], defs.onnx_opset_version())))
        names = [name for name in node.input if name]
        given = [np.asarray(array) for array in inputs]
        if len(given) != len(names):
            wanted = f"{len(names)} inputs ({', '.join(names)})"
            where = f"node {node.name or node.op_type!r}"
            raise InputError.at(where, expected=wanted, found=str(len(given)))
        # A value that the node reads twice is one input of the model.
        feeds = dict(zip(names, given, strict=True))
        graph = helper.make_graph(
            [node],
            node.name or node.op_type,
            [_declared(name, array.dtype, array.shape) for name, array in feeds.items()],
            _outputs(node, outputs_info),
        )
        imports = [helper.make_opsetid("", opset)]
        if node.domain not in ("", "ai.onnx"):
            imports.append(helper.make_opsetid(node.domain, 1))
        version = helper.find_min_ir_version_for(imports, ignore_unknown=True)
        model = helper.make_model(graph, opset_imports=imports, ir_version=version)
        return cls.run_model(model, feeds, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether models can be run on a device, like ``"CPU"`` or ``"CPU:0"``."""
        kind, _, number = device.partition(":")
        return kind == "CPU" and number in ("", "0")
