"""The example for PyTorch runs, and its results are right."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_example(capsys):
    from examples.from_pytorch import main

    main(side=64)
    text = capsys.readouterr().out
    errors = [float(found) for found in re.findall(r"greatest difference (\S+)", text)]
    assert len(errors) == 6
    assert max(errors) < 1e-4
    assert text.count("none loses it") == 2
