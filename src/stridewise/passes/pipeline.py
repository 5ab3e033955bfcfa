"""The order of the passes, and running them.

A pass is a function from a graph to a graph and the refusals that explain what it left alone. The
order is the only thing that passes know of each other. Passes that depend on kernels ask an
:class:`Ability`, which a target gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from stridewise.graph import Graph, Refusal
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes.ability import Ability
from stridewise.passes.fold_constants import fold_constants
from stridewise.passes.fold_pad import fold_pad
from stridewise.passes.fold_scale import fold_scale
from stridewise.passes.freeze_parameters import freeze_parameters
from stridewise.passes.fuse_post_ops import fuse_post_ops
from stridewise.passes.recognize_activations import recognize_activations
from stridewise.passes.recognize_norms import recognize_norms
from stridewise.passes.recognize_shuffle import recognize_shuffle
from stridewise.passes.remove_dead import remove_dead
from stridewise.passes.remove_no_ops import remove_no_ops
from stridewise.passes.sink_transposes import sink_transposes
from stridewise.passes.skip_integers import skip_integers
from stridewise.passes.split_resize import split_resize
from stridewise.passes.store_parameters import store_parameters

__all__ = ["Pass", "Simplified", "passes_for", "simplify"]

Pass = Callable[[Graph], tuple[Graph, tuple[Refusal, ...]]]


def passes_for(ability: Ability, *, keep_parameters: bool = False) -> tuple[tuple[str, Pass], ...]:
    """Return the passes by name, in order.

    Args:
        ability: what the kernels of the target can do.
        keep_parameters: whether parameters stay as they are; else they become constants.
    """
    return (
        ("freeze_parameters", partial(freeze_parameters, keep_parameters=keep_parameters)),
        ("fold_constants", fold_constants),
        ("remove_no_ops", remove_no_ops),
        ("skip_integers", skip_integers),
        ("split_resize", partial(split_resize, ability=ability)),
        ("recognize_shuffle", recognize_shuffle),
        ("recognize_norms", recognize_norms),
        ("sink_transposes", sink_transposes),
        ("recognize_activations", recognize_activations),
        ("fold_scale", fold_scale),
        ("fold_pad", fold_pad),
        ("fuse_post_ops", partial(fuse_post_ops, ability=ability)),
        ("remove_dead", remove_dead),
        *((("store_parameters", store_parameters),) if keep_parameters else ()),
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
    graph: Graph, passes: Sequence[tuple[str, Pass]], *, check: bool = False
) -> Simplified:
    """Run passes over a graph.

    Args:
        graph: what to simplify; it is not changed.
        passes: names and functions, in order; see :func:`passes_for`.
        check: verify the graph, types included, after every pass.

    Raises:
        GraphError: with ``check``, a pass broke an invariant.
    """
    before = len(graph.nodes)
    refusals: list[Refusal] = []
    for _, run in passes:
        graph, refused = run(graph)
        refusals += refused
        if check:
            verify(graph, infer)
    return Simplified(graph, tuple(refusals), before)
