"""The cost cache: measured kernel times on disk, shared by all processes of a user.

Beside the costs, which are found by the text of a kernel, it keeps samples: measured kernels by
their traits, from which the costs of other kernels are predicted.

A cache is a convenience: if anything is wrong with it (a read-only home, a full disk, a damaged
file, another version), compilation continues without it after one warning.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from stridewise.runtime.tuning.cost_file import cache_path
from stridewise.targets.machine import Machine
from stridewise.targets.rates import VERSION as TRAITS
from stridewise.targets.rates import Sample, Samples

__all__ = ["CostCache"]

_LOG = logging.getLogger("stridewise")
_PATIENCE_S = 10.0
"""Time for which another process may lock the file; writing takes some milliseconds."""
_LONGEST_ROW = 1 << 24
_LONGEST_NS = 1e15
"""A larger cost (eleven days) is not a measurement."""
_AT_ONCE = 500
"""Keys in one query; every build of SQLite accepts a thousand."""
_ROWS = (
    "SELECT CAST(spec AS BLOB), CAST(entries AS BLOB) FROM costs "
    "WHERE machine = ? AND length(CAST(entries AS BLOB)) <= ?"
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS costs (
    machine TEXT NOT NULL, spec TEXT NOT NULL, entries TEXT NOT NULL,
    PRIMARY KEY (machine, spec)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS measured (
    machine TEXT NOT NULL, version INTEGER NOT NULL, kind TEXT NOT NULL, spec TEXT NOT NULL,
    family TEXT NOT NULL, way TEXT NOT NULL, numbers BLOB NOT NULL, ratio REAL NOT NULL,
    implementation TEXT NOT NULL, disturbed INTEGER NOT NULL,
    PRIMARY KEY (machine, version, kind, spec)
) WITHOUT ROWID;
"""
_ADD_COSTS = "INSERT OR REPLACE INTO costs VALUES (?, ?, ?)"
_SAMPLES = (
    "SELECT family, way, numbers, ratio, implementation, disturbed FROM measured "
    "WHERE machine = ? AND version = ? AND kind = ? ORDER BY spec"
)
_COLUMNS = ("family", "way", "numbers", "ratio", "implementation", "disturbed")
_ADD_SAMPLE = (
    f"INSERT INTO measured VALUES ({', '.join('?' * 10)}) ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS)
)
_IF_SOUND = " WHERE excluded.disturbed <= disturbed"
_LARGEST_RATIO = 25.0
"""Logarithm of the largest ratio of a measured cost to its estimate."""
_NUMBER = np.dtype(np.float64)

_EXPIRES, _PROVISIONAL_S = "expires", 3600.0
"""What takes the place of an implementation in the last entry of a row that holds for a time only;
its cost is the time of the system's clock until which it does."""

Row = TypeVar("Row")

Entry = tuple[str, float]
"""Implementation and nanoseconds."""


def _checked(entries: object) -> tuple[Entry, ...] | None:
    """Return valid entries, None for anything else.

    A cost that is not a time would decide every plan that contains it, so a row with one such cost
    is ignored as a whole.
    """
    if not isinstance(entries, list | tuple):
        return None
    found: list[Entry] = []
    for item in cast("Sequence[object]", entries):
        if not isinstance(item, list | tuple) or len(cast("Sequence[object]", item)) != 2:
            return None
        name, cost = cast("Sequence[object]", item)
        if not isinstance(name, str) or isinstance(cost, bool):
            return None
        if not isinstance(cost, int | float) or not 0 <= cost < _LONGEST_NS:
            return None
        found.append((name, float(cost)))
    return tuple(found)


_SampleRow = tuple[str, str, bytes, float, str, bool]
"""A sample: family, way, numbers, ratio, implementation, and whether other work disturbed it."""


class _Texts(dict[object, str | None]):
    """Texts by their bytes, each decoded once; None for what is no text."""

    def __missing__(self, key: object) -> str | None:
        found = self[key] = _decoded(key)
        return found


def _sound(rows: Iterable[Sequence[object]]) -> list[_SampleRow]:
    """Return the rows of samples that are valid and have as many numbers as the longest."""
    texts, sound = _Texts(), list[_SampleRow]()
    for family, way, numbers, ratio, name, disturbed in rows:
        words = texts[family], texts[way], texts[name]
        if None in words or not (isinstance(ratio, float) and abs(ratio) <= _LARGEST_RATIO):
            continue
        if isinstance(numbers, bytes) and len(numbers) % _NUMBER.itemsize == 0:
            row = (words[0], words[1], numbers, ratio, words[2], bool(disturbed))
            sound.append(cast("_SampleRow", row))
    longest = max((len(row[2]) for row in sound), default=0)
    return [row for row in sound if len(row[2]) == longest]


def _decoded(text: object) -> str | None:
    try:
        return text.decode() if isinstance(text, bytes) else None
    except UnicodeDecodeError:
        return None


