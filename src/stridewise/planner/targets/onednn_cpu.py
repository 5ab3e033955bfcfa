"""The target ``onednn-cpu``: x86 CPUs through oneDNN 3.x, float32.

The formats by instruction set, and the rough efficiencies that ``tune="model"`` uses. They were
read off oneDNN 3.2 on AMD Zen 4 and Zen 5: which combinations have a JIT kernel, and which fall
to the library's naive ``ref`` loops. ``docs/onednn.md`` lists them.
"""

from __future__ import annotations

from collections.abc import Callable

from stridewise.ops.kernels import KernelSpec, MemorySpec
from stridewise.planner.targets.target import Accuracy, FormatKind, LibraryTarget, Machine

__all__ = ["onednn_cpu"]

_REFERENCE = 0.004
"""What the naive loops reach of the roofline."""

_EFFICIENCY: dict[tuple[str, str], float] = {
    # (primitive, storage of its destination): part of the roofline
    ("convolution", "plain"): 0.40,
    ("convolution", "channels-last"): 0.92,
    ("convolution", "blocked"): 0.90,
    ("deconvolution", "plain"): 0.20,
    ("deconvolution", "channels-last"): 0.50,
    ("deconvolution", "blocked"): 0.45,
    ("pooling", "plain"): 0.25,
    ("pooling", "channels-last"): 0.50,
    ("pooling", "blocked"): 0.50,
    ("lrn", "plain"): 0.20,
    ("lrn", "channels-last"): 0.30,
    ("lrn", "blocked"): 0.35,
    ("batch_norm", "plain"): 0.25,
    ("batch_norm", "channels-last"): 0.30,
    ("batch_norm", "blocked"): 0.35,
    ("layer_norm", "plain"): 0.40,
    ("concat", "channels-last"): 0.40,
    ("softmax", "plain"): 0.25,
    ("matmul", "plain"): 0.60,
    ("inner_product", "plain"): 0.65,
    ("shuffle", "blocked"): 0.30,
    ("fold", "plain"): 0.30,
    # Of the multiplications that are left, those of padding included, but for the transforms.
    ("winograd", "channels-last"): 0.85,
    ("winograd", "blocked"): 0.85,
    ("resampling", "plain"): 0.25,
    ("resampling", "channels-last"): 0.50,
    ("resampling", "blocked"): 0.50,
}
_DEFAULT = 0.60

_TRANSFORM: dict[object, float] = {2: 12.0, 4: 24.0, 6: 24.0}
"""By results of a tile along an axis, what transforming a pixel, either way, takes in products.

Fits ``benchmarks/winograd.py`` on Zen 3: with 64, 128, 256, 512 channels, products and transforms
together reached 0.48, 0.62, 0.73 and 0.75 of the peak of the products for tiles of 4x4, and 0.50,
0.61, 0.73 and 0.74 for tiles of 6x6.
"""


def _storage(memory: MemorySpec | None) -> str:
    """Return the storage kind of a tag: ``plain``, ``channels-last`` or ``blocked``."""
    tag = memory.tag if memory is not None else ""
    if any(letter.isdigit() for letter in tag):
        return "blocked"
    return "channels-last" if len(tag) > 2 and tag.endswith("b") else "plain"


def _block(memory: MemorySpec | None) -> int:
    digits = "".join(c for c in (memory.tag if memory else "") if c.isdigit())
    return int(digits) if digits else 1


def _ints(spec: KernelSpec, key: str) -> tuple[int, ...]:
    found = dict(spec.params)[key]
    return (
        tuple(item for item in found if isinstance(item, int)) if isinstance(found, tuple) else ()
    )


def _axis(spec: KernelSpec) -> int:
    return next((v for k, v in spec.params if k == "axis" and isinstance(v, int)), -1)


def _per_group(src: MemorySpec, weights: MemorySpec) -> tuple[int, ...]:
    """Return the channels out and in of a group, none of weights without groups."""
    return weights.dims[1:3] if len(weights.dims) == len(src.dims) + 1 else ()


def _convolution(spec: KernelSpec, storage: str, dst: MemorySpec) -> bool:
    """Blocks need whole groups, and as many channels as a block has."""
    src, weights = spec.memory("src"), spec.memory("weights")
    if storage != "blocked" or src is None or weights is None:
        return False
    block, per_group = _block(dst), _per_group(src, weights)
    if per_group:
        return set(per_group) != {1} and any(extent % block for extent in per_group)
    return src.dims[1] < block and _storage(src) == "blocked"


