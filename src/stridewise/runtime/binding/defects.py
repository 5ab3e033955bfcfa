"""Kernels of the library that give wrong results."""

from __future__ import annotations

from math import prod
from typing import cast

from stridewise.runtime.binding.library import load_core
from stridewise.targets.kernels import KernelSpec
from stridewise.targets.onednn.groups import together

__all__ = ["is_wrong"]

_STRIDED = "brg_conv:", "brgconv_strided:"
"""What is in the library's names of deconvolutions with strides that apply post-ops themselves."""

_SPLIT_SHARES = {2: 256}
_SPLIT_SHARE = 512
"""Bytes of the second-level cache for each product of an output up to which sums are not split: by
the stride, and for all other strides.

With 1 MB these are 4096 and 2048 products. In float32, with windows of 3 to 9, results were wrong
from 7936 products on for strides of 2, and from 4000 on for strides of 3 and 4."""


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
    strides = cast("tuple[int, ...]", dict(spec.params)["strides"])
    share = _SPLIT_SHARES.get(max(strides), _SPLIT_SHARE)
    return share * products > load_core().cache_nbytes(2)
