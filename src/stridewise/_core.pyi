"""The native core: oneDNN primitives, and the execution of a list of them.

Import it through ``stridewise.runtime.binding.library.load_core``, which loads libdnnl first.

Errors: ``ValueError`` for arguments that are wrong in themselves, ``NativeError`` for what oneDNN
refuses, ``RuntimeError`` for steps added to a frozen program or runs of one that is not frozen,
``MemoryError`` where memory runs out.

In every factory ``threads`` is the number of threads that the primitive will run with; 0 means
the number in force on the calling thread. A program and ``measure`` take only primitives that
were made for their own number of threads, as scratchpads are sized by it.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

ARG_SRC: int
ARG_SRC_1: int
ARG_DST: int
ARG_WEIGHTS: int
ARG_BIAS: int
ARG_DEPTHWISE_BIAS: int
ARG_DEPTHWISE_WEIGHTS: int
ARG_SCRATCHPAD: int
ARG_SCALE: int
ARG_SHIFT: int
ARG_MEAN: int
ARG_VARIANCE: int
ARG_MULTIPLE_SRC: int

class NativeError(RuntimeError): ...

@final
class MemoryDesc:
    """Dimensions, element type and format of a tensor; immutable.

    dtype: f32, f16, bf16, s8, u8 or s32. tag: an abstract oneDNN tag (abcd, aBcd16b, any, ...).
    """

    def __init__(self, dims: Sequence[int], dtype: str, tag: str) -> None: ...
    @staticmethod
    def strided(dims: Sequence[int], dtype: str, strides: Sequence[int]) -> MemoryDesc: ...
    def submemory(self, dims: Sequence[int], offsets: Sequence[int]) -> MemoryDesc:
        """A box inside this tensor, relative to the base address of the whole."""

    @property
    def dims(self) -> list[int]: ...
    @property
    def ndims(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def nbytes(self) -> int:
        """Size with padding; 0 for a format of any."""

    @property
    def extent(self) -> int:
        """Bytes from the base address to just past the last byte that may be touched."""

    @property
    def offset(self) -> int:
        """Bytes from the base address to the first element; 0 except for submemory."""

    @property
    def is_any(self) -> bool: ...
    @property
    def layout(self) -> str:
        """All that says where elements lie, as text: equal texts are equal layouts.

        Strides of axes of extent 1 lead nowhere and are left out.
        """

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Buffer:
    """Zeroed memory, aligned to 64 bytes, or to huge pages from 2 MiB on; or a part of a file."""

    def __init__(self, nbytes: int) -> None: ...
    @staticmethod
    def from_array(array: NDArray[Any]) -> Buffer:
        """A copy of the bytes of a C-contiguous array."""

    @staticmethod
    def map(descriptor: int, position: int, nbytes: int) -> Buffer | None:
        """Bytes of a file, read only and not copied; None where other machines may change it.

        position: a multiple of the page size. ValueError where the file is shorter, OSError where
        the system refuses. Programs whose constants lie in a file that was cut off raise
        RuntimeError instead of running.
        """

    @property
    def nbytes(self) -> int: ...
    @property
    def is_mapped(self) -> bool: ...
    def array(self) -> NDArray[np.uint8]:
        """A view, which keeps the buffer alive; writable unless a file is mapped."""

    def checksum(self, offset: int, nbytes: int) -> int:
        """XXH64 of a part, with a seed of 0."""

    def read(self, descriptor: int, position: int, offset: int, nbytes: int) -> int:
        """Fill a part with bytes of a file, and return their checksum.

        ValueError where the file is shorter, OSError where it cannot be read.
        """

@final
class Primitive:
    """An operation ready to execute, by any number of threads at a time."""

    @property
    def impl(self) -> str: ...
    @property
    def scratchpad_nbytes(self) -> int: ...
    @property
    def args(self) -> list[int]:
        """The arguments an execution needs, without the scratchpad."""

    @property
    def threads(self) -> int: ...
    def arg_desc(self, arg: int) -> MemoryDesc: ...

class Kernel:
    """An operation of our own, used like a primitive."""

    @property
    def impl(self) -> str: ...
    @property
    def scratchpad_nbytes(self) -> int: ...
    @property
    def args(self) -> list[int]: ...
    @property
    def threads(self) -> int: ...
    def arg_desc(self, arg: int) -> MemoryDesc: ...

@final
class Depthwise(Kernel):
    """Depthwise convolution, alone or with the convolution of 1x1 before it."""

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc,
        expands: bool,
        has_bias: bool,
        has_depthwise_bias: bool,
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        post_ops: Sequence[PostOp],
        *,
        between: int,
        window: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        lanes: int,
        threads: int,
        isa: str = "",
    ) -> None:
        """ValueError for what the kernels cannot do.

        src and dst: f32 in acdb, or in blocks of ``lanes`` channels. expands: with a convolution of
        1x1 from the channels of src to those of dst, whose results are stored nowhere. has_bias: of
        that one. pads: of the depthwise convolution. between: so many post-ops, which have no
        operands, follow the convolution of 1x1. window, strides, dilations: of the depthwise
        convolution, along rows and columns. isa: one of ``winograd_isas``, by default the best.
        """

class Winograd(Kernel):
    """Convolution with strides of 1 in fewer multiplications, by Winograd's algorithm."""

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc,
        has_bias: bool,
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        post_ops: Sequence[PostOp],
        *,
        tile: int,
        lanes: int,
        threads: int,
        window: Sequence[int] = (3, 3),
        dilations: Sequence[int] = (1, 1),
        groups: int = 1,
        pool: int = 1,
        isa: str = "",
    ) -> None:
        """ValueError for what the kernels cannot do.

        src and dst: f32 in acdb, or in blocks of ``lanes`` channels. tile: results along each axis
        where the window has more than one tap. dilations: 1 where taps are adjacent. groups: of
        whole vectors of channels. pool: 2 to store the maxima of 2x2 results in their place. isa:
        one of ``winograd_isas``, by default the best.
        """

    def pack_into(
        self,
        array: NDArray[Any],
        buffer: Buffer,
        offset: int,
        first: int = 0,
        count: int | None = None,
    ) -> None:
        """Transform C-contiguous float32 weights [O, I, H, W] into a buffer, from an offset on.

        first and count: which outputs the array has the weights of, by default all. Both are
        multiples of two vectors, but for the end. One thread does it; parts may have one each.
        """

