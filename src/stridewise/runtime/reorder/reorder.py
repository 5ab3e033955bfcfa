"""Reorders between any two formats at memory speed.

:mod:`stridewise.tensor.moves` and :mod:`stridewise.tensor.tiles` plan the loops.
:mod:`stridewise.runtime.reorder.engines` executes them. The fastest engine is measured on the first
large reorder of a kind and stored in the cost cache.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import DType, dtype_of
from stridewise.errors import FormatError
from stridewise.formats import Block, Format, Pitch, algebra
from stridewise.runtime.execution.layout import (
    dense_strides,
    falls_along,
    is_same_walk,
    layout_of,
)
from stridewise.runtime.machine.cpus import available_cpus
from stridewise.runtime.machine.machine import checked_threads, this_machine
from stridewise.runtime.reorder.engines import Engine, Run, engines
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.tensor.desc import TensorDesc
from stridewise.tensor.quantization import Quantization
from stridewise.tensor.reorder import Endpoint, check_pair, conversion_scales, pair

__all__ = ["Reorder", "reorder"]

Array = NDArray[Any]

_ONE_THREAD = 128 << 10
"""Below this number of bytes, both sides together, one thread is used: waking others takes longer
than the reorder."""
_FEWEST_ROUNDS, _MOST_ROUNDS, _TRIAL_NS = 3, 20, 20_000_000
"""Smallest and largest number of runs per engine in a measurement, and its duration in ns. Short
runs are disturbed more and need more repetitions."""
_KERNELS = 4
"""Version of the speed of ``native/reorder/``. Measurements of other versions are not reused."""
_BFLOAT16 = dtype_of("bf16")


class Reorder:
    """A reorder that is prepared once and run often.

    Args:
        src: description of source arrays.
        dst: description of the result: the same tensor with another format or dtype.
        src_quantization: quantization of the source, if any; see
            :mod:`stridewise.tensor.quantization` for rounding and saturation.
        dst_quantization: how values are to be stored.
        src_strides: strides of the source in bytes, one per dimension, if it is part of a larger
            array. Default: dense.
        dst_strides: strides of the destination in bytes. Default: dense.
        threads: how many run it; by default one for small tensors, else as
            many as a model has (docs/environment.md).
        engine: the implementation. ``"auto"`` measures all engines that support the reorder on the
            first large array and keeps the fastest, also for later processes.
        cache_dir: the folder of the cost cache. Default: the user's cache folder.

    Raises:
        FormatError: the two do not describe one tensor, there is no conversion between the dtypes,
            strides are negative or overlap, or the engine does not support the reorder.
        InputError: the number of threads is not between 1 and 1024, or above ``OMP_THREAD_LIMIT``.
        LibraryError: libdnnl cannot be loaded.

    >>> swap = Reorder(
    ...     TensorDesc((1, 3, 2, 2), "f32", "NCHW", "NCHW"),
    ...     TensorDesc((1, 3, 2, 2), "f32", "NCHW", "NHWC"),
    ... )
    >>> swap(np.arange(12, dtype="f4").reshape(1, 3, 2, 2))[0, 0]
    array([[0., 4., 8.],
           [1., 5., 9.]], dtype=float32)
    """

    __slots__ = (
        "_cache_dir",
        "_destination",
        "_run",
        "_runs",
        "_source",
        "dst",
        "engine",
        "src",
        "threads",
    )

    def __init__(  # noqa: PLR0913 (all but two have a default)
        self,
        src: TensorDesc,
        dst: TensorDesc,
        *,
        src_quantization: Quantization | None = None,
        dst_quantization: Quantization | None = None,
        src_strides: Sequence[int] | None = None,
        dst_strides: Sequence[int] | None = None,
        threads: int | None = None,
        engine: Engine = "auto",
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        check_pair(src, dst)
        scales = conversion_scales(src, dst, src_quantization, dst_quantization)
        small = src.nbytes + dst.nbytes < _ONE_THREAD
        self.src, self.dst = src, dst
        if threads is None:
            threads = 1 if small else available_cpus()
        self.threads = checked_threads(threads)
        self._source = layout_of(src, src_strides, "source")
        self._destination = layout_of(dst, dst_strides, "destination")
        self._cache_dir = None if cache_dir is None else Path(cache_dir)
        self._runs = engines(self._source, self._destination, scales, self.threads, engine)
        self.engine: str = "auto"
        """The engine in use; ``"auto"`` until one has been chosen."""
        self._run: Run | None = None
        if len(self._runs) == 1:
            self.engine, self._run = next(iter(self._runs.items()))

    def __call__(self, array: Array, out: Array | None = None) -> Array:
        """Reorder an array.

        Args:
            array: an array of ``src.storage.shape`` and ``src.dtype``, with the strides of this
                reorder.
            out: the destination; by default a new array. It must not overlap ``array``.

        Returns:
            ``out``, or a new array of ``dst.storage.shape``; its padding is zero.

        Raises:
            FormatError: an array has another shape, dtype or strides, is read-only, or overlaps the
                other one. Nothing has been written then.
        """
        source, destination = self._source, self._destination
        if (
            array.shape != source.shape
            or array.dtype != source.dtype
            or array.strides != source.strides
        ):
            source.check(array)
        if out is None:
            out = destination.empty()
        elif (
            out.shape != destination.shape
            or out.dtype != destination.dtype
            or out.strides != destination.strides
        ):
            destination.check(out)
        if not out.flags.writeable:
            raise _refuse_destination("a writable array", "a read-only one", "")
        run = self._run
        if run is None or not run(array, out, False):
            self._run_carefully(array, out)
        return out

    def _run_carefully(self, array: Array, out: Array) -> None:
        """Run for the first time, or on arrays whose memory ranges overlap."""
        if np.may_share_memory(array, out) and np.shares_memory(array, out):
            found = "arrays that overlap"
            fix = "leave out= away, or copy the source"
            raise _refuse_destination("memory apart from that of the source", found, fix)
        if self._run is None:
            self.engine = self._fastest(array, out)
            self._run = self._runs[self.engine]
        self._run(array, out, True)

    def _fastest(self, array: Array, out: Array) -> str:
        """Return the fastest engine, from the cost cache or by measurement."""
        key = f"reorder {self.src.summary} -> {self.dst.summary}"
        key += f" {self._source.strides} {self._destination.strides}"
        key += f" kernels {_KERNELS}"  # the oneDNN version does not cover the native core
        cache = CostCache(this_machine(self.threads), self._cache_dir)
        costs = dict(cache.find([key]).get(key, ()))
        if set(costs) != set(self._runs):
            costs = {name: float("inf") for name in self._runs}
            began = time.perf_counter_ns()
            for turn in range(_MOST_ROUNDS):
                if turn >= _FEWEST_ROUNDS and time.perf_counter_ns() - began > _TRIAL_NS:
                    break
                for name, run in self._runs.items():
                    start = time.perf_counter_ns()
                    run(array, out, True)
                    costs[name] = min(costs[name], time.perf_counter_ns() - start)
            cache.store({key: tuple(costs.items())})
        return min(costs, key=lambda name: costs[name])


def _refuse_destination(expected: str, found: str, fix: str) -> FormatError:
    return FormatError.at("destination of a reorder", expected=expected, found=found, fix=fix)


# --- any arrays, and a cache of prepared reorders -------------------------------------------------


class _Kind(NamedTuple):
    """The properties of an array that a reorder depends on; strides are None if C-contiguous."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...] | None
    is_torch: bool

    @classmethod
    def of(cls, array: Array, given: object) -> _Kind:
        strides = None if array.flags.c_contiguous else array.strides
        return cls(array.shape, array.dtype, strides, _is_torch(given))


