"""Keeping operators whole while PyTorch traces that it would otherwise always decompose."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import RLock
from typing import Any

from stridewise.frontends.torch.library import submodule, torch

__all__ = ["whole_operators"]

_RESIZES = {
    "_upsample_nearest_exact1d": 1,
    "_upsample_nearest_exact2d": 2,
    "_upsample_nearest_exact3d": 3,
    "upsample_bicubic2d": 2,
    "upsample_bilinear2d": 2,
    "upsample_linear1d": 1,
    "upsample_nearest1d": 1,
    "upsample_nearest2d": 2,
    "upsample_nearest3d": 3,
    "upsample_trilinear3d": 3,
}
"""Resizing operators and their numbers of spatial axes."""

_KEYS = ("CompositeImplicitAutograd", "Autograd")
"""Dispatch keys under which PyTorch has decompositions in Python."""

_lock = RLock()


def _sized(whole: Any, spatial: int) -> Callable[..., Any]:
    """Return the form of a resize that takes a size or factors, by the form that takes both."""
    sizes = submodule("torch._decomp.decompositions").upsample_compute_output_size

    def call(x: Any, size: Any, *rest: Any) -> Any:
        *flags, factors = rest
        wanted = sizes(x.size(), size, factors)
        return whole(x, wanted, *flags, *(factors or [None] * spatial))

    return call


def _unset_gradient(gradient: Any, _size: Any, shape: Any, *_: Any) -> Any:
    """Return the type of a resize's gradient: its shape, and the memory format of the other one."""
    order = submodule("torch._prims_common").suggest_memory_format(gradient)
    return gradient.new_empty(shape).contiguous(memory_format=order)


@contextmanager
def _typed_gradients() -> Generator[None]:
    """Let PyTorch find types of resizes' gradients if extents are symbolic; its kernels do not."""
    table = submodule("torch._decomp").decomposition_table
    packets = (getattr(torch.ops.aten, f"{name}_backward") for name in _RESIZES)
    added = [packet.default for packet in packets if packet.default not in table]
    table.update(dict.fromkeys(added, _unset_gradient))
    try:
        yield
    finally:
        for overload in added:
            table.pop(overload, None)


@contextmanager
def whole_operators() -> Generator[None]:
    """Trace resizes as one operator each; PyTorch's decompositions are back afterwards."""
    keys = [getattr(submodule("torch._C").DispatchKey, name) for name in _KEYS]
    with _lock, _typed_gradients():
        saved: list[tuple[Any, dict[Any, Any]]] = []
        for name, spatial in _RESIZES.items():
            packet = getattr(torch.ops.aten, name)
            for overload in (packet.default, packet.vec):
                saved.append((overload, dict(overload.py_kernels)))
                for key in keys:
                    overload.py_kernels.pop(key, None)
                overload._dispatch_cache.clear()
            packet.vec.py_kernels[keys[0]] = _sized(packet.default, spatial)
        try:
            yield
        finally:
            for overload, kernels in saved:
                overload.py_kernels.clear()
                overload.py_kernels.update(kernels)
                overload._dispatch_cache.clear()
