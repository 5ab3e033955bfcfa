"""The parts of the core that share data between threads, as a program of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = (
    "tests/native/threads_test.cpp",
    "native/executor/gate.cpp",
    "native/threads/openmp.cpp",
    "native/threads/processors.cpp",
    "native/threads/team.cpp",
    "native/threads/teams.cpp",
)


@pytest.mark.parametrize("sanitizer", ["", "thread", "address,undefined"])
def test_gate_shares_and_teams(sanitizer: str, tmp_path: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler; the core was built elsewhere")
    program = tmp_path / "threads"
    flags = [f"-fsanitize={sanitizer}"] if sanitizer else []
    command = [compiler, "-std=c++17", "-O1", "-g", "-pthread", *flags, "-I", str(ROOT / "native")]
    command += [str(ROOT / source) for source in SOURCES]
    built = subprocess.run(
        [*command, "-o", str(program)], capture_output=True, text=True, check=False
    )
    if sanitizer and "cannot find" in built.stderr:
        pytest.skip(f"the compiler has no library for -fsanitize={sanitizer}")
    assert built.returncode == 0, built.stderr
    done = subprocess.run([program], capture_output=True, text=True, timeout=300, check=False)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer does not run under this kernel's address layout")
    assert done.stdout == "passed\n", done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
