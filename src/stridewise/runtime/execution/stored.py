"""The last stage of the flow for a program that another process lowered and packed."""

from __future__ import annotations

from stridewise.program import KernelStep, Program
from stridewise.runtime.binding.kernels import Kernels
from stridewise.runtime.binding.program import NativeProgram, check_layouts
from stridewise.runtime.binding.weights import Weights
from stridewise.runtime.execution.executor import CallSignature, CompiledModel, DeferredPlan

__all__ = ["load_stored"]


def load_stored(
    signature: CallSignature, program: Program, weights: Weights, plan: DeferredPlan
) -> CompiledModel:
    """Return the model of a program that another process lowered and packed.

    Args:
        signature: inputs and outputs.
        program: the program; it has no fallback steps.
        weights: its packed constants.
        plan: restores the plan.

    Raises:
        ExecutionError: the library refuses a kernel of the program, or a kernel reads constants in
            another layout than they were packed in.
    """
    threads = signature.threads // program.split.lanes
    kernels = Kernels(threads)
    steps = [step for step in program.steps if isinstance(step, KernelStep)]
    kernels.make((step.spec, step.implementation) for step in steps)
    check_layouts(program, kernels)
    part = signature.part(program.split)
    native = NativeProgram(part, program, kernels, threads, weights)
    return CompiledModel(signature, program, native, plan)