def _deconvolution(spec: KernelSpec, storage: str, dst: MemorySpec) -> bool:
    """Uneven groups, stride and dilation together, and strides beyond the window."""
    src, weights = spec.memory("src"), spec.memory("weights")
    if storage != "blocked" or src is None or weights is None:
        return False
    block, per_group = _block(dst), _per_group(src, weights)
    if set(per_group) != {1} and any(extent % block for extent in per_group):
        return True
    kernel = weights.dims[2 - len(src.dims) :]
    strides, dilations = _ints(spec, "strides"), _ints(spec, "dilations")
    return any(
        stride > 1 and (dilation > 1 or stride > extent)
        for stride, dilation, extent in zip(strides, dilations, kernel, strict=True)
    )


def _concat(spec: KernelSpec, storage: str, dst: MemorySpec) -> bool:
    """Pieces that do not end with a block."""
    pieces = [memory for role, memory in spec.memories if role != "dst"]
    return storage == "blocked" and any(piece.dims[1] % _block(dst) for piece in pieces)


def _layer_norm(_spec: KernelSpec, _storage: str, dst: MemorySpec) -> bool:
    """Memory by strides."""
    return dst.strides is not None


def _softmax(spec: KernelSpec, storage: str, dst: MemorySpec) -> bool:
    """Channels that are not innermost."""
    return storage == "plain" and len(dst.dims) > 2 and _axis(spec) == 1


def _binary(spec: KernelSpec, storage: str, dst: MemorySpec) -> bool:
    """A broadcast operand in blocks."""
    other = spec.memory("src1")
    return storage == "blocked" and other is not None and other.dims != dst.dims


def _lrn(_spec: KernelSpec, storage: str, dst: MemorySpec) -> bool:
    """Channels that are no multiple of 16."""
    return storage != "plain" and dst.dims[1] % 16 != 0


_NAIVE: dict[str, Callable[[KernelSpec, str, MemorySpec], bool]] = {
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "concat": _concat,
    "layer_norm": _layer_norm,
    "softmax": _softmax,
    "binary": _binary,
    "lrn": _lrn,
}
"""By primitive, whether oneDNN has only ``ref`` for a kernel, given its storage and destination."""


def _is_naive(spec: KernelSpec, storage: str) -> bool:
    """Return whether oneDNN is known to have nothing but ``ref`` for a kernel."""
    rule, dst = _NAIVE.get(spec.kind), spec.memory("dst")
    return rule is not None and dst is not None and rule(spec, storage, dst)


def _with_transforms(spec: KernelSpec) -> float:
    """Return which part of the time of Winograd convolution goes into its products.

    A transformed pixel takes part in the products with the channels of its group only.
    """
    params = dict(spec.params)
    groups, each = params.get("groups", 1), _TRANSFORM[params["tile"]]
    if not isinstance(groups, int):
        return 1.0
    images = (spec.memory(role) for role in ("src", "dst"))
    share = sum(each * groups / image.dims[1] for image in images if image is not None)
    return 1.0 / (1.0 + share)


def efficiency(spec: KernelSpec) -> float:
    """Return which part of the roofline a kernel reaches."""
    storage = _storage(spec.memory("dst"))
    if _is_naive(spec, storage):
        return _REFERENCE
    part = _EFFICIENCY.get((spec.kind, storage), _DEFAULT)
    return part * _with_transforms(spec) if spec.kind == "winograd" else part


def onednn_cpu(machine: Machine, accuracy: Accuracy = "fast") -> LibraryTarget:
    """Return the target for a machine: 16 channels a block with AVX-512, 8 without.

    Args:
        machine: what plans are for.
        accuracy: ``"exact"`` leaves out kernels that round otherwise, such as Winograd convolution.
    """
    block = 16 if machine.has_avx512 else 8
    kinds = (
        FormatKind("plain"),
        FormatKind("channels-last", channels_last=True),
        FormatKind("blocked", block=block),
    )
    return LibraryTarget("onednn-cpu", kinds, efficiency, accuracy=accuracy)
