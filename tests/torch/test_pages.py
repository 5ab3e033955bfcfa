"""README and docs: the blocks with PyTorch run; see ``tests/integration/test_pages.py``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pages import ROOT, Block, blocks, execute

import stridewise as sw

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

import stridewise.torch  # noqa: E402 (registers the backend)

PAGES = ["README.md", *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").glob("**/*.md")))]
CODE = [
    block
    for page in PAGES
    for block in blocks(page)
    if block.language == "python"
    and (page == "docs/from-pytorch.md" or re.search(r"\btorch\b", block.text))
]


def sources() -> dict[str, Any]:
    """Return what the blocks take as given."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(8, 10)

        def forward(self, x: Any) -> Any:
            return self.fc(self.conv(x).relu().mean((2, 3)))

    model, x = Net(), torch.randn(1, 3, 32, 32)
    images, labels = torch.randn(4, 3, 32, 32), torch.tensor([1, 2, 3, 4])
    return {
        "np": np, "sw": sw, "stridewise": stridewise, "torch": torch,
        "model": model, "module": model, "net": model,
        "x": x, "images": images, "batches": [(images, labels)],
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "fast": torch.compile(model.eval(), backend="stridewise"),
    }  # fmt: skip


@pytest.mark.parametrize("block", CODE, ids=str)
def test_blocks_of_python_run(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    execute(block, sources())
