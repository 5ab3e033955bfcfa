"""The native core: oneDNN primitives, the kernels of Stridewise, and the execution of programs.

Import it through ``stridewise.runtime.binding.library.load_core``, which loads libdnnl first.

Errors: ``ValueError`` for invalid arguments, ``NativeError`` for errors of oneDNN, ``RuntimeError``
for steps added to a frozen program or runs of one that is not frozen, ``MemoryError`` if memory is
exhausted.

In every factory ``threads`` is the number of threads of the primitive; 0 means the number that is
set on the calling thread. A program accepts only primitives with their own number of threads,
because the sizes of scratchpads depend on it.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

ARG_SRC: int
ARG_SRC_1: int
ARG_SRC_2: int
ARG_DST_1: int
ARG_DST: int
ARG_WEIGHTS: int
ARG_BIAS: int
ARG_DEPTHWISE_BIAS: int
ARG_DEPTHWISE_WEIGHTS: int
ARG_DIFF_DST: int
ARG_WORKSPACE: int
ARG_DIFF_SCALE: int
ARG_DIFF_SHIFT: int
ARG_SCRATCHPAD: int
ARG_SCALE: int
ARG_SHIFT: int
ARG_MEAN: int
ARG_VARIANCE: int
ARG_MULTIPLE_SRC: int
ARG_SCALES_OF: int
ARG_ZERO_POINTS_OF: int

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
        """A view of a box inside this tensor, with the base address of this tensor."""

    @property
    def dims(self) -> list[int]: ...
    @property
    def ndims(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def nbytes(self) -> int:
        """Size in bytes, padding included; 0 for the tag ``any``."""

    @property
    def extent(self) -> int:
        """Bytes from the base address to the end of the last byte that may be accessed."""

    @property
    def offset(self) -> int:
        """Bytes from the base address to the first element; 0 except for submemory."""

    @property
    def is_any(self) -> bool: ...
    @property
    def layout(self) -> str:
        """The places of all elements as text: equal texts are equal layouts.

        Strides of axes of extent 1 have no effect and are omitted.
        """

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Buffer:
    """Zeroed memory, aligned to 64 bytes or, from 2 MiB on, to huge pages; or a part of a file."""

    def __init__(self, nbytes: int) -> None: ...
    @staticmethod
    def from_array(array: NDArray[Any]) -> Buffer:
        """A copy of the bytes of a C-contiguous array."""

    @staticmethod
    def map(descriptor: int, position: int, nbytes: int) -> Buffer | None:
        """Map a part of a file read-only, without a copy; None if another machine may change it.

        ``position`` is a multiple of the page size. Raises ValueError if the file is too short,
        OSError if mapping fails. A program with constants in a file that has been truncated raises
        RuntimeError instead of running.
        """

    @property
    def nbytes(self) -> int: ...
    @property
    def is_mapped(self) -> bool: ...
    def array(self) -> NDArray[np.uint8]:
        """A view that keeps the buffer alive; writable unless a file is mapped."""

    def checksum(self, offset: int, nbytes: int) -> int:
        """XXH64 of a part, with a seed of 0."""

    def read(self, descriptor: int, position: int, offset: int, nbytes: int) -> int:
        """Read a part of a file into the buffer, and return its checksum.

        Raises ValueError if the file is too short, OSError if it cannot be read.
        """

@final
class Primitive:
    """An operation that is ready to execute; any number of threads may execute it at a time."""

    @property
    def impl(self) -> str: ...
    @property
    def scratchpad_nbytes(self) -> int: ...
    @property
    def args(self) -> list[int]:
        """The arguments of an execution, except the scratchpad."""

    @property
    def threads(self) -> int: ...
    def arg_desc(self, arg: int) -> MemoryDesc: ...

class Kernel:
    """A kernel of Stridewise, used like a primitive."""

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
    """Depthwise convolution, alone or fused with the 1x1 convolution before it."""

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
        multiplies_halves: bool = False,
        parts: Sequence[int] = (),
        group: int = 1,
        slices: Sequence[int] = (),
        isa: str = "",
    ) -> None:
        """Create the kernel; ValueError if it does not support the operation.

        Args:
            src: the source: f32 in acdb, or in blocks of ``lanes`` channels.
            dst: the destination, likewise.
            expands: whether a 1x1 convolution from the channels of src to those of dst is fused;
                its results are not stored.
            has_bias: whether the 1x1 convolution has a bias.
            has_depthwise_bias: whether the depthwise convolution has a bias.
            pads_begin: padding of the depthwise convolution above and on the left, in pixels.
            pads_end: padding below and on the right.
            post_ops: post-ops without operands, first those of the 1x1 convolution.
            between: number of post-ops of the 1x1 convolution.
            window: taps along rows and columns of the depthwise convolution.
            strides: its strides.
            dilations: its dilations; 1 for adjacent taps.
            lanes: elements of a vector: 8 or 16.
            threads: number of threads.
            multiplies_halves: whether the 1x1 convolution multiplies in pairs of bfloat16; src and
                dst are of bfloat16 then.
            parts: parts of the window that some channels after others have, five numbers each:
                channels, first tap down and across, taps down and across. Weights outside are zero.
            group: channels of a group, which has as many results; a divisor of ``lanes``. With 1,
                each channel may have several results, also a divisor.
            slices: of a volume, whose slices lie one below the other in ``src`` and ``dst``: the
                slices of the source; taps, stride and dilation along them; padding at both ends.
                Rows of the window are those of its first slice, then those of the next one.
            isa: one of ``kernel_isas``, by default the best.
        """

@final
class ByteConv(Kernel):
    """Convolution of integers of 8 bits with channels last, without groups."""

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc,
        has_bias: bool,
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        post_ops: Sequence[PostOp],
        numbers: Sequence[float],
        *,
        window: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        threads: int,
        isa: str = "",
    ) -> None:
        """Create the kernel; ValueError if it does not support the operation.

        Args:
            src: the source: s8 or u8 in acdb.
            dst: the destination, likewise, or of f32.
            has_bias: whether there is a bias: real numbers, float32.
            pads_begin: padding above and on the left, in pixels.
            pads_end: padding below and on the right.
            post_ops: post-ops of real numbers. Operands are float32 numbers for each output, or
                u8, s8 or float32 tensors of the shape of the result.
            numbers: the zero point of the source, the scale and the zero point of the result; the
                latter two count for results of integers.
            window: taps along rows and columns.
            strides: pixels of the source from one result to the next.
            dilations: pixels of the source from one tap to the next; 1 along rows.
            threads: threads.
            isa: ``"avx512_vnni"`` or ``"portable"``, by default the best.
        """

@final
class ByteDepthwise(Kernel):
    """Depthwise convolution of integers of 8 bits."""

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc,
        has_bias: bool,
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        post_ops: Sequence[PostOp],
        numbers: Sequence[float],
        *,
        window: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        lanes: int,
        threads: int,
        isa: str = "",
    ) -> None:
        """Create the kernel; ValueError if it does not support the operation.

        Args:
            src: the source: s8 or u8 in acdb, or in blocks of ``lanes`` channels.
            dst: the destination, likewise, or of f32.
            has_bias: whether there is a bias: real numbers, float32.
            pads_begin: padding above and on the left, in pixels.
            pads_end: padding below and on the right.
            post_ops: post-ops without operands, of real numbers.
            numbers: the zero point of the source, the scale and the zero point of the result; the
                latter two count for results of integers.
            window: taps along rows and columns.
            strides: pixels of the source from one result to the next.
            dilations: pixels of the source from one tap to the next.
            lanes: channels of a block: 8 or 16.
            threads: number of threads. Results do not depend on it.
            isa: one of ``byte_isas``, by default the best.
        """

@final
class Conv1x1(Kernel):
    """1x1 convolution whose source may be multiplied by a factor for each channel of each image."""

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc,
        has_bias: bool,
        has_factor: bool,
        post_ops: Sequence[PostOp],
        *,
        between: int,
        lanes: int,
        threads: int,
        strides: Sequence[int] = (1, 1),
        groups: int = 1,
        isa: str = "",
    ) -> None:
        """Create the kernel; ValueError if it does not support the operation.

        Args:
            src: the source: f32 in acdb, or in blocks of ``lanes`` channels.
            dst: the destination, likewise.
            has_bias: whether there is a bias.
            has_factor: whether the argument ``ARG_SRC_1`` has the factors: one pixel for each image
                of src, in the same format.
            post_ops: any. The first ones are applied to the source, after the factors, and have no
                operands.
            between: number of post-ops of the source.
            lanes: elements of a vector: 8 or 16.
            threads: number of threads. Results do not depend on it.
            strides: pixels from one result to the next, down and across.
            groups: of channels; in blocks, whole ones.
            isa: one of ``kernel_isas``, by default the best.
        """

@final
class ConvWindows(Kernel):
    """Convolution as products of windows."""

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc,
        has_bias: bool,
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        post_ops: Sequence[PostOp],
        *,
        window: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        lanes: int,
        threads: int,
        isa: str = "",
    ) -> None:
        """Create the kernel; ValueError if it does not support the operation.

        Args:
            src: the source: f32 or bf16 in acdb or abcd. Products are in float32.
            dst: the destination: f32 or bf16 in acdb, or in blocks of ``lanes`` channels.
            has_bias: whether there is a bias.
            pads_begin: padding above and on the left, in pixels.
            pads_end: padding below and on the right.
            post_ops: any. Operands have the descriptor of dst.
            window: taps along rows and columns.
            strides: pixels of the source from one result to the next.
            dilations: pixels of the source from one tap to the next.
            lanes: elements of a vector: 8 or 16.
            threads: number of threads. Results do not depend on it.
            isa: one of ``kernel_isas``, by default the best.
        """

class TransposedDepthwise(Kernel):
    """Transposed depthwise convolution: the gradient of a depthwise convolution's source."""

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc,
        pads_begin: Sequence[int],
        post_ops: Sequence[PostOp],
        *,
        window: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        lanes: int,
        threads: int,
        isa: str = "",
    ) -> None:
        """Create the kernel; ValueError if it does not support the operation.

        Args:
            src: the source: f32 or bf16 in acdb, or in blocks of ``lanes`` channels.
            dst: the destination, likewise; its extents say how much the ends are cropped.
            pads_begin: what is cropped at the top and at the left, smaller than the window.
            post_ops: any but sums.
            window: taps along both axes.
            strides: pixels of the destination from one pixel of the source to the next.
            dilations: pixels of the destination from one tap to the next.
            lanes: elements of a vector, 8 or 16.
            threads: of an execution. Results do not depend on it.
            isa: one of :func:`kernel_isas`; the best by default.
        """

