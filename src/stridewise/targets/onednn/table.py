"""The table of kernels: what each family registers, by operator and by kind of kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod

from stridewise.errors import GraphError
from stridewise.graph import Node, Refusal
from stridewise.ops import OPS
from stridewise.ops.data_format import is_turned
from stridewise.targets.kernels import KernelContext, KernelOption, KernelSpec
from stridewise.targets.onednn import (
    activation,
    along_axis,
    attention,
    cast,
    concat,
    conv,
    conv1x1,
    conv_transpose,
    conv_windows,
    depth_space,
    depthwise,
    dropout,
    elements,
    elementwise,
    gradients,
    grid_sample,
    group_norm,
    indexed,
    indexed_elements,
    int8_conv,
    int8_depthwise,
    int8_elementwise,
    layer_norm,
    matmul,
    norm,
    pad,
    pointwise,
    pool,
    pool_gradients,
    positions,
    rearrange,
    recurrent,
    reduce,
    reductions,
    reorder,
    repeat,
    resize,
    shape,
    shuffle,
    slice,
    softmax,
    winograd,
)
from stridewise.targets.onednn.canonical import CanonicalContext, fitted, misread
from stridewise.targets.onednn.constants import with_constants
from stridewise.targets.onednn.family import (
    DEFAULT_EFFICIENCY,
    Family,
    KernelKind,
    KernelRule,
    Offer,
)
from stridewise.targets.onednn.groups import per_group
from stridewise.targets.onednn.memory import storage_of
from stridewise.targets.onednn.precision import OWN

__all__ = [
    "KINDS",
    "OFFERS",
    "TYPED",
    "efficiency",
    "is_naive",
    "kernel_options",
    "post_ops",
    "post_ops_ns",
]

_FAMILIES: tuple[Family, ...] = (
    activation.FAMILY,
    along_axis.FAMILY,
    attention.FAMILY,
    cast.FAMILY,
    concat.FAMILY,
    conv.FAMILY,
    conv1x1.FAMILY,
    conv_transpose.FAMILY,
    conv_windows.FAMILY,
    depth_space.FAMILY,
    depthwise.FAMILY,
    dropout.FAMILY,
    elements.FAMILY,
    elementwise.FAMILY,
    gradients.FAMILY,
    grid_sample.FAMILY,
    group_norm.FAMILY,
    indexed.FAMILY,
    indexed_elements.FAMILY,
    int8_conv.FAMILY,
    int8_depthwise.FAMILY,
    int8_elementwise.FAMILY,
    layer_norm.FAMILY,
    matmul.FAMILY,
    norm.FAMILY,
    pad.FAMILY,
    pointwise.FAMILY,
    pool.FAMILY,
    pool_gradients.FAMILY,
    positions.FAMILY,
    rearrange.FAMILY,
    recurrent.FAMILY,
    reduce.FAMILY,
    reductions.FAMILY,
    reorder.FAMILY,
    repeat.FAMILY,
    resize.FAMILY,
    shape.FAMILY,
    shuffle.FAMILY,
    slice.FAMILY,
    softmax.FAMILY,
    winograd.FAMILY,
)

OFFERS: Mapping[str, Offer] = {op: o for family in _FAMILIES for op, o in family.offers.items()}
"""The kernels of each operator; others run their NumPy reference."""

TYPED: Mapping[str, KernelRule] = {op: r for family in _FAMILIES for op, r in family.typed.items()}
"""The kernels of each operator that take tensors of other types than floats."""

KINDS: Mapping[str, KernelKind] = {
    name: kind for family in _FAMILIES for name, kind in family.kinds.items()
}
"""What is known of each kind of kernel."""

_REFERENCE = 0.004
"""Which part of the roofline the naive loops reach."""


def post_ops(node: Node) -> frozenset[str]:
    """Return the operators that kernels of a node take as its next post-op."""
    offer = OFFERS.get(node.op)
    return frozenset() if offer is None else offer.post_ops(node)


def kernel_options(context: KernelContext) -> Iterator[KernelOption | Refusal]:
    """Yield the kernels of a node whatever its data format, and refusals with their reasons.

    Raises:
        GraphError: the operator is unknown.
    """
    node = context.node
    if node.op not in OPS:
        raise GraphError.at(f"node {node.name!r}", expected="a known operator", found=repr(node.op))
    turned = OPS[node.op].origin == "anchor" and is_turned(node)
    refused = misread(node) if turned else None
    if refused is not None:
        yield refused
        return
    seen = CanonicalContext(context) if turned else context
    for item in (*_offered(seen), *_held(seen)):
        found = fitted(context, item) if isinstance(item, KernelOption) else item
        yield with_constants(context, found) if isinstance(found, KernelOption) else found


def _offered(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    offer = OFFERS.get(context.node.op)
    return () if offer is None else offer.kernels(context)


def _held(context: KernelContext) -> Iterable[KernelOption]:
    """Return the options by which the reader's kernels compute this node as well."""
    behind = context.behind()
    options = () if behind is None else _offered(behind)
    found = (item.ahead for item in options if isinstance(item, KernelOption))
    return dict.fromkeys(option for option in found if option is not None)


