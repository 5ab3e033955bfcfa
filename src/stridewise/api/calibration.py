"""Calibration of the machine."""

from __future__ import annotations

import os
from pathlib import Path

from stridewise.errors import InputError
from stridewise.runtime.machine.machine import this_machine
from stridewise.runtime.tuning.calibrate import Calibration
from stridewise.runtime.tuning.calibrate import calibrate as measured
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.targets.cost import Progress

__all__ = ["calibrate"]


def calibrate(
    *,
    threads: int | None = None,
    seconds: float = 55.0,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Measure kernels of many families and sizes, from which ``tune="auto"`` predicts all others.

    Once per machine and number of threads is enough. Kernels that ``compile`` measures are used as
    well. A further calibration adds samples; models with ``tune="auto"`` are then planned again.
    See ``docs/calibration.md``.

    Args:
        threads: number of threads of the models to be compiled; the default is that of ``compile``.
        seconds: how long to measure, above 0. At least one kernel is measured.
        cache_dir: folder of the cost cache; the default is the user's cache folder.
        progress: called as ``progress(seconds that have passed, all seconds, kind of layer)``.

    Raises:
        InputError: ``threads`` or ``seconds`` is out of range.
        LibraryError: libdnnl cannot be loaded.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = calibrate(threads=1, seconds=0.2, cache_dir=folder)
    >>> found.measured > 0, found.machine.threads
    (True, 1)
    """
    if not seconds > 0:
        expected = "a number of seconds above 0"
        raise InputError.at("seconds", expected=expected, found=repr(seconds))
    machine = this_machine(threads)
    folder = None if cache_dir is None else Path(cache_dir)
    return measured(machine, CostCache(machine, folder), seconds, progress)
