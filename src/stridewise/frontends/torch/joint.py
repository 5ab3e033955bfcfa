"""Graphs of forward and backward together, as AOT Autograd traces them, before they are divided.

Some gradients of aten read more of the forward than native kernels give: positions of maxima,
statistics of layer and group norms. They become operators of the library ``stridewise`` of
PyTorch, which read operands alone. Where these have no native counterpart, PyTorch computes what
they need again. Batch norms by the statistics of the batch become an operator without running
statistics, so that a checkpoint can compute it again after these have changed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from math import inf, prod
from typing import Any

from stridewise.frontends.torch.adding import Types, called, fake_mode
from stridewise.frontends.torch.graphs import Border, memory_order
from stridewise.frontends.torch.keeping import (
    convert_early,
    mark_kept,
    narrow_again,
    normalize_again,
)
from stridewise.frontends.torch.library import submodule, torch
from stridewise.frontends.torch.table import decompositions
from stridewise.frontends.torch.values import UNSET, resolved
from stridewise.ops.geometry import row_major

__all__ = ["copy_updated", "divided", "training_decompositions"]


def _max_pool_backward(gradient: Any, x: Any, kernel: Sequence[int], *more: Any) -> Any:
    count, window = max(len(kernel), x.dim() - 2), (kernel, *more)  # there may be no batch axis
    forward = getattr(torch.ops.aten, f"max_pool{count}d_with_indices").default
    backward = getattr(torch.ops.aten, f"max_pool{count}d_with_indices_backward").default
    return backward(gradient, x, *window, forward(x, *window)[1])


def _attention_backward(
    gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    result: Any,
    mask: Any,
    causal: bool,
    scale: float | None,
) -> Any:
    aten, own = torch.ops.aten, {"attn_mask": mask, "scale": scale}
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    sums = forward(query, key, value, 0.0, causal, **own)[1]
    return backward(gradient, query, key, value, result, sums, 0.0, causal, **own)


def _layer_norm_backward(
    gradient: Any, x: Any, shape: Sequence[int], weight: Any, epsilon: float, mask: Sequence[bool]
) -> Any:
    aten = torch.ops.aten
    _, mean, inverse = aten.native_layer_norm.default(x, shape, weight, None, epsilon)
    bias = x.new_zeros(shape) if mask[2] else None
    operands = (gradient, x, shape, mean, inverse, weight, bias, mask)
    return _typed(aten.native_layer_norm_backward.default(*operands), x, weight)


def _group_norm_backward(
    gradient: Any, x: Any, weight: Any, groups: int, epsilon: float, mask: Sequence[bool]
) -> Any:
    aten = torch.ops.aten
    sizes = (x.shape[0], x.shape[1], prod(x.shape[2:]), groups)
    _, mean, inverse = aten.native_group_norm.default(x, weight, None, *sizes, epsilon)
    operands = (gradient, x, mean, inverse, weight, *sizes, mask)
    return _typed(aten.native_group_norm_backward.default(*operands), x, weight)


def _statistics_type(x: Any) -> Any:
    """Return the element type of statistics, which is float32 for narrower images."""
    return torch.promote_types(x.dtype, torch.float32)


def _batch_norm(x: Any, weight: Any, bias: Any, epsilon: float) -> Any:
    own = torch.ops.aten._native_batch_norm_legit.no_stats
    axes, wide = [0, *range(2, x.dim())], x.to(_statistics_type(x))
    variance = wide.var(axes, correction=0)
    unbiased = variance * (x.numel() / max(x.numel() - x.shape[1], 1))
    return own(x, weight, bias, True, 0.0, epsilon)[0], wide.mean(axes), variance, unbiased


def _batch_norm_backward(
    gradient: Any,
    x: Any,
    weight: Any,
    mean: Any,
    variance: Any,
    epsilon: float,
    mask: Sequence[bool],
) -> Any:
    wide = _statistics_type(x)
    inverse = (variance + epsilon).rsqrt()
    given = (gradient, x, weight, None, None, mean, inverse)
    given = [None if item is None else item.to(wide) for item in given]
    own = torch.ops.aten.native_batch_norm_backward.default
    return _typed(own(*given, True, epsilon, mask), x, weight)


def _masked_batch_norm_backward(gradient: Any, x: Any, weight: Any, bias: Any, *rest: Any) -> Any:
    mean, variance, epsilon, bounds, mask = rest
    row = (-1, *(1,) * (x.dim() - 2))
    factor = weight * (variance + epsilon).rsqrt()
    y = (x - mean.reshape(row)) * factor.reshape(row) + bias.reshape(row)
    kept = torch.where((y > bounds[0]) & (y < bounds[1]), gradient, 0.0)
    return _batch_norm_backward(kept, x, weight, mean, variance, epsilon, mask)


def _typed(found: Sequence[Any], x: Any, weight: Any) -> tuple[Any, ...]:
    """Return gradients of images, scales and shifts with the types of what they belong to.

    Traced gradients of narrow images by wide scales are wide in PyTorch, which computes narrow
    ones. Where it gives None, they are tensors of no element.
    """
    row = x if weight is None else weight
    like = (x, row, row)
    pairs = zip(found, like, strict=True)
    return tuple(x.new_empty(0) if item is None else item.to(own.dtype) for item, own in pairs)


_OPERATORS: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "attention_backward": (
        "(Tensor gradient, Tensor query, Tensor key, Tensor value, Tensor result, Tensor? mask,"
        " bool causal, float? scale) -> (Tensor, Tensor, Tensor)",
        _attention_backward,
    ),
    "batch_norm": (
        "(Tensor x, Tensor? weight, Tensor? bias, float epsilon)"
        " -> (Tensor, Tensor, Tensor, Tensor)",
        _batch_norm,
    ),
    "batch_norm_backward": (
        "(Tensor gradient, Tensor x, Tensor? weight, Tensor mean, Tensor variance, float epsilon,"
        " bool[] mask) -> (Tensor, Tensor, Tensor)",
        _batch_norm_backward,
    ),
    "masked_batch_norm_backward": (
        "(Tensor gradient, Tensor x, Tensor weight, Tensor bias, Tensor mean, Tensor variance,"
        " float epsilon, float[] bounds, bool[] mask) -> (Tensor, Tensor, Tensor)",
        _masked_batch_norm_backward,
    ),
    "max_pool_backward": (
        "(Tensor gradient, Tensor x, int[] kernel, int[] stride, int[] padding, int[] dilation, "
        "bool ceil_mode) -> Tensor",
        _max_pool_backward,
    ),
    "layer_norm_backward": (
        "(Tensor gradient, Tensor x, SymInt[] shape, Tensor? weight, float epsilon, bool[] mask)"
        " -> (Tensor, Tensor, Tensor)",
        _layer_norm_backward,
    ),
    "group_norm_backward": (
        "(Tensor gradient, Tensor x, Tensor? weight, int groups, float epsilon, bool[] mask)"
        " -> (Tensor, Tensor, Tensor)",
        _group_norm_backward,
    ),
}
"""Schemas of the operators, and how PyTorch computes them."""


@cache
def _library() -> Any:
    """Return the library of operators, which lives as long as the process."""
    library = submodule("torch.library").Library("stridewise", "FRAGMENT")
    for name, (schema, function) in _OPERATORS.items():
        library.define(name + schema)
        library.impl(name, function, "CompositeExplicitAutograd")
    return library


def _own(name: str) -> Any:
    _library()
    return getattr(torch.ops.stridewise, name).default


def training_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return :func:`decompositions`, and that of dropout, which draws what eager PyTorch draws."""
    return {**decompositions(), torch.ops.aten.native_dropout.default: _dropout}


