"""Tests of the front end for PyTorch and of the backend start without captured graphs."""

from __future__ import annotations

import gc
import sys
from importlib.util import find_spec

import pytest

# Doctests are collected from all modules.
collect_ignore = (
    []
    if find_spec("torch")
    else ["aten_graphs.py", "compiled_modules.py", "module_graphs.py", "random_modules.py"]
)


@pytest.fixture(autouse=True)
def _fresh():
    """Forget captured graphs before each test, and draw the same numbers in each."""
    torch = sys.modules["torch"]  # tests that need it have imported it
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.fixture
def no_graphs():
    """Let graphs of earlier tests go: reports name all that are alive."""
    gc.collect()
