"""Buffers over files, and XXH64, against its specification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.runtime.binding.library import load_core

MASK = (1 << 64) - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotl(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK


def rounded(lane: int, word: int) -> int:
    return rotl((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes) -> int:
    """Return the checksum as the specification words it, one step a line."""
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) // 8 * 8, 8)]
    stripes = len(data) // 32
    sum_ = P5
    if stripes:
        lanes = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        for number, word in enumerate(words[: 4 * stripes]):
            lanes[number % 4] = rounded(lanes[number % 4], word)
        bits = (1, 7, 12, 18)
        sum_ = sum(rotl(lane, by) for lane, by in zip(lanes, bits, strict=True)) & MASK
        for lane in lanes:
            sum_ = ((sum_ ^ rounded(0, lane)) * P1 + P4) & MASK
    sum_ = (sum_ + len(data)) & MASK
    for word in words[4 * stripes :]:
        sum_ = (rotl(sum_ ^ rounded(0, word), 27) * P1 + P4) & MASK
    rest = data[len(words) * 8 :]
    if len(rest) >= 4:
        sum_ ^= int.from_bytes(rest[:4], "little") * P1 & MASK
        sum_ = (rotl(sum_, 23) * P2 + P3) & MASK
        rest = rest[4:]
    for byte in rest:
        sum_ = rotl(sum_ ^ (byte * P5 & MASK), 11) * P1 & MASK
    sum_ = (sum_ ^ sum_ >> 33) * P2 & MASK
    sum_ = (sum_ ^ sum_ >> 29) * P3 & MASK
    return sum_ ^ sum_ >> 32


def buffer_of(data: bytes) -> Any:
    return load_core().Buffer.from_array(np.frombuffer(data, np.uint8))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_published_sums(text: bytes, expected: int) -> None:
    assert xxh64(text) == expected
    assert buffer_of(text).checksum(0, len(text)) == expected


@given(st.binary(max_size=200), st.integers(0, 40))
def test_it_is_xxh64(data: bytes, offset: int) -> None:
    offset = min(offset, len(data))
    assert buffer_of(data).checksum(offset, len(data) - offset) == xxh64(data[offset:])


@given(st.binary(min_size=1, max_size=200), st.data())
def test_every_flipped_byte_is_found(data: bytes, choice: st.DataObject) -> None:
    at = choice.draw(st.integers(0, len(data) - 1))
    other = bytes([data[at] ^ choice.draw(st.integers(1, 255))])
    changed = data[:at] + other + data[at + 1 :]
    assert buffer_of(data).checksum(0, len(data)) != buffer_of(changed).checksum(0, len(data))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "content"
    found.write_bytes(np.random.default_rng(0).bytes(3_000_017))
    return found


@pytest.mark.parametrize("nbytes", [0, 1, 31, 32, 33, 262_143, 262_145, 3_000_017 - 4096])
def test_reading_and_mapping_give_the_same(path: Path, nbytes: int) -> None:
    core, content = load_core(), path.read_bytes()[4096 : 4096 + nbytes]
    with path.open("rb") as file:
        read = core.Buffer(nbytes + 5)
        found = read.read(file.fileno(), 4096, 5, nbytes)
        mapped = core.Buffer.map(file.fileno(), 4096, nbytes) if nbytes else core.Buffer(0)
    assert found == read.checksum(5, nbytes) == xxh64(content)
    assert read.array()[5:].tobytes() == content
    if mapped is not None:  # temporary files may lie anywhere
        assert mapped.checksum(0, nbytes) == found
        assert mapped.array().tobytes() == content
        assert mapped.is_mapped == bool(nbytes)


def test_what_is_not_there_is_refused(path: Path) -> None:
    core, size = load_core(), path.stat().st_size
    buffer = core.Buffer(1 << 22)
    with path.open("rb") as file:
        number = file.fileno()
        for position, nbytes in ((0, size + 1), (4096, size), (1 << 40, 1), (0, 0), (0, -1)):
            with pytest.raises(ValueError, match=r"map|nbytes"):
                core.Buffer.map(number, position, nbytes)
        with pytest.raises(OSError, match="Invalid argument"):
            core.Buffer.map(number, 1, 5)  # no multiple of the page size
        with pytest.raises(ValueError, match=f"the file ends after {size}"):
            buffer.read(number, 0, 0, size + 1)
        for offset, nbytes in ((0, (1 << 22) + 1), ((1 << 22) + 1, 0), (1 << 22, 1)):
            with pytest.raises(ValueError, match="do not fit"):
                buffer.read(number, 0, offset, nbytes)
            with pytest.raises(ValueError, match="do not fit"):
                buffer.checksum(offset, nbytes)
        mapped = core.Buffer.map(number, 0, size)
        if mapped is not None:
            with pytest.raises(ValueError, match="can be written"):
                mapped.read(number, 0, 0, 1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        core.Buffer.map(number, 0, 1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        buffer.read(number, 0, 0, 1)


def test_files_of_others_are_not_mapped() -> None:
    attribute = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not attribute.is_file():
        pytest.skip("a kernel without this attribute")
    with attribute.open("rb") as file:
        assert load_core().Buffer.map(file.fileno(), 0, 1) is None


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_mapping_keeps_its_file_open_and_no_longer(path: Path) -> None:
    core = load_core()
    before = descriptors()
    with path.open("rb") as file:
        mapped = core.Buffer.map(file.fileno(), 0, 4096)
    if mapped is None:
        pytest.skip("temporary files lie on a file system of others")
    assert descriptors() == before + 1
    expected = path.read_bytes()[:4096]
    path.unlink()
    assert mapped.array().tobytes() == expected
    del mapped
    assert descriptors() == before