def _columns(rows: Iterable[Sequence[object]]) -> Samples:
    """Return rows of the table of samples, those that are invalid left out."""
    sound = _sound(rows)
    width = len(sound[0][2]) // _NUMBER.itemsize if sound else 0
    sizes = np.frombuffer(b"".join(row[2] for row in sound), _NUMBER).reshape(len(sound), width)
    finite = np.flatnonzero(np.isfinite(sizes).all(axis=1))
    sound = [sound[at] for at in finite]
    return Samples(
        [row[0] for row in sound],
        [row[1] for row in sound],
        sizes[finite],
        np.array([row[3] for row in sound]),
        [row[4] for row in sound],
        np.array([row[5] for row in sound], np.bool_),
    )


def _parsed(spec: object, entries: object) -> tuple[str, tuple[Entry, ...]] | None:
    """Return a row of the table, None if it is invalid."""
    if not isinstance(spec, bytes) or not isinstance(entries, bytes):
        return None
    try:
        checked = _checked(json.loads(entries))
        return None if checked is None else (spec.decode(), checked)
    except (ValueError, RecursionError):
        return None


def _expiry(entries: Sequence[Entry]) -> float:
    """Return the time until which entries hold; 0 for ever."""
    return entries[-1][1] if entries and entries[-1][0] == _EXPIRES else 0.0