class DepthwiseWeightGradient(Kernel):
    """The gradient of the weights of a depthwise convolution."""

    def __init__(
        self,
        src: MemoryDesc,
        diff_dst: MemoryDesc,
        pads_begin: Sequence[int],
        *,
        window: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        lanes: int,
        threads: int,
        isa: str = "",
    ) -> None:
        """Create the kernel; ValueError if it does not support the operation.

        Args:
            src: the source of the convolution: f32 or bf16 in acdb, or in blocks of ``lanes``
                channels.
            diff_dst: the gradient of its result, likewise.
            pads_begin: padding at the top and at the left, smaller than the window.
            window: taps along both axes.
            strides: pixels of the source from one result to the next.
            dilations: pixels of the source from one tap to the next.
            lanes: elements of a vector, 8 or 16.
            threads: of an execution. Results do not depend on it.
            isa: one of :func:`kernel_isas`; the best by default.
        """

class Winograd(Kernel):
    """Convolution with strides of 1 by Winograd's algorithm."""

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
        multiplies_halves: bool = False,
        isa: str = "",
    ) -> None:
        """Create the kernel; ValueError if it does not support the operation.

        Args:
            src: the source: f32 in acdb, or in blocks of ``lanes`` channels.
            dst: the destination, likewise.
            has_bias: whether there is a bias.
            pads_begin: padding above and on the left, in pixels.
            pads_end: padding below and on the right.
            post_ops: post-ops; without operands if results are pooled.
            tile: number of results along each axis along which the window has several taps.
            lanes: elements of a vector: 8 or 16.
            threads: number of threads.
            window: taps along rows and columns.
            dilations: dilations along rows and columns; 1 for adjacent taps.
            groups: number of groups, whose channels must be whole vectors.
            pool: 2 stores the maxima of 2x2 results instead of the results.
            multiplies_halves: whether a source of bfloat16 is multiplied in pairs of bfloat16.
            isa: one of ``kernel_isas``, by default the best.
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

        The call uses one thread; different threads may pack different parts at the same time.

        Args:
            array: weights of ``count`` outputs.
            buffer: the packed weights of all outputs.
            offset: offset of the packed weights in the buffer in bytes, a multiple of 4.
            first: the first output of the array; a multiple of two vectors.
            count: number of outputs, by default all; a multiple of two vectors, except at the end.
        """

