"""The arguments of a kernel in the core's terms: descriptors, numbers of roles, parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from stridewise.errors import ExecutionError, FormatError
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.reorders import permuted_strides
from stridewise.targets.kernels import KernelSpec, MemorySpec

if TYPE_CHECKING:
    from stridewise import _core

__all__ = ["KernelArguments", "role_argument"]


class KernelArguments:
    """A spec in native terms, for the factories below."""

    def __init__(self, spec: KernelSpec, threads: int) -> None:
        self.core = load_core()
        self.spec, self.threads = spec, threads
        self._params = dict(spec.params)

    def describe(self, memory: MemorySpec) -> _core.MemoryDesc:
        """Return the descriptor of a memory, by strides where the library names no such order.

        Raises:
            FormatError: it has blocks in an order that the library does not name.
        """
        if not memory.dims:  # the library has no scalars
            return self.core.MemoryDesc((1,), memory.dtype, "a")
        if memory.strides is not None:
            return self.core.MemoryDesc.strided(memory.dims, memory.dtype, memory.strides)
        if memory.tag != "any" and memory.tag.isalpha() and memory.tag.islower():
            # The library names only some of the permutations; by strides it takes all of them.
            strides = permuted_strides(memory.dims, memory.tag)
            return self.core.MemoryDesc.strided(memory.dims, memory.dtype, strides)
        try:
            return self.core.MemoryDesc(memory.dims, memory.dtype, memory.tag)
        except ValueError as error:
            raise FormatError.at(
                str(self.spec),
                expected="formats without blocks, or blocked ones that oneDNN has a tag for",
                found=repr(memory.tag),
                fix="give input_formats and output_formats of another order, and reorder outside",
            ) from error

    def described(self, role: str) -> MemorySpec:
        """Return the memory with a role as the spec has it, which must have one."""
        found = self.spec.memory(role)
        if found is None:
            raise ExecutionError.at(str(self.spec), expected=role, found="none")
        return found

    def memory(self, role: str) -> _core.MemoryDesc:
        """Return the descriptor of the memory with a role; the spec must have one."""
        return self.describe(self.described(role))

    def optional(self, role: str) -> _core.MemoryDesc | None:
        """Return the descriptor of the memory with a role, None if the spec has none."""
        found = self.spec.memory(role)
        return None if found is None else self.describe(found)

    def ints(self, key: str) -> tuple[int, ...]:
        """Return a parameter that is a tuple of integers."""
        return cast("tuple[int, ...]", self._params[key])

    def optional_ints(self, key: str) -> tuple[int, ...]:
        """Return a tuple of integers, empty if the spec has no such parameter."""
        return cast("tuple[int, ...]", self._params.get(key, ()))

    def number(self, key: str) -> float:
        """Return a parameter that is a float."""
        return float(cast("float", self._params[key]))

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a parameter that is an integer."""
        found = self._params[key] if default is None else self._params.get(key, default)
        return cast("int", found)

    def text(self, key: str) -> str:
        """Return a parameter that is a string."""
        return str(self._params[key])

    def strings(self, key: str) -> tuple[str, ...]:
        """Return a parameter that is a tuple of strings."""
        return cast("tuple[str, ...]", self._params[key])

    def floats(self, key: str) -> tuple[float, ...]:
        """Return a tuple of floats, empty if the spec has no such parameter."""
        return cast("tuple[float, ...]", self._params.get(key, ()))

    def numbers(self) -> list[_core.Numbers]:
        """Return the scales and zero points: argument, mask and description."""
        return [
            (role_argument(self.spec.kind, role), self._mask(role, memory), self.describe(memory))
            for role, memory in self.spec.memories
            if role.endswith(_SCALING)
        ]

    def _mask(self, role: str, memory: MemorySpec) -> int:
        """Return the axes along which scales vary: those of results, among the axes of weights."""
        weights, src = self.spec.memory("weights"), self.spec.memory("src")
        if memory.dims == (1,) or role != "weights_scale" or weights is None or src is None:
            return 0
        if self.spec.kind == "matmul":
            return 1 << (len(weights.dims) - 1)
        return 3 if len(weights.dims) > len(src.dims) else 1

    def post_ops(self) -> list[_core.PostOp]:
        """Return the post-ops, in the order in which the kernel applies them."""
        found: list[_core.PostOp] = []
        for post in self.spec.post_ops:
            if post.kind == "sum":
                found.append(("sum", 1.0))
            elif post.operand is not None:
                found.append(("binary", post.algorithm, self.describe(post.operand)))
            else:
                found.append(("eltwise", post.algorithm, post.alpha, post.beta))
        return found


_ROLES = {
    "src": "ARG_SRC",
    "src1": "ARG_SRC_1",
    "queries": "ARG_SRC",
    "keys": "ARG_SRC_1",
    "values": "ARG_SRC_2",
    "dst": "ARG_DST",
    "weights": "ARG_WEIGHTS",
    "bias": "ARG_BIAS",
    "factor": "ARG_SRC_1",
    "depthwise_weights": "ARG_DEPTHWISE_WEIGHTS",
    "depthwise_bias": "ARG_DEPTHWISE_BIAS",
    "mean": "ARG_MEAN",
    "variance": "ARG_VARIANCE",
    "scale": "ARG_SCALE",
    "shift": "ARG_SHIFT",
    "diff_dst": "ARG_DIFF_DST",
    "places": "ARG_WORKSPACE",
    "out_mean": "ARG_MEAN",
    "out_places": "ARG_WORKSPACE",
    "out_variance": "ARG_VARIANCE",
    "out_scale": "ARG_DIFF_SCALE",
    "out_shift": "ARG_DIFF_SHIFT",
    "grid": "ARG_WEIGHTS",
    "table": "ARG_WEIGHTS",
    "state": "ARG_SRC_1",
    "cell": "ARG_SRC_2",
    "out_cell": "ARG_DST_1",
    "out_positions": "ARG_DST_1",
}


_SCALING = ("_scale", "_zero")

_NUMBERED = frozenset({"attention", "concat", "elements", "pointwise"})
"""Kinds of kernel with any number of sources."""


def role_argument(kind: str, role: str) -> int:
    """Return the library's number for a role of a primitive kind."""
    core = load_core()
    if role not in _ROLES and role.endswith(_SCALING):
        of, _, what = role.rpartition("_")
        base = core.ARG_SCALES_OF if what == "scale" else core.ARG_ZERO_POINTS_OF
        return base | role_argument(kind, of)
    if role.startswith("post"):
        return core.post_op_arg(int(role.removeprefix("post")))
    if kind in _NUMBERED and role.startswith("src"):
        return core.ARG_MULTIPLE_SRC + int(role.removeprefix("src"))
    number: int = getattr(core, _ROLES[role])
    return number
