"""Whole modules and exported programs as compiled models, with PyTorch tensors in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from stridewise.errors import InputError, PlanError, UnsupportedError, describe
from stridewise.frontends.torch.graphs import memory_order
from stridewise.frontends.torch.library import submodule, torch
from stridewise.frontends.torch.table import HANDLERS
from stridewise.frontends.torch.tracing import whole_operators
from stridewise.planning import Plan
from stridewise.profile import Profile
from stridewise.torch.options import Options
from stridewise.torch.region import Program, Region
from stridewise.torch.report import Report, report_of
from stridewise.torch.steps import NativeStep

__all__ = ["CompiledModule", "compile_module"]


def compile_module(
    module: Any,
    example_inputs: Sequence[Any] = (),
    *,
    dynamic_shapes: Any = None,
    **options: Any,
) -> CompiledModule:
    """Compile a module, or what ``torch.export`` made of one, for inference.

    Args:
        module: a ``torch.nn.Module`` in evaluation mode, or a ``torch.export.ExportedProgram``.
        example_inputs: positional arguments of the module; an exported program needs none.
        dynamic_shapes: which extents are open, as ``torch.export.export`` takes it. Programs are
            made for each shape at its first call.
        **options: ``threads``, ``accuracy``, ``memory_limit``, ``fallback``, ``tune`` and
            ``max_programs``; see :class:`Options`.

    Raises:
        InputError: an option is wrong, or ``module`` is none.
        UnsupportedError: PyTorch cannot export the module, or it writes to buffers or inputs;
            with ``fallback="error"``, an operator is not native.
        DependencyError: PyTorch is not installed.

    The model shares the parameters of the module, and packs them anew after a change.
    """
    found = Options.of(options)
    program = _exported(module, example_inputs, dynamic_shapes)
    with whole_operators():
        lowered = program.run_decompositions(_decompositions())
    return CompiledModule(lowered, found)


def _decompositions() -> dict[Any, Any]:
    """Return PyTorch's decompositions for export, but of what has a handler."""
    table = submodule("torch.export").default_decompositions()
    return {op: way for op, way in table.items() if str(op) not in HANDLERS}


def _exported(module: Any, inputs: Sequence[Any], dynamic_shapes: Any) -> Any:
    export = submodule("torch.export")
    if isinstance(module, export.ExportedProgram):
        return module
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            describe(
                "compile_module",
                expected="a torch.nn.Module or a torch.export.ExportedProgram",
                found=type(module).__name__,
            )
        )
    try:
        with torch.no_grad():
            return export.export(module, tuple(inputs), dynamic_shapes=dynamic_shapes)
    except Exception as error:
        raise UnsupportedError(
            describe(
                f"module {type(module).__name__}",
                expected="a module that torch.export takes",
                found=f"{type(error).__name__}: {error}",
                fix="use torch.compile(module, backend='stridewise'), which allows graph breaks",
            )
        ) from error