@final
class StridedWinograd(Kernel):
    """Convolution with strides, or of volumes, by Winograd's algorithm, without groups."""

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
        window: Sequence[int],
        strides: Sequence[int],
        slices: Sequence[int] = (),
        isa: str = "",
    ) -> None:
        """Create the kernel; ValueError if it does not support the operation.

        Args:
            src: the source: f32 or bf16 in abcd or acdb.
            dst: the destination: f32 or bf16 in acdb, or in blocks of ``lanes`` channels.
            has_bias: whether there is a bias.
            pads_begin: padding above and on the left, in pixels.
            pads_end: padding below and on the right.
            post_ops: post-ops.
            tile: number of results along each axis.
            lanes: elements of a vector: 8 or 16.
            threads: number of threads.
            window: taps along rows and columns.
            strides: pixels from one result to the next along rows and columns.
            slices: of volumes, whose slices are the images of ``src`` and ``dst``, both in acdb:
                the slices of a source; taps, stride and dilation along them; padding at both ends.
                Weights are [O, I, D, H, W].
            isa: one of ``kernel_isas``, by default the best.
        """

    def pack_into(
        self,
        array: NDArray[Any],
        buffer: Buffer,
        offset: int,
        first: int = 0,
        count: int | None = None,
    ) -> None:
        """Transform weights like :meth:`Winograd.pack_into`."""

