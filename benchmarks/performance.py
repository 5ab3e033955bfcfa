"""Inserts results of the benchmarks into ``docs/performance.md`` and ``README.md``.

``make performance`` runs all benchmarks and then this script. The script itself only reads
``benchmarks/results``: ``python benchmarks/performance.py``. A test checks that the pages are up to
date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median

from blocking import APART
from blocking import Row as Blocked
from growth import Sweep, verdicts
from machine import Machine
from machine import table as machine_table
from model_tables import EXACT, FAST, NAMES, OURS, PEERS
from model_tables import Row as Raced
from roofline import Row, share_table

__all__ = ["PAGES", "generated"]

RESULTS = Path(__file__).parent / "results"
_ROOT = Path(__file__).parents[1]
_SHOWN = ("vgg16", "resnet50", "resnext101_32x8d", "mobilenet_v2", "efficientnet_b0", "unet")
"""Models of the short table: the highest and the lowest ratios are among them."""
PAGES = (_ROOT / "docs" / "performance.md", _ROOT / "README.md")


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _limits(rows: Sequence[Row], machine: Machine) -> str:
    """Return the times of batch 1 of each model, and their lower limits."""
    lines: list[list[str]] = []
    for row in rows:
        least = row.bound(machine.of(row.threads))
        lines.append(
            [
                row.model,
                f"{row.operations / 1e9:.2f}",
                f"{row.call_ns / 1e6:.2f}",
                f"{least.arithmetic / 1e6:.2f}",
                f"{least.memory / 1e6:.2f}",
                f"{least.direct / 1e6:.2f}",
                f"{least.roofline / 1e6:.2f}",
                f"{least.roofline / row.call_ns:.0%}",
                f"{least.direct / least.roofline:.2f}",
            ]
        )
    heads = [
        "model", "GFLOP", "measured, ms", "operations, ms", "bytes, ms", "direct limit, ms",
        "limit, ms", "reached", "direct limit / limit",
    ]  # fmt: skip
    return _markdown(heads, lines)


def _peers(rows: Sequence[Raced]) -> str:
    """Return the time of the fastest peer relative to Stridewise, at each batch size."""
    batches = sorted({row.batch for row in rows})
    lines: list[list[str]] = []
    for model in dict.fromkeys(row.model for row in rows):
        cells = [model]
        for batch in batches:
            row = next((row for row in rows if (row.model, row.batch) == (model, batch)), None)
            for ours in OURS:
                ratio = None if row is None else row.ratio(ours)
                cells.append("" if ratio is None else f"{ratio:.2f}")
        lines.append(cells)
    heads = ["model"]
    for batch in batches:
        heads += [f"batch {batch}", f"batch {batch}, exact"]
    return f"{_markdown(heads, lines)}\n\n{_who(rows)}"


def _one_image(rows: Sequence[Raced]) -> str:
    """Return the times of one image for some models, and the ratios for all of them."""
    single = [row for row in rows if row.batch == 1]
    lines = [
        [row.model, *(_number(value) for value in (_ours(row), row.best_ms, *map(row.ratio, OURS)))]
        for row in single
        if row.model in _SHOWN
    ]
    heads = ["model", "Stridewise, ms", "fastest other, ms", "ratio", "ratio, exact"]
    spans: list[str] = []
    for name, ours in (("the ratio", FAST), ("the exact ratio", EXACT)):
        found = [ratio for row in single if (ratio := row.ratio(ours)) is not None]
        span = f"{min(found):.2f} to {max(found):.2f}"
        spans.append(f"{name} is {span} (geometric mean {geometric_mean(found):.2f})")
    return f"{_markdown(heads, lines)}\n\nOver all {len(single)} networks, {' and '.join(spans)}."


def _ours(row: Raced) -> float | None:
    found = row.found.get(FAST)
    return None if found is None else found.median_ms


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _who(rows: Sequence[Raced]) -> str:
    """Return the peers that were compared, at each batch size."""
    parts: list[str] = []
    for batch in sorted({row.batch for row in rows}):
        raced = [row for row in rows if row.batch == batch]
        counts = {peer: sum(peer in row.found for row in raced) for peer in PEERS}
        names = [
            NAMES[peer] + ("" if count == len(raced) else f" (in {count} of {len(raced)} rows)")
            for peer, count in counts.items()
            if count
        ]
        parts.append(f"at batch {batch} {', '.join(names)}")
    return f"Compared with: {'; '.join(parts)}."


def _blocks(rows: Sequence[Blocked]) -> str:
    """Return the milliseconds per image of each model in each way, and the gain."""
    ways = list(dict.fromkeys(way for row in rows for way in row.samples_ns))
    heads = ["model", *(way if way == APART else f"{way} at a time" for way in ways)]
    lines = [
        [
            f"{row.model}, batch {row.batch}",
            *(
                f"{median(row.samples_ns[way]) / row.batch / 1e6:.2f} (**{row.gain(way):.2f}**)"
                if way in row.samples_ns
                else ""
                for way in ways
            ),
        ]
        for row in rows
    ]
    return _markdown(heads, lines)


def _parts() -> dict[str, str]:
    """Return the generated parts by name."""
    found = json.loads((RESULTS / "roofline.json").read_text())
    machine = Machine.from_json(found["machine"])
    rows = [row for row in map(Row.from_json, found["rows"]) if row.batch == 1]
    raced, avx512, zen5 = (
        [Raced.from_json(row) for row in json.loads((RESULTS / name).read_text())["rows"]]
        for name in ("models.json", "models-avx512.json", "models-zen5.json")
    )
    sweeps = [Sweep.from_json(item) for item in json.loads((RESULTS / "growth.json").read_text())]
    blocked = [
        Blocked.from_json(item) for item in json.loads((RESULTS / "blocking.json").read_text())
    ]
    return {
        "machine": f"{machine.name}, {machine.date}:\n\n{machine_table(machine, ('read', 'copy'))}",
        "limits": _limits(rows, machine),
        "shares": share_table(rows, machine),
        "peers": _peers(raced),
        "peers_batch_1": _one_image(zen5),
        "peers_avx512": _peers(avx512),
        "peers_zen5": _peers(zen5),
        "growth": verdicts(sweeps),
        "blocking": _blocks(blocked),
    }


def generated() -> dict[Path, str]:
    """Return the updated pages; each page contains some of the generated parts."""
    pages = {path: path.read_text(encoding="utf-8") for path in PAGES}
    for name, text in _parts().items():
        start, end = (
            f"<!-- {name}: made by benchmarks/performance.py -->\n",
            f"\n<!-- end of {name} -->",
        )
        place = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
        new = start + text + end
        having = [path for path, page in pages.items() if place.search(page)]
        if not having:
            raise ValueError(f"no page has a place for the part {name!r}")
        for path in having:
            pages[path] = new.join(place.split(pages[path]))
    return pages


def main() -> None:
    """Write the pages."""
    for path, page in generated().items():
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