def _lasting(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return entries without the time until which they hold."""
    return entries[:-1] if _expiry(entries) else entries


def _has_expired(text: object) -> bool:
    if not isinstance(text, bytes) or _EXPIRES.encode() not in text[-64:]:
        return False
    parsed = _parsed(b"", text)
    return parsed is not None and 0 < _expiry(parsed[1]) < time.time()


@cache
def _tell_unusable(path: Path, error: str) -> None:
    """Log, once in a process, why a file cannot be used."""
    _LOG.warning("cost cache %s is not used: %s; costs are measured again", path, error)


class CostCache:
    """Measured costs of one machine. Entries are lists of ``(implementation, ns)``.

    Attributes:
        path: the file.
        asked: every key that :meth:`find` was asked for, whether it was there or not.
        is_provisional: whether an entry that was found or stored was disturbed by other work.
    """

    def __init__(self, machine: Machine, folder: Path | None = None) -> None:
        """Refer to the cache of ``machine``; nothing is read or written yet."""
        self.path = cache_path(folder)
        self._machine = f"{machine}, kernels {TRAITS}"
        self._usable = True
        self._told = False
        self._own: dict[str, tuple[Entry, ...]] = {}
        self._own_samples: dict[str, Sample] = {}
        self.asked: set[str] = set()
        self.is_provisional = False

    def _connect(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=_PATIENCE_S)
        connection.text_factory = bytes  # invalid UTF-8 makes one bad row, not a bad file
        try:
            connection.executescript(_SCHEMA)
        except BaseException:
            connection.close()
            raise
        return connection

    def _give_up(self, error: Exception) -> None:
        _tell_unusable(self.path, str(error))
        self._usable = False

    def _identity(self) -> tuple[int, int] | None:
        """Return which file is at the path."""
        try:
            found = self.path.stat()
        except (OSError, ValueError):
            return None
        return found.st_dev, found.st_ino

    def _discard_damaged(self, identity: tuple[int, int] | None) -> None:
        """Rename a damaged file, so that the next process starts with a new one."""
        if identity is None or self._identity() != identity:
            return  # another process has renamed it, and the file there is new
        try:
            self.path.replace(self.path.with_suffix(".damaged"))
        except OSError as error:
            self._give_up(error)
            return
        _LOG.warning("cost cache %s was damaged and is started again", self.path)

    def load(self) -> dict[str, tuple[Entry, ...]]:
        """Return all entries of this machine by kernel.

        The entries that this object has stored are included even if the file cannot be used.
        """
        found = self._parsed(self._rows(None))
        return {key: _lasting(entries) for key, entries in found.items()} | self._own

    def find(self, keys: Iterable[str]) -> dict[str, tuple[Entry, ...]]:
        """Return the entries of some kernels that have any; see :meth:`load`."""
        wanted = sorted(set(keys))
        self.asked.update(wanted)
        own = {key: self._own[key] for key in wanted if key in self._own}
        found = self._parsed(self._rows(wanted))
        self.is_provisional |= any(map(_expiry, found.values()))
        return {key: _lasting(entries) for key, entries in found.items()} | own

    def digest(self, keys: Iterable[str]) -> str:
        """Return a digest of the file's rows for some kernels; "" without a file."""
        rows = self._rows(sorted(set(keys)))
        return hashlib.sha256(repr(sorted(rows)).encode()).hexdigest() if rows else ""

    def _parsed(self, rows: Sequence[tuple[object, object]]) -> dict[str, tuple[Entry, ...]]:
        parsed = [_parsed(*row) for row in rows]
        bad = parsed.count(None)
        if bad and not self._told:
            self._told = True
            _LOG.warning(
                "cost cache %s: %d of %d entries are invalid and are measured again",
                self.path, bad, len(rows),
            )  # fmt: skip
        return dict(row for row in parsed if row is not None)

    def samples(self, kind: str) -> Samples:
        """Return the samples of one kind of kernels, in the order of their texts."""
        limits = (self._machine, TRAITS, kind)
        rows = self._read(lambda connection: connection.execute(_SAMPLES, limits).fetchall())
        if rows:
            return _columns(rows)
        # Without a file, what this object has stored counts.
        return Samples.of([s for s in self._own_samples.values() if s.traits.kind == kind])

    def sample_kinds(self) -> list[str]:
        """Return the kinds of kernels of which there are samples."""
        query = "SELECT DISTINCT kind FROM measured WHERE machine = ? AND version = ? ORDER BY kind"
        limits = (self._machine, TRAITS)
        rows = self._read(lambda connection: connection.execute(query, limits).fetchall())
        own = [sample.traits.kind for sample in self._own_samples.values()]
        return sorted({*own, *(cast("bytes", row[0]).decode(errors="replace") for row in rows)})

    def store_samples(
        self, samples: Mapping[str, Sample], *, keeps_undisturbed: bool = False
    ) -> None:
        """Add the samples of some kernels, by their texts; those of other processes stay.

        Args:
            samples: they replace earlier ones of the same kernels.
            keeps_undisturbed: whether an earlier one stays if other work disturbed the new one
                and not that.
        """
        for spec, item in samples.items():
            known = self._own_samples.get(spec)
            if known is None or not keeps_undisturbed or item.is_disturbed <= known.is_disturbed:
                self._own_samples[spec] = item
        rows = [
            (self._machine, TRAITS, item.traits.kind, spec, item.traits.family, item.traits.way,
             array("d", item.traits.numbers).tobytes(), item.ratio, item.implementation,
             item.is_disturbed)
            for spec, item in samples.items()
        ]  # fmt: skip
        self._write(_ADD_SAMPLE + (_IF_SOUND if keeps_undisturbed else ""), rows)

    def _rows(self, keys: Sequence[str] | None) -> list[tuple[object, object]]:
        """Return the rows of some keys as they are in the file; None stands for all.

        Rows that have expired are left out, so that what depends on them is made again.
        """
        rows = self._read(lambda connection: self._queried(connection, keys))
        return [row for row in rows if not _has_expired(row[1])]

    def _read(self, query: Callable[[sqlite3.Connection], list[Row]]) -> list[Row]:
        try:
            return self._use(query) if self.path.is_file() else []
        except (OSError, ValueError) as error:
            self._give_up(error)
            return []

    def _use(self, query: Callable[[sqlite3.Connection], list[Row]]) -> list[Row]:
        """Return what a query finds in the file; nothing if the file cannot be used."""
        if not self._usable:
            return []
        identity = self._identity()
        try:
            with closing(self._connect()) as connection:
                return query(connection)
        except (sqlite3.OperationalError, OSError, ValueError) as error:
            self._give_up(error)
        except sqlite3.DatabaseError:
            self._discard_damaged(identity)
        return []

    def _queried(
        self, connection: sqlite3.Connection, keys: Sequence[str] | None
    ) -> list[tuple[object, object]]:
        limits = (self._machine, _LONGEST_ROW)
        if keys is None:
            return connection.execute(_ROWS, limits).fetchall()
        found: list[tuple[object, object]] = []
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            query = f"{_ROWS} AND spec IN ({', '.join('?' * len(some))})"
            found += connection.execute(query, (*limits, *some)).fetchall()
        return found

    def store(
        self, entries: Mapping[str, Iterable[Entry]], *, is_provisional: bool = False
    ) -> None:
        """Add entries; those of other processes stay. Costs that are no times are left out.

        Args:
            entries: the costs of some kernels, or times of plans, by key.
            is_provisional: whether other work disturbed the measurements. Such entries expire
                after an hour.
        """
        sound = {spec: _checked(tuple(costs)) for spec, costs in entries.items()}
        known = {spec: costs for spec, costs in sound.items() if costs is not None}
        self._own |= known
        self.is_provisional |= is_provisional and bool(known)
        last = [(_EXPIRES, time.time() + _PROVISIONAL_S)] if is_provisional else []
        rows = [(self._machine, spec, json.dumps([*costs, *last])) for spec, costs in known.items()]
        self._write(_ADD_COSTS, rows)

    def store_first(self, key: str, entries: Sequence[Entry]) -> bool:
        """Add the entries of a key unless the file has valid ones; return whether they were added.

        So of several processes that store at once, one decides for all of them.
        """
        sound = _checked(tuple(entries)) or ()

        def add(connection: sqlite3.Connection) -> list[bool]:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                rows = self._queried(connection, [key])
                is_free = not self._parsed([row for row in rows if not _has_expired(row[1])])
                if is_free:
                    connection.execute(_ADD_COSTS, (self._machine, key, json.dumps(sound)))
            return [is_free]

        # Without a file, the entries hold for this object.
        is_added = all(self._use(add))
        if is_added:
            self._own[key] = sound
        return is_added

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        if not rows or not self._usable:
            return
        try:
            with closing(self._connect()) as connection, connection:
                connection.executemany(statement, rows)
        except (sqlite3.Error, OSError, ValueError) as error:
            self._give_up(error)