@final
class FittedWinograd(Kernel):
    """Winograd convolution that transforms its weights in each execution."""

    def __init__(self, kernel: Winograd, is_transposed: bool) -> None:
        """Create the kernel; ValueError if it does not support the operation.

        Args:
            kernel: what executes with the transformed weights.
            is_transposed: whether weights are [I, O, H, W] and rotated: those of a convolution of
                whose source the kernel computes the gradient. Else they are [O, I, H, W].
        """

class WinogradWeightGradient(Kernel):
    """The gradient of the weights of a convolution by Winograd's algorithm."""

    def __init__(self, forward: Winograd) -> None:
        """Create the kernel; ValueError if it does not support the operation.

        Args:
            forward: the convolution, with windows of 3x3 and without groups or pooling.
        """

class Reduction(Kernel):
    """A reduction of float32 or bfloat16 over any axes, in any format.

    Algorithms are max, min, sum, mean, mul, l1, l2, sum_square, log_sum and log_sum_exp.
    """

    def __init__(
        self, algorithm: str, src: MemoryDesc, dst: MemoryDesc, *, threads: int, isa: str = ""
    ) -> None:
        """ValueError where ``dst`` is not ``src`` with 1 for some extents."""

@final
class Normalization(Kernel):
    """softmax, log_softmax or norm of float32 or bfloat16 over any axes, in any format.

    A norm is (x - mean) / sqrt(variance + epsilon), times scale, plus shift. ``statistics`` has the
    extents of ``src``, but 1 for what is normalized; no argument has that format. ``dst`` has the
    format of ``src``.
    """

    def __init__(
        self,
        algorithm: str,
        src: MemoryDesc,
        dst: MemoryDesc,
        statistics: MemoryDesc,
        scale: MemoryDesc | None = None,
        shift: MemoryDesc | None = None,
        *,
        epsilon: float = 0.0,
        threads: int,
        isa: str = "",
    ) -> None:
        """ValueError where the extents of an operand are neither those of ``src`` nor 1."""

@final
class Lookup(Kernel):
    """A function of bytes; ARG_WEIGHTS is the table of its 256 results."""

    def __init__(
        self, src: MemoryDesc, dst: MemoryDesc, *, threads: int, isa: str = ""
    ) -> None: ...

def lookup_isas() -> list[str]: ...

@final
class Dropout(Kernel):
    """Dropout of a dense tensor; ARG_SRC_1 is the counter that draws."""

    def __init__(self, images: MemoryDesc, share: float, stream: int, *, threads: int) -> None: ...

@final
class GridSample(Kernel):
    """``src`` at the places of ``grid``, which is ARG_WEIGHTS.

    ``mode`` is ``linear``, ``nearest`` or ``cubic``, ``border`` ``zeros``, ``border`` or
    ``reflection``.
    """

    def __init__(
        self,
        mode: str,
        border: str,
        aligns_corners: bool,
        src: MemoryDesc,
        grid: MemoryDesc,
        dst: MemoryDesc,
        *,
        threads: int,
    ) -> None: ...

@final
class GatherRows(Kernel):
    """Rows of ``src`` [outer, rows, inner] by the table ARG_WEIGHTS; ``dst`` has as many rows.

    The table has ``words`` of s32 for each row: 1, or 2 for 64-bit numbers.
    """

    def __init__(
        self, src: MemoryDesc, dst: MemoryDesc, *, words: int = 1, threads: int
    ) -> None: ...

_Elements = tuple[str, Sequence[int], Sequence[int]]
"""Type by its short name, extents, and strides in elements."""

@final
class Elements(Kernel):
    """An operator on single elements of any type; sources are broadcast.

    Sources are ARG_MULTIPLE_SRC + index. All arguments are described as bytes, here and in the
    kernels below.
    """

    def __init__(
        self, op: str, sources: Sequence[_Elements], dst: _Elements, *, threads: int
    ) -> None: ...

@final
class Running(Kernel):
    """Running sums or products of [outer, rows, inner] along the rows.

    ``op`` is ``cumsum`` or ``cumprod``, ``dtype`` f32, f64, s32 or s64.
    """

    def __init__(
        self,
        op: str,
        dtype: str,
        extents: Sequence[int],
        is_exclusive: bool,
        is_reverse: bool,
        *,
        threads: int,
    ) -> None: ...

@final
class Totals(Kernel):
    """The ``sum``, ``max``, ``min`` or ``mean`` of [outer, rows, inner] along the rows.

    ``dtype`` is f32, s32 or s64; means are of f32.
    """

    def __init__(self, op: str, dtype: str, extents: Sequence[int], *, threads: int) -> None: ...

@final
class TopK(Kernel):
    """The first ``count`` elements of [outer, rows, inner] along the rows, in order.

    Their positions, of 64 bits, are ARG_DST_1. ``dtype`` is f32, s32 or s64.
    """

    def __init__(
        self, dtype: str, extents: Sequence[int], count: int, is_largest: bool, *, threads: int
    ) -> None: ...

