"""The fuzzer itself, and a few of its inputs in every run of the tests."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tests.fuzz.mutate import mutated
from tests.fuzz.seeds import content_of, foreign_seeds, seeds
from tests.fuzz.stages import check


def test_seeds_are_sound() -> None:
    outcomes = Counter(check(content)[0] for content in dict.fromkeys(seeds()))
    # One has external data, which bytes cannot have, and some only shapes to be computed.
    assert outcomes["ran"] > 25
    assert set(outcomes) <= {"ran", "planned", "ModelError", "DamageError"}


def test_foreign_seeds_run_with_the_fallback_alone() -> None:
    for content in foreign_seeds():
        assert check(content, fallback=True) == ("ran", "")
        assert check(content)[0] in ("UnsupportedError", "UnknownValueError")


def test_inputs_are_determined_by_their_numbers() -> None:
    found: set[bytes] = set()
    for number in range(30):
        try:
            content = mutated(np.random.default_rng([5, number]), seeds())
        except (ValueError, TypeError):  # some mutations make no sense to protobuf
            continue
        assert content_of(5, number) == content
        found.add(content)
    assert len(found) > 20


def test_what_escapes_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_options: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("stridewise.load", broken)
    outcome, text = check(seeds()[0])
    assert outcome == "crash"
    assert "KeyError: 'x'" in text


@pytest.mark.parametrize("fallback", [False, True])
def test_nothing_escapes(fallback: bool) -> None:
    outcomes: Counter[str] = Counter()
    for number in range(150):
        try:
            content = content_of(0, number, fallback=fallback)
        except (ValueError, TypeError):
            continue
        outcome, text = check(content, fallback=fallback)
        assert outcome != "crash", (number, text)
        outcomes[outcome] += 1
    assert outcomes["ran"] > 20
    assert outcomes["ModelError"] > 50
