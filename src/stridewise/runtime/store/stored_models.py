"""Ready models: programs and packed weights on disk, so that the next start searches nothing.

One file holds one model as one process compiled it: a header with a checksum, the program as data,
and the packed weights as they lie in memory, in pieces with checksums of their own. Weights are
mapped, so that no memory is filled and no byte copied, after every byte went into a checksum. Those
find damage, and protect from nobody who may write into the folder anyway. A file counts
only where all that decided about it is as it was: its name is a digest of arguments, machine,
library and code, and inside stand the state of the model's files and of the measured costs.

Like the cost cache, this is a convenience: whatever is wrong with a file, the model is compiled
anew. Files are data, never code: what they may consist of is the list of classes below, and the
native core checks every address in a program.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import pickle
import secrets
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from stridewise import program as program_module
from stridewise.dtypes import DType
from stridewise.formats import Format
from stridewise.formats import data as format_module
from stridewise.graph import Graph, TensorType, Value
from stridewise.planner.split import Split
from stridewise.program import Program
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.weights import Weights
from stridewise.runtime.execution.executor import Face
from stridewise.runtime.store.fingerprint import Fingerprint, OutputSums
from stridewise.targets.kernels import KernelSpec, MemorySpec, PostOpSpec
from stridewise.tensor import TensorDesc
from stridewise.tensor.desc import View

if TYPE_CHECKING:
    from stridewise import _core

__all__ = ["Ready", "ReadyModels", "Stamp", "checksums", "stamp"]

_LOG = logging.getLogger("stridewise")
_SUFFIX = ".ready"
_HEADER = struct.Struct("<16s32sQ")
_MAGIC = b"stridewise rdy 3"
_PAGE = 4096
_PIECE = 8 << 20
_LARGEST_DOCUMENT = 1 << 28
_ABANDONED_S = 3600.0
"""Age of a draft that nobody is writing any more."""

_MODULES = (format_module, program_module)
_CLASSES = (
    DType, Face, Format, Graph, KernelSpec, MemorySpec, OutputSums, PostOpSpec, Split, TensorDesc,
    TensorType, Value, View,
)  # fmt: skip
"""What a file may hold, beside numbers, texts, tuples and dictionaries."""

Stamp = tuple[str, int, int, int, int]
"""A file and its state: path, inode, size, times of the last change of content and of state."""


def stamp(path: Path) -> Stamp:
    """Return the state of a file.

    Raises:
        OSError: there is none.
    """
    found = path.stat()
    return (str(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class Ready:
    """What a file holds but the weights themselves.

    Attributes:
        face: what a caller sees of the model.
        program: its program.
        offsets: where each constant lies in the weights.
        nbytes: size of the weights.
        winograd_nbytes: bytes of them that Winograd kernels have transformed.
        pieces: checksums of the weights, piece by piece.
        plan: the plan's document, compressed.
        sources: the files of the model, as they were.
        costs: keys of the measured costs that decided.
        costs_digest: what these costs were.
        outputs: what the model computed for seeded inputs, in few numbers.
    """

    face: Face
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

    @property
    def is_current(self) -> bool:
        """Whether the files of the model are as they were."""
        try:
            return all(stamp(Path(source[0])) == source for source in self.sources)
        except (OSError, ValueError):
            return False


def _known_classes() -> dict[tuple[str, str], type]:
    items = [item for module in _MODULES for item in vars(module).values()]
    types = [item for item in items if isinstance(item, type)]
    own = [item for item in types if item.__module__.startswith("stridewise.")]
    return {(item.__module__, item.__qualname__): item for item in (*_CLASSES, *own, Ready)}


class _Reader(pickle.Unpickler):
    """Reads the classes of the list and nothing else, so that no file can call anything."""

    def find_class(self, module: str, name: str, /) -> type:
        known = _known_classes().get((module, name))
        if known is None:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a ready model")
        return known


class _DamagedError(Exception):
    """A file is not what was written."""


def _needs(holds: object, what: str) -> None:
    if not holds:
        raise _DamagedError(what)


def _view(buffer: _core.Buffer, nbytes: int) -> memoryview:
    return memoryview(cast("Any", buffer.array()))[:nbytes]


def _read_document(file: BinaryIO) -> tuple[Ready, int]:
    """Return what the front of a file says, and where its weights begin."""
    header = file.read(_HEADER.size)
    _needs(len(header) == _HEADER.size, "too short")
    magic, digest, length = _HEADER.unpack(header)
    _needs(magic == _MAGIC and length <= _LARGEST_DOCUMENT, "no ready model")
    content = file.read(length)
    _needs(hashlib.sha256(content).digest() == digest, "checksum of the program")
    found = _Reader(io.BytesIO(content)).load()
    _needs(isinstance(found, Ready), "no ready model")
    return cast("Ready", found), _after(_HEADER.size + length)


def _after(end: int) -> int:
    return -(-end // _PAGE) * _PAGE


def _weights(file: BinaryIO, begin: int, ready: Ready) -> Weights:
    """Return the weights, mapped where that is safe, else read, once their checksums agree."""
    nbytes, descriptor = ready.nbytes, file.fileno()
    _needs(os.fstat(descriptor).st_size == begin + nbytes, "another length")
    core = load_core()
    mapped: _core.Buffer | None = core.Buffer.map(descriptor, begin, nbytes) if nbytes else None
    buffer: _core.Buffer = core.Buffer(nbytes) if mapped is None else mapped

    def checksum(offset: int, size: int) -> int:
        if mapped is not None:
            return mapped.checksum(offset, size)
        return buffer.read(descriptor, begin + offset, offset, size)

    found = _piecewise(checksum, nbytes, ready.face.threads)
    _needs(found == ready.pieces, "checksum of the weights")
    return Weights.ready(buffer, ready.offsets, nbytes, ready.winograd_nbytes)


def _piecewise(checksum: Callable[[int, int], int], nbytes: int, threads: int) -> tuple[int, ...]:
    """Return the checksums of all pieces, several at a time."""
    pieces = [(at, min(_PIECE, nbytes - at)) for at in range(0, nbytes, _PIECE)]
    with ThreadPoolExecutor(max(1, threads)) as pool:
        return tuple(pool.map(checksum, *zip(*pieces, strict=True))) if pieces else ()


def checksums(weights: Weights, threads: int) -> tuple[int, ...]:
    """Return checksums of the packed weights of a model, piece by piece."""
    return _piecewise(weights.buffers[0].checksum, weights.own_nbytes, threads)


class ReadyModels:
    """The ready models in a folder; those not used for longest go first when room runs out.

    Attributes:
        folder: where they lie.
        limit: bytes that they may take together; with 0 nothing is read or written.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        """Refer to a folder; nothing is read or written yet."""
        self.folder, self.limit = folder, limit

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def find(self, key: str) -> tuple[Ready, Weights] | None:
        """Return a model and its weights; None where there is none, or one that does not count."""
        if not self.limit:
            return None
        path = self._path(key)
        try:
            with path.open("rb", buffering=0) as file:
                ready, begin = _read_document(cast("BinaryIO", file))
                if not ready.is_current:
                    return None
                weights = _weights(cast("BinaryIO", file), begin, ready)
            os.utime(path)  # it was used, whatever the file system thinks of access times
        except FileNotFoundError:
            return None
        except OSError as error:
            _LOG.info("ready model %s is not used: %s", path, error)
            return None
        except MemoryError:
            raise
        except Exception as error:  # whatever nonsense in a file leads to
            _LOG.warning("ready model %s is damaged (%s) and is made anew", path, error)
            return None
        return ready, weights

    def forget(self, key: str) -> None:
        """Remove a model."""
        try:
            self._path(key).unlink(missing_ok=True)
        except OSError as error:
            _LOG.info("ready model %s cannot be removed: %s", self._path(key), error)

    def keep(self, key: str, ready: Ready, weights: Weights) -> bool:
        """Write a model, whole or not at all; return whether it is there now."""
        content = pickle.dumps(ready, protocol=5)
        begin = _after(_HEADER.size + len(content))
        if begin + ready.nbytes > self.limit or len(content) > _LARGEST_DOCUMENT:
            return False
        digest = hashlib.sha256(content).digest()
        front = (_HEADER.pack(_MAGIC, digest, len(content)) + content).ljust(begin, b"\0")
        draft = self.folder / f".{key}.{os.getpid()}.{secrets.token_hex(4)}.draft"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._make_room(begin + ready.nbytes, but=self._path(key))
            try:
                with draft.open("xb") as file:
                    file.write(front)
                    file.write(_view(weights.buffers[0], ready.nbytes))
                    # Who uses it maps it: it may be replaced and removed, and not written to.
                    os.fchmod(file.fileno(), 0o444)
                draft.replace(self._path(key))
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
        except (OSError, ValueError) as error:
            _LOG.warning("ready model %s is not kept: %s", self._path(key), error)
            return False
        return True

    def _make_room(self, nbytes: int, but: Path) -> None:
        """Remove models until one more of this size fits, and what interrupted writers left."""
        found = list(_sizes(self.folder.glob(f"*{_SUFFIX}")))
        total = nbytes + sum(size for _, size, path in found if path != but)
        for _, size, path in sorted(found):
            if total <= self.limit:
                break
            if path != but:
                path.unlink(missing_ok=True)
                total -= size
        for used, _, path in _sizes(self.folder.glob(".*.draft")):
            if time.time() - used > _ABANDONED_S:
                path.unlink(missing_ok=True)


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
