"""The fuzzer: mutated model files through import, simplify, derive, plan and, for small ones, run.

    python -m tests.fuzz --count 10000 --seed 0 --findings build/fuzz
    python -m tests.fuzz --count 2000 --fallback

Inputs are determined by the seed and their number. They are checked in a process of their own with
limited memory, which is killed when an input takes too long. A finding is an exception that is no
StridewiseError, a process that died, or an input that took too long; the input and what happened
are written into the folder of findings. With ``--fallback``, ONNX Runtime is part of what is
tried: about half of the inputs are made from models of which it computes something.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.seeds import content_of
from tests.fuzz.stages import work

SECONDS = 10.0
"""Of the processor; on a busy machine ten times as long may pass."""


def _processor_time(process: int | None) -> float:
    """Return the seconds that all threads of a process have computed."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@dataclass
class Session:
    """A run of the fuzzer: where it is, and what it has found."""

    seed: int
    last: int
    findings: Path
    fallback: bool = False
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, -1)
    reasons: Counter[str] = field(default_factory=Counter)

    def finding(self, number: int, text: str) -> None:
        lines = text.strip().splitlines()
        reason = " | ".join([*(line.strip() for line in lines if "src/stridewise" in line)][-1:])
        reason += " " + next((line for line in reversed(lines) if "Error" in line), lines[-1])
        self.reasons[reason[:200]] += 1
        if self.reasons[reason[:200]] > 3:
            return
        self.findings.mkdir(parents=True, exist_ok=True)
        stem = self.findings / f"{self.seed}-{number}{'-fallback' if self.fallback else ''}"
        content = content_of(self.seed, number, fallback=self.fallback)
        stem.with_suffix(".onnx").write_bytes(content)
        stem.with_suffix(".txt").write_text(text, encoding="utf-8")
        print(f"\ninput {number}: {text.strip()[-1500:]}", flush=True)

    def until_failure(self, first: int) -> int:
        """Run a process from an input on; return the next input when it has ended."""
        context = multiprocessing.get_context("spawn")
        receive, send = context.Pipe(duplex=False)
        worker = context.Process(
            target=work, args=(send, self.seed, first, self.last, self.fallback)
        )
        worker.start()
        send.close()
        begin, began = time.perf_counter(), False
        number = first
        used = 0.0
        try:
            while True:
                if not receive.poll(1.0):
                    took = _processor_time(worker.pid) - used
                    passed = time.perf_counter() - begin
                    if began and (took > SECONDS or passed > 10 * SECONDS):
                        self.outcomes["slow"] += 1
                        self.finding(number, f"{took:.1f} s of the processor, {passed:.1f} s")
                        return number + 1
                    continue
                number, outcome, text = receive.recv()
                if outcome == "end":
                    return self.last
                if outcome in ("begin", "made"):
                    began, begin, used = True, time.perf_counter(), _processor_time(worker.pid)
                    continue
                self.outcomes[outcome] += 1
                self.slowest = max(self.slowest, (_processor_time(worker.pid) - used, number))
                if outcome == "crash":
                    self.finding(number, text)
                if number % 1000 == 999:
                    print(number + 1, dict(self.outcomes), flush=True)
        except EOFError:
            worker.join()
            if not began:
                raise SystemExit("the process of the fuzzer did not start") from None
            self.outcomes["died"] += 1
            self.finding(number, f"the process died with status {worker.exitcode}")
            return number + 1
        finally:
            worker.kill()
            worker.join()


def main() -> int:
    """Run the fuzzer; return 1 where it found something."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz"))
    parser.add_argument(
        "--fallback", action="store_true", help="with ONNX Runtime for what is not native"
    )
    arguments = parser.parse_args()
    begin = time.perf_counter()
    last = arguments.first + arguments.count
    session = Session(arguments.seed, last, arguments.findings, arguments.fallback)
    number = arguments.first
    while number < session.last:
        number = session.until_failure(number)
    found = {
        "inputs": arguments.count,
        "seconds": round(time.perf_counter() - begin),
        "outcomes": dict(session.outcomes.most_common()),
        "slowest": {"seconds": round(session.slowest[0], 2), "input": session.slowest[1]},
        "findings": dict(session.reasons.most_common()),
    }
    print(json.dumps(found, indent=2))
    return 1 if session.reasons else 0


if __name__ == "__main__":
    sys.exit(main())
