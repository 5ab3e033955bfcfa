"""What this machine is: the key of everything that was measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from stridewise.errors import InputError, describe
from stridewise.planner.targets import Machine
from stridewise.runtime.library import library_info

__all__ = ["available_cpus", "last_level_cache_nbytes", "this_machine"]

_CPU_FIELDS = ("model name", "cpu family", "model", "stepping")


def available_cpus() -> int:
    """Return how many CPUs this process may use, which is the default number of threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def last_level_cache_nbytes() -> int:
    """Return the size of the largest cache of the first CPU; 32 MiB where nobody tells."""
    sizes: list[int] = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        number, unit = text.rstrip("KMG"), text[-1:]
        if number.isdigit():
            sizes.append(int(number) << {"K": 10, "M": 20, "G": 30}.get(unit, 0))
    return max(sizes, default=32 << 20)


def _cpu_name() -> str:
    found: dict[str, str] = {}
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    name, *numbers = (found.get(field, "?") for field in _CPU_FIELDS)
    return f"{name} ({'/'.join(numbers)})"


def this_machine(threads: int | None = None) -> Machine:
    """Return the description of this machine for a number of threads; all CPUs by default.

    Raises:
        InputError: the number of threads is not between 1 and 1024.
        LibraryError: libdnnl cannot be loaded.
    """
    count = available_cpus() if threads is None else threads
    if not 1 <= count <= 1024:
        raise InputError(describe("threads", expected="a number from 1 to 1024", found=str(count)))
    info = library_info()
    return Machine(_cpu_name(), info.isa, count, f"oneDNN {info.version}")