@final
class GatherElements(Kernel):
    """The element for each index along an axis; indices, ARG_WEIGHTS, have one or two words."""

    def __init__(
        self,
        data: Sequence[int],
        indices: Sequence[int],
        axis: int,
        *,
        nbytes: int,
        words: int,
        threads: int,
    ) -> None: ...

@final
class ScatterElements(Kernel):
    """Writes ``src`` to the elements of ``dst`` that ARG_WEIGHTS names along an axis.

    ``reduction`` is ``none``, or for float32 ``add``, ``mul``, ``max`` or ``min``.
    """

    def __init__(
        self,
        data: Sequence[int],
        indices: Sequence[int],
        axis: int,
        *,
        nbytes: int,
        words: int,
        reduction: str,
        threads: int,
    ) -> None: ...

@final
class GatherPoints(Kernel):
    """Rows of [outer, extents..., row] at points [outer, count, depth], which are ARG_WEIGHTS."""

    def __init__(
        self,
        outer: int,
        extents: Sequence[int],
        count: int,
        *,
        row_nbytes: int,
        words: int,
        threads: int,
    ) -> None: ...

@final
class ScatterPoints(Kernel):
    """Writes rows of ``src`` to the points of ``dst`` that ARG_WEIGHTS names.

    ``reduction`` is as for :class:`ScatterElements`.
    """

    def __init__(
        self,
        extents: Sequence[int],
        count: int,
        *,
        row_nbytes: int,
        words: int,
        reduction: str,
    ) -> None: ...

@final
class PlainPooling(Kernel):
    """Pooling of float32 [N, C, H, W] by rows, then columns.

    ``algorithm`` is ``max``, ``avg_include`` or ``avg_exclude``.
    """

    def __init__(
        self,
        algorithm: str,
        src: MemoryDesc,
        dst: MemoryDesc,
        window: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        begins: Sequence[int],
        *,
        threads: int,
    ) -> None: ...

@final
class Positions(Kernel):
    """Positions of extremes of ``src`` [outer, rows, inner]; ``dst`` is s32 [outer, inner, 2].

    ``what`` is ``arg_max`` or ``arg_min``.
    """

    def __init__(
        self, what: str, is_last: bool, src: MemoryDesc, dst: MemoryDesc, *, threads: int
    ) -> None: ...

@final
class ScatterRows(Kernel):
    """Writes rows of ``src`` [count, inner] to the rows of ``dst`` that ARG_WEIGHTS names.

    ``reduction`` is ``none``, ``add``, ``mul``, ``max`` or ``min``.
    """

    def __init__(
        self, reduction: str, src: MemoryDesc, dst: MemoryDesc, *, threads: int
    ) -> None: ...

@final
class Attention(Kernel):
    """Attention without scores in memory; see ``native/attention/attention.hpp``.

    Steps are a name, a number, and the description of an operand. ``query_axes`` and ``key_axes``
    are the extents of the last axes of operands. ``zeroed`` says which undefined weights are 0, as
    the attribute of the operator does.
    """

    def __init__(
        self,
        queries: MemoryDesc,
        keys: MemoryDesc,
        values: MemoryDesc,
        dst: MemoryDesc,
        steps: Sequence[tuple[str, float, MemoryDesc]],
        *,
        scale: float,
        query_axes: Sequence[int],
        key_axes: Sequence[int],
        zeroed: str,
        threads: int,
        isa: str = "",
    ) -> None: ...

@final
class Recurrent(Kernel):
    """The steps of a recurrent layer; see ``native/recurrent/recurrent.hpp``."""

    def __init__(
        self,
        cell: str,
        direction: str,
        src: MemoryDesc,
        dst: MemoryDesc,
        *,
        has_bias: bool,
        has_state: bool,
        has_cell: bool,
        threads: int,
        lanes: int = 0,
        isa: str = "",
    ) -> None: ...

@final
class Pointwise(Kernel):
    """An expression of elementwise operators in float32, computed in one pass.

    Tensors are float32, bfloat16, int8 or uint8; ``grids`` has a scale and a zero point of each
    source and of the result, which count for integers.

    A step is the name of an operator of ``stridewise.ops.pointwise``, its operands, alpha and beta.
    Operands are numbers: of the sources, then of the literals, then of earlier steps. The last step
    gives the result. Sources have the extents of the result, or 1 where they are broadcast. Formats
    are strides, or blocks of one axis; the result is dense. Its padding becomes zero.
    """

    def __init__(
        self,
        steps: Sequence[tuple[str, Sequence[int], float, float]],
        literals: Sequence[float],
        sources: Sequence[MemoryDesc],
        dst: MemoryDesc,
        grids: Sequence[tuple[float, float]] = (),
        *,
        threads: int,
        isa: str = "",
    ) -> None:
        """ValueError if the operation is not supported. isa: one of ``pointwise_isas``."""