class _Options(NamedTuple):
    shape: tuple[int, ...] | None
    dtype: str | np.dtype[Any] | DType | None
    src_quantization: Quantization | None
    dst_quantization: Quantization | None
    threads: int | None
    engine: Engine
    digits: tuple[tuple[str | Block | Pitch, ...], ...]
    """Of formats: equal ones with different digits have different storage shapes."""


def _is_torch(array: object) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def _as_numpy(given: Any, what: str) -> Array:
    """Return an array that shares the memory of ``given``.

    Raises:
        FormatError: it is not an array, or NumPy cannot access its memory.
    """
    if isinstance(given, np.ndarray):
        return cast("Array", given)
    try:
        if _is_torch(given):
            # A tensor exists, so PyTorch is loaded. NumPy has no bfloat16, so bits are passed as
            # int16.
            torch = sys.modules["torch"]
            tensor = given.detach()
            if tensor.dtype is torch.bfloat16:
                return cast("Array", tensor.view(torch.int16).numpy().view(_BFLOAT16.numpy))
            return cast("Array", tensor.numpy())
        return np.from_dlpack(given)
    except (AttributeError, TypeError, RuntimeError, BufferError, ValueError) as error:
        raise FormatError.at(
            what,
            expected="an array in the memory of the CPU: NumPy, PyTorch, or DLPack",
            found=f"{type(given).__name__}: {error}",
        ) from error


