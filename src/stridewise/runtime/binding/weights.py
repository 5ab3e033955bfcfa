"""Packed constants, and sharing them between programs of one model for different shapes.

What a kernel wants packed alike from the same elements is packed once, whichever program asks
first. All that one program packs lies in one block, which huge pages make cheap to walk; a block
lives as long as any program that reads it.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stridewise.graph import Constant, Graph
from stridewise.program import PackedConstant
from stridewise.runtime.binding.kernels import Kernels
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.packing import Packing, pack_all
from stridewise.runtime.binding.provision import Provision

if TYPE_CHECKING:
    from stridewise import _core

__all__ = ["ArrayStore", "Block", "WeightStore", "Weights"]

Array = NDArray[Any]


class ArrayStore:
    """Arrays of equal content as one, so that simplifying a model anew makes no second copy.

    Simplifying gives new arrays in each import; their content does not depend on the shapes of the
    inputs. Arrays live as long as another object holds them. Constants whose elements are read or
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
        buffer: the memory, which may be larger than what is packed in it.
        nbytes: bytes of packed constants.
        sources: what was packed; kept where places in memory or in files tell constants apart.
    """

    def __init__(self, buffer: _core.Buffer, nbytes: int, sources: Sequence[Constant] = ()) -> None:
        """Keep all of them."""
        self.buffer, self.nbytes, self.sources = buffer, nbytes, tuple(sources)


class WeightStore:
    """Where packed constants are found again, as long as a program still reads their block."""

    def __init__(self, trunk: WeightStore | None = None, memory: Provision | None = None) -> None:
        """Start empty, or with what another store finds; the first block may have memory."""
        self._lock, self._trunk, self._memory = Lock(), trunk, memory
        self._places: dict[Hashable, tuple[weakref.ref[Block], int]] = {}

    def branch(self) -> WeightStore:
        """Return a store that also finds what this one has, and adds nothing to this one."""
        return WeightStore(self)

    def buffer(self, nbytes: int) -> _core.Buffer:
        """Return memory for a block, of as many bytes or more."""
        found = None if self._memory is None else self._memory.take(nbytes)
        return load_core().Buffer(nbytes) if found is None else found

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
            if (nbytes := constant.spec.transformed_nbytes)
        }
        self.own, self.offsets = _packed(missing, kept, threads, store)
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
    def stored(
        cls, buffer: _core.Buffer, offsets: Sequence[int], nbytes: int, winograd_nbytes: int
    ) -> Weights:
        """Return weights that an earlier process packed: one block, and what lies where in it."""
        found = cls.__new__(cls)
        found.own, found.offsets = Block(buffer, nbytes), {}
        found.blocks = (found.own,)
        found.buffers = [buffer]
        found.places = [(0, offset) for offset in offsets]
        found.own_nbytes, found.shared_nbytes = nbytes, 0
        found.winograd = {"stored": winograd_nbytes}
        return found


def _packed(
    missing: Sequence[Packing], sources: Sequence[Constant], threads: int, store: WeightStore
) -> tuple[Block, dict[Hashable, int]]:
    """Return a new block with these constants, and where each is in it."""
    offsets: dict[Hashable, int] = {}
    end = 0
    for packing in missing:
        offsets[packing.key] = end
        end += packing.nbytes
    buffer = store.buffer(end)
    pack_all([(packing, offsets[packing.key]) for packing in missing], buffer, threads)
    return Block(buffer, end, sources if missing else ()), offsets
