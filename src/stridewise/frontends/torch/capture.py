"""From a module to an exported program of the aten operators that have counterparts."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from stridewise.errors import InputError, UnsupportedError
from stridewise.frontends.torch.library import submodule, torch
from stridewise.frontends.torch.table import HANDLERS, decompositions
from stridewise.frontends.torch.tracing import whole_operators
from stridewise.graph import Shapes
from stridewise.graph.extents import parse_shape

__all__ = ["exported"]


def exported(module: Any, inputs: Any, shapes: Shapes) -> Any:
    """Return a program of aten operators that have counterparts here, where there are any.

    Args:
        module: a ``torch.nn.Module`` in evaluation mode, or a ``torch.export.ExportedProgram``.
        inputs: positional arguments of the module, or its one tensor; None for a program.
        shapes: shapes of inputs by name. Extents that are open there are open in the program;
            where an example has the extent 1, it is doubled, as PyTorch takes 1 as fixed.

    Raises:
        InputError: there are no inputs, or ``module`` is neither.
        UnsupportedError: PyTorch cannot export the module.
    """
    export = submodule("torch.export")
    program = module
    if not isinstance(module, export.ExportedProgram):
        program = _export(export, module, inputs, shapes)
    with whole_operators():
        return program.run_decompositions(_decompositions())


def _decompositions() -> dict[Any, Any]:
    """Return PyTorch's decompositions for export, but of what has a handler, and further ones."""
    table = {**submodule("torch.export").default_decompositions(), **decompositions()}
    return {op: way for op, way in table.items() if str(op) not in HANDLERS}


def _export(export: Any, module: Any, inputs: Any, shapes: Shapes) -> Any:
    name = type(module).__name__
    if inputs is None:
        raise InputError.at(
            f"module {name}",
            expected="example inputs, to export it with",
            found="none",
            fix="stridewise.compile(module, (x,))",
        )
    args = _positional(inputs)
    try:
        inspect.signature(module.forward).bind(*args)
    except TypeError as error:
        raise InputError.at(
            f"module {name}",
            expected="example inputs that are its positional arguments",
            found=f"{len(args)}: {error}",
            fix="give them in a tuple: (x,) or (x, y)",
        ) from error
    args, marks = _distinct(args), None
    if shapes:
        args, marks = _opened(module, args, shapes)
    try:
        with torch.no_grad():
            return export.export(module, args, dynamic_shapes=marks)
    except Exception as error:
        raise UnsupportedError.at(
            f"module {name}",
            expected="a module that torch.export takes",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:500]}",
            fix="use torch.compile(module, backend='stridewise'), which allows graph breaks",
        ) from error


def _positional(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _distinct(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments without tensors that occur twice: export takes these for one input."""
    seen: set[int] = set()

    def once(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        found = leaf.detach() if id(leaf) in seen else leaf
        seen.add(id(leaf))
        return found

    return submodule("torch.utils._pytree").tree_map(once, args)


def _opened(
    module: Any, args: tuple[Any, ...], shapes: Shapes
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return example inputs and the marks of their open extents, for ``torch.export``."""
    tree = submodule("torch.utils._pytree")
    bound = inspect.signature(module.forward).bind(*args).arguments
    wanted = {name: parse_shape(shape, f"input {name!r}")[0] for name, shape in shapes.items()}
    auto = submodule("torch.export").Dim.AUTO

    def axes(path: Any, leaf: Any) -> list[int]:
        """Return the axes that are open, or to have another extent than in the example."""
        extents = wanted.get(_name(path), ())
        if not isinstance(leaf, torch.Tensor) or len(extents) != leaf.dim():
            return []  # the signature refuses another rank
        return [at for at, e in enumerate(extents) if e.fixed != leaf.shape[at]]

    def sized(path: Any, leaf: Any) -> Any:
        for axis in axes(path, leaf):
            if leaf.shape[axis] == 1:
                leaf = torch.cat([leaf, leaf], axis)
        return leaf

    def mark(path: Any, leaf: Any) -> Any:
        return dict.fromkeys(axes(path, leaf), auto) or None

    larger = tree.tree_map_with_path(sized, bound)
    values: list[Any] = []
    for name, parameter in inspect.signature(module.forward).parameters.items():
        if name in larger:
            found = larger[name]
            values += found if parameter.kind == inspect.Parameter.VAR_POSITIONAL else [found]
    return tuple(values), tree.tree_map_with_path(mark, bound)


def _name(path: Sequence[Any]) -> str:
    """Return the name that ``torch.export`` gives an argument."""
    keys: list[str] = []
    for item in path:
        known: Mapping[str, Any] = {
            key: getattr(item, key) for key in ("key", "idx", "name") if hasattr(item, key)
        }
        keys.append(str(next(iter(known.values()))))
    return "_".join(keys)
