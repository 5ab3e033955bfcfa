"""Tests of this folder need no native code; whatever asks for it fails."""

from __future__ import annotations

import pytest

from stridewise.runtime.binding import library


@pytest.fixture(autouse=True)
def no_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("a pure test asked for the native core")

    monkeypatch.setattr(library, "_load", refuse)
