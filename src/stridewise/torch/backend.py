"""The backend of ``torch.compile``: from graphs that Dynamo captures to regions that run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points
from itertools import count
from typing import Any

from stridewise.frontends.torch.joint import (
    copy_updated,
    divided,
    training_decompositions,
)
from stridewise.frontends.torch.library import is_installed, submodule, torch
from stridewise.frontends.torch.recording import recorded, static_inputs
from stridewise.frontends.torch.tracing import whole_operators
from stridewise.torch.collection import without_collection
from stridewise.torch.kept import Kept
from stridewise.torch.options import Options
from stridewise.torch.region import Region
from stridewise.torch.training import TrainingStep
from stridewise.torch.weights import Mark

__all__ = ["NAME", "backend", "register"]

NAME = "stridewise"

_numbers = count()


def backend(
    module: Any,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph; ``torch.compile(model, backend="stridewise")`` calls this.

    A graph for inference, under ``torch.no_grad()`` or ``torch.inference_mode()``, has its weights
    packed. A graph that needs gradients becomes a forward and a backward program, which read the
    parameters from PyTorch's memory.

    Args:
        module: the captured graph. Operators without a native kernel run in PyTorch.
        example_inputs: its inputs, with their shapes.
        mode: of ``torch.compile``; ``"max-autotune"`` measures kernels.
        options: ``threads``, ``accuracy``, ``dtype``, ``max_error``, ``memory_limit``,
            ``fallback``, ``tune`` and ``max_programs``; see :class:`Options`.

    Raises:
        InputError: an option is unknown or has a wrong value.
        DependencyError: PyTorch is not installed.
    """
    found = Options.of(options or {}, mode)
    name = f"graph{next(_numbers)}"
    with without_collection():
        graph = recorded(module)
    if graph is not None:
        region = Region(name, graph, static_inputs(module), found)
        return lambda *args: region(args)
    given = [Mark(x) for x in example_inputs if isinstance(x, torch.Tensor)]
    kept = Kept()

    def compiled(graph: Any, _inputs: Sequence[Any]) -> Callable[..., Any]:
        context = submodule("torch._guards").TracingContext.get()
        static = context.fw_metadata.static_input_indices
        return _boxed(Region(name, graph, static, found))

    def part(kind: str) -> Callable[..., Any]:
        def compiler(graph: Any, _inputs: Sequence[Any]) -> Callable[..., Any]:
            # No program overwrites what the forward has kept: backward may run several times.
            metadata = submodule("torch._guards").TracingContext.get().fw_metadata
            metadata.bw_donated_idxs = []
            if kind == "forward":
                copy_updated(graph, metadata.mutated_inp_runtime_indices)
            # Parameters change between steps, so that they are inputs like all others.
            native = partial(TrainingStep, kept)
            read = kept if kind == "backward" else None
            region = Region(f"{name}.{kind}", graph, (), found, native, read)
            region.watch(given)
            return _boxed(region)

        return compiler

    autograd = submodule("torch._dynamo.backends.common").aot_autograd
    traced = autograd(
        fw_compiler=part("forward"),
        bw_compiler=part("backward"),
        inference_compiler=compiled,
        partition_fn=divided,
        decompositions=training_decompositions(),
    )
    with without_collection(), whole_operators():
        return traced(module, example_inputs)


def _boxed(region: Region) -> Callable[..., Any]:
    """Return the calling convention of AOT Autograd: one list, which is emptied."""

    def run(args: list[Any]) -> list[Any]:
        found = region(args)
        args.clear()
        return found

    run._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return run


def register() -> None:
    """Let ``torch.compile`` know the backend by name, unless its entry point does."""
    if is_installed() and not entry_points(group="torch_dynamo_backends", name=NAME):
        registry = submodule("torch._dynamo.backends.registry")
        registry.register_backend(compiler_fn=backend, name=NAME)