def _dropout(x: Any, share: float, training: bool | None) -> tuple[Any, Any]:
    """Source: PyTorch, ``native_dropout``; the mask is of floats, which kernels multiply with."""
    if training is False or not share:
        return x.clone(), torch.ones_like(x)
    mask = torch.bernoulli(torch.empty_like(x), 1 - share)
    return x * mask * (1 / (1 - share) if share < 1 else 0.0), mask


# --- rewriting ------------------------------------------------------------------------------------


def _producer(node: Any, name: str) -> Any:
    """Return the operator that a node takes one of several results of, if it has this name."""
    taken = node.target is operator.getitem
    return node.args[0] if taken and str(node.args[0].target) == name else None


def _of_max_pool(node: Any) -> None:
    *kept, indices = node.args
    forward = f"aten.max_pool{len(kept[2])}d_with_indices.default"
    if _producer(indices, forward) is not None:
        kept[3] = kept[3] or kept[2]
        node.target, node.args = _own("max_pool_backward"), tuple(kept)


def _of_attention(node: Any) -> None:
    *operands, _, share, causal = node.args
    if not share:
        given = node.kwargs
        rest = (given.get("attn_mask"), causal, given.get("scale"))
        node.target, node.args = _own("attention_backward"), (*operands, *rest)
        node.kwargs = {}