_MATRICES = frozenset({"inner_product", "matmul"})
_IMAGES = frozenset(
    {"conv_weight_gradient", "convolution", "deconvolution"}
    | {"fitted_convolution", "fitted_deconvolution"}
)
"""Kinds of the library's products of matrices, and of images and windows."""
_TILE = 16
"""Channels of a group from which on the library multiplies tiles."""


def efficiency(spec: KernelSpec) -> float:
    """Return which part of the roofline a kernel reaches.

    The figures were read off oneDNN 3.2 on AMD Zen 4 and Zen 5: which combinations have a JIT
    kernel, and which fall to the library's naive ``ref`` loops. ``docs/onednn.md`` lists them.
    """
    if is_naive(spec):
        return _REFERENCE
    kind, storage = KINDS.get(spec.kind, KernelKind()), storage_of(spec.memory("dst"))
    return kind.efficiency.get(storage, DEFAULT_EFFICIENCY) * kind.share(spec)


_POWER_NS = 11.0
"""What one thread takes for a power in a post-op of the library, which calls a function for each.
Measured on Zen 4."""

_QUICK_POWERS = frozenset({-1.0, 0.0, 0.5, 1.0, 2.0})
"""Exponents of powers that are instructions."""


def _powers_ns(spec: KernelSpec) -> float:
    dst = spec.memory("dst")
    if spec.kind in OWN or dst is None:
        return 0.0
    powers = [post.beta for post in spec.post_ops if post.algorithm == "pow"]
    return _POWER_NS * prod(dst.dims) * sum(power not in _QUICK_POWERS for power in powers)


def post_ops_ns(spec: KernelSpec) -> float:
    """Return what one thread takes for the post-ops of a kernel and loops beside its operations."""
    kind = KINDS.get(spec.kind, KernelKind())
    return kind.function_ns * spec.function_values + kind.loops_ns(spec) + _powers_ns(spec)


def has_tiles(spec: KernelSpec) -> bool:
    """Return whether the library multiplies by AMX in a kernel, where the processor has it.

    That is so for matrices, and for images with channels last if groups are as wide as tiles.
    """
    src, weights = spec.memory("src"), spec.memory("weights")
    if spec.kind in _MATRICES:
        return True
    if spec.kind not in _IMAGES or src is None:
        return False
    channels = () if weights is None else per_group(spec, weights)
    if channels and (spec.kind.startswith("fitted") or min(channels) < _TILE):
        return False
    return storage_of(src) == "channels-last"


def is_naive(spec: KernelSpec) -> bool:
    """Return whether the library is known to have only its naive ``ref`` loops for a kernel."""
    kind, dst = KINDS.get(spec.kind, KernelKind()), spec.memory("dst")
    return dst is not None and kind.is_naive(spec, storage_of(dst), dst)