def pointwise_isas(halves: bool = False) -> list[str]:
    """The instruction sets for elementwise kernels on this processor, best first.

    With ``halves``, those of kernels on bfloat16 tensors.
    """

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
    """Return the division of a Winograd convolution among threads, for caches of given sizes.

    Args:
        window: places of a tile.
        tiles: number of tiles.
        chunks: number of vectors of channels.
        pairs: number of pairs of vectors of outputs.
        lanes: elements of a vector.
        rows: largest number of tiles of one matrix product.
        threads: number of threads.
        caches: bytes of the caches of levels 1 to 3.

    Returns:
        The dimension that is divided (``"blocks"`` of tiles, ``"outputs"`` or ``"places"``), the
        mean work of the threads relative to the busiest thread, the number of tiles of the
        smallest product of a whole block, and the largest number of bytes of weights that a thread
        reads for a block.
    """

def kernel_isas(lanes: int, halves: bool = False) -> list[str]:
    """The instruction sets for vectors of 8 or 16 lanes on this processor, best first.

    With ``halves``, those of kernels on bfloat16 tensors.
    """

def byte_isas() -> list[str]:
    """The instruction sets of kernels for tensors of bytes, best first."""

def cache_nbytes(level: int) -> int:
    """The size of a cache in bytes as reported by the system, or that of a small processor.

    Levels 1 and 2 belong to one core, level 3 is shared by some cores.
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
        """Advance to the next implementation; False, without a change, if there is none."""

    def create(self) -> Primitive: ...

PostOp: TypeAlias = (
    tuple[str, str, float, float]  # ("eltwise", alg, alpha, beta)
    | tuple[str, float]  # ("sum", scale)
    | tuple[str, str, MemoryDesc]  # ("binary", alg, operand)
)

Numbers = tuple[int, int, MemoryDesc]  # argument of scales or zero points, mask, description

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
    numbers: Sequence[Numbers] = ...,
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
    numbers: Sequence[Numbers] = ...,
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
    """alg: max, avg_include or avg_exclude (whether the average includes padding)."""

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
    numbers: Sequence[Numbers] = ...,
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
    numbers: Sequence[Numbers] = ...,
) -> PrimitiveDesc: ...
def inner_product(
    src: MemoryDesc,
    weights: MemoryDesc,
    bias: MemoryDesc | None,
    dst: MemoryDesc,
    post_ops: Sequence[PostOp] = ...,
    *,
    threads: int = 0,
    numbers: Sequence[Numbers] = ...,
) -> PrimitiveDesc: ...
def fitted(desc: PrimitiveDesc, given: dict[int, MemoryDesc]) -> Kernel:
    """Return a primitive that reads some arguments in other formats than its own.

    It reorders them before each execution. Given weights may have more groups than the primitive,
    which computes several of them as one.
    """

def conv_weight_gradient(
    src: MemoryDesc,
    diff_dst: MemoryDesc,
    dst: MemoryDesc,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    *,
    groups_together: int = 1,
    threads: int,
) -> Kernel:
    """Return the gradient of a convolution's weights; sums are in the same order in each run.

    The library computes ``groups_together`` groups as one.
    """

def pooling_places(
    src: MemoryDesc,
    dst: MemoryDesc,
    places: MemoryDesc,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    *,
    threads: int,
) -> Kernel:
    """Return a max pooling that also writes the position in its window of each maximum, a byte."""

def pooling_gradient(
    algorithm: str,
    src: MemoryDesc,
    diff_dst: MemoryDesc,
    places: MemoryDesc | None,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    *,
    threads: int,
) -> Kernel:
    """Return the gradient of a pooling's source.

    ``"max"`` reads the positions of the maxima, or the source itself without ``places``.
    """

def batch_norm_training(
    src: MemoryDesc, dst: MemoryDesc, epsilon: float, *, threads: int
) -> Kernel:
    """Return a batch norm by the statistics of its source, which it writes as well."""

def batch_norm_gradient(
    src: MemoryDesc, diff_dst: MemoryDesc, dst: MemoryDesc, epsilon: float, *, threads: int
) -> Kernel:
    """Return the gradients of a batch norm's source, scale and shift."""

@final
class BatchNorm(Kernel):
    """A batch norm by the statistics of its source, which it writes as well.

    Images are of float32 or bfloat16; statistics and parameters are of float32. ``adds`` adds the
    operand of post-op 0. Results are cut to ``low`` and ``high``.
    """

    def __init__(
        self,
        images: MemoryDesc,
        epsilon: float,
        *,
        adds: bool = False,
        low: float = ...,
        high: float = ...,
        threads: int,
        isa: str = "",
    ) -> None:
        """ValueError where ``images`` is neither plain, channels last nor blocked."""

