"""The description of this machine, which is part of the key of all measurements."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import SupportsIndex, cast

from stridewise.errors import InputError
from stridewise.runtime.binding.library import library_info, load_core
from stridewise.runtime.machine.cpus import available_cpus, openmp_limit
from stridewise.targets.machine import Machine

__all__ = [
    "cache_nbytes",
    "checked_limit",
    "checked_threads",
    "default_memory_limit",
    "this_machine",
]

_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_CPU_FIELDS = ("model name", "cpu family", "model", "stepping")


def cache_nbytes(level: int) -> int:
    """Return the size in bytes of a cache of the first CPU. Several CPUs share level 3."""
    return load_core().cache_nbytes(level)


def default_memory_limit() -> int | None:
    """Return the default memory limit of a model in bytes: three quarters of the memory.

    The memory is that of the machine or the limit of a control group. Returns None if the system
    reports neither.
    """
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in _CGROUP_LIMITS:
        try:
            text = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeError):
            continue
        if text.isdigit():
            found.append(int(text))
    return min(found) * 3 // 4 if found else None


def checked_limit(memory_limit: object) -> int | None:
    """Return a limit in bytes, the default one for None.

    Raises:
        InputError: it is not a positive integer.
    """
    if memory_limit is None:
        return default_memory_limit()
    if isinstance(memory_limit, bool) or not isinstance(memory_limit, int) or memory_limit < 1:
        raise InputError.at("memory_limit", expected="a number of bytes", found=repr(memory_limit))
    return memory_limit


@cache
def _cpu_name() -> str:
    found: dict[str, str] = {}
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in takewhile(str.strip, lines):  # of the first processor
                key, _, value = line.partition(":")
                found[key.strip()] = value.strip()
    except OSError:
        import platform  # noqa: PLC0415 (takes time to import)

        return platform.processor() or platform.machine()
    name, *numbers = (found.get(field, "?") for field in _CPU_FIELDS)
    return f"{name} ({'/'.join(numbers)})"


def checked_threads(threads: int) -> int:
    """Check a number of threads that this process shall run, and return it.

    Raises:
        InputError: it is not between 1 and 1024, or above OpenMP's limit.
    """
    if not isinstance(cast("object", threads), SupportsIndex) or not 1 <= threads <= 1024:
        raise InputError.at("threads", expected="a number from 1 to 1024", found=repr(threads))
    limit = openmp_limit()
    if limit is not None and threads > limit:
        raise InputError.at(
            "threads",
            expected=f"at most {limit}, the value of OMP_THREAD_LIMIT",
            found=str(threads),
            fix=f"give threads={limit} or fewer, or start the process with a higher limit",
        )
    return threads


def this_machine(threads: int | None = None) -> Machine:
    """Return the description of this machine for a number of threads.

    The default is the number that CPUs, quotas and OpenMP's variables allow; see ``cpus.py``.

    Raises:
        InputError: the number of threads is not between 1 and 1024, or above OpenMP's limit.
        LibraryError: libdnnl cannot be loaded.
    """
    count = checked_threads(available_cpus() if threads is None else threads)
    info = library_info()
    return Machine(_cpu_name(), info.isa, count, f"oneDNN {info.version}")
