"""Finding and loading libdnnl, and with it the native core.

The core is linked against ``libdnnl.so.3`` by name only. Loading a library of that name from the
right file first makes the dynamic linker use it, wherever the core itself is installed. Nothing
here runs before the first call, so ``import stridewise`` loads no native code.

This is the only module that reads an environment variable for the library: ``STRIDEWISE_LIBDNNL``,
the path of a ``libdnnl.so.3`` to use in place of the one that pip installed.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import struct
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from stridewise.classes import dataclass
from stridewise.errors import LibraryError
from stridewise.interrupts import Deferred

__all__ = ["LibraryInfo", "library_info", "load_core", "share_workers"]

ENVIRONMENT_VARIABLE = "STRIDEWISE_LIBDNNL"
DISTRIBUTION = "onednn-cpu-gomp"
SONAME = "libdnnl.so.3"
MAJOR = 3
FIX = f"run `pip install onednn-cpu-gomp==2023.2.0`, or set {ENVIRONMENT_VARIABLE} to a {SONAME}"
ELF_MAGIC = b"\x7fELF"
# Of a 64-bit file: where the table of segments is, the size of an entry, how many there are; and
# of an entry, the offset and the length of the segment in the file.
ELF_HEADER = struct.Struct("<32xQ14xHH")
ELF_SEGMENT = struct.Struct("<8xQ16xQ")

# Values of dnnl_version_t.cpu_runtime. The others do not call OpenMP, whose calls the core serves,
# and some need a stream with a thread pool or a SYCL queue behind it.
THREADING = {2: "OpenMP"}


@dataclass(frozen=True, slots=True)
class LibraryInfo:
    """The oneDNN library in use.

    Attributes:
        path: the file it was loaded from.
        version: its version, such as ``"3.2.0"``.
        isa: the instruction set it generates code for on this machine, under the limit that
            ``ONEDNN_MAX_CPU_ISA`` may set, such as ``"AVX512_CORE_BF16"``.
        threading: what it was built to run its threads with, ``"OpenMP"``. Its calls of OpenMP run
            on threads of Stridewise.
        max_threads: number of threads that it uses by default.
    """

    path: Path
    version: str
    isa: str
    threading: str
    max_threads: int


class _Version(ctypes.Structure):
    """The start of ``dnnl_version_t``, which is the same in every release 3.x."""

    _fields_ = (
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    )


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A library that passed every check."""

    path: Path
    version: str
    threading: str


def load_core() -> ModuleType:
    """Return the module ``stridewise._core``, with libdnnl loaded.

    Raises:
        LibraryError: libdnnl is missing, broken, or not one that the core can use.

    >>> load_core().version().split(".")[0]
    '3'
    """
    core = _load()[0]
    share_workers()
    return core


def share_workers() -> None:
    """Let runs use the workers of PyTorch, if it has been imported since the last call."""
    if "torch" in sys.modules:
        _permit_callers()


def library_info() -> LibraryInfo:
    """Return what is known about the oneDNN library, loading it first where needed.

    Raises:
        LibraryError: as for :func:`load_core`.
    """
    core, loaded = _load()
    return LibraryInfo(
        path=loaded.path,
        version=loaded.version,
        isa=core.effective_isa(),
        threading=loaded.threading,
        max_threads=core.max_threads(),
    )


@cache
def _load() -> tuple[ModuleType, _Loaded]:
    path = _find()
    library = _open(path)
    loaded = _check(library, path)
    try:
        core = _import_core()
    except ImportError as error:
        raise LibraryError.at(
            "stridewise._core",
            expected="the native core that is built when Stridewise is installed",
            found=f"{error}",
            fix="run `pip install .` (or `pip install -e .`) in the source tree",
        ) from error
    try:
        others = core.bind_openmp()
    except RuntimeError as error:
        expected = "a library whose calls of OpenMP can be bound"
        raise _error(str(path), expected, f"{error}") from error
    if others:
        expected = "oneDNN that calls the functions of GNU OpenMP"
        raise _error(str(path), expected, f"calls of {', '.join(others)}")
    # The library's own cache takes descriptors for equal that differ in the strides of axes of
    # extent 1, so what it gives depends on what the process made before.
    core.set_primitive_cache_capacity(0)
    return core, loaded


@cache
def _permit_callers() -> None:
    """Let runs of a thread of the application use the OpenMP workers that PyTorch has started.

    They spin for milliseconds after a region of PyTorch, and the core's own workers in addition
    would take turns with them on the same processors; see ``native/threads/caller.hpp``.
    """
    if not _is_forked():
        _load()[0].permit_callers()


def _is_forked() -> bool:
    """Return whether this process was forked and runs the program of its parent.

    The parent's workers, which OpenMP would wait for, are lost then. The ninth field of the
    status has the flag PF_FORKNOEXEC (proc(5), ``include/linux/sched.h``).
    """
    try:
        status = Path("/proc/self/stat").read_text()
        return bool(int(status.rpartition(")")[2].split()[6]) & 0x40)
    except (OSError, ValueError, IndexError):
        return True