@final
class Fold(Kernel):
    """A reduction of row-major float32: max, min, sum, mean, mul, l1, l2 or sum_square."""

    def __init__(
        self, algorithm: str, source: Sequence[int], result: Sequence[int], *, threads: int
    ) -> None:
        """ValueError where ``result`` is not ``source`` with 1 for some extents."""

class Pointwise(Kernel):
    """An elementwise operator of two float32 operands: add, sub, mul, div, max or min.

    Operands have the extents of the result, or 1 where they are broadcast. Formats are strides, or
    blocks of one axis, without padding; the result is dense.
    """

    def __init__(
        self,
        algorithm: str,
        src: MemoryDesc,
        src1: MemoryDesc,
        dst: MemoryDesc,
        *,
        threads: int,
        isa: str = "",
    ) -> None:
        """ValueError where the operation is none of this kind. isa: of pointwise_isas()."""

def pointwise_isas() -> list[str]:
    """The instruction sets with kernels of elementwise operators here, best first."""

def winograd_partition(
    window: int,
    tiles: int,
    chunks: int,
    pairs: int,
    lanes: int,
    rows: int,
    threads: int,
    caches: Sequence[int],
) -> tuple[str, float, int, int]:
    """How a Winograd convolution is divided among threads, for caches of some sizes.

    window: places of a tile. chunks: vectors of channels. pairs: pairs of vectors of outputs.
    lanes: elements of a vector. rows: tiles of one matrix product, at most. Returns what is shared
    out (``"blocks"`` of tiles, ``"outputs"`` or ``"places"``), the mean work of threads as a part
    of the busiest one's, the tiles of the smallest product of a whole block, and the most bytes of
    weights that a thread reads for a block.
    """

