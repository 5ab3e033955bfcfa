"""The compiled-model store: programs and packed weights on disk, so that the next start is fast.

One file holds one compiled model: a header with a checksum, the program as data, and the packed
weights as they are in memory, in pieces with checksums. Weights are mapped without a copy, and
nothing computes with them before all checksums were compared. Checksums detect corruption, not
tampering. A file is used only if everything that decided about the model is unchanged: its name is
a digest of options, machine, library and code, and it records the state of the model's files and
of the measured costs.

Like the cost cache, the store is a convenience: if anything is wrong with a file, the model is
compiled again. Files are data, never code: they may hold only the classes listed below, and the
native core checks every address in a program.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import logging
import os
import pickle
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from stridewise import program as program_module
from stridewise.classes import HASH, dataclass
from stridewise.dtypes import DType
from stridewise.errors import StridewiseError
from stridewise.formats import Format
from stridewise.formats import data as format_module
from stridewise.graph import Extent, Graph, InputSpec, Signature, TensorType, Value
from stridewise.interrupts import Deferred
from stridewise.planner.split import Split
from stridewise.program import Program
from stridewise.replacing import remove_abandoned, replacing
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.reorders import PlannedReorder
from stridewise.runtime.binding.weights import Weights
from stridewise.runtime.execution.executor import CallSignature
from stridewise.runtime.store.fingerprint import Fingerprint, OutputSums
from stridewise.targets.kernels import KernelSpec, MemorySpec, PostOpSpec
from stridewise.tensor import TensorDesc
from stridewise.tensor.desc import View

if TYPE_CHECKING:
    from stridewise import _core

__all__ = [
    "Found",
    "ModelStore",
    "OpenInputs",
    "Stamp",
    "StoredModel",
    "checksums",
    "settle",
    "stamp",
]

_LOG = logging.getLogger("stridewise")
_SUFFIX = ".model"
_DAMAGED = "stored model %s is damaged (%s); the model is compiled again"
_HEADER = struct.Struct("<16s32sQQ")
_MAGIC = b"stridewise mdl 8"
_PAGE = 4096
_LARGEST_DOCUMENT, _MOST_PIECES = 1 << 28, 1 << 16
_LATER_S, _LATEST_S, _POLL_S = 1.0, 20.0, 0.05
"""When the writer of a compiled model begins: in an idle process, and in a busy one. How often it
looks whether the process is busy, or ends."""
_IDLE = 0.1
"""The share of one processor that an idle process uses at most."""

_MODULES = (format_module, program_module)
_CLASSES = (
    CallSignature, DType, Extent, Format, Graph, InputSpec, KernelSpec, MemorySpec, OutputSums,
    PostOpSpec, Signature, Split, TensorDesc, TensorType, Value, View,
)  # fmt: skip
"""Classes that a file may hold, beside numbers, texts, tuples and dictionaries."""

Stamp = tuple[str, int, int, int, int]
"""A file and its state: path, inode, size, times of the last change of content and of state."""


def stamp(path: Path | os.DirEntry[str]) -> Stamp:
    """Return the state of a file.

    Raises:
        OSError: there is none.
    """
    found = path.stat()
    return (os.fspath(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class OpenInputs:
    """What callers may ask of a model for many shapes, of which one program is stored.

    Attributes:
        signature: the inputs, and the shapes that they may have.
        arguments: names of all inputs in the order of a call.
        shapes: those of the stored program, by name.
    """

    signature: Signature
    arguments: tuple[str, ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """The content of a file without the weights.

    Attributes:
        signature: inputs and outputs.
        program: the program.
        offsets: offset of each constant in the weights.
        nbytes: size of the weights.
        winograd_nbytes: bytes of them that Winograd kernels have transformed.
        pieces: checksums of the weights, piece by piece.
        plan: the plan's document, compressed.
        sources: the state of the model's files.
        costs: keys of the measured costs that decided.
        costs_digest: digest of these costs.
        outputs: sums of the outputs for seeded inputs.
        reorders: how the core computes its reorders of the program.
        inputs: those of the model if it is for many shapes; None if it is for one.
        key: the key that it is stored under, as files may be renamed.
        digest: digest of the file that it was read from, weights included; "" for none.
    """

    signature: CallSignature
    program: Program
    offsets: tuple[int, ...]
    nbytes: int
    winograd_nbytes: int
    pieces: tuple[int, ...]
    plan: bytes
    sources: tuple[Stamp, ...]
    costs: tuple[str, ...]
    costs_digest: str
    outputs: Fingerprint
    reorders: tuple[tuple[KernelSpec, PlannedReorder], ...] = ()
    inputs: OpenInputs | None = None
    key: str = ""
    digest: str = ""

    @property
    def is_current(self) -> bool:
        """Whether the files of the model are as they were."""
        try:
            return all(stamp(Path(source[0])) == source for source in self.sources)
        except (OSError, ValueError):
            return False


_OWN = OpenInputs, StoredModel


@cache
def _known_classes() -> dict[tuple[str, str], type]:
    items = [item for module in _MODULES for item in vars(module).values()]
    types = [item for item in items if isinstance(item, type)]
    own = [item for item in types if item.__module__.startswith("stridewise.")]
    return {(item.__module__, item.__qualname__): item for item in (*_CLASSES, *own, *_OWN)}


@cache
def _fields(of: type) -> tuple[str, ...]:
    """Return the fields of a dataclass with slots; ``dataclasses.fields`` needs all its methods."""
    slots = (name for base in reversed(of.__mro__) for name in vars(base).get("__slots__", ()))
    return tuple(name for name in slots if name != HASH)  # hashes of texts are those of a process


def _restored(of: type, *values: object) -> object:
    """Return a dataclass with these fields, as it was, without checking it again.

    Those of the standard library look their fields up for each object, which takes longer than all
    else.
    """
    found: object = object.__new__(cast("type[object]", of))
    for name, value in zip(_fields(of), values, strict=True):
        object.__setattr__(found, name, value)
    return found


class _Writer(pickle.Pickler):
    """Pickles dataclasses by their fields."""

    def reducer_override(self, obj: object, /) -> Any:
        of = type(obj)
        if not hasattr(of, "__dataclass_fields__"):
            return NotImplemented
        return _restored, (of, *(getattr(obj, name) for name in _fields(of)))


class _Reader(pickle.Unpickler):
    """Unpickles the listed classes only, so that no file can call anything."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) == (_restored.__module__, _restored.__name__):
            return _restored
        known = _known_classes().get((module, name))
        if known is None:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a stored model")
        return known


