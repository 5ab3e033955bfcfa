"""The table of the passes, and running them.

A pass rewrites a graph and records a refusal for what it left alone. The order of the table is the
only dependency between passes. Passes that depend on kernels ask an :class:`Ability`, which a
target gives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from stridewise.classes import dataclass
from stridewise.errors import InputError
from stridewise.graph import Graph, Refusal
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes.ability import Ability
from stridewise.passes.clip_windows import clip_windows
from stridewise.passes.compute_on_reals import compute_on_reals
from stridewise.passes.flip_windows import flip_windows
from stridewise.passes.fold_constants import fold_constants
from stridewise.passes.fold_pad import fold_pad
from stridewise.passes.fold_scale import fold_scale
from stridewise.passes.freeze_parameters import freeze_parameters
from stridewise.passes.fuse_attention import fuse_attention
from stridewise.passes.fuse_norm_masks import fuse_norm_masks
from stridewise.passes.fuse_pointwise import fuse_pointwise
from stridewise.passes.fuse_post_ops import fuse_post_ops
from stridewise.passes.hoist_factors import hoist_factors
from stridewise.passes.hoist_updates import hoist_updates
from stridewise.passes.keep_places import keep_places
from stridewise.passes.merge_branches import merge_branches
from stridewise.passes.merge_groups import merge_groups
from stridewise.passes.merge_moves import merge_moves
from stridewise.passes.multiply_floats import multiply_floats
from stridewise.passes.name_grids import name_grids
from stridewise.passes.nest_concats import nest_concats
from stridewise.passes.part_axes import part_axes
from stridewise.passes.place_indices import place_indices
from stridewise.passes.recognize_activations import recognize_activations
from stridewise.passes.recognize_lrn import recognize_lrn
from stridewise.passes.recognize_norms import recognize_norms
from stridewise.passes.recognize_shuffle import recognize_shuffle
from stridewise.passes.remove_dead import remove_dead
from stridewise.passes.remove_no_ops import remove_no_ops
from stridewise.passes.sink_concats import sink_concats
from stridewise.passes.sink_reshapes import sink_reshapes
from stridewise.passes.sink_transposes import sink_transposes
from stridewise.passes.skip_integers import skip_integers
from stridewise.passes.split_products import split_products
from stridewise.passes.split_resize import split_resize
from stridewise.passes.store_parameters import store_parameters
from stridewise.passes.tabulate import tabulate
from stridewise.passes.turn_products import turn_products
from stridewise.passes.unstack import unstack

__all__ = ["Pass", "Simplified", "check_passes", "passes_for", "select", "simplify"]


@dataclass(frozen=True, slots=True)
class Pass:
    """A rewriting of graphs.

    Attributes:
        name: as on the command line and in refusals.
        help: what it does, in one line.
        run: returns the new graph, and refusals that say what was left alone and why.
        needs: what it asks of the target's kernels; "" for a pass that is the same for all.
    """

    name: str
    help: str
    run: Callable[[Graph], tuple[Graph, tuple[Refusal, ...]]]
    needs: str = ""


_IMPORTED = (
    Pass(
        "name_grids",
        "rounds tensors to the grids that `quantize_linear` defines (quantized models)",
        name_grids,
    ),
    Pass("fold_constants", "computes nodes whose inputs are all constants", fold_constants),
    Pass(
        "place_indices",
        "replaces gathers and scatters with constant indices by slices or copies of rows",
        place_indices,
    ),
    Pass(
        "remove_no_ops",
        "removes identities, empty pads, full slices, concats of one tensor, expansions that "
        "elementwise operators read; shortens chains of reshapes",
        remove_no_ops,
    ),
    Pass(
        "multiply_floats",
        "multiplies in float32 where products of integers become floats (dynamically quantized "
        "models)",
        multiply_floats,
    ),
    Pass(
        "skip_integers",
        "removes conversions of values to integers and back (quantized models)",
        skip_integers,
    ),
    Pass(
        "compute_on_reals",
        "computes quantized models on real numbers, which plans may store as integers",
        compute_on_reals,
    ),
)
"""The first passes on constants: they drop what only the file needs."""

_RECOGNIZED = (
    Pass(
        "clip_windows",
        "shortens windows of poolings to the elements that lie inside of the image",
        clip_windows,
    ),
    Pass(
        "flip_windows",
        "replaces transposed convolutions of stride 1 by convolutions",
        flip_windows,
    ),
    Pass(
        "recognize_shuffle",
        "turns Reshape, Transpose, Reshape into `channel_shuffle`",
        recognize_shuffle,
    ),
    Pass(
        "recognize_norms",
        "joins normalizations that exporters write as several nodes",
        recognize_norms,
    ),
    Pass(
        "part_axes",
        "transposes feature maps instead of the tokens that are made by merging their axes",
        part_axes,
    ),
    Pass("sink_transposes", "moves transposes down until they cancel", sink_transposes),
    Pass(
        "recognize_activations",
        "joins activations that exporters write as several nodes",
        recognize_activations,
    ),
    Pass(
        "unstack",
        "replaces a reduction over a few stacked tensors by elementwise operators on them",
        unstack,
    ),
    Pass(
        "sink_reshapes",
        "moves reshapes down past elementwise operators, so that earlier kernels can compute these",
        sink_reshapes,
    ),
    Pass(
        "nest_concats",
        "lets a concatenation read the result of an earlier one instead of that one's operands",
        nest_concats,
    ),
)
"""The passes that find operators, and move others to where kernels take them."""

_FOLDED = (
    Pass(
        "fold_scale",
        "folds per-channel scales and shifts (batch norm, bias) into their producer or reader",
        fold_scale,
    ),
    Pass(
        "split_products",
        "splits products with constant weights whose results are used in parts",
        split_products,
    ),
    Pass(
        "hoist_factors",
        "multiplies the weights of a product by a constant factor of its result",
        hoist_factors,
    ),
    Pass(
        "fold_pad",
        "adds the padding of a `Pad` to that of the convolution or pooling after it",
        fold_pad,
    ),
    Pass(
        "recognize_lrn",
        "joins local response normalizations, which PyTorch writes as several nodes",
        recognize_lrn,
    ),
    Pass(
        "merge_branches",
        "merges convolutions and scales that read one value and whose results are added",
        merge_branches,
    ),
    Pass(
        "turn_products",
        "lets matrix products read transposed operands and write transposed results",
        turn_products,
    ),
    Pass(
        "merge_moves",
        "merges reshapes, transposes, slices, concats and gathers into one copy of each element",
        merge_moves,
    ),
)
"""The passes between `sink_concats` and the fusions; they depend on no target and no option."""


def _fused(ability: Ability) -> tuple[Pass, ...]:
    """Return the passes that join operators which one kernel computes."""
    return (
        Pass(
            "tabulate",
            "replaces a function of one quantized tensor by a lookup table of its results",
            partial(tabulate, ability=ability),
            needs="which expressions a kernel computes",
        ),
        Pass(
            "keep_places",
            "lets gradients of max pooling read the positions of maxima instead of the source",
            partial(keep_places, ability=ability),
            needs="which element types kernels compute in",
        ),
        Pass(
            "fuse_attention",
            "joins the products and the softmax of attention, so that no scores are stored",
            partial(fuse_attention, ability=ability),
            needs="which attention a kernel computes",
        ),
        Pass(
            "fuse_norm_masks",
            "fuses the mask of an activation into the gradient of the batch norm before it",
            partial(fuse_norm_masks, ability=ability),
            needs="which element types kernels compute in",
        ),
        Pass(
            "fuse_post_ops",
            "fuses activations and additions into the kernel that produces their operand",
            partial(fuse_post_ops, ability=ability),
            needs="which post-ops a kernel takes",
        ),
        Pass(
            "fuse_pointwise",
            "joins elementwise operators into expressions, computed in one pass over memory",
            partial(fuse_pointwise, ability=ability),
            needs="which expressions a kernel computes",
        ),
    )


def passes_for(ability: Ability, *, keep_parameters: bool = False) -> tuple[Pass, ...]:
    """Return the passes, in order.

    Args:
        ability: what the kernels of the target can do.
        keep_parameters: whether parameters stay as they are; else they become constants.
    """
    freeze = partial(freeze_parameters, keep_parameters=keep_parameters)
    store = Pass(
        "store_parameters",
        "stores mutable parameters in plain formats if nodes read them as data",
        store_parameters,
    )
    return (
        Pass(
            "freeze_parameters",
            "turns parameters and states without an update into constants",
            freeze,
        ),
        *_IMPORTED,
        Pass(
            "split_resize",
            "replaces a resize that no kernel computes by one matrix product per axis",
            partial(split_resize, ability=ability),
            needs="which resizes a kernel computes",
        ),
        *_RECOGNIZED,
        Pass(
            "merge_groups",
            "merges convolutions of slices of channels into one convolution with groups",
            merge_groups,
        ),
        Pass(
            "sink_concats",
            "moves concatenations down past scales and activations, so that earlier kernels "
            "can compute these",
            partial(sink_concats, ability=ability),
            needs="which post-ops a kernel takes",
        ),
        *_FOLDED,
        *_fused(ability),
        Pass("remove_dead", "removes nodes and constants that no output needs", remove_dead),
        Pass(
            "hoist_updates",
            "computes updates, and stores outputs in the caller's order, as early as possible",
            hoist_updates,
        ),
        *((store,) if keep_parameters else ()),
    )


def check_passes(where: str, names: Collection[str], passes: Sequence[Pass]) -> None:
    """Check that all names are those of passes.

    Args:
        where: what an error message calls the list of names.
        names: what a user gave.
        passes: the passes that there are.

    Raises:
        InputError: a name is unknown; the message has the nearest name.
    """
    known = [item.name for item in passes]
    for name in names:
        if name not in known:
            from difflib import get_close_matches  # noqa: PLC0415 (for the message only)

            near = get_close_matches(name, known, 1, 0.0)[0]
            fix = f"did you mean {near}? `stridewise passes` lists all"
            raise InputError.at(where, expected="the name of a pass", found=repr(name), fix=fix)


def select(
    passes: Sequence[Pass], only: Collection[str] | None = None, skip: Collection[str] = ()
) -> tuple[Pass, ...]:
    """Return some passes, in the order of the table.

    Args:
        passes: the table; see :func:`passes_for`.
        only: names of the passes to take; None for all.
        skip: names of passes to leave out.

    Raises:
        InputError: a name is unknown.
    """
    check_passes("passes", only or (), passes)
    check_passes("skipped passes", skip, passes)
    return tuple(
        item for item in passes if (only is None or item.name in only) and item.name not in skip
    )


@dataclass(frozen=True, slots=True)
class Simplified:
    """The result of the pipeline.

    Attributes:
        graph: the simplified graph.
        refusals: what the passes left alone, and why, in the order of the passes.
        before: number of nodes before.
    """

    graph: Graph
    refusals: tuple[Refusal, ...]
    before: int


def simplify(
    graph: Graph,
    passes: Sequence[Pass],
    *,
    check: bool = False,
    after: Callable[[Pass, Graph], None] | None = None,
) -> Simplified:
    """Run passes over a graph.

    Args:
        graph: what to simplify; it is not changed.
        passes: in order; see :func:`passes_for`.
        check: verify the graph, types included, after every pass.
        after: called with each pass and the graph that it returned.

    Raises:
        GraphError: with ``check``, a pass broke an invariant.
    """
    before = len(graph.nodes)
    refusals: list[Refusal] = []
    for item in passes:
        graph, refused = item.run(graph)
        refusals += refused
        if check:
            verify(graph, infer)
        if after is not None:
            after(item, graph)
    return Simplified(graph, tuple(refusals), before)