def _as_torch(array: Array, desc: TensorDesc) -> Any:
    """Return a stored tensor as PyTorch has it: a plain one with the logical shape."""
    torch = sys.modules["torch"]
    if array.dtype == _BFLOAT16.numpy:
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array)
    fmt = desc.storage.format
    if not fmt.is_plain:
        return tensor
    return tensor.permute([fmt.order.index(axis) for axis in desc.origin.format.order])


def _torch_shape(kind: _Kind, fmt: Endpoint) -> tuple[int, ...] | None:
    """Return the logical shape of a PyTorch tensor whose strides, not its shape, give the format.

    PyTorch's channels_last is NHWC in memory under a shape in the order N, C, H, W.
    """
    if isinstance(fmt, str):
        fmt = Format.parse(fmt, dtype=dtype_of(kind.dtype), rank=len(kind.shape))
    if isinstance(fmt, TensorDesc) or not fmt.is_plain:
        return None
    if kind.strides is None or fmt.rank != len(kind.shape):
        return None
    wanted = [step * kind.dtype.itemsize for step in algebra.strides(fmt, kind.shape)]
    fits = all(
        extent == 1 or have == want
        for extent, have, want in zip(kind.shape, kind.strides, wanted, strict=True)
    )
    return kind.shape if fits else None


class _Prepared(NamedTuple):
    """A reorder, and the permutations of its arrays to the order of the Storage."""

    run: Reorder
    src: tuple[int, ...] | None
    dst: tuple[int, ...] | None


@lru_cache(maxsize=256)
def _prepared(
    source: _Kind, target: _Kind | None, src: Endpoint, dst: Endpoint, options: _Options
) -> _Prepared:
    """Return the reorder for a kind of arrays. It is cached because kinds usually recur."""
    shape = options.shape
    if shape is None and source.is_torch:
        shape = _torch_shape(source, src)
    sides = pair(source.shape, source.dtype, src, dst, shape=shape, dst_dtype=options.dtype)
    # If only a format is given, NumPy arrays always have the storage shape.
    known = source.is_torch or shape is not None or isinstance(src, TensorDesc)
    orders = (
        _turn(source, sides[0], _stated("source", src, options)) if known else None,
        None if target is None else _turn(target, sides[1], _stated("destination", dst, options)),
    )
    # A name alone says nothing about another shape than that of the storage, but strides do.
    if target and not (target.is_torch or known or isinstance(dst, TensorDesc)):
        strides = target.strides or dense_strides(target.shape, target.dtype.itemsize)
        if orders[1] and not falls_along(orders[1], target.shape, strides):
            orders = (orders[0], None)
    run = Reorder(
        *sides,
        src_quantization=options.src_quantization,
        dst_quantization=options.dst_quantization,
        src_strides=_strides(source, orders[0], sides[0], "source"),
        dst_strides=None
        if target is None
        else _strides(target, orders[1], sides[1], "destination"),
        threads=options.threads,
        engine=options.engine,
    )
    return _Prepared(run, *orders)


def _stated(what: str, side: Endpoint, options: _Options) -> str:
    """Return the name of a side of which the caller gives the logical shape, "" of others."""
    return what if options.shape is not None or isinstance(side, TensorDesc) else ""


def _turn(kind: _Kind, desc: TensorDesc, what: str) -> tuple[int, ...] | None:
    """Return the permutation to the order of the Storage if an array is in the user's order.

    If both shapes are equal, strides that descend in the order of the format are those of the
    user's order, as in PyTorch's channels_last. Others are those of a stored array.

    Args:
        kind: of the array.
        desc: the tensor.
        what: the side, if the caller says what the tensor is; an array is refused then whose
            strides do not tell which of the two it is.

    Raises:
        FormatError: they do not.
    """
    fmt = desc.storage.format
    if kind.shape != desc.origin.shape or not fmt.is_plain:
        return None
    names = desc.origin.format.order
    order = tuple(names.index(axis) for axis in fmt.order)
    if kind.shape != desc.storage.shape:
        return order
    strides = kind.strides or dense_strides(kind.shape, kind.dtype.itemsize)
    if is_same_walk(order, kind.shape, strides):
        return None
    own = falls_along(range(len(order)), kind.shape, strides)
    turned = falls_along(order, kind.shape, strides)
    if what and (own == turned or (own and kind.is_torch)):
        raise FormatError.at(
            f"{what} of a reorder",
            expected=f"strides that tell {desc.origin.format} from {fmt}, both of {kind.shape}",
            found=f"strides of {strides} bytes",
            fix=f"give {desc.origin.format} with the strides of {fmt} (in PyTorch: channels_last), "
            f"or what is stored as {fmt} as a C-contiguous NumPy array",
        )
    return order if turned and not own else None