class _DamagedError(Exception):
    """A file is damaged."""


def _needs(holds: object, what: str) -> None:
    if not holds:
        raise _DamagedError(what)


def _view(buffer: _core.Buffer, nbytes: int) -> memoryview:
    return memoryview(cast("Any", buffer.array()))[:nbytes]


def _read_content(file: BinaryIO) -> tuple[bytes, bytes, int]:
    """Return the document of a file, not yet decoded, its digest, and the number of pieces."""
    header = file.read(_HEADER.size)
    _needs(len(header) == _HEADER.size, "too short")
    magic, digest, length, pieces = _HEADER.unpack(header)
    _needs(magic == _MAGIC and length <= _LARGEST_DOCUMENT, "not a stored model")
    _needs(pieces <= _MOST_PIECES, "not a stored model")
    return file.read(length), digest, pieces


def _decoded(content: bytes, digest: bytes) -> StoredModel:
    _needs(hashlib.sha256(content).digest() == digest, "checksum of the program")
    found = _Reader(io.BytesIO(content)).load()
    _needs(isinstance(found, StoredModel), "not a stored model")
    return dataclasses.replace(cast("StoredModel", found), digest=digest.hex())


def _after(end: int) -> int:
    return -(-end // _PAGE) * _PAGE


class Found:
    """A stored model whose weights are still being compared with their checksums.

    Attributes:
        stored: the content without the weights.
        weights: the weights; nothing may compute with them before :meth:`is_sound` says so.
    """

    def __init__(self, file: BinaryIO, path: Path, threads: int) -> None:
        """Read a file. Weights are mapped if that is safe, else read.

        Threads compute checksums, each in few calls: while another one runs Python, a thread
        waits for milliseconds before it can call again.
        """
        self._path = path
        content, digest, pieces = _read_content(file)
        begin = _after(_HEADER.size + len(content))
        nbytes = os.fstat(file.fileno()).st_size - begin
        _needs(nbytes >= 0, "another length")
        # A thread may need the file after the caller has closed it.
        descriptor = os.dup(file.fileno())
        # At the end of a process, Python starts no more threads.
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        try:
            checksum, buffer = _checksum(descriptor, begin, nbytes)
            with Deferred():
                found = (self._pool.map if self._pool else map)(checksum, _pieces(nbytes, pieces))
            self._sums: Iterator[int] = found
            self.stored = _decoded(content, digest)
            _needs(self.stored.nbytes == nbytes, "another length")
        except BaseException:
            self._end(descriptor)
            raise
        self._descriptor: int | None = descriptor
        size, winograd = self.stored.nbytes, self.stored.winograd_nbytes
        self.weights = Weights.stored(buffer, self.stored.offsets, size, winograd)

    def _end(self, descriptor: int) -> None:
        with Deferred():
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)
            os.close(descriptor)

    def drop(self) -> None:
        """Compute no more checksums."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._end(descriptor)

    @cached_property
    def is_sound(self) -> bool:
        """Whether the weights are those that were stored."""
        try:
            with Deferred():
                found = tuple(self._sums)
            _needs(found == self.stored.pieces, "checksum of the weights")
        except MemoryError:
            raise
        except Exception as error:  # any failure to read
            _LOG.warning(_DAMAGED, self._path, error)
            return False
        finally:
            self.drop()
        return True


def _checksum(
    descriptor: int, begin: int, nbytes: int
) -> tuple[Callable[[tuple[int, int]], int], _core.Buffer]:
    """Return what gives the checksum of a piece of the weights in a file, and their memory."""
    core = load_core()
    mapped: _core.Buffer | None = core.Buffer.map(descriptor, begin, nbytes) if nbytes else None
    buffer: _core.Buffer = core.Buffer(nbytes) if mapped is None else mapped

    def checksum(piece: tuple[int, int]) -> int:
        offset, size = piece
        if mapped is not None:
            return mapped.checksum(offset, size)
        return buffer.read(descriptor, begin + offset, offset, size)

    return checksum, buffer


def _pieces(nbytes: int, count: int) -> list[tuple[int, int]]:
    """Return offset and size of each piece of the weights that has a checksum of its own.

    Args:
        nbytes: size of the weights.
        count: the number of pieces; there are fewer if weights are small.
    """
    size = max(_after(-(-nbytes // max(count, 1))), _PAGE)
    return [(at, min(size, nbytes - at)) for at in range(0, nbytes, size)]


def checksums(weights: Weights, count: int) -> tuple[int, ...]:
    """Return checksums of the packed weights of a model, in as many pieces.

    One thread computes them: at the end of a process, when a model is still being stored, Python
    starts no more threads.
    """
    checksum = weights.buffers[0].checksum
    return tuple(checksum(*piece) for piece in _pieces(weights.own_nbytes, count))


class ModelStore:
    """The stored models in a folder; the least recently used are removed first.

    Attributes:
        folder: the folder.
        limit: bytes that the models may take together; with 0 nothing is read or written.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        """Refer to a folder; nothing is read or written yet."""
        self.folder, self.limit = folder, limit

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def find(self, key: str, threads: int = 1) -> Found | None:
        """Return a model; None if there is none, or it may not be used.

        Args:
            key: the model's key.
            threads: how many compute checksums.
        """
        _wait_for(self._path(key))
        return self.read(key, threads) if self.limit else None

    def read(self, key: str, threads: int = 1) -> Found | None:
        """Return what :meth:`find` returns, of a file that is written."""
        path = self._path(key)
        try:
            with path.open("rb", buffering=0) as file:
                found = Found(cast("BinaryIO", file), path, threads)
                is_own = found.stored.key == key
                if not is_own or not found.stored.is_current:
                    found.drop()
                _needs(is_own, "the file of another model")
                if not found.stored.is_current:
                    return None
            # File systems may not record access times. Folders that are read-only keep no order.
            with suppress(OSError):
                os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            _LOG.info("stored model %s is not used: %s", path, error)
            return None
        except MemoryError:
            raise
        except Exception as error:  # any decoding failure
            _LOG.warning(_DAMAGED, path, error)
            return None
        return found

    def checks(self, key: str) -> Path:
        """Return the file that says what was checked about a model."""
        return self._path(key).with_suffix(".checked")

    def forget(self, key: str) -> None:
        """Remove a model."""
        try:
            _remove(self._path(key))
        except OSError as error:
            _LOG.info("stored model %s cannot be removed: %s", self._path(key), error)

    def keep(self, key: str, stored: StoredModel, weights: Weights) -> bool:
        """Write a model, whole or not at all; return whether it is there now."""
        document = io.BytesIO()
        _Writer(document, protocol=5).dump(dataclasses.replace(stored, key=key))
        content = document.getvalue()
        begin = _after(_HEADER.size + len(content))
        if begin + stored.nbytes > self.limit or len(content) > _LARGEST_DOCUMENT:
            return False
        digest = hashlib.sha256(content).digest()
        header = _HEADER.pack(_MAGIC, digest, len(content), len(stored.pieces))
        front = (header + content).ljust(begin, b"\0")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._free(begin + stored.nbytes, but=self._path(key))
            # A file that a crash of the machine cuts short is found by its checksums.
            with replacing(self._path(key), sync=False) as file:
                file.write(front)
                file.write(_view(weights.buffers[0], stored.nbytes))
                # Processes map it: it may be replaced and removed, but not written to.
                os.fchmod(file.fileno(), 0o444)
        except (OSError, ValueError) as error:
            _LOG.warning("stored model %s is not written: %s", self._path(key), error)
            return False
        return True

    def keep_later(
        self, key: str, make: Callable[[], StoredModel], weights: Weights, check: Callable[[], None]
    ) -> None:
        """Write a model in a thread of its own, while the caller goes on.

        The thread begins when the process is idle, a second later or after 20 seconds at most, so
        that it does not slow the first runs of the model. The process does not end before the file
        is written, and :meth:`find` waits for it.

        Args:
            key: the model's key.
            make: returns the content of the file; it is called by that thread.
            weights: the packed weights.
            check: called by that thread when the file is written.
        """
        path, hurry = self._path(key), threading.Event()

        def write() -> None:
            _wait_until_idle(hurry)
            try:
                if self.keep(key, make(), weights):
                    check()
            except (MemoryError, StridewiseError) as error:
                _LOG.warning("stored model %s is not written: %s", path, error)
            finally:
                _WRITERS.pop(path, None)

        for _, other in list(_WRITERS.values()):
            other.set()  # at most one waits, because each holds the weights of its model
        _wait_for(path)
        writer = threading.Thread(target=write, name="stridewise store")
        _WRITERS[path] = writer, hurry
        writer.start()

    def _free(self, nbytes: int, but: Path) -> None:
        """Remove models until one more of this size fits, and drafts of interrupted writers."""
        found = list(_sizes(self.folder.glob(f"*{_SUFFIX}")))
        total = nbytes + sum(size for _, size, path in found if path != but)
        for _, size, path in sorted(found):
            if total <= self.limit:
                break
            if path != but:
                _remove(path)
                total -= size
        remove_abandoned(self.folder)


