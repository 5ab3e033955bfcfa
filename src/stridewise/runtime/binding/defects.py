"""Kernels of the library that give wrong results."""

from __future__ import annotations

from math import prod

from stridewise.runtime.binding.library import load_core
from stridewise.targets.kernels import KernelSpec
from stridewise.targets.onednn.groups import together

__all__ = ["is_wrong"]

_STRIDED = "brg_conv:", "brgconv_strided:"
"""What is in the library's names of deconvolutions with strides that apply post-ops themselves."""

_SPLIT_SHARE = 512
"""Bytes of the second-level cache for each product of an output up to which sums are not split.

With a cache of 1 MB, float32, windows of 3 to 9 and strides of 2 to 4, results were wrong from 4000
products on, which is half of these bytes: the weights of 64 outputs."""


def is_wrong(spec: KernelSpec, implementation: str, *, bare: bool = False) -> bool:
    """Return whether an implementation of the library gives wrong results for a spec.

    In oneDNN 3.2, deconvolutions with strides and channels last add the bias and apply post-ops
    once for each part of a sum over channels and taps. Sums are split if the weights of a block of
    outputs exceed the second-level cache.

    Args:
        spec: of a kernel.
        implementation: the library's name.
        bare: whether post-ops are left out.
    """
    is_strided = all(part in implementation for part in _STRIDED)
    if not (is_strided and spec.kind.endswith("deconvolution")):
        return False
    src, weights = spec.memory("src"), spec.memory("weights")
    if src is None or weights is None or not (spec.memory("bias") or (spec.post_ops and not bare)):
        return False
    products = together(spec) * prod(weights.dims[1 - len(src.dims) :])
    return _SPLIT_SHARE * products > load_core().cache_nbytes(2)
