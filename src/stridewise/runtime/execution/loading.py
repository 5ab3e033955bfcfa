"""The last two stages of the flow: a plan becomes a program, and the program is made ready to run.

:func:`lower_plan` creates the kernels of a plan, as their scratchpads and weight layouts are part
of the program. :func:`load` packs the constants and binds memory to kernels. A program that another
process lowered and packed is loaded in ``stored.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from stridewise.classes import dataclass
from stridewise.planning import Plan
from stridewise.program import Program
from stridewise.runtime.binding.kernels import Kernels
from stridewise.runtime.binding.program import NativeProgram
from stridewise.runtime.binding.weights import Weights, WeightStore
from stridewise.runtime.execution.executor import CallSignature, CompiledModel
from stridewise.runtime.lowering.lower import lower
from stridewise.targets.kernels import HOST, KernelSpec

__all__ = ["Lowered", "kernels_of", "load", "lower_plan", "made_kernels"]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A plan as a program.

    Attributes:
        plan: the plan.
        program: its steps, with addresses.
        kernels: the kernels of the steps.
    """

    plan: Plan
    program: Program
    kernels: Kernels

    def __str__(self) -> str:
        return str(self.program)


def kernels_of(plan: Plan) -> Iterator[tuple[KernelSpec, str]]:
    """Yield the primitives that nodes of a plan run, each with its implementation."""
    for decision in plan.decisions:
        chosen = decision.chosen
        for call, cost in zip(chosen.option.calls, chosen.costs, strict=True):
            if call.spec.kind != HOST:
                yield call.spec, cost.implementation


def made_kernels(plan: Plan) -> Kernels:
    """Return the kernels of a plan.

    Raises:
        ExecutionError: the library refuses a kernel that the plan counts on.
    """
    kernels = Kernels(plan.machine.threads)
    kernels.make(kernels_of(plan))
    return kernels


def lower_plan(plan: Plan) -> Lowered:
    """Return the program of a plan.

    Raises:
        ExecutionError: the library refuses a kernel that the plan counts on.
        PlanError: the plan contradicts itself.
    """
    kernels = made_kernels(plan)
    return Lowered(plan, lower(plan, kernels), kernels)


def load(lowered: Lowered, store: WeightStore | None = None) -> CompiledModel:
    """Return the model of a program: pack its constants and bind its memory.

    Args:
        lowered: what :func:`lower_plan` returned.
        store: packed constants of other programs. They are used if the layouts are the same, and
            the constants that this program packs are added.
    """
    plan, program, kernels = lowered.plan, lowered.program, lowered.kernels
    signature, constants = CallSignature.of(plan), plan.graph.constants
    store = store or WeightStore()
    weights = Weights(program.constants, kernels, constants, signature.threads, store)
    native = NativeProgram(plan.graph, program, kernels, plan.machine.threads, weights)
    return CompiledModel(signature, program, native, plan)
