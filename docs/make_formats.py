"""Write what docs/formats.md has from a machine: its pictures and its table of names.

Run it after a change of a dialect or of the pictures: ``python docs/make_formats.py``. A test
compares what it would write with what is there.
"""

from __future__ import annotations

import re
from pathlib import Path

from stridewise.formats import Format, Parameters, parse
from stridewise.formats.dialects import DIALECTS
from stridewise.formats.dialects.equivalents import Equivalent, equivalent
from stridewise.formats.picture import svg

DOCS = Path(__file__).parent
PAGE = DOCS / "formats.md"

SHAPE = (2, 5, 2, 2)
PICTURES = {
    "nchw": (parse("NCHW"), "NCHW: one channel after the other"),
    "nhwc": (parse("NHWC"), "NHWC: all channels of a pixel side by side"),
    "nchw4c": (parse("nChw4c"), "nChw4c: four channels of a pixel side by side"),
    "oihw4i4o": (parse("OIhw4i4o"), "OIhw4i4o: blocks of 4 inputs times 4 outputs"),
    "fractal_z": (
        parse("FRACTAL_Z", "ascend", Parameters(block=4)),
        "FRACTAL_Z with C0 = 4: blocks of 16 outputs times 4 inputs",
    ),
}

# Formats by their digits, and the block of names that leave it open.
ROWS: tuple[tuple[str, int | None], ...] = (
    ("N C W", None),
    ("N W C", None),
    ("N C H W", None),
    ("N H W C", None),
    ("C H W N", None),
    ("N C D H W", None),
    ("N D H W C", None),
    ("N C H W 4*C", 4),
    ("N C H W 8*C", 8),
    ("N C H W 16*C", 16),
    ("N C H W 32*C", 32),
    ("N C D H W 16*C", 16),
    ("N C D H W 32*C", 32),
    ("C N H W 4*C", 4),
    ("N C H W 16*N 16*C", None),
    ("N H W C; pad C 4", None),
    ("N H W C; pad C 8", None),
    ("O I H W", None),
    ("O H W I", None),
    ("H W I O", None),
    ("H W O I", None),
    ("I O H W", None),
    ("I H W O", None),
    ("O I H W 4*I", 4),
    ("O I H W 16*O", 16),
    ("O I H W 8*I 8*O", 8),
    ("O I H W 16*I 16*O", 16),
    ("O I H W 16*O 16*I", None),
    ("O I H W 4*I 16*O 4*I", None),
    ("O H W I 8*O 4*I", None),
    ("I H W O 16*O 16*I", 16),
    ("O I D H W", None),
    ("D H W I O", None),
    ("O I D H W 16*I 16*O", None),
    ("M N", None),
    ("N M", None),
    ("N M 16*M 16*N", 16),
    ("M N 16*M 16*N", 16),
    ("M N 8*M 128*N", None),
)
_LEFT_OUT = ("stridewise", "cute")
_NEAR, _RENAMED = "\u2248", "\u2020"


def _format(digits: str) -> Format:
    walk, *pads = digits.split("; ")
    order = [word for word in walk.split() if "*" not in word]
    usual = ("NC", "NCW", "NCHW", "NCDHW", "OIHW", "OIDHW", "MN")
    axes = next(axes for axes in usual if set(axes) == set(order))
    return parse("; ".join([f"{','.join(axes)}: walk {walk}", *pads]), "stridewise")


def _best(fmt: Format, dialect: str, block: int | None) -> tuple[Equivalent, Parameters]:
    """Return the best name, and the parameters that it takes, as few as can be."""
    tried = [Parameters(), Parameters(rank=fmt.rank), Parameters(rank=fmt.rank, block=block)]
    found = [(equivalent(fmt, dialect, given), given) for given in tried]
    exact = [pair for pair in found if pair[0].exact]
    named = [pair for pair in found if pair[0].name is not None]
    return (exact or named or found)[0]


def _cell(fmt: Format, dialect: str, block: int | None) -> str:
    found, given = _best(fmt, dialect, block)
    if found.name is None:
        return ""
    marks = ("" if found.exact else _NEAR) + (_RENAMED if "stand for" in found.note else "")
    blocked = f" block={given.block}" if given.block is not None else ""
    return f"`{found.name}`{blocked}{marks}"


def table() -> str:
    """Return the table of what systems call common formats."""
    rows = [(digits, _format(digits), block) for digits, block in ROWS]
    cells = {
        dialect: [_cell(fmt, dialect, block) for _, fmt, block in rows]
        for dialect in DIALECTS
        if dialect not in _LEFT_OUT
    }
    used = {dialect: column for dialect, column in cells.items() if any(column)}
    head = ["walk", *(DIALECTS[dialect].title for dialect in used)]
    lines = [head, ["---"] * len(head)]
    lines += [
        [f"`{digits}`", *(column[row] for column in used.values())]
        for row, (digits, _, _) in enumerate(rows)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _between(page: str, name: str, text: str) -> str:
    """Return a page with a generated part replaced."""
    start, end = f"<!-- {name}: made by docs/make_formats.py -->\n", f"\n<!-- end of {name} -->"
    found = re.search(f"{re.escape(start)}.*?{re.escape(end)}", page, re.DOTALL)
    if found is None:
        raise ValueError(f"{PAGE.name} has no place for the {name}")
    return page[: found.start()] + start + text + end + page[found.end() :]


def generated() -> dict[Path, str]:
    """Return every file as it should be."""
    pictures = {
        DOCS / "pictures" / f"{name}.svg": svg(fmt, SHAPE, title=title)
        for name, (fmt, title) in PICTURES.items()
    }
    page = PAGE.read_text(encoding="utf-8")
    return {PAGE: _between(page, "table", table()), **pictures}


def main() -> None:
    """Write the pictures and the table."""
    (DOCS / "pictures").mkdir(exist_ok=True)
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
