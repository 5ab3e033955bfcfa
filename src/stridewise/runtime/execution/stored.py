"""The last stage of the flow for a program that another process lowered and packed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stridewise.program import KernelStep, PackedConstant, Program, Step
from stridewise.runtime.binding.kernels import Kernels
from stridewise.runtime.binding.program import NativeProgram, check_layouts
from stridewise.runtime.binding.reorders import PlannedReorder
from stridewise.runtime.binding.weights import Weights
from stridewise.runtime.execution.executor import CallSignature, CompiledModel, DeferredPlan
from stridewise.targets.kernels import KernelSpec

__all__ = ["load_stored", "with_names"]


def with_names(program: Program, threads: int) -> Program:
    """Return a program in which every kernel names its implementation.

    Plans by predicted costs leave some to be selected when the kernel is created, by rules that a
    start need not import.

    Args:
        program: a program that was loaded; it has no fallback steps.
        threads: how many run a kernel.
    """
    kernels = Kernels(threads)

    def named(step: Step) -> Step:
        if not isinstance(step, KernelStep) or step.implementation:
            return step
        return replace(step, implementation=kernels.get(step.spec, "").impl)

    def asked(constant: PackedConstant) -> PackedConstant:
        if constant.spec is None or constant.implementation:
            return constant
        return replace(constant, implementation=kernels.get(constant.spec, "").impl)

    steps, constants = tuple(map(named, program.steps)), tuple(map(asked, program.constants))
    return replace(program, steps=steps, constants=constants)


def load_stored(
    signature: CallSignature,
    program: Program,
    weights: Weights,
    plan: DeferredPlan,
    reorders: Mapping[KernelSpec, PlannedReorder],
    *,
    anew: bool = False,
) -> CompiledModel:
    """Return the model of a program that another process lowered and packed.

    Args:
        signature: inputs and outputs.
        program: the program; it has no fallback steps.
        weights: its packed constants.
        plan: restores the plan.
        reorders: those of the core in the program, planned.
        anew: whether to create all kernels again, as another process does. The calling thread
            creates them one by one.

    Raises:
        ExecutionError: the library refuses a kernel of the program, or a kernel reads constants in
            another layout than they were packed in.
    """
    threads = signature.threads // program.split.lanes
    kernels = Kernels(threads, reorders, anew=anew)
    if not anew:
        steps = [step for step in program.steps if isinstance(step, KernelStep)]
        kernels.make((step.spec, step.implementation) for step in steps)
    check_layouts(program, kernels)
    part = signature.part(program.split)
    native = NativeProgram(part, program, kernels, threads, weights)
    return CompiledModel(signature, program, native, plan)
