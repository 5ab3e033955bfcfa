"""``python -m benchmarks.peers``: the command ``stridewise bench`` with further runtimes."""

from __future__ import annotations

from stridewise.cli.bench import bench_command
from stridewise.cli.main import main

from .runtimes import PEERS, USUAL

main(bench_command(PEERS, USUAL))
