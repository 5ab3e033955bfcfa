"""Names of axes, and the canonical order in which shapes list them.

One letter an axis: N batch (of convolution weights in systems that reuse the name: output
channels), C channels, D H W depth, height and width, O I output and input channels, G groups,
T time, L layers; M and N rows and columns of a matrix, B matrices. In images of more than three
dimensions T, U and V lie beyond D. ``a``, ``b``, ``c``, ... are positions whose meaning nobody
knows.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["POSITIONAL", "canonical"]

POSITIONAL = "abcdefghijkl"
"""Axes by position; twelve, the most that oneDNN takes."""

# oneDNN's logical order, whatever the order in memory. In LDIO and LDIGO (recurrent weights) D is
# a direction and G a gate. Behind MN: ncnn's axes, which have no batch, and OpenVINO's beyond Z.
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
    """Return the canonical order of a set of axes, or None where none is customary.

    >>> canonical("NHWC"), canonical("cab"), canonical("NQ")
    (('N', 'C', 'H', 'W'), ('a', 'b', 'c'), None)
    """
    names = frozenset(axes)
    positions = tuple(POSITIONAL[: len(names)])
    return positions if names == frozenset(positions) else _BY_SET.get(names)