def winograd_isas(lanes: int) -> list[str]:
    """The instruction sets with kernels for vectors of 8 or 16 lanes here, best first."""

def cache_nbytes(level: int) -> int:
    """The size of a cache of this processor, as the system tells it, or as small ones have it.

    ``level`` is 1 or 2 for those of one core, 3 for the one that some cores share.
    """

@final
class PrimitiveDesc:
    """One implementation of an operation; not to be shared between threads."""

    @property
    def impl(self) -> str: ...
    @property
    def scratchpad_nbytes(self) -> int: ...
    @property
    def args(self) -> list[int]: ...
    @property
    def threads(self) -> int: ...
    def arg_desc(self, arg: int) -> MemoryDesc: ...
    def next(self) -> bool:
        """Move to the next implementation; False, and nothing changed, where there is none."""

    def create(self) -> Primitive: ...

PostOp: TypeAlias = (
    tuple[str, str, float, float]  # ("eltwise", alg, alpha, beta)
    | tuple[str, float]  # ("sum", scale)
    | tuple[str, str, MemoryDesc]  # ("binary", alg, operand)
)

def convolution(
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    post_ops: Sequence[PostOp] = ...,
    *,
    threads: int = 0,
) -> PrimitiveDesc:
    """A dilation of 1 is dense, as in ONNX."""

def deconvolution(
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    post_ops: Sequence[PostOp] = ...,
    *,
    threads: int = 0,
) -> PrimitiveDesc:
    """Weights are [G, ]O, I, spatial; a negative end pad adds output beyond the last window."""

def resampling(
    alg: str,
    src: MemoryDesc,
    dst: MemoryDesc,
    post_ops: Sequence[PostOp] = ...,
    *,
    threads: int = 0,
) -> PrimitiveDesc: ...
def pooling(
    alg: str,
    src: MemoryDesc,
    dst: MemoryDesc,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    post_ops: Sequence[PostOp] = ...,
    *,
    threads: int = 0,
) -> PrimitiveDesc:
    """alg: max, avg_include or avg_exclude (whether the average counts padding)."""

def eltwise(
    alg: str,
    src: MemoryDesc,
    dst: MemoryDesc,
    alpha: float = 0.0,
    beta: float = 0.0,
    post_ops: Sequence[PostOp] = ...,
    *,
    threads: int = 0,
) -> PrimitiveDesc: ...
def binary(
    alg: str,
    src0: MemoryDesc,
    src1: MemoryDesc,
    dst: MemoryDesc,
    post_ops: Sequence[PostOp] = ...,
    *,
    threads: int = 0,
) -> PrimitiveDesc:
    """alg: add, sub, mul, div, max or min."""

def matmul(
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    post_ops: Sequence[PostOp] = ...,
    *,
    threads: int = 0,
) -> PrimitiveDesc: ...
def inner_product(
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    post_ops: Sequence[PostOp] = ...,
    *,
    threads: int = 0,
) -> PrimitiveDesc: ...
def scale_shift(src: MemoryDesc, dst: MemoryDesc, relu: bool, *, threads: int = 0) -> PrimitiveDesc:
    """Compute scale * (src - mean) / sqrt(variance + 1) + shift per channel, then ReLU if asked.

    With a mean and a variance of zero that is a scale and a shift, exactly.
    """

def batch_norm(
    src: MemoryDesc, dst: MemoryDesc, epsilon: float, affine: bool, *, threads: int = 0
) -> PrimitiveDesc:
    """Normalize by the statistics of src over all axes but the second; affine: scale and shift."""

def layer_norm(
    src: MemoryDesc,
    dst: MemoryDesc,
    epsilon: float,
    scale: bool,
    shift: bool,
    *,
    threads: int = 0,
) -> PrimitiveDesc:
    """Normalize by the statistics of src over the last axis."""

