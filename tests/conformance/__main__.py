"""Run ONNX's backend tests and say what became of them: ``python -m tests.conformance``.

``--update`` rewrites ``results.toml``, ``--failures`` prints why tests without an excuse fail.
"""

from __future__ import annotations

import argparse
import sys
from difflib import unified_diff

from .results import PATH, collect, render, unexplained
from .suite import Fallback, Native, run

parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
parser.add_argument("--update", action="store_true", help=f"rewrite {PATH.name}")
parser.add_argument("--failures", action="store_true", help="print unexcused failures")
arguments = parser.parse_args()

native = run(Native)
faults = unexplained(native.values())
results = collect(native, run(Fallback, native=native))
text = render(results)
print(", ".join(f"{count} {name}" for name, count in results.totals.items()))
print(f"{len(faults)} fail without an excuse")
if arguments.failures:
    print("\n".join(f"{name}: {error}" for name, error in faults.items()))
old = PATH.read_text(encoding="utf-8") if PATH.exists() else ""
if arguments.update:
    PATH.write_text(text, encoding="utf-8")
elif text != old:
    sys.stdout.writelines(unified_diff(old.splitlines(True), text.splitlines(True), "kept", "now"))
    sys.exit(1)
