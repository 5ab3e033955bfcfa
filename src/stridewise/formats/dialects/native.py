"""Stridewise's own notation, which can express every format.

A list of axes in canonical order, then clauses, outermost digit first::

    N,C,H,W: fuse K = H W C; walk K N 16*N 16*K; pad C 4

``16*N`` is a block, ``4*O@8`` a block with a step, ``|64`` a pitch. A pad may end in
``unspecified`` or ``divide``. :attr:`~stridewise.formats.format.Format.text` prints this notation.
"""

from __future__ import annotations

import re

from stridewise.formats.data import FormatData
from stridewise.formats.dialects.dialect import Dialect, Parameters
from stridewise.formats.dialects.notation import read

__all__ = ["DIALECT"]

_WHOLE = re.compile(r"(?P<axes>[^:\s]*): (?P<clauses>.+)")


def _parse(text: str, parameters: Parameters) -> FormatData | None:
    del parameters
    match = _WHOLE.fullmatch(text)
    if match is None:
        return None
    return read(tuple(axis for axis in match["axes"].split(",") if axis), match["clauses"])


DIALECT = Dialect(
    "stridewise",
    "Stridewise",
    _parse,
    names=tuple,
    spell=lambda fmt, parameters: fmt.text,  # noqa: ARG005
    example="N,C,H,W: walk N C H W 16*C",
)