def prelu(
    src: MemoryDesc, weights: MemoryDesc, dst: MemoryDesc, *, threads: int = 0
) -> PrimitiveDesc:
    """Multiply negative elements by weights, which broadcast to src."""

def lrn(
    src: MemoryDesc,
    dst: MemoryDesc,
    alg: str,
    local_size: int,
    alpha: float,
    beta: float,
    k: float,
    *,
    threads: int = 0,
) -> PrimitiveDesc:
    """alg: across or within (channels)."""

def softmax(
    src: MemoryDesc, dst: MemoryDesc, axis: int, log: bool, *, threads: int = 0
) -> PrimitiveDesc: ...
def concat(
    dst: MemoryDesc, axis: int, srcs: Sequence[MemoryDesc], *, threads: int = 0
) -> PrimitiveDesc:
    """Source i is argument ARG_MULTIPLE_SRC + i."""

def reorder(src: MemoryDesc, dst: MemoryDesc, *, threads: int = 0) -> PrimitiveDesc: ...

@final
class Reorder:
    """A reorder in loops and tiles, planned by stridewise.tensor.tiles."""

    def __init__(
        self,
        groups: Sequence[tuple[Sequence[tuple[int, int, int, int]], Sequence[dict[str, Any]]]],
        *,
        src_itemsize: int,
        dst_itemsize: int,
        conversion: tuple[str, str] | None,
        scales: Sequence[Sequence[float]],
        src_nbytes: int,
        dst_nbytes: int,
        fill_nbytes: int,
        isa: str,
    ) -> None:
        """ValueError where a loop would leave the given sizes.

        scales: none, or zero points and scales of the source, scales and zero points of the
        destination.
        """

    def run(
        self, src: NDArray[Any], dst: NDArray[Any], threads: int, stream: bool, apart: bool
    ) -> bool:
        """Only the addresses and the reach of the arrays count. stream: past the caches.

        Returns whether it was done: not where the ranges of memory overlap, unless ``apart`` says
        that their elements do not.
        """

@final
class ReorderKernel(Kernel):
    """A reorder as a step of a program."""

    def __init__(
        self, reorder: Reorder, src: MemoryDesc, dst: MemoryDesc, *, threads: int, isa: str
    ) -> None:
        """ValueError where the reorder reaches beyond src or dst. isa: for the name alone."""

def reorder_isas() -> list[str]:
    """The instruction sets that the reorder's kernels have here, best first."""

def shuffle(
    src: MemoryDesc, dst: MemoryDesc, axis: int, group_size: int, *, threads: int = 0
) -> PrimitiveDesc:
    """Transpose (extent / group_size, group_size) along the axis; groups of group_size elements."""

def set_primitive_cache_capacity(capacity: int) -> None:
    """How many primitives the library keeps for the whole process; 0 turns its cache off."""

def team_count() -> int:
    """How many threads of the core's own have been started to enter parallel regions."""

def post_op_arg(index: int) -> int:
    """The argument that carries the operand of a binary post-op, by its place in post_ops."""

def measure(
    primitive: Primitive | Kernel,
    *,
    threads: int,
    min_runs: int,
    max_runs: int,
    budget_ns: int,
    cold: Sequence[int] = ...,
    spread_nbytes: int = 0,
) -> list[int]:
    """Durations in ns of single runs on made-up data, after a warm-up run.

    The arguments in ``cold`` are thrown out of all caches before each run. Runs take turns on
    copies of the operands that have ``spread_nbytes`` or more together (at most 64 copies).
    """

def prepack(array: NDArray[Any], src: MemoryDesc, dst: MemoryDesc, threads: int) -> Buffer:
    """Reorder the memory of an array, laid out as src, into a buffer laid out as dst.

    Only the address and the reach of the array count: for an array that is not C-contiguous the
    strides must be those of src.
    """

