"""Packing constants: into the formats that kernels want, in parts, by several threads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from stridewise.classes import dataclass
from stridewise.dtypes import DType, dtype_of
from stridewise.graph import Constant
from stridewise.interrupts import Deferred
from stridewise.program import PackedConstant
from stridewise.runtime.binding.arguments import role_argument
from stridewise.runtime.binding.kernels import Kernels
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.primitives import pack_into, packs_itself
from stridewise.targets.kernels import MemorySpec
from stridewise.targets.onednn.groups import together

if TYPE_CHECKING:
    from stridewise import _core

__all__ = ["ALIGNMENT", "Packing", "pack_all"]

ALIGNMENT = 64
"""A cache line, and the width of an AVX-512 register."""

Array = NDArray[Any]
_Item = TypeVar("_Item")

_PART_NBYTES = 2 << 20
"""Least bytes of what is packed at a time: it is read, multiplied and moved while in the caches, in
memory that every part uses again. A whole constant would need additional memory."""
_UNITS = (48, 64)
"""Rows that may be whole blocks: formats have blocks of 8, 16, 24, 32, 48 or 64."""


class _Part(NamedTuple):
    """Some rows of a constant, and the axis that they are of what is packed."""

    begin: int
    end: int
    axis: int


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
        plain: the type of row-major elements that the kernel describes as bytes; else None.
    """

    constant: PackedConstant
    source: Constant | None
    desc: _core.MemoryDesc | None
    key: Hashable
    reader: _core.Primitive | _core.Kernel | None = None
    role: str = ""
    plain: DType | None = None

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
        own = (constant.grid, constant.affine)
        of = (constant.fill, constant.numbers) if source is None else (source.key, *own)
        spec = constant.spec
        if spec is None:
            return cls(constant, source, None, of)
        reader = kernels.get(spec, constant.implementation)
        desc = reader.arg_desc(role_argument(spec.kind, constant.role))
        if constant.value and packs_itself(reader, constant.role):
            # The description says how long the transformed weights are, not what they are.
            known = (of, spec.kind, spec.params, constant.implementation, desc)
            return cls(constant, source, desc, known, reader, constant.role)
        plain = _plain(spec.memory(constant.role), desc)
        key = (of, constant.reshape, constant.permute, desc, plain)
        return cls(constant, source, desc, key, plain=plain)

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
        if not source.has_rows or source.dtype.numpy != np.float32 or constant.grid is not None:
            return None  # sums over all integers go with them
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
        if desc is None or self.plain is not None:
            dtype = array.dtype if self.plain is None else self.plain.numpy
            flat = np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8)
            buffer.array()[offset : offset + flat.size] = flat
            return
        first = 0 if part is None else part.begin
        if reader is not None and pack_into(reader, self.role, array, buffer, offset, first):
            return
        elements = dtype_of(array.dtype)
        is_index = array.dtype == np.int32 and desc.dtype == "s32"
        if self.constant.grid is None and not self.constant.numbers and not is_index:
            elements = dtype_of("float32")
        if array.dtype != elements.numpy or min(array.strides, default=1) <= 0:
            # The library cannot describe broadcast and reversed views.
            array = np.ascontiguousarray(array, elements.numpy)
        strides = [step // array.itemsize for step in array.strides]
        if part is not None:
            begins = [first if axis == part.axis else 0 for axis in range(array.ndim)]
            desc = desc.submemory(array.shape, begins)
        source = core.MemoryDesc.strided(desc.dims, elements.short, strides)
        core.prepack_into(array, source, desc, buffer, offset, 1)

    def _elements(self, part: _Part | None) -> Array:
        """Return elements, where the kernel has a format in the order of its dimensions."""
        dims = () if self.desc is None else tuple(self.desc.dims)
        if self.constant.numbers and self.desc is not None:
            return np.array(self.constant.numbers, dtype_of(self.desc.dtype).numpy).reshape(dims)
        if self.source is None:
            return np.broadcast_to(np.float32(self.constant.fill), dims)
        array = self.source.array if part is None else self.source.rows(part.begin, part.end)
        if self.constant.grid is not None:
            array = self.constant.grid.stored(array).astype(np.int8)
        if self.constant.affine is not None:
            factor, term = self.constant.affine
            array = (array * np.float64(factor) + term).astype(np.float32)
        if self.desc is None or self.reader is not None:
            return array
        if self.constant.reshape is not None:
            rows = self.constant.reshape[:1] if part is None else array.shape[:1]
            array = array.reshape((*rows, *self.constant.reshape[1:]))
        if self.constant.permute is not None:
            array = array.transpose(self.constant.permute)
        if self.plain is not None:
            return array
        count = together(self.constant.spec) if self.constant.spec and array.ndim else 1
        if count > 1 and self.constant.role == "weights":
            array = _diagonal(array, count)
        return np.broadcast_to(array, dims) if part is None and array.shape != dims else array


def _plain(memory: MemorySpec | None, desc: _core.MemoryDesc) -> DType | None:
    """Return the type of row-major elements that a kernel describes as bytes or as words.

    None for elements that it describes as they are.
    """
    if memory is None or desc.dtype not in ("s32", "u8") or len(desc.dims) != 1:
        return None
    is_described = memory.dtype == desc.dtype and memory.dims == tuple(desc.dims)
    return None if is_described or memory.nbytes != desc.nbytes else dtype_of(memory.dtype)


def _diagonal(weights: Array, count: int) -> Array:
    """Return weights (groups, outputs, inputs, ...) of wider groups, zero outside the own."""
    groups, outputs, inputs, *window = weights.shape
    found = np.zeros((groups // count, count * outputs, count * inputs, *window), weights.dtype)
    for i in range(count):
        rows, columns = slice(i * outputs, (i + 1) * outputs), slice(i * inputs, (i + 1) * inputs)
        found[:, rows, columns] = weights[i::count]
    return found


def _can_cut(desc: _core.MemoryDesc, axis: int, unit: int) -> bool:
    """Return whether a part of a format, along an axis, is whole blocks."""
    extents, begins = list(desc.dims), [0] * desc.ndims
    extents[axis] = begins[axis] = unit
    try:
        desc.submemory(extents, begins)
    except load_core().NativeError:
        return False
    return True


_Work = tuple[Packing, int, "_Part | None"]
"""A constant, where it goes, and which part of it."""


def pack_all(places: Iterable[tuple[Packing, int]], buffer: _core.Buffer, threads: int) -> None:
    """Write constants into a buffer, several at a time.

    Args:
        places: each constant, and from which byte on it goes there.
        buffer: where they go.
        threads: how many do it.

    Raises:
        ModelError: the file that holds the elements was modified.
    """
    # The largest first, so that no thread is left with much when the others are done.
    work = [
        (packing, offset, part)
        for packing, offset in sorted(places, key=lambda place: -place[0].nbytes)
        for part in packing.parts
    ]

    def pack(group: Sequence[_Work]) -> None:
        for packing, offset, part in group:
            packing.pack(buffer, offset, part)

    _in_threads(pack, _grouped(work), threads)


def _grouped(work: Iterable[_Work]) -> list[list[_Work]]:
    """Return what each call of a thread packs: small constants together."""
    groups: list[list[_Work]] = []
    nbytes = _PART_NBYTES
    for item in work:
        if nbytes >= _PART_NBYTES:
            groups.append([])
            nbytes = 0
        groups[-1].append(item)
        nbytes += item[0].nbytes if item[2] is None else _PART_NBYTES
    return groups


def _in_threads(do: Callable[[_Item], None], work: Sequence[_Item], threads: int) -> None:
    """Do all of some work, several pieces of it at a time, which Ctrl-C does not interrupt."""
    if threads == 1 or len(work) < 2:
        for item in work:
            do(item)
        return
    with Deferred(), ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(do, work):
            pass