def _of_layer_norm(node: Any) -> None:
    gradient, x, shape, mean, _, weight, _, mask = node.args
    forward = _producer(mean, "aten.native_layer_norm.default")
    if forward is not None:
        args = (gradient, x, shape, weight, forward.args[4], mask)
        _replace(node, "layer_norm_backward", args, weight)


def _of_group_norm(node: Any) -> None:
    gradient, x, mean, _, weight, *_, groups, mask = node.args
    forward = _producer(mean, "aten.native_group_norm.default")
    if forward is not None:
        args = (gradient, x, weight, groups, forward.args[7], mask)
        _replace(node, "group_norm_backward", args, weight)


def _replace(node: Any, name: str, args: tuple[Any, ...], weight: Any) -> None:
    """Replace a gradient by an operator of this library, whose results :func:`_typed` types."""
    node.target, node.args = _own(name), args
    x = args[1]
    types = [item.meta["val"].dtype for item in (x, weight or x, weight or x)]
    with fake_mode():
        found = [
            item.to(dtype) if isinstance(item, torch.Tensor) else item
            for item, dtype in zip(node.meta["val"], types, strict=True)
        ]
    node.meta["val"] = tuple(found)
    for taker in node.users:
        taker.meta["val"] = found[taker.args[1]]


def _of_batch_norm(node: Any) -> None:
    """Compute statistics of the batch in one operator, and running ones from these."""
    x, weight, bias, *running, training, momentum, epsilon = node.args
    if not training:
        return
    with node.graph.inserting_before(node):
        found = called(node, _own("batch_norm"), (x, weight, bias, epsilon))
        result, mean, variance, unbiased = (
            called(node, operator.getitem, (found, index)) for index in range(4)
        )
        new = zip(running, (mean, unbiased), strict=False)  # instance norms may have none
        moved = [_moved(node, old, value, momentum) for old, value in new]
    for taker in list(node.users):
        index = taker.args[1]
        if index == 2:  # aten has one over the deviation in place of the variance
            taker.target, taker.args = _inverse(taker, variance, epsilon)
        else:
            taker.replace_all_uses_with((result, mean, None, *moved)[index])


def _moved(node: Any, old: Any, new: Any, momentum: float) -> Any:
    aten = torch.ops.aten
    kept = called(node, aten.mul.Tensor, (old, 1 - momentum))
    added = called(node, aten.mul.Tensor, (new, momentum))
    return called(node, aten.add.Tensor, (kept, added))


def _inverse(taker: Any, variance: Any, epsilon: float) -> tuple[Any, tuple[Any, ...]]:
    with taker.graph.inserting_before(taker):
        added = called(taker, torch.ops.aten.add.Tensor, (variance, epsilon))
    return torch.ops.aten.rsqrt.default, (added,)


def _of_batch_norm_backward(node: Any) -> None:
    """Drop what a gradient does not read: running statistics, or those of the batch."""
    gradient, x, weight, _, _, mean, inverse, training, epsilon, mask = node.args
    inverse = _root(inverse)
    if not training:
        node.update_arg(5, None)
        node.update_arg(6, None)
    elif inverse is not None and str(inverse.target) == "aten.rsqrt.default":
        variance = inverse.args[0].args[0]
        args = (gradient, x, weight, _root(mean), variance, epsilon, mask)
        node.target, node.args = _own("batch_norm_backward"), args
        _mask_batch_norm_backward(node)


def _mask_batch_norm_backward(node: Any) -> None:
    """Let the gradient of a batch norm mask that of the activation behind it.

    It computes the result of the batch norm again, so nothing keeps it for the mask.
    """
    masked, x, weight, mean, variance, epsilon, mask = node.args
    found = _bounds(masked)
    if found is None or len(masked.users) > 1:
        return
    result, bounds = found
    norm = _producer(result, "stridewise.batch_norm.default")
    if norm is None or None in norm.args or result.args[1] != 0:
        return
    gradient = masked.args[0]
    same = (norm.args[0], norm.args[1], norm.args[3]) == (x, weight, epsilon)
    # In float16, results above 0 may become 0.
    wide = (torch.float32, torch.bfloat16)
    if same and all(item.meta["val"].dtype in wide for item in (gradient, x)):
        args = (gradient, x, weight, norm.args[2], mean, variance, epsilon, bounds, mask)
        node.target, node.args = _own("masked_batch_norm_backward"), args


