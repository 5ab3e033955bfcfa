"""The PyTorch front end as other parts of Stridewise see it; it imports PyTorch at first use."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from numpy.typing import NDArray

from stridewise.classes import dataclass
from stridewise.errors import InputError
from stridewise.graph import Shapes

if TYPE_CHECKING:
    from stridewise.frontends.torch.exported import ProgramReader

__all__ = ["ModuleSource", "TorchFrontEnd", "TorchModule", "TorchSource"]

Array = NDArray[Any]


class TorchModule(Protocol):
    """A ``torch.nn.Module``, or a ``torch.export.ExportedProgram``."""

    def named_buffers(self) -> Iterator[Any]:
        """Return its buffers by name."""
        ...


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """A module, with what it is exported for.

    Attributes:
        module: a ``torch.nn.Module`` in evaluation mode, or an exported program.
        inputs: example arguments: a sequence of positional ones, or one tensor.
        shapes: shapes of inputs by name, with open extents among them.
    """

    module: Any
    inputs: Any
    shapes: Shapes | None = None


TorchSource: TypeAlias = "TorchModule | ModuleSource"
"""What the front end takes. A module without example inputs is refused when it is opened."""


class TorchFrontEnd:
    """Takes PyTorch modules with example inputs, and exported programs.

    Attributes:
        runtime: ``"pytorch"``.
        accepts: what it takes, for messages.
    """

    runtime = "pytorch"
    accepts = "a torch.export.ExportedProgram, or a torch.nn.Module with example inputs"

    def takes(self, source: object) -> bool:
        """Return whether a source is a module or an exported program."""
        if isinstance(source, ModuleSource):
            return True
        # Without these modules loaded, no object can be of their types.
        export, nn = sys.modules.get("torch.export"), sys.modules.get("torch.nn")
        is_program = export is not None and isinstance(source, export.ExportedProgram)
        return is_program or (nn is not None and isinstance(source, nn.Module))

    def open(self, source: TorchSource, *, fallback: bool, training: bool = False) -> ProgramReader:
        """Export a module, or take an exported program.

        Raises:
            InputError: there are no example inputs, or they do not fit; or ``training``.
            UnsupportedError: PyTorch cannot export the module, or it writes to buffers or inputs.
            DependencyError: PyTorch is not installed.
        """
        from stridewise.frontends.torch.capture import exported
        from stridewise.frontends.torch.exported import ProgramReader

        if training:
            expected, fix = "an ONNX model", "call torch.compile(model, backend='stridewise')"
            raise InputError.at("training=True", expected=expected, found="a module", fix=fix)
        given = source if isinstance(source, ModuleSource) else ModuleSource(source, None)
        program = exported(given.module, given.inputs, given.shapes or {})
        name = type(given.module).__name__
        return ProgramReader(program, name, fallback=fallback)

    def run(self, source: TorchSource, inputs: Mapping[str, Any], threads: int) -> dict[str, Array]:
        """Return the outputs of a module by name, computed by PyTorch alone.

        Raises:
            UnsupportedError: as for :meth:`open`.
        """
        return self.open(source, fallback=True).eager(inputs, threads)

    def with_inputs(self, module: Any, inputs: Any, shapes: Shapes | None) -> ModuleSource:
        """Return a source that is exported for some inputs.

        Args:
            module: a ``torch.nn.Module``.
            inputs: example arguments.
            shapes: shapes of inputs by name, with open extents among them.

        Raises:
            InputError: ``module`` is none.
            DependencyError: PyTorch is not installed.
        """
        from stridewise.frontends.torch.library import torch

        if not isinstance(module, torch.nn.Module):
            raise InputError.at(
                "example_inputs",
                expected="a torch.nn.Module as the model",
                found=type(module).__name__,
                fix="leave out example_inputs",
            )
        return ModuleSource(module, inputs, shapes)
