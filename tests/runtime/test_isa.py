"""Suites of executors and of naive kernels once more, on the instruction sets of older machines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = (
    "conv_2d_17 or conv_3d_17 or conv_depthwise or conv_grouped or chain_17 or unaries_17 or "
    "binaries_variable_channels or pools_2d or norms or products or reductions_2d or pads or "
    "softmaxes_2d or nhwc or concats or dense or shuffle_24 or post_ops or expressions or chains_24"
)


EXECUTORS = ("test_execute.py", f"test_all_executors_agree and ({CASES})")
NAIVE_KERNELS = ("test_default_costs.py", "naive")


@pytest.mark.parametrize(
    ("isa", "file", "chosen"),
    [("AVX2", *EXECUTORS), ("SSE41", *EXECUTORS), ("AVX2", *NAIVE_KERNELS)],
    ids=["AVX2", "SSE41", "naive kernels with AVX2"],
)
def test_suites_on_an_older_instruction_set(isa, file, chosen):
    suite = Path(__file__).with_name(file)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", "--tb=short"]
    command += [f"{suite}", "-k", chosen]
    done = subprocess.run(
        command,
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa},
        cwd=suite.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize(("isa", "block"), [("AVX2", 8), ("SSE41", 8)])
def test_blocks_are_as_wide_as_the_instruction_set(isa, block):
    code = (
        "from stridewise.targets.onednn.target import onednn_cpu;"
        "from stridewise.runtime.machine.machine import this_machine;"
        "m = this_machine(1); print(m.isa, onednn_cpu(m).kinds[-1].block)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [isa, str(block)]