@final
class BatchNormGradient(Kernel):
    """The gradients of a batch norm's source, scale and shift.

    Images are of float32 or bfloat16; all else is of float32. With ``masks``, the gradient of the
    result counts where the result, computed again, lies between ``low`` and ``high``.
    """

    def __init__(
        self,
        images: MemoryDesc,
        epsilon: float,
        *,
        masks: bool = False,
        low: float = ...,
        high: float = ...,
        threads: int,
        isa: str = "",
    ) -> None:
        """ValueError where ``images`` is neither plain, channels last nor blocked."""

def scale_shift(src: MemoryDesc, dst: MemoryDesc, relu: bool, *, threads: int = 0) -> PrimitiveDesc:
    """Compute scale * (src - mean) / sqrt(variance + 1) + shift per channel, then ReLU if ``relu``.

    With a mean and a variance of zero this is exactly a scale and a shift.
    """

def batch_norm(
    src: MemoryDesc, dst: MemoryDesc, epsilon: float, affine: bool, *, threads: int = 0
) -> PrimitiveDesc:
    """Normalize with statistics of src over all axes except the second; affine: scale and shift."""

def layer_norm(
    src: MemoryDesc,
    dst: MemoryDesc,
    epsilon: float,
    scale: bool,
    shift: bool,
    *,
    threads: int = 0,
) -> PrimitiveDesc:
    """Normalize with the statistics of src over the last axis."""

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

def reorder(
    src: MemoryDesc, dst: MemoryDesc, *, threads: int = 0, numbers: Sequence[Numbers] = ...
) -> PrimitiveDesc: ...

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
        """ValueError if a loop would leave the given sizes.

        ``scales`` is empty or has four lists: zero points and scales of the source, scales and
        zero points of the destination.
        """

    def run(
        self, src: NDArray[Any], dst: NDArray[Any], threads: int, stream: bool, apart: bool
    ) -> bool:
        """Only the addresses and the extents of the arrays matter. stream: use streaming stores.

        Returns False without writing if the memory ranges overlap, unless ``apart`` states that
        their elements do not.
        """

@final
class ReorderKernel(Kernel):
    """A reorder as a step of a program."""

    def __init__(
        self, reorder: Reorder, src: MemoryDesc, dst: MemoryDesc, *, threads: int, isa: str
    ) -> None:
        """ValueError if the reorder exceeds src or dst. isa: only part of the kernel's name."""

def reorder_isas() -> list[str]:
    """The instruction sets for reorder kernels on this processor, best first."""

def shuffle(
    src: MemoryDesc, dst: MemoryDesc, axis: int, group_size: int, *, threads: int = 0
) -> PrimitiveDesc:
    """Transpose (extent / group_size, group_size) along the axis; groups of group_size elements."""

def set_primitive_cache_capacity(capacity: int) -> None:
    """Set the capacity of oneDNN's primitive cache of the process; 0 disables the cache."""

def bind_openmp() -> list[str]:
    """Bind what libdnnl calls of OpenMP to the core; return the functions that the core lacks."""

def permit_callers() -> None:
    """Let one thread of the application at a time use its OpenMP workers, until a fork."""

def team_count() -> int:
    """The number of teams of the core: sets of workers, busy or idle."""

def post_op_arg(index: int) -> int:
    """The argument id of the operand of a binary post-op, by its position in post_ops."""

@final
class Measurement:
    """A primitive or kernel with synthetic operands, to be timed again and again."""

    def __init__(
        self, operation: Primitive | Kernel, *, cold: Sequence[int] = ..., spread_nbytes: int = 0
    ) -> None:
        """Make up operands.

        The arguments in ``cold`` are evicted from all caches before each run. Runs alternate
        between copies of the operands whose total size is at least ``spread_nbytes`` (at most 64
        copies).
        """

    @property
    def nbytes(self) -> int:
        """Bytes of all copies of the operands."""

    def run(self, *, min_runs: int, max_runs: int, budget_ns: int) -> tuple[list[int], float]:
        """Durations in ns of single runs, after a warm-up run; and the waiting time.

        The latter is how long threads waited for processors that did other work, also of another
        virtual machine, relative to the time of all runs.

        Runs end after ``max_runs``. They end after ``min_runs`` once they took ``budget_ns`` in
        all, or four times as long together with the evictions.
        """

def prepack(array: NDArray[Any], src: MemoryDesc, dst: MemoryDesc, threads: int) -> Buffer:
    """Reorder the memory of an array, laid out as src, into a buffer laid out as dst.

    Only the address and the extent of the array matter. If it is not C-contiguous, its strides must
    be those of src.
    """

Ref: TypeAlias = tuple[int, int, int]
"""space, index, offset in bytes.

Spaces: 0 arena (index ignored), 1 constants, 2 inputs, 3 outputs.
"""

Arg: TypeAlias = tuple[int, MemoryDesc, int, int, int]
"""argument id, description, space, index, offset in bytes (to the base address of the desc)."""

