"""What the time of a kernel depends on: its family, its way to compute, and sizes as numbers.

Measured costs of some kernels tell the costs of others through these traits
(:mod:`stridewise.targets.rates`).
"""

from __future__ import annotations

from math import log2, prod

from stridewise.graph import Attr
from stridewise.targets.kernels import SCALING, KernelSpec, MemorySpec
from stridewise.targets.onednn.groups import together
from stridewise.targets.onednn.memory import storage_of
from stridewise.targets.onednn.table import is_naive
from stridewise.targets.rates import Traits

__all__ = ["traits_of"]

_LANES = 16
_SIZELESS = frozenset(
    {"begins", "ends", "epsilon", "alpha", "beta", "k", "groups", "expression", "statistics"}
    | {"fills", "key_axes", "parts", "query_axes", "scale", "zeroed", SCALING}
)
"""Parameters that do not change the time, or that other traits contain."""
_DIRECT = frozenset(
    {"conv_int8", "conv_weight_gradient", "conv_windows", "convolution", "deconvolution"}
    | {"fitted_convolution", "fitted_deconvolution"}
)
"""Kinds whose weights tell the window."""
_SCALES = (4.0, 4.0, 4.0, 3.0, 3.0, 4.0, 3.0, 0.7, 0.7, 1.0)
"""Differences of numbers, in powers of two, over which costs change."""


def _storage(memory: MemorySpec) -> str:
    own = storage_of(memory) if len(memory.dims) > 2 else memory.tag
    return f"{memory.dtype} {own or 'strided'}"


def _is_weight_gradient(spec: KernelSpec) -> bool:
    return spec.kind.endswith("weight_gradient")


def _weights(spec: KernelSpec) -> MemorySpec | None:
    """Return the weights of a convolution, or their gradient."""
    return spec.memory("dst" if _is_weight_gradient(spec) else "weights")


def _groups(spec: KernelSpec, src: MemorySpec) -> int:
    weights, known = _weights(spec), dict(spec.params).get("groups")
    if isinstance(known, int):
        return known
    has_groups = weights is not None and len(weights.dims) == len(src.dims) + 1
    return weights.dims[0] // together(spec) if weights is not None and has_groups else 1


def _way(spec: KernelSpec, src: MemorySpec, groups: int) -> str:
    params: dict[str, Attr] = {k: v for k, v in spec.params if k not in _SIZELESS}
    weights, second = _weights(spec), spec.memory("src1")
    if spec.kind in _DIRECT and weights is not None:
        params["window"] = weights.dims[2 - len(src.dims) :]
    for key in ("expression", "steps"):
        steps = dict(spec.params).get(key)
        if isinstance(steps, tuple):
            params["steps"] = len(steps)
    if spec.kind == "binary" and second is not None:
        params["broadcast"] = second.dims != src.dims
    if spec.memory("factor") is not None:
        params["factor"] = True
    each = src.dims[1] // groups if len(src.dims) > 1 else 1
    kind = "whole" if groups == 1 else "depthwise" if each == 1 else "groups"
    if spec.kind == "matmul" and weights is not None:
        kind = _matrices(src, weights)
    return " ".join([kind, *(f"{key}={value}" for key, value in sorted(params.items()))])


def _matrices(src: MemorySpec, weights: MemorySpec) -> str:
    """Return which factor of a product has a matrix for each matrix of the result.

    Some implementations start a GEMM for each of them.
    """
    factors = (("src", src), ("weights", weights))
    several = [name for name, memory in factors if prod(memory.dims[:-2]) > 1]
    return "whole" if not several else "matrices of " + " and ".join(several)


def _log(value: float) -> float:
    return log2(max(1.0, value))


def _waste(extent: int) -> float:
    """Return by how much padding to whole vectors increases an extent."""
    return log2(-(-extent // _LANES) * _LANES / max(1, extent))


def traits_of(spec: KernelSpec, *, cold: bool = False) -> Traits:
    """Return the traits of a kernel.

    Args:
        spec: the kernel.
        cold: whether its weights come from memory.

    >>> memory = MemorySpec((1, 64, 56, 56), "acdb")
    >>> spec = KernelSpec("reorder", (("src", memory), ("dst", MemorySpec(memory.dims, "abcd"))))
    >>> traits_of(spec).family
    'f32 channels-last > f32 plain'
    """
    none = MemorySpec(())
    # For the gradient of weights, the images decide.
    dst = spec.memory("diff_dst" if _is_weight_gradient(spec) else "dst") or none
    src = spec.memory("src") or spec.memory("queries") or spec.memory("src0") or dst
    groups, keys = _groups(spec, src), spec.memory("keys")
    if spec.kind == "matmul":
        groups, inner, outer = spec.matrices, src.dims[-1], dst.dims[-1]
    elif keys is not None:
        groups, inner, outer = prod(dst.dims[:-2]), keys.dims[-2], dst.dims[-2]
    else:
        inner, outer = (
            memory.dims[1] // groups if len(memory.dims) > 1 else prod(memory.dims)
            for memory in (src, dst)
        )
    nbytes, posts = spec.nbytes, [post.kind for post in spec.post_ops]
    operands = ", operands" if "binary" in posts else ""
    functions = ", functions" if spec.function_values else ""
    sizes = (
        _log(nbytes),
        _log(spec.flops / max(1, nbytes)),
        _log(groups),
        _log(inner),
        _log(outer),
        _log(prod(dst.dims) / max(1, groups * outer)),
        _log(dst.dims[-1] if dst.dims else 1),
        _waste(inner),
        _waste(outer),
        float(len(posts) - posts.count("eltwise")),
    )
    return Traits(
        f"{spec.kind} naive" if is_naive(spec) else spec.kind,
        f"{_storage(src)} > {_storage(dst)}{operands}{functions}"
        + (", cold weights" if cold else ""),
        _way(spec, src, groups),
        tuple(size / scale for size, scale in zip(sizes, _SCALES, strict=True)),
    )