_WRITERS: dict[Path, tuple[threading.Thread, threading.Event]] = {}
"""The files that this process is writing, by which threads, and what lets these begin at once. In a
forked child none of the threads is alive."""


def _wait_until_idle(hurry: threading.Event) -> None:
    """Return when the process is idle, ends, or cannot wait any longer."""
    begin, used = time.monotonic(), time.process_time()
    last = begin
    while threading.main_thread().is_alive() and not hurry.wait(_POLL_S):
        now, total = time.monotonic(), time.process_time()
        is_idle = total - used < _IDLE * (now - last)
        if now - begin > (_LATER_S if is_idle else _LATEST_S):
            return
        last, used = now, total


def _remove(path: Path) -> None:
    for one in (path, path.with_suffix(".checked")):
        one.unlink(missing_ok=True)


def _wait_for(path: Path) -> None:
    writer, hurry = _WRITERS.get(path, (None, None))
    if writer is not None and hurry is not None and writer.ident is not None:
        hurry.set()
        writer.join()


def settle() -> None:
    """Wait until all models that this process stores are written."""
    for path in list(_WRITERS):
        _wait_for(path)


def _sizes(paths: Iterable[Path]) -> Sequence[tuple[float, int, Path]]:
    """Return when files were last used and their sizes, of those that are still there."""
    found: list[tuple[float, int, Path]] = []
    for path in paths:
        try:
            state: Any = path.stat()
        except OSError:
            continue
        found.append((state.st_mtime, state.st_size, path))
    return found