class CompiledModule:
    """A module that can be called like the one that it was made of.

    Tensors are read where they are if they are stored as the example inputs were; others are
    copied. Results are stored as those of the exported program. Any number of threads may call it.
    """

    def __init__(self, program: Any, options: Options) -> None:
        """Take an exported program of aten operators; programs are compiled at the first call."""
        self._program = program
        signature, spec = program.graph_signature, program.call_spec
        self._in_spec, self._out_spec = spec.in_spec, spec.out_spec
        self._refuse_writes(signature)
        kinds = submodule("torch.export.graph_signature").InputKind
        specs = signature.input_specs
        static = [at for at, item in enumerate(specs) if item.kind != kinds.USER_INPUT]
        self._users = [at for at, item in enumerate(specs) if item.kind == kinds.USER_INPUT]
        self._state = {at: self._tensor(specs[at].target) for at in static}
        nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
        self._types = [(nodes[at].name, nodes[at].meta.get("val")) for at in self._users]
        name = type(program).__name__
        self._region = Region(name, program.graph_module, static, options)

    @staticmethod
    def _refuse_writes(signature: Any) -> None:
        kinds = submodule("torch.export.graph_signature").OutputKind
        written = [s.target for s in signature.output_specs if s.kind != kinds.USER_OUTPUT]
        if written:
            raise UnsupportedError(
                describe(
                    "exported program",
                    expected="results alone",
                    found=f"it writes to {', '.join(map(str, written))}",
                    fix="call .eval() on the module, and return what it computes",
                )
            )

    def _tensor(self, target: str) -> Any:
        program = self._program
        found = program.state_dict.get(target)
        return program.constants[target] if found is None else found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module.

        Args:
            *args: positional arguments of the module, tensors of the exported shapes.
            **kwargs: its keyword arguments.

        Raises:
            InputError: an argument does not fit what was exported.
            UnsupportedError: with ``fallback="error"``, an operator is not native.
        """
        with torch.no_grad():
            results = self._region(self._flat(args, kwargs))
        return submodule("torch.utils._pytree").tree_unflatten(results, self._out_spec)

    def __reduce__(self) -> NoReturn:
        """Refuse to copy or pickle native programs.

        Raises:
            InputError: always.
        """
        raise InputError(
            describe(
                "compiled module",
                expected="use in the process that compiled it",
                found="a copy or a pickle of it",
                fix="keep the program with torch.export.save, and compile it again",
            )
        )

    def _flat(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return a value for each placeholder: parameters and checked arguments."""
        given, spec = submodule("torch.utils._pytree").tree_flatten((tuple(args), dict(kwargs)))
        if spec != self._in_spec:
            raise InputError(
                describe(
                    "compiled module",
                    expected=f"arguments as exported: {self._in_spec}",
                    found=str(spec),
                )
            )
        symbols: dict[Any, int] = {}
        found = dict(self._state)
        for at, item, (name, type_) in zip(self._users, given, self._types, strict=True):
            found[at] = self._checked(name, item, type_, symbols)
        return [found[at] for at in range(len(found))]

    def _checked(self, name: str, given: Any, type_: Any, symbols: dict[Any, int]) -> Any:
        if not isinstance(type_, torch.Tensor):
            if given != type_:
                raise _unfit(name, repr(type_), repr(given))
            return given
        expected = f"a tensor of {type_.dtype} and shape {tuple(type_.shape)}"
        if not isinstance(given, torch.Tensor):
            raise _unfit(name, expected, type(given).__name__)
        fits = len(given.shape) == len(type_.shape) and given.dtype == type_.dtype
        fits = fits and given.device == type_.device
        if not fits or not all(
            self._fits(have, want, symbols)
            for have, want in zip(given.shape, type_.shape, strict=True)
        ):
            found = f"{given.dtype} and shape {tuple(given.shape)} on {given.device}"
            raise _unfit(name, expected, found)
        return _as_traced(given, type_)

    def _fits(self, extent: int, wanted: Any, symbols: dict[Any, int]) -> bool:
        """Return whether an extent is what was exported, or in its range if it is open."""
        if not isinstance(wanted, torch.SymInt):
            return extent == wanted
        expression = wanted.node.expr
        if expression.is_Symbol and expression not in symbols:
            limits = self._program.range_constraints.get(expression)
            symbols[expression] = extent
            return limits is None or limits.lower <= extent <= limits.upper
        return int(expression.subs(symbols)) == extent

    # --- the usual questions ------------------------------------------------------------------

    @property
    def _latest(self) -> Program:
        programs = self._region.programs()
        if not programs:
            raise PlanError(
                describe(
                    "compiled module",
                    expected="a program, which the first call makes",
                    found="; ".join(sorted(self._region.left)) or "no call",
                    fix="call the module once",
                )
            )
        return programs[-1]

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans of the native programs of the latest call.

        Raises:
            PlanError: there was no call yet, or PyTorch computes the whole module.
        """
        return tuple(s.model.plan for s in self._latest.steps if isinstance(s, NativeStep))

    @property
    def plan(self) -> Plan:
        """The plan of the only native program.

        Raises:
            PlanError: there was no call yet, or there are several programs.
        """
        plans = self.plans
        if len(plans) != 1:
            raise PlanError(
                describe(
                    "compiled module",
                    expected="one native program",
                    found=f"{len(plans)}",
                    fix="use plans",
                )
            )
        return plans[0]

    def profile(self, *args: Any, runs: int = 20, **kwargs: Any) -> tuple[Profile, ...]:
        """Time every step of each native program.

        Args:
            *args: positional arguments of the module.
            runs: how often each program runs.
            **kwargs: keyword arguments of the module.

        Raises:
            InputError: an argument does not fit, or ``runs`` is below 1.
        """
        self(*args, **kwargs)
        return self._region.profiled(self._flat(args, kwargs), runs)

    def report(self) -> Report:
        """Return what ran where."""
        return report_of([self._region])


def _unfit(name: str, expected: str, found: str) -> InputError:
    fix = "export the module for such inputs, or with dynamic_shapes"
    return InputError(describe(f"argument {name!r}", expected=expected, found=found, fix=fix))


def _as_traced(given: Any, type_: Any) -> Any:
    """Return a tensor that is stored as the one that was exported, which later operators expect."""
    extents = [int(n) if isinstance(n, int) else n.node.hint for n in type_.shape]
    steps = [int(n) if isinstance(n, int) else n.node.hint for n in type_.stride()]
    order = memory_order(extents, steps)
    back = tuple(order.index(axis) for axis in range(len(order)))
    return given.permute(order).contiguous().permute(back)
