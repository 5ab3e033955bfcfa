"""Names of axes, and the canonical order in which shapes list them.

Each axis is one letter: N batch (output channels in systems that reuse the name for weights), C
channels, D H W depth, height and width, O I output and input channels, G groups, T time, L layers;
M and N rows and columns of a matrix, B matrices. Images of more than three spatial dimensions have
T, U and V outside D. ``a``, ``b``, ``c``, ... are positional axes, whose meaning is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["POSITIONAL", "canonical"]

POSITIONAL = "abcdefghijkl"
"""Positional axes. oneDNN supports at most twelve."""

# oneDNN's logical order, independent of the order in memory. In LDIO and LDIGO (recurrent weights)
# D is a direction and G a gate. The entries after MN are ncnn's axes, which have no batch, and
# OpenVINO's axes outside Z.
_ORDERS = (
    "X",
    "NC",
    "NCW",
    "NCHW",
    "NCDHW",
    "OI",
    "OIW",
    "OIHW",
    "OIDHW",
    "GOIW",
    "GOIHW",
    "GOIDHW",
    "TN",
    "TNC",
    "LDNC",
    "LDIO",
    "LDGO",
    "LDIGO",
    "MN",
    "BMN",
    "W",
    "HW",
    "CHW",
    "CDHW",
    "NCTDHW",
    "NCUTDHW",
    "NCVUTDHW",
)
_BY_SET = {frozenset(axes): tuple(axes) for axes in _ORDERS}


def canonical(axes: Iterable[str]) -> tuple[str, ...] | None:
    """Return the canonical order of a set of axes, or None if the set has no usual order.

    >>> canonical("NHWC"), canonical("cab"), canonical("NQ")
    (('N', 'C', 'H', 'W'), ('a', 'b', 'c'), None)
    """
    names = frozenset(axes)
    positions = tuple(POSITIONAL[: len(names)])
    return positions if names == frozenset(positions) else _BY_SET.get(names)
