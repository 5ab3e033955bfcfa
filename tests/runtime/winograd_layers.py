"""Layers for tests of Winograd kernels: one kernel in a program, and what it shall compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import stridewise as sw
from stridewise.dtypes import dtype_of
from stridewise.formats import Format, algebra
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.primitives import create

Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.float32
CORE = load_core()
KERNELS = [(lanes, isa) for lanes in (8, 16) for isa in CORE.kernel_isas(lanes)]
HALF_KERNELS = [(lanes, isa) for lanes in (8, 16) for isa in CORE.kernel_isas(lanes, halves=True)]
KINDS = ("channels-last", "blocked")
WHOLE = ("f32", "f32")
"""The element types of source and result."""


@dataclass(frozen=True)
class Shape:
    images: int = 1
    channels: int = 8
    height: int = 6
    width: int = 5
    outputs: int = 16
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)  # top, left, bottom, right
    window: tuple[int, int] = (3, 3)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1
    pool: int = 1
    strides: tuple[int, int] = (1, 1)

    @property
    def src(self) -> tuple[int, ...]:
        return self.images, self.channels, self.height, self.width

    @property
    def weights(self) -> tuple[int, ...]:
        return self.outputs, self.channels // self.groups, *self.window

    @property
    def dst(self) -> tuple[int, ...]:
        top, left, bottom, right = self.pads
        reach = [d * (k - 1) for d, k in zip(self.dilations, self.window, strict=True)]
        high, wide = self.height + top + bottom - reach[0], self.width + left + right - reach[1]
        high, wide = -(-high // self.strides[0]), -(-wide // self.strides[1])
        return self.images, self.outputs, high // self.pool, wide // self.pool


def convolved(x: Array, w: Array, bias: Array | None, shape: Shape) -> Array:
    """Return the convolution in double precision, from its definition."""
    top, left, bottom, right = shape.pads
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (top, bottom), (left, right)))
    reach = [d * (k - 1) + 1 for d, k in zip(shape.dilations, shape.window, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3))
    windows = windows[..., :: shape.dilations[0], :: shape.dilations[1]]
    windows = windows[:, :, :: shape.strides[0], :: shape.strides[1]]
    parts = zip(
        np.split(windows, shape.groups, 1), np.split(w.astype(float), shape.groups), strict=True
    )
    groups = [np.einsum("nchwij,kcij->nkhw", *part, optimize=True) for part in parts]
    result = np.concatenate(groups, 1)
    return result if bias is None else result + bias.reshape(-1, 1, 1)


def format_of(kind: str, lanes: int) -> Format:
    names = {"plain": "NCHW", "channels-last": "NHWC", "blocked": f"nChw{lanes}c"}
    return Format.parse(names[kind])


def _tag(kind: str, lanes: int) -> str:
    return {"plain": "abcd", "channels-last": "acdb", "blocked": f"aBcd{lanes}b"}[kind]


def stored(array: Array, fmt: Format, dtype: str = "f32") -> Array:
    buffer = np.zeros(algebra.element_count(fmt, array.shape), dtype_of(dtype).numpy)
    buffer[algebra.offsets(fmt, array.shape)] = array
    return buffer


class Runner:
    """One kernel in a program of one step, over a scratchpad of NaN."""

    def __init__(
        self, shape: Shape, kind: str, kernel: tuple[int, str], tile: int, *,
        bias: bool = True, post_ops: Sequence[Any] = (), threads: int = 2,
        dtypes: tuple[str, str] = WHOLE, in_pairs: bool = False, source: str = "",
    ) -> None:  # fmt: skip
        """Create the kernel; ``source`` is the kind of the source, where it is not ``kind``."""
        lanes, isa = kernel
        self.shape, self.fmt, self.threads = shape, format_of(kind, lanes), threads
        self.source_fmt = format_of(source or kind, lanes)
        self.tag = _tag(kind, lanes)
        self.dtypes = dtypes
        self.src = CORE.MemoryDesc(shape.src, dtypes[0], _tag(source or kind, lanes))
        self.dst = CORE.MemoryDesc(shape.dst, dtypes[1], self.tag)
        post = [(*item[:2], self.dst) if item[0] == "binary" else item for item in post_ops]
        given = (self.src, self.dst, bias, shape.pads[:2], shape.pads[2:], post)
        common = {"lanes": lanes, "threads": threads, "isa": isa}
        self.kernel: Any = self.created(given, common, tile, in_pairs=in_pairs)

    def created(
        self, given: tuple[Any, ...], common: dict[str, Any], tile: int, *, in_pairs: bool
    ) -> Any:
        shape = self.shape
        if shape.strides != (1, 1):
            return CORE.StridedWinograd(
                *given, **common, tile=tile, window=shape.window, strides=shape.strides
            )
        return CORE.Winograd(
            *given, **common, tile=tile, window=shape.window, dilations=shape.dilations,
            groups=shape.groups, pool=shape.pool, multiplies_halves=in_pairs,
        )  # fmt: skip

    def pack(self, w: Array, packed: Any) -> None:
        self.kernel.pack_into(w, packed, 0)

    def __call__(
        self, x: Array, w: Array, bias: Array | None, extras: Sequence[Array] = (),
        held: Array | None = None,
    ) -> Array:  # fmt: skip
        kernel, core = self.kernel, CORE
        packed = core.Buffer(kernel.arg_desc(core.ARG_WEIGHTS).nbytes)
        self.pack(w, packed)
        constants = [packed] if bias is None else [packed, bias]
        source, made = self.dtypes
        others = [*extras] if held is None else [*extras, held]
        inputs = [stored(x, self.source_fmt, source), *(stored(o, self.fmt, made) for o in others)]
        dtype = dtype_of(made)
        result = np.full(self.dst.nbytes // dtype.itemsize, np.nan, dtype.numpy)
        program = core.Program(
            kernel.scratchpad_nbytes, constants, [i.nbytes for i in inputs], [result.nbytes],
            self.threads,
        )  # fmt: skip
        if held is not None:
            program.add_copy((3, 0, 0), (2, len(inputs) - 1, 0), result.nbytes)
        places = {core.ARG_SRC: (2, 0), core.ARG_WEIGHTS: (1, 0), core.ARG_DST: (3, 0)}
        places |= {core.ARG_BIAS: (1, 1), core.ARG_SCRATCHPAD: (0, 0)}
        operands = [arg for arg in kernel.args if arg not in places]
        places |= {arg: (2, 1 + index) for index, arg in enumerate(operands)}
        args = [*kernel.args, core.ARG_SCRATCHPAD]
        program.add_primitive(kernel, [(a, kernel.arg_desc(a), *places[a], 0) for a in args])
        program.freeze()
        program.poison = True
        program.run(inputs, [result])
        mask = np.ones(result.size, bool)
        mask[algebra.offsets(self.fmt, self.shape.dst)] = False
        assert (result[mask] == 0).all(), "spare lanes"
        return result[algebra.offsets(self.fmt, self.shape.dst)]


@lru_cache(maxsize=32)
def data(shape: Shape, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return source, weights and bias; read only, as many kernels are given the same."""
    rng = np.random.default_rng(seed)
    w = rng.normal(0, 1 / np.sqrt(np.prod(shape.weights[1:])), shape.weights)
    drawn = rng.normal(size=shape.src), w, rng.normal(size=shape.outputs)
    arrays = tuple(array.astype(F32) for array in drawn)
    for array in arrays:
        array.flags.writeable = False
    return arrays


@lru_cache(maxsize=32)
def exact(shape: Shape) -> Array:
    """Return the convolution of :func:`data`, once for all kernels that are compared with it."""
    return convolved(*data(shape), shape)


def check_weights(plan: sw.Plan) -> int:
    """Compare the packed sizes that a plan counts on with its kernels' own; return how many."""
    found = 0
    for decision in plan.decisions:
        for candidate in (decision.chosen, *decision.rejected):
            if candidate.option.held:
                continue
            spec = candidate.option.calls[0].spec
            if spec.kind in ("winograd", "strided_winograd"):
                kernel = create(spec, "", 2)
                assert kernel.arg_desc(CORE.ARG_WEIGHTS).nbytes == spec.transformed_nbytes
                found += 1
    return found
