"""The target ``onednn-cpu``: x86 CPUs through oneDNN 3.x, float32.

The formats by instruction set, and the rough efficiencies that ``tune="model"`` uses. They were
read off oneDNN 3.2 on AMD Zen 4 and Zen 5: which combinations have a JIT kernel, and which fall
to the library's naive ``ref`` loops. ``docs/onednn.md`` lists them.
"""

from __future__ import annotations

from stridewise.ops.kernels import KernelSpec, MemorySpec
from stridewise.planner.targets.target import FormatKind, LibraryTarget, Machine

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
    ("reduction", "plain"): 0.30,
    ("resampling", "plain"): 0.25,
    ("resampling", "channels-last"): 0.50,
    ("resampling", "blocked"): 0.50,
}
_DEFAULT = 0.60


def _storage(memory: MemorySpec | None) -> str:
    """Return the storage kind of a tag: ``plain``, ``channels-last`` or ``blocked``."""
    tag = memory.tag if memory is not None else ""
    if any(letter.isdigit() for letter in tag):
        return "blocked"
    return "channels-last" if len(tag) > 2 and tag.endswith("b") else "plain"


def _block(memory: MemorySpec | None) -> int:
    digits = "".join(c for c in (memory.tag if memory else "") if c.isdigit())
    return int(digits) if digits else 1


def _is_naive(spec: KernelSpec, storage: str) -> bool:
    """Return whether oneDNN is known to have nothing but ``ref`` for a kernel."""
    dst, src, weights = (spec.memory(role) for role in ("dst", "src", "weights"))
    block = _block(dst)
    if spec.kind == "convolution" and storage == "blocked" and src and weights:
        grouped = len(weights.dims) == len(src.dims) + 1
        depthwise = grouped and weights.dims[1] == weights.dims[2] == 1
        per_group = weights.dims[1:3] if grouped else ()
        uneven = any(extent % block for extent in per_group)
        shallow = src.dims[1] < block and _storage(src) == "blocked" and not grouped
        return (grouped and not depthwise and uneven) or shallow
    if spec.kind == "deconvolution" and storage == "blocked" and src and weights:
        return _is_naive_deconvolution(spec, src, weights, block)
    if spec.kind == "concat":
        pieces = [memory for role, memory in spec.memories if role != "dst"]
        return storage == "blocked" and any(piece.dims[1] % block for piece in pieces)
    if spec.kind in ("layer_norm", "lrn") and dst:
        return _is_naive_norm(spec.kind, dst, storage)
    if spec.kind == "softmax":
        return storage == "plain" and bool(dst) and len(dst.dims) > 2 and _axis(spec) == 1
    if spec.kind == "binary" and storage == "blocked":
        other = spec.memory("src1")
        return other is not None and other.dims != dst.dims if dst else False
    if spec.kind == "reduction" and src and dst:
        return _is_naive_reduction(spec, src, dst)
    return False


def _is_naive_norm(kind: str, dst: MemorySpec, storage: str) -> bool:
    """Return whether axes that are normalized lie apart, or channels do not fill the blocks."""
    if kind == "layer_norm":
        return dst.strides is not None
    return dst.dims[1] % 16 != 0 and storage != "plain"


def _is_naive_reduction(spec: KernelSpec, src: MemorySpec, dst: MemorySpec) -> bool:
    """Return whether anything but the innermost axes is reduced, or to a norm."""
    pairs = zip(src.dims, dst.dims, strict=True)
    first = next((axis for axis, (before, after) in enumerate(pairs) if before != after), 0)
    return "norm" in str(dict(spec.params)["algorithm"]) or any(e > 1 for e in dst.dims[first:])


def _ints(spec: KernelSpec, key: str) -> tuple[int, ...]:
    found = dict(spec.params)[key]
    return (
        tuple(item for item in found if isinstance(item, int)) if isinstance(found, tuple) else ()
    )


def _is_naive_deconvolution(
    spec: KernelSpec, src: MemorySpec, weights: MemorySpec, block: int
) -> bool:
    """Return whether the blocked kernel is missing.

    Uneven groups, stride and dilation together, and strides beyond the window have none.
    """
    grouped = len(weights.dims) == len(src.dims) + 1
    per_group = weights.dims[1:3] if grouped else ()
    if set(per_group) != {1} and any(extent % block for extent in per_group):
        return True
    kernel = weights.dims[2 - len(src.dims) :]
    strides, dilations = _ints(spec, "strides"), _ints(spec, "dilations")
    return any(
        stride > 1 and (dilation > 1 or stride > extent)
        for stride, dilation, extent in zip(strides, dilations, kernel, strict=True)
    )


def _axis(spec: KernelSpec) -> int:
    return next((v for k, v in spec.params if k == "axis" and isinstance(v, int)), -1)


def efficiency(spec: KernelSpec) -> float:
    """Return which part of the roofline a kernel reaches."""
    storage = _storage(spec.memory("dst"))
    if _is_naive(spec, storage):
        return _REFERENCE
    return _EFFICIENCY.get((spec.kind, storage), _DEFAULT)


def onednn_cpu(machine: Machine) -> LibraryTarget:
    """Return the target for a machine: 16 channels a block with AVX-512, 8 without."""
    block = 16 if machine.has_avx512 else 8
    kinds = (
        FormatKind("plain"),
        FormatKind("channels-last", channels_last=True),
        FormatKind("blocked", block=block),
    )
    return LibraryTarget("onednn-cpu", kinds, efficiency)