def _bounds(masked: Any) -> tuple[Any, list[float]] | None:
    """Return what an activation is of whose gradient this is, and between which bounds it is 1."""
    name = str(masked.target)
    if name == "aten.threshold_backward.default" and masked.args[2] == 0:
        result = _root(masked.args[1])
        if str(result.target) == "aten.relu.default":
            return _root(result.args[0]), [0.0, inf]
    if name == "aten.hardtanh_backward.default" and masked.args[2] <= 0 <= masked.args[3]:
        return _root(masked.args[1]), [float(bound) for bound in masked.args[2:4]]
    return None


def _of_copy(node: Any) -> None:
    """Read no longer what a copy overwrites."""
    target, source = node.args[:2]
    made, given = target.meta["val"], source.meta["val"]
    if made.shape == given.shape and made.dtype == given.dtype:
        node.target, node.args, node.kwargs = torch.ops.aten.clone.default, (source,), {}


def _root(node: Any) -> Any:
    """Return what a node is a copy of."""
    while node is not None and _REWRITES.get(str(node.target)) is _of_identity:
        node = node.args[0]
    return node


def _of_identity(node: Any) -> None:
    """Let operators that compute read what is copied or detached, not the copy."""
    source = _root(node)
    if node.meta["val"].stride() == source.meta["val"].stride():
        node.replace_all_uses_with(source, delete_user_cb=_computes)


def _of_empty(node: Any) -> None:
    """Read nothing for a tensor without values, so that masks wait for no program."""
    found = node.meta["val"]
    if _is_fixed(found):
        node.target = torch.ops.aten.empty_strided.default
        node.args, node.kwargs = (list(found.shape), list(found.stride())), {"dtype": found.dtype}


def _of_bernoulli(node: Any) -> None:
    """Draw in the order in memory, as eager PyTorch does; the functional operator does not."""
    empty = node.args[0]
    if str(empty.target) not in UNSET or not _is_fixed(empty.meta["val"]):
        return
    border = Border.of(empty.meta["val"])
    if border.is_dense and border.shape != border.stored:
        given = {"dtype": empty.meta["val"].dtype}
        args = (list(border.stored), list(row_major(border.stored)))
        with node.graph.inserting_before(node):
            stored = called(node, torch.ops.aten.empty_strided.default, args, given)
            drawn = called(node, node.target, (stored, *node.args[1:]), node.kwargs)
            turned = called(node, torch.ops.aten.permute.default, (drawn, list(border.back)))
        node.replace_all_uses_with(turned)


def _is_fixed(tensor: Any) -> bool:
    return not any(isinstance(n, torch.SymInt) for n in (*tensor.shape, *tensor.stride()))


def _is_dense(tensor: Any) -> bool:
    """Return whether a tensor has neither gaps nor repeated elements, as far as it is known."""
    if _is_fixed(tensor):
        return Border.of(tensor).is_dense
    return not any(isinstance(step, int) and step == 0 for step in tensor.stride())


def _of_strided(node: Any) -> None:
    """Write a tensor that is taken for one of other strides as a view."""
    source, size, stride = node.args[:3]
    if _is_fixed(source.meta["val"]) and _is_fixed(node.meta["val"]):
        read = Border.of(source.meta["val"])
        made = Border(tuple(size), tuple(stride), memory_order(size, stride))
        offset = node.args[3] if len(node.args) > 3 else None
        if read.shape != made.shape and not offset:
            _relaid(node, source, read, made)


def _of_strided_scatter(node: Any) -> None:
    """Write a tensor that replaces all elements of one of other strides as a view of it."""
    base, source, size, stride = node.args[:4]
    if _is_fixed(base.meta["val"]) and not (node.args[4] if len(node.args) > 4 else 0):
        read = Border(tuple(size), tuple(stride), memory_order(size, stride))
        _relaid(node, source, read, Border.of(base.meta["val"]))


def _relaid(node: Any, source: Any, read: Border, made: Border) -> None:
    """Replace a node by the elements of a tensor, in their order in memory, in another shape."""
    if not (read.is_dense and made.is_dense and prod(read.shape) == prod(made.shape)):
        return
    aten = torch.ops.aten
    with node.graph.inserting_before(node):
        turned = called(node, aten.permute.default, (source, list(read.order)))
        shaped = called(node, aten.reshape.default, (turned, list(made.stored)))
        found = called(node, aten.permute.default, (shaped, list(made.back)))
    node.replace_all_uses_with(found)