def prepack_into(
    array: NDArray[Any], src: MemoryDesc, dst: MemoryDesc, buffer: Buffer, offset: int, threads: int
) -> None:
    """Like ``prepack``, into an existing buffer at an offset in bytes.

    dst may be a submemory of a tensor at that offset.
    """

@final
class Gate:
    """A limit of concurrent executions, over all programs that share it; further ones wait."""

    def __init__(self, width: int) -> None: ...
    def renew(self) -> None:
        """Reset the counts of running and waiting executions, in the child of a fork."""

    @property
    def width(self) -> int: ...

@final
class TensorWatch:
    """Identity, version, address and content of tensors, as they were when this was made.

    tensors: a sequence, of which those at ``positions`` count. No reference to them is kept, so
    that another tensor may come to be at the place of one that has been freed. compared: for each
    position, how many bytes from the address on are compared as well. version: a descriptor,
    ``torch.Tensor._version``. address: called with a tensor, ``torch.Tensor.data_ptr``. Both give
    integers, and their exceptions are raised here.
    """

    def __init__(
        self,
        tensors: Sequence[Any],
        positions: Sequence[int],
        compared: Sequence[int],
        version: Any,
        address: Callable[[Any], int],
    ) -> None: ...
    def holds(self, tensors: Sequence[Any]) -> bool:
        """Whether the same tensors are at these positions, unchanged."""

class Program:
    """A list of steps. After ``freeze`` any number of threads may run it at the same time."""

    def __init__(
        self,
        arena_nbytes: int,
        constants: Sequence[Buffer | NDArray[Any]],
        input_nbytes: Sequence[int],
        output_nbytes: Sequence[int],
        threads: int,
        parts: int = 1,
        lanes: int = 1,
        parameter_nbytes: Sequence[int] = (),
        state_nbytes: Sequence[int] = (),
    ) -> None:
        """Arrays of a call are divided into ``parts``. The steps run once for each part.

        Sizes are those of one part. ``lanes`` parts run at a time, each on one thread. The program
        owns the memory of parameters and states, which is zero at first; where there is any, it
        runs once at a time. Steps of a program of parts do not write it.
        """

    def add_primitive(
        self,
        primitive: Primitive | Kernel,
        args: Sequence[Arg],
        in_place: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Every argument in ``primitive.args`` once, and the scratchpad if it has any size.

        An argument that is written overlaps no other one. ``in_place`` has the exceptions, each a
        written argument and the one that it is written over, which begin at the same byte.
        """

    def add_copy(self, dst: Ref, src: Ref, nbytes: int) -> None: ...
    def add_fill(self, dst: Ref, count_f32: int, value: float) -> None: ...
    def add_host(
        self,
        function: Callable[[list[NDArray[np.uint8]]], object],
        args: Sequence[tuple[int, int, int, int, bool]],
    ) -> None:
        """Add a step that calls ``function`` with a list of byte views, one for each argument.

        An argument is (space, index, offset in bytes, size in bytes, whether it is written). Views
        of arguments that are not written are read-only. Written arguments must not overlap others.
        Views keep their memory alive, but their content changes with the next run. Exceptions of
        the function propagate out of ``run``, ``profile`` and ``trace``.

        The program holds a reference to the function that the garbage collector cannot see. A
        function that refers to the program is never freed.
        """

    def freeze(self) -> None: ...
    def read(self, ref: Ref, array: NDArray[Any]) -> None:
        """Copy bytes of a parameter or a state into an array, when no run is under way."""

    def write(self, values: Sequence[tuple[Ref, NDArray[Any]]]) -> None:
        """Copy the bytes of arrays into parameters and states, all between the same two runs."""

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]) -> None:
        """Arrays must be C-contiguous, of the declared sizes; outputs must not overlap others."""

    def run_tensors(self, inputs: list[Any], outputs: list[Any]) -> None:
        """Run on objects with a method ``data_ptr``, as PyTorch's tensors are.

        Each must have as many bytes as declared, without gaps; that is not checked.
        """

    def profile(
        self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]], runs: int
    ) -> list[list[int]]:
        """Durations in ns, per run and step: the sum over parts, divided by lanes."""

    def trace(
        self,
        inputs: Sequence[NDArray[Any]],
        outputs: Sequence[NDArray[Any]],
        callback: Callable[[int, NDArray[np.uint8], Sequence[NDArray[Any]]], object],
    ) -> None:
        """Run one part, and call ``callback(step, arena, outputs)`` after each step.

        The arena is live memory; copy data that must outlive the call.
        """

    gate: Gate | None
    """The gate of ``run`` and ``profile``, which admits calls in order; None by default."""

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
        """The number of arenas: the largest number of callers that ran at the same time."""

def max_threads() -> int:
    """The number of threads by which oneDNN divides its work on the calling thread."""

def effective_isa() -> str:
    """The instruction set that oneDNN generates code for, such as AVX512_CORE_BF16."""

def version() -> str: ...
