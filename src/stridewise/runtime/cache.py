"""The cost cache: measured kernel times on disk, shared by all processes of a user.

A cache is a convenience: whatever is wrong with it (a read-only home, a full disk, a damaged
file, another version), work goes on without it after one warning.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import platformdirs

from stridewise.planner.targets import Machine

__all__ = ["CostCache", "cache_path"]

_LOG = logging.getLogger("stridewise")
_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS costs (
    machine TEXT NOT NULL, spec TEXT NOT NULL, entries TEXT NOT NULL,
    PRIMARY KEY (machine, spec)
) WITHOUT ROWID
"""

Entry = tuple[str, float]
"""Implementation and nanoseconds."""


def cache_path(folder: Path | None = None) -> Path:
    """Return where the cost cache lies: in ``folder``, or in the user's cache folder."""
    root = folder or Path(platformdirs.user_cache_dir("stridewise", appauthor=False))
    return root / f"costs-v{_VERSION}.sqlite"


class CostCache:
    """Measured costs of one machine. Entries are lists of ``(implementation, ns)``."""

    def __init__(self, machine: Machine, folder: Path | None = None) -> None:
        """Refer to the cache of ``machine``; nothing is read or written yet."""
        self.path = cache_path(folder)
        self._machine = str(machine)
        self._usable = True

    def _connect(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=10.0)
        connection.execute(_SCHEMA)
        return connection

    def _give_up(self, error: Exception) -> None:
        if self._usable:
            _LOG.warning(
                "cost cache %s is not used: %s; costs are measured again", self.path, error
            )
        self._usable = False

    def _discard_damaged(self) -> None:
        """Move a damaged file out of the way, so that the next process starts afresh."""
        try:
            self.path.replace(self.path.with_suffix(".damaged"))
        except OSError:
            return
        _LOG.warning("cost cache %s was damaged and is started anew", self.path)

    def load(self) -> dict[str, tuple[Entry, ...]]:
        """Return all entries of this machine by kernel; an empty mapping if there is no cache."""
        try:
            if not self.path.is_file():
                return {}
            with closing(self._connect()) as connection:
                query = "SELECT spec, entries FROM costs WHERE machine = ?"
                rows = connection.execute(query, (self._machine,)).fetchall()
            return {
                spec: tuple((str(name), float(cost)) for name, cost in json.loads(entries))
                for spec, entries in rows
            }
        except (sqlite3.OperationalError, OSError) as error:
            self._give_up(error)
        except (sqlite3.DatabaseError, ValueError, TypeError):
            self._discard_damaged()
        return {}

    def store(self, entries: Mapping[str, Iterable[Entry]]) -> None:
        """Add entries; those of other processes stay."""
        if not entries or not self._usable:
            return
        rows = [(self._machine, spec, json.dumps(list(costs))) for spec, costs in entries.items()]
        try:
            with closing(self._connect()) as connection, connection:
                connection.executemany("INSERT OR REPLACE INTO costs VALUES (?, ?, ?)", rows)
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)