Ref: TypeAlias = tuple[int, int, int]
"""space, index, offset in bytes.

Spaces: 0 arena (whose index is ignored), 1 constants, 2 inputs, 3 outputs.
"""

Arg: TypeAlias = tuple[int, MemoryDesc, int, int, int]
"""argument id, description, space, index, offset in bytes (to the base address of the desc)."""

def prepack_into(
    array: NDArray[Any], src: MemoryDesc, dst: MemoryDesc, buffer: Buffer, offset: int, threads: int
) -> None:
    """Like ``prepack``, into an existing buffer from an offset in bytes on.

    dst may be a submemory, of what lies there.
    """

@final
class Gate:
    """How many executions there may be at once, of all programs that share it; others wait."""

    def __init__(self, width: int) -> None: ...
    def renew(self) -> None:
        """Forget all who are inside or wait, for the child of a fork."""

    @property
    def width(self) -> int: ...

class Program:
    """A list of steps. Once frozen it may run on any number of threads at the same time."""

    def __init__(
        self,
        arena_nbytes: int,
        constants: Sequence[Buffer | NDArray[Any]],
        input_nbytes: Sequence[int],
        output_nbytes: Sequence[int],
        threads: int,
        parts: int = 1,
        lanes: int = 1,
    ) -> None:
        """Arrays of a call are cut into ``parts``, for each of which the steps run once.

        Sizes are those of one part. ``lanes`` parts run at a time, each on one thread.
        """

    def add_primitive(self, primitive: Primitive | Kernel, args: Sequence[Arg]) -> None:
        """Every argument in ``primitive.args`` once, and the scratchpad if it has any size."""

    def add_copy(self, dst: Ref, src: Ref, nbytes: int) -> None: ...
    def add_fill(self, dst: Ref, count_f32: int, value: float) -> None: ...
    def add_host(
        self,
        function: Callable[[list[NDArray[np.uint8]]], object],
        args: Sequence[tuple[int, int, int, int, bool]],
    ) -> None:
        """Call ``function`` with one view of bytes for each argument, in order.

        An argument is space, index, offset in bytes, size in bytes, and whether it is written;
        views of those that are not are read-only, and what is written overlaps nothing else. The
        views keep their memory alive, but what they show changes with the next run. Exceptions
        leave ``run``, ``profile`` and ``trace`` as they are.

        The program keeps the function, and the garbage collector does not look into it: a function
        that leads back to the program is never freed.
        """

    def freeze(self) -> None: ...
    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]) -> None:
        """Arrays must be C-contiguous, of the declared sizes, and outputs overlap nothing."""

    def profile(
        self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]], runs: int
    ) -> list[list[int]]:
        """Durations in ns: one list a run, one figure a step; sums of parts, divided by lanes."""

    def trace(
        self,
        inputs: Sequence[NDArray[Any]],
        outputs: Sequence[NDArray[Any]],
        callback: Callable[[int, NDArray[np.uint8], Sequence[NDArray[Any]]], object],
    ) -> None:
        """Run one part, and call ``callback(step, arena, outputs)`` after each step.

        The arena is live memory: copy what is to be kept.
        """

    gate: Gate | None
    """What ``run`` and ``profile`` wait at, in the order of their calls; at first there is none."""

    poison: bool
    """Whether every byte of the arena is set to 0xFF (NaN) before each run; for tests."""

    @property
    def frozen(self) -> bool: ...
    @property
    def threads(self) -> int: ...
    @property
    def parts(self) -> int: ...
    @property
    def lanes(self) -> int: ...
    @property
    def arena_nbytes(self) -> int: ...
    @property
    def step_count(self) -> int: ...
    @property
    def context_count(self) -> int:
        """The number of arenas: that of callers that ever ran at the same time."""

def max_threads() -> int:
    """The number of OpenMP threads in force on the calling thread."""

def effective_isa() -> str:
    """The instruction set that oneDNN generates code for, such as AVX512_CORE_BF16."""

def version() -> str: ...
