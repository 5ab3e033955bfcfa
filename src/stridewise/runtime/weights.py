"""Packed constants, and sharing them between programs of one model for different shapes.

What a kernel wants packed alike from the same elements is packed once, whichever program asks
first. All that one program packs lies in one block, which huge pages make cheap to walk; a block
lives as long as any program that reads it.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from stridewise.graph import Constant, Graph
from stridewise.ops.winograd import packed_nbytes
from stridewise.runtime.library import load_core
from stridewise.runtime.memory import ALIGNMENT
from stridewise.runtime.primitives import pack_into, packs_itself, role_argument
from stridewise.runtime.program import PackedConstant

if TYPE_CHECKING:
    from stridewise import _core
    from stridewise.runtime.native import Kernels

__all__ = ["ArrayStore", "Block", "Packing", "WeightStore", "Weights"]

Array = NDArray[Any]
_Item = TypeVar("_Item")

_PART_NBYTES = 2 << 20
"""Least bytes of what is packed at a time: it is read, multiplied and moved while in the caches, in
memory that every part uses again. A whole constant would need memory that nobody had before."""
_UNITS = (48, 64)
"""Rows that may be whole blocks: formats have blocks of 8, 16, 24, 32, 48 or 64."""


class _Part(NamedTuple):
    """Some rows of a constant, and the axis that they are of what is packed."""

    begin: int
    end: int
    axis: int


class ArrayStore:
    """Arrays of equal content as one, so that simplifying a model anew makes no second copy.

    Simplifying gives new arrays in each import; their content does not depend on the shapes of the
    inputs. Arrays live as long as somebody else holds them. Constants whose elements are read or
    computed when they are asked for have no array, and are told apart by where they come from.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._seen: weakref.WeakValueDictionary[Hashable, Array] = weakref.WeakValueDictionary()
        self._alike: weakref.WeakValueDictionary[Hashable, Array] = weakref.WeakValueDictionary()

    def shared(self, graph: Graph) -> Graph:
        """Return a graph whose constants are those of earlier graphs, where these are equal."""
        found = {name: self._constant(item) for name, item in graph.constants.items()}
        return replace(graph, constants=MappingProxyType(found))

    def _constant(self, constant: Constant) -> Constant:
        if constant.is_deferred or constant.is_dropped:
            return constant
        array = constant.array
        known = self._seen.get(constant.key)
        if known is None and array.flags.c_contiguous:
            content = hashlib.sha256(array.reshape(-1).view(np.uint8).data).digest()
            key = (array.dtype.str, array.shape, content)
            known = self._alike.setdefault(key, array)
            self._seen[Constant(known).key] = known
        return constant if known is None or known is array else Constant(known)


class Block:
    """Packed constants in one piece of memory.

    Attributes:
        buffer: the memory.
        sources: what was packed; kept where places in memory or in files tell constants apart.
    """

    def __init__(self, buffer: _core.Buffer, sources: Sequence[Constant]) -> None:
        """Keep both."""
        self.buffer, self.sources = buffer, tuple(sources)


class WeightStore:
    """Where packed constants are found again, as long as a program still reads their block."""

    def __init__(self, trunk: WeightStore | None = None) -> None:
        """Start empty, or with what another store finds."""
        self._lock, self._trunk = Lock(), trunk
        self._places: dict[Hashable, tuple[weakref.ref[Block], int]] = {}

    def branch(self) -> WeightStore:
        """Return a store that finds what this one does, and keeps to itself what it gets."""
        return WeightStore(self)

    def adopt(self, weights: Weights) -> None:
        """Take what was packed for a program with a branch of this store."""
        self.add(weights.own, weights.offsets)

    def find(self, key: Hashable) -> tuple[Block, int] | None:
        """Return the block and the offset of what was packed under a key."""
        with self._lock:
            found = self._places.get(key)
        block = None if found is None else found[0]()
        if found is not None and block is not None:
            return block, found[1]
        return None if self._trunk is None else self._trunk.find(key)

    def add(self, block: Block, offsets: Mapping[Hashable, int]) -> None:
        """Remember what lies where in a block, and forget blocks that are gone."""
        reference = weakref.ref(block)
        with self._lock:
            self._places = {
                **{key: place for key, place in self._places.items() if place[0]() is not None},
                **{key: (reference, offset) for key, offset in offsets.items()},
            }