def _computes(node: Any) -> bool:
    """Return whether results of a node share no memory with its operands."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not any(item.alias_info for item in schema.returns)


_REWRITES: Mapping[str, Callable[[Any], None]] = {
    "aten.as_strided.default": _of_strided,
    "aten.as_strided_scatter.default": _of_strided_scatter,
    "aten.bernoulli.p": _of_bernoulli,
    "aten.clone.default": _of_identity,
    "aten.copy.default": _of_copy,
    "aten.detach.default": _of_identity,
    "aten.empty_like.default": _of_empty,
    "aten.max_pool2d_with_indices_backward.default": _of_max_pool,
    "aten.max_pool3d_with_indices_backward.default": _of_max_pool,
    "aten.new_empty.default": _of_empty,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _of_attention,
    "aten._native_batch_norm_legit.no_stats": _of_batch_norm,
    "aten._native_batch_norm_legit_functional.default": _of_batch_norm,
    "aten.native_batch_norm_backward.default": _of_batch_norm_backward,
    "aten.native_group_norm_backward.default": _of_group_norm,
    "aten.native_layer_norm_backward.default": _of_layer_norm,
}
"""By operator, how a call of it is changed."""


def divided(
    joint: Any, inputs: Sequence[Any], *, num_fwd_outputs: int, **options: Any
) -> tuple[Any, Any]:
    """Divide a graph into forward and backward; this is AOT Autograd's ``partition_fn``.

    Gradients of the inputs have the strides of the inputs.

    Args:
        joint: the ``GraphModule`` of both.
        inputs: the inputs of the forward, and the gradients of its outputs.
        num_fwd_outputs: how many of the results belong to the forward.
        options: of PyTorch's partitioner, which decides what is kept and what is computed again.
    """
    for node in joint.graph.nodes:
        change = _REWRITES.get(str(node.target)) if node.op == "call_function" else None
        if change is not None:
            change(node)
    joint.graph.eliminate_dead_code()
    joint.recompile()
    normalize_again(joint.graph)
    narrow_again(joint.graph, options.get("static_lifetime_input_indices") or ())
    partition = submodule("torch._functorch.partitioners").min_cut_rematerialization_partition
    forward, backward = partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)
    for part in (forward, backward):
        _type_random_states(part.graph)
    mark_kept(forward.graph, num_fwd_outputs)
    convert_early(backward.graph)
    _shape_gradients(backward, inputs[0])
    return forward, backward


def copy_updated(forward: Any, updated: Iterable[int]) -> None:
    """Let a forward keep copies of inputs that the module updates, not the inputs themselves.

    The backward needs the values before the update.

    Args:
        forward: the graph; what is kept is among its results.
        updated: positions of the inputs.
    """
    inputs = [node for node in forward.graph.nodes if node.op == "placeholder"]
    changed = {inputs[at] for at in updated}
    output = next(node for node in forward.graph.nodes if node.op == "output")
    with forward.graph.inserting_before(output):
        results = [
            called(item, torch.ops.aten.clone.default, (item,)) if item in changed else item
            for item in output.args[0]
        ]
    output.args = (tuple(results),)
    forward.recompile()


def _type_random_states(graph: Any) -> None:
    """Note types where a checkpoint draws with a kept state of the random generator."""
    with fake_mode():
        state = torch.empty(torch.get_rng_state().shape, dtype=torch.uint8)
    for node in graph.nodes:
        if str(node.target) == "run_and_save_rng_state":
            node.meta["val"] = (state, _drawn(*node.args))
            for taker in node.users:
                taker.meta["val"] = node.meta["val"][taker.args[1]]
        elif str(node.target) == "run_with_rng_state":
            kept, *call = node.args
            kept.meta["val"], node.meta["val"] = state, _drawn(*call)


def _drawn(target: Any, *args: Any) -> Any:
    with fake_mode():
        return target(*resolved(args, {}, Types()))


def _shape_gradients(backward: Any, primals: Sequence[Any]) -> None:
    """Note for each gradient of a dense input that it has the strides of the input."""
    (results,) = next(node for node in backward.graph.nodes if node.op == "output").args
    for result, primal in zip(results, primals, strict=False):
        known = isinstance(result, submodule("torch.fx").Node) and result.op == "call_function"
        if known and len(result.users) == 1 and isinstance(primal, torch.Tensor):
            if not _is_dense(primal):
                continue  # its gradient has memory for each element
            found = result.meta["val"]
            if isinstance(found, torch.Tensor) and found.shape == primal.shape:
                strided = torch.empty_strided(primal.shape, primal.stride(), dtype=found.dtype)
                result.meta["val"] = strided