def _import_core() -> ModuleType:
    """Import the native core as a whole.

    An import of compiled code that is cut off half-way registers its types a second time when it
    is tried again. A thread of its own would wait for ever if an interrupt had left Python's lock
    of imports with the main thread.
    """
    with Deferred():
        return importlib.import_module("stridewise._core")


def _find() -> Path:
    """Return the file to load, without looking into it."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    if chosen:
        path = Path(chosen).absolute()
        if not path.is_file():
            raise _error(ENVIRONMENT_VARIABLE, f"the path of a {SONAME}", f"no file at {path}")
        return path
    path = _installed(DISTRIBUTION)
    if path is None:
        raise _error("libdnnl", f"{SONAME} from {DISTRIBUTION}", "that it is not installed")
    return path


def _installed(distribution: str) -> Path | None:
    """Return the library that a distribution installed, if it is still there.

    Installers record the files of a distribution beside its code. The records are read here,
    because ``importlib.metadata`` takes as long to import as the library takes to load.
    """
    start = f"{distribution.replace('-', '_')}-"
    for folder in sys.path:
        for name in _names(folder or "."):
            if name.startswith(start) and name.endswith(".dist-info"):
                for place in _recorded(Path(folder, name, "RECORD")):
                    path = Path(folder, place)
                    if path.name == SONAME and path.is_file():
                        return path.resolve()
    return None


def _names(folder: str) -> list[str]:
    """Return the names in a folder, which patterns of ``pathlib`` find more slowly."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return []


def _recorded(record: Path) -> list[str]:
    """Return the files that an installer recorded."""
    try:
        return [line.partition(",")[0] for line in record.read_text("utf-8").splitlines()]
    except OSError:
        return []


def _open(path: Path) -> ctypes.CDLL:
    """Load the library, and make sure that the core will be bound to this very copy."""
    _check_elf(path)
    already = _resident()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise _unloadable(path, str(error)) from error
    if already is not None and already != library._handle:
        raise LibraryError.at(
            str(path),
            expected=f"to be the first {SONAME} in this process",
            found="that another package has loaded a different one",
            fix=f"set {ENVIRONMENT_VARIABLE} to that one, or load Stridewise first",
        )
    if _resident() != library._handle:
        raise _error(str(path), f"a library whose SONAME is {SONAME}", "another SONAME, or none")
    return library


def _check_elf(path: Path) -> None:
    """Check that the file is a whole ELF file; the dynamic linker crashes on a truncated one."""
    with path.open("rb") as file:
        header = file.read(ELF_HEADER.size)
        if not header.startswith(ELF_MAGIC) or len(header) < ELF_HEADER.size:
            raise _error(str(path), "a shared library", "a file that is not in ELF format")
        start, size, count = ELF_HEADER.unpack(header)
        file.seek(start)
        table = file.read(size * count)
    segments = [
        ELF_SEGMENT.unpack_from(table, at)
        for at in range(0, len(table) - ELF_SEGMENT.size + 1, size or 1)
    ]
    end = max((offset + length for offset, length in segments), default=0)
    found = path.stat().st_size
    if len(segments) < count or found < end:
        raise _error(str(path), f"a whole library, of {end} bytes or more", f"{found} bytes")


def _resident() -> int | None:
    """Return the handle of the library that the core would be bound to if it loaded now."""
    try:
        return ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)._handle
    except OSError:
        return None


def _unloadable(path: Path, reason: str) -> LibraryError:
    """Turn what the dynamic linker says into an error that says what to do."""
    missing, _, rest = reason.partition(": cannot open shared object file")
    if not rest or missing == str(path):
        return _error(str(path), "a library that can be loaded", reason)
    package = (
        "install the package libgomp1 (Debian, Ubuntu) or libgomp (Fedora, RHEL)"
        if missing.startswith("libgomp")
        else "install the package that holds it"
    )
    return LibraryError.at(
        str(path),
        expected=f"the library {missing}, which it needs",
        found="that this system does not have it",
        fix=package,
    )


def _check(library: ctypes.CDLL, path: Path) -> _Loaded:
    """Check the version and the threading of a loaded library."""
    try:
        query = library.dnnl_version
    except AttributeError as error:
        raise _error(str(path), "oneDNN", "a library without dnnl_version()") from error
    query.restype = ctypes.POINTER(_Version)
    query.argtypes = ()
    version = query().contents
    text = f"{version.major}.{version.minor}.{version.patch}"
    if version.major != MAJOR:
        raise _error(str(path), f"oneDNN {MAJOR}.x", text)
    threading = THREADING.get(version.cpu_runtime)
    if threading is None:
        raise _error(
            str(path),
            "oneDNN built for OpenMP",
            f"oneDNN {text} built for another CPU runtime (number {version.cpu_runtime})",
        )
    return _Loaded(path, text, threading)


def _error(where: str, expected: str, found: str) -> LibraryError:
    return LibraryError.at(where, expected=expected, found=found, fix=FIX)