@dataclass(frozen=True, slots=True)
class Packing:
    """What it takes to pack one constant.

    Attributes:
        constant: what is packed.
        source: its elements; None where all are the constant's ``fill``.
        desc: the format that the kernel wants; None for the array's own row-major bytes.
        key: equal for constants that are packed to the same bytes.
        reader: the kernel that asks for the format, where there is one.
        role: as what it reads the constant.
    """

    constant: PackedConstant
    source: Constant | None
    desc: _core.MemoryDesc | None
    key: Hashable
    reader: _core.Primitive | _core.Kernel | None = None
    role: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in a block."""
        own = self.source.nbytes if self.source else 0
        if self.desc:
            own = max(self.desc.nbytes, self.desc.extent)
        return -(-own // ALIGNMENT) * ALIGNMENT

    @classmethod
    def of(
        cls, constant: PackedConstant, kernels: Kernels, originals: Mapping[str, Constant]
    ) -> Packing:
        """Return how a constant is packed for the kernel that asks for it."""
        source = originals[constant.value] if constant.value else None
        of = constant.fill if source is None else source.key
        spec = constant.spec
        if spec is None:
            return cls(constant, source, None, of)
        reader = kernels.get(spec, constant.implementation)
        desc = reader.arg_desc(role_argument(spec.kind, constant.role))
        if constant.value and packs_itself(reader, constant.role):
            # The description says how long the transformed weights are, not what they are.
            own = (of, spec.kind, spec.params, constant.implementation, desc)
            return cls(constant, source, desc, own, reader, constant.role)
        key = (of, constant.reshape, constant.permute, desc)
        return cls(constant, source, desc, key)

    @property
    def parts(self) -> Sequence[_Part | None]:
        """What is packed at a time, in order; None for all of it."""
        source, rows = self.source, self._rows()
        if source is None or rows is None:
            return (None,)
        axis, unit = rows
        count = source.shape[0]
        step = -(-_PART_NBYTES // (unit * (source.nbytes // count))) * unit
        return [_Part(at, min(at + step, count), axis) for at in range(0, count, step)]

    def _rows(self) -> tuple[int, int] | None:
        """Return which axis of what is packed the rows of the source are, and a number of them.

        Multiples of that number can be packed by themselves. None where that is not possible, or
        not worth it.
        """
        constant, source = self.constant, self.source
        if self.desc is None or source is None or source.nbytes <= _PART_NBYTES:
            return None
        if not source.has_rows or source.dtype.numpy != np.float32:
            return None
        if self.reader is not None:
            return 0, _UNITS[-1]
        shape = constant.reshape or source.shape
        permute = constant.permute or tuple(range(len(shape)))
        dims = tuple(self.desc.dims)
        if tuple(shape[axis] for axis in permute) != dims or shape[0] != source.shape[0]:
            return None
        axis = permute.index(0)
        units = (unit for unit in _UNITS if 2 * unit <= dims[axis])
        unit = next((unit for unit in units if _can_cut(self.desc, axis, unit)), None)
        return None if unit is None else (axis, unit)

    def pack(self, buffer: _core.Buffer, offset: int, part: _Part | None = None) -> None:
        """Write the packed constant, or a part of it, to where it lies in a buffer."""
        core, desc, reader = load_core(), self.desc, self.reader
        array = self._elements(part)
        if desc is None:
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            buffer.array()[offset : offset + flat.size] = flat
            return
        first = 0 if part is None else part.begin
        if reader is not None and pack_into(reader, self.role, array, buffer, offset, first):
            return
        if array.dtype != np.float32 or min(array.strides, default=1) <= 0:
            # The library cannot describe broadcast and reversed views.
            array = np.ascontiguousarray(array, np.float32)
        strides = [step // array.itemsize for step in array.strides]
        if part is not None:
            begins = [first if axis == part.axis else 0 for axis in range(array.ndim)]
            desc = desc.submemory(array.shape, begins)
        source = core.MemoryDesc.strided(desc.dims, "f32", strides)
        core.prepack_into(array, source, desc, buffer, offset, 1)

    def _elements(self, part: _Part | None) -> Array:
        """Return elements, where the kernel has a format in the order of its dimensions."""
        dims = () if self.desc is None else tuple(self.desc.dims)
        if self.source is None:
            return np.broadcast_to(np.float32(self.constant.fill), dims)
        array = self.source.array if part is None else self.source.rows(part.begin, part.end)
        if self.desc is None or self.reader is not None:
            return array
        if self.constant.reshape is not None:
            rows = self.constant.reshape[:1] if part is None else array.shape[:1]
            array = array.reshape((*rows, *self.constant.reshape[1:]))
        if self.constant.permute is not None:
            array = array.transpose(self.constant.permute)
        return np.broadcast_to(array, dims) if part is None and array.shape != dims else array


def _can_cut(desc: _core.MemoryDesc, axis: int, unit: int) -> bool:
    """Return whether a part of a format, along an axis, is whole blocks."""
    extents, begins = list(desc.dims), [0] * desc.ndims
    extents[axis] = begins[axis] = unit
    try:
        desc.submemory(extents, begins)
    except load_core().NativeError:
        return False
    return True


class Weights:
    """The packed constants of one program.

    Attributes:
        buffers: the memory that the native program reads constants from.
        places: for each constant, which buffer, and the offset in it.
        own: the block that was packed for this program.
        offsets: what lies where in it, by the keys of packings.
        blocks: what keeps the buffers; the own one comes first.
        own_nbytes: bytes that were packed for this program.
        shared_nbytes: bytes that lie in blocks of other programs.
        winograd: bytes of weights that Winograd kernels have transformed; their keys are equal
            where programs share them.
    """

    def __init__(
        self,
        constants: Sequence[PackedConstant],
        kernels: Kernels,
        originals: Mapping[str, Constant],
        threads: int,
        store: WeightStore | None,
    ) -> None:
        """Find the constants in the store and pack those that are not there."""
        # Places tell constants apart in a store, whose blocks therefore keep what they are of.
        kept = () if store is None else tuple(originals.values())
        store = store or WeightStore()
        wanted = [Packing.of(constant, kernels, originals) for constant in constants]
        distinct = {packing.key: packing for packing in wanted}
        known = {key: place for key in distinct if (place := store.find(key)) is not None}
        missing = [packing for key, packing in distinct.items() if key not in known]
        self.own_nbytes = sum(packing.nbytes for packing in missing)
        self.shared_nbytes = sum(distinct[key].nbytes for key in known)
        self.winograd: Mapping[Hashable, int] = {
            packing.key: nbytes
            for constant, packing in zip(constants, wanted, strict=True)
            if constant.spec is not None and constant.role == "weights"
            if (nbytes := packed_nbytes(constant.spec))
        }
        self.own, self.offsets = _packed(missing, kept, threads)
        store.add(self.own, self.offsets)
        known.update({key: (self.own, offset) for key, offset in self.offsets.items()})
        # The own block comes first; it is there even if empty, so that every program has one.
        self.blocks = tuple(dict.fromkeys((self.own, *(block for block, _ in known.values()))))
        numbers = {id(block): number for number, block in enumerate(self.blocks)}
        self.buffers = [block.buffer for block in self.blocks]
        self.places = [
            (numbers[id(known[packing.key][0])], known[packing.key][1]) for packing in wanted
        ]

    @classmethod
    def ready(
        cls, buffer: _core.Buffer, offsets: Sequence[int], nbytes: int, winograd_nbytes: int
    ) -> Weights:
        """Return weights that an earlier process packed: one block, and what lies where in it."""
        found = cls.__new__(cls)
        found.own, found.offsets = Block(buffer, ()), {}
        found.blocks = (found.own,)
        found.buffers = [buffer]
        found.places = [(0, offset) for offset in offsets]
        found.own_nbytes, found.shared_nbytes = nbytes, 0
        found.winograd = {"ready": winograd_nbytes}
        return found


def _packed(
    missing: Sequence[Packing], sources: Sequence[Constant], threads: int
) -> tuple[Block, dict[Hashable, int]]:
    """Return a new block with these constants, and where each is in it."""
    offsets: dict[Hashable, int] = {}
    end = 0
    for packing in missing:
        offsets[packing.key] = end
        end += packing.nbytes
    buffer: _core.Buffer = load_core().Buffer(end)
    # The largest first, so that no thread is left with much when the others are done.
    work = [
        (packing, part)
        for packing in sorted(missing, key=lambda packing: -packing.nbytes)
        for part in packing.parts
    ]

    def pack(group: Sequence[tuple[Packing, _Part | None]]) -> None:
        for packing, part in group:
            packing.pack(buffer, offsets[packing.key], part)

    _in_threads(pack, _grouped(work), threads)
    return Block(buffer, sources if missing else ()), offsets


def _grouped(
    work: Sequence[tuple[Packing, _Part | None]],
) -> list[list[tuple[Packing, _Part | None]]]:
    """Return what each call of a thread packs: small constants together."""
    groups: list[list[tuple[Packing, _Part | None]]] = []
    nbytes = _PART_NBYTES
    for packing, part in work:
        if nbytes >= _PART_NBYTES:
            groups.append([])
            nbytes = 0
        groups[-1].append((packing, part))
        nbytes += packing.nbytes if part is None else _PART_NBYTES
    return groups


def _in_threads(do: Callable[[_Item], None], work: Sequence[_Item], threads: int) -> None:
    """Do all of some work, several pieces of it at a time; what is interrupted begins no more."""
    if threads == 1 or len(work) < 2:
        for item in work:
            do(item)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        for _ in pool.map(do, work):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