def _strides(
    kind: _Kind, order: tuple[int, ...] | None, desc: TensorDesc, what: str
) -> tuple[int, ...] | None:
    """Return the strides of arrays that are not dense; FormatError if they are not supported."""
    strides = kind.strides or dense_strides(kind.shape, kind.dtype.itemsize)
    turn = range(len(kind.shape)) if order is None else order
    shape = tuple(kind.shape[axis] for axis in turn)
    layout_of(desc, None, what).check_kind(shape, kind.dtype)
    turned = tuple(strides[axis] for axis in turn)
    return None if turned == dense_strides(shape, kind.dtype.itemsize) else turned


def reorder(  # noqa: PLR0913 (all but three have a default)
    array: Any,
    src: Endpoint,
    dst: Endpoint,
    *,
    shape: Sequence[int] | None = None,
    dtype: str | np.dtype[Any] | DType | None = None,
    src_quantization: Quantization | None = None,
    dst_quantization: Quantization | None = None,
    out: Any = None,
    threads: int | None = None,
    engine: Engine = "auto",
) -> Any:
    """Convert a tensor from one memory format to another, optionally with another dtype.

    Args:
        array: a NumPy array, a PyTorch tensor, or any object with DLPack; it is not copied. It has
            the storage shape of the source. Plain formats accept any strides (views). A PyTorch
            tensor may have its logical shape and the strides of the format instead. So may any
            array if ``src`` is a description or ``shape`` is given. If both shapes are equal,
            strides that descend in the order of the format select the logical one.
        src: the source: a format (``"nChw16c"``), or a description of the whole tensor.
        dst: the result: a format, or a description of the whole tensor.
        shape: the logical shape in the canonical order of ``src``'s axes, for formats that pad.
        dtype: the element type of the result if ``dst`` is a format. Default: that of ``array``.
        src_quantization: what the values of the source stand for.
        dst_quantization: quantization of the result, if any. Values are rounded half to even and
            saturated.
        out: the destination; by default a new array. It may have strides but must not overlap the
            source.
        threads: how many run it; by default one for small tensors, else as
            many as a model has (docs/environment.md).
        engine: the implementation; see :class:`Reorder`.

    Returns:
        ``out``, or a NumPy array of the destination's storage shape. Padding is zero. For a PyTorch
        tensor the result is a PyTorch tensor: in a plain format it has the logical shape and the
        strides of the format, otherwise the storage shape.

    Raises:
        FormatError: a format is unknown, the array is not in the format, the two do not describe
            one tensor, strides are negative or overlap, ``out`` does not fit, or there is no
            conversion between the dtypes. Nothing has been written then.
        LibraryError: libdnnl cannot be loaded.

    >>> x = np.arange(6, dtype="float32").reshape(1, 3, 1, 2)
    >>> reorder(x, "NCHW", "NHWC").ravel()
    array([0., 2., 4., 1., 3., 5.], dtype=float32)
    >>> reorder(x, "NCHW", "nChw4c").shape
    (1, 1, 1, 2, 4)
    """
    for side, given in (("source", src), ("destination", dst)):
        if not isinstance(cast("object", given), str | Format | TensorDesc):
            expected, found = "a format, its name, or a TensorDesc", repr(given)
            raise FormatError.at(f"{side} of a reorder", expected=expected, found=found)
    source = _as_numpy(array, "source of a reorder")
    target = None if out is None else _as_numpy(out, "destination of a reorder")
    options = _Options(
        None if shape is None else tuple(shape),
        dtype,
        src_quantization,
        dst_quantization,
        threads,
        engine,
        tuple(side.digits for side in (src, dst) if isinstance(side, Format)),
    )
    prepared = _prepared(
        _Kind.of(source, array),
        None if target is None else _Kind.of(target, out),
        src,
        dst,
        options,
    )
    if prepared.src is not None:
        source = source.transpose(prepared.src)
    if target is not None and prepared.dst is not None:
        target = target.transpose(prepared.dst)
    moved = prepared.run(source, target)
    if out is not None:
        return out
    return _as_torch(moved, prepared.run.dst) if _is_torch(array) else moved
