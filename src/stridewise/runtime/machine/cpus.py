"""The number of threads for this process: CPUs, control group quotas, and OpenMP's limits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath

from stridewise.classes import dataclass

__all__ = [
    "CpuLimit",
    "CpuLimits",
    "available_cpus",
    "cpu_limits",
    "openmp_limit",
    "usable_cpus",
]

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_LONGEST = 1 << 16
"""Number of bytes read from a file, at most."""

# The syntax that libgomp accepts. More digits overflow there.
_NUMBER = r"\s*\+?0*([1-9][0-9]{0,17})\s*"
_ONE = re.compile(_NUMBER)
_LIST = re.compile(rf"{_NUMBER}(?:,{_NUMBER})*")
_OPENMP = {"OMP_NUM_THREADS": _LIST, "OMP_THREAD_LIMIT": _ONE}


@dataclass(frozen=True, slots=True)
class CpuLimit:
    """An upper bound of the number of threads, and its source."""

    threads: int
    source: str


def _threads(limit: CpuLimit) -> int:
    return limit.threads


@dataclass(frozen=True, slots=True)
class CpuLimits:
    """All upper bounds of the number of threads.

    Attributes:
        found: the bounds. The first one is the number of CPUs of the process.
        ignored: variables without a valid number of threads, as ``NAME='value'``.
    """

    found: tuple[CpuLimit, ...]
    ignored: tuple[str, ...]

    @property
    def decisive(self) -> CpuLimit:
        """The smallest bound; the first one if several are equal."""
        return min(self.found, key=_threads)


def available_cpus() -> int:
    """Return the default number of threads."""
    return cpu_limits().decisive.threads


def usable_cpus() -> int:
    """Return how many threads can run at once, whatever ``OMP_NUM_THREADS`` has as the default."""
    return min(limit.threads for limit in cpu_limits().found if limit.source != "OMP_NUM_THREADS")


def cpu_limits(
    environment: Mapping[str, str] = os.environ,
    groups: Path = _GROUPS,
    own_groups: Path = _OWN_GROUPS,
) -> CpuLimits:
    """Return the bounds of the number of threads. Files that cannot be read are ignored.

    Args:
        environment: the environment variables.
        groups: the mount point of the control group file systems.
        own_groups: the file that lists the control groups of the process.
    """
    found = [_affinity()]
    quota = _quota(groups, own_groups)
    if quota is not None:
        found.append(quota)
    ignored: list[str] = []
    for name in filter(environment.__contains__, _OPENMP):
        threads = _openmp(name, environment)
        if threads is None:
            ignored.append(f"{name}={environment[name]!r}")
        else:
            found.append(CpuLimit(threads, name))
    return CpuLimits(tuple(found), tuple(ignored))


def openmp_limit(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return OpenMP's limit of the number of threads; None if there is no limit."""
    return _openmp("OMP_THREAD_LIMIT", environment)


def _openmp(name: str, environment: Mapping[str, str]) -> int | None:
    """Return the value of a variable (the first of a list); None if libgomp ignores it."""
    found = _OPENMP[name].fullmatch(environment.get(name, ""))
    return int(found[1]) if found else None


def _affinity() -> CpuLimit:
    if hasattr(os, "sched_getaffinity"):
        return CpuLimit(len(os.sched_getaffinity(0)), "CPU affinity")
    return CpuLimit(os.cpu_count() or 1, "CPU count")


@cache
def _quota(groups: Path, own_groups: Path) -> CpuLimit | None:
    """Return the smallest quota. It is cached, because reading takes as long as a small reorder."""
    return min(_quotas(groups, own_groups), key=_threads, default=None)


def _quotas(groups: Path, own_groups: Path) -> Iterator[CpuLimit]:
    """Yield the quotas of the process's control groups and of their parents."""
    for line in _text(own_groups).split("\n"):
        _, _, rest = line.partition(":")
        controllers, colon, own = rest.partition(":")
        if colon and not controllers:
            # If version 1 is mounted too, version 2 is mounted in a subfolder.
            for mount in (groups, groups / "unified"):
                yield from _walk(mount, own, ("cpu.max",), "cgroup v2")
        elif "cpu" in controllers.split(","):
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            for mount in dict.fromkeys((groups / "cpu", groups / controllers)):
                yield from _walk(mount, own, names, "cgroup v1")


def _walk(mount: Path, own: str, names: Iterable[str], version: str) -> Iterator[CpuLimit]:
    """Yield the quotas from a group up to the root of its file system.

    In a container, the root of the mount may be the group itself, while the path is that outside
    the container. So missing folders are treated as groups without a quota, and the root is always
    read.
    """
    path = PurePosixPath(own.lstrip("/"))
    outside = ".." in path.parts
    for group in (path, *path.parents) if not outside else (PurePosixPath(),):
        words = " ".join(_text(mount / group / name) for name in names).split()
        numbers = [int(found[1]) for found in map(_ONE.fullmatch, words) if found]
        if len(numbers) == len(words) == 2:
            threads = max(1, numbers[0] // numbers[1])
            yield CpuLimit(threads, f"CPU quota of {version} {'/' / group}")


def _text(path: Path) -> str:
    """Return the start of a file, or "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
