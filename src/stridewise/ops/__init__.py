"""Operators: types, NumPy reference, origin rule. One file for each family.

Each file ends in its registration. Every file of this folder is imported before a name of the
package is first used; a stored model runs without. Kernels are in ``stridewise.targets``.
"""

from typing import TYPE_CHECKING, Any

from stridewise.discovery import at_first_use, modules_in

if TYPE_CHECKING:
    from stridewise.ops.layers import GraphBuilder
    from stridewise.ops.registry import OPS, OpSpec, evaluate, infer

__all__ = ["OPS", "GraphBuilder", "OpSpec", "evaluate", "infer"]

_find = at_first_use(
    __name__,
    {
        "stridewise.ops.layers": ("GraphBuilder",),
        "stridewise.ops.registry": ("OPS", "OpSpec", "evaluate", "infer"),
    },
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        modules_in(__name__)  # else the table would lack operators
    return _find(name)
