"""Programs and PyTorch in one process share threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

_RUNS = """
import os
import threading
import time

import torch

import stridewise as sw

torch.set_num_threads(2)
torch.manual_seed(0)
large = torch.randn(1 << 20)
module = torch.nn.Sequential(
    torch.nn.Conv2d(8, 32, 3), torch.nn.Softmax(1), torch.nn.Conv2d(32, 8, 3)
).eval()
x = torch.randn(2, 8, 40, 40)
found = []

def call(function):
    for _ in range(10):
        large.relu()  # wakes the workers of PyTorch
        found.append(torch.allclose(function(x), module(x), 1e-4, 1e-5))

with torch.inference_mode():
    compiled = torch.compile(module, backend="stridewise", options={"threads": 2})
    call(compiled)
    call(sw.compile(module, (x,), threads=2))
time.sleep(0.5)  # threads end on their own
before = len(os.listdir("/proc/self/task"))
with torch.inference_mode():
    call(compiled)
print(len(os.listdir("/proc/self/task")) - before)

def other():
    with torch.inference_mode():
        call(compiled)

threads = [threading.Thread(target=other) for _ in range(3)]
for thread in threads:
    thread.start()
with torch.inference_mode():
    call(compiled)
for thread in threads:
    thread.join()
print(len(found), all(found), torch.get_num_threads())
"""


def test_programs_run_on_the_workers_of_pytorch() -> None:
    command = [sys.executable, "-W", "ignore", "-c", _RUNS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["0", "70 True 2"]
