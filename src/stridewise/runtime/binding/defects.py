"""Kernels of the library that give wrong results."""

from __future__ import annotations

from stridewise.targets.kernels import KernelSpec

__all__ = ["is_wrong"]

_STRIDED = "brg_conv:", "brgconv_strided:"
"""What is in the library's names of deconvolutions with strides that apply post-ops themselves."""


def is_wrong(spec: KernelSpec, implementation: str) -> bool:
    """Return whether an implementation of the library gives wrong results for a spec.

    In oneDNN 3.2, deconvolutions with strides and channels last add the bias and apply post-ops
    once for each part of a sum over channels and taps. When sums are split depends on
    weights, images, caches and threads, so all of these are taken for wrong.

    Args:
        spec: of a kernel.
        implementation: the library's name.
    """
    is_strided = all(part in implementation for part in _STRIDED)
    if not (is_strided and spec.kind.endswith("deconvolution")):
        return False
    return spec.memory("bias") is not None or bool(spec.post_ops)
