"""The backend of ``torch.compile``: from graphs that Dynamo captures to regions that run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from itertools import count
from typing import Any

from stridewise.frontends.torch.library import is_installed, submodule, torch
from stridewise.frontends.torch.table import decompositions
from stridewise.frontends.torch.tracing import whole_operators
from stridewise.torch.options import Options
from stridewise.torch.region import Region

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

    Graphs for inference, under ``torch.no_grad()`` or ``torch.inference_mode()``, run in
    Stridewise. Graphs that need gradients run in PyTorch, with a :class:`FallbackWarning`.

    Args:
        module: the captured graph, float32 for native operators.
        example_inputs: its inputs, with their shapes.
        mode: of ``torch.compile``; ``"max-autotune"`` measures kernels.
        options: ``threads``, ``accuracy``, ``memory_limit``, ``fallback``, ``tune`` and
            ``max_programs``; see :class:`Options`.

    Raises:
        InputError: an option is unknown or has a wrong value.
        DependencyError: PyTorch is not installed.
    """
    found = Options.of(options or {}, mode)
    name = f"graph{next(_numbers)}"
    if torch.is_grad_enabled() and any(_needs_grad(item) for item in example_inputs):
        region = Region(name, module, (), found, _TRAINING)
        region.watch(example_inputs)
        return lambda *args: tuple(region(args))

    def compiled(graph: Any, _inputs: Sequence[Any]) -> Callable[..., Any]:
        context = submodule("torch._guards").TracingContext.get()
        static = context.fw_metadata.static_input_indices
        return _boxed(Region(name, graph, static, found))

    def left(graph: Any, _inputs: Sequence[Any]) -> Callable[..., Any]:
        return _boxed(Region(name, graph, (), found, _TRAINING))

    autograd = submodule("torch._dynamo.backends.common").aot_autograd
    traced = autograd(
        fw_compiler=left,
        inference_compiler=compiled,
        decompositions=decompositions(),
    )
    with whole_operators():
        return traced(module, example_inputs)


_TRAINING = "gradients are wanted; run inference under torch.inference_mode() or torch.no_grad()"


def _needs_grad(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.requires_grad


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
