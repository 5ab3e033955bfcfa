"""What tests of the native core share: arrays, descriptions, a convolution in NumPy, programs."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from stridewise.runtime.binding.library import load_core

core = load_core()

ARENA, CONSTANTS, INPUTS, OUTPUTS = range(4)
THREADS = core.max_threads()
F32 = np.float32


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def desc(shape: Sequence[int], tag: str | None = None) -> Any:
    return core.MemoryDesc(list(shape), "f32", tag or "abcdefghijkl"[: len(shape)])


def block_tag() -> str:
    """The widest channel block that has kernels of its own on this machine."""
    return "aBcd16b" if core.effective_isa().startswith("AVX512") else "aBcd8b"


def convolve(x, w, bias=None, stride=1, pad=0, dilation=1, groups=1):
    """Straightforward reference; x is NCHW and w is OIHW, with I counted in one group."""
    n, _, height, width = x.shape
    channels_out, channels_in, kernel_h, kernel_w = w.shape
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    out_h = (height + 2 * pad - dilation * (kernel_h - 1) - 1) // stride + 1
    out_w = (width + 2 * pad - dilation * (kernel_w - 1) - 1) // stride + 1
    y = np.zeros((n, channels_out, out_h, out_w), np.float64)
    per_group = channels_out // groups
    for o, i, r, s in product(
        range(channels_out), range(channels_in), range(kernel_h), range(kernel_w)
    ):
        rows = slice(r * dilation, r * dilation + (out_h - 1) * stride + 1, stride)
        columns = slice(s * dilation, s * dilation + (out_w - 1) * stride + 1, stride)
        plane = padded[:, o // per_group * channels_in + i, rows, columns]
        y[:, o] += plane.astype(np.float64) * w[o, i, r, s]
    if bias is not None:
        y += bias.reshape(1, -1, 1, 1)
    return y.astype(F32)


def execute(pd: Any, arrays: dict[int, np.ndarray], out_shape: Sequence[int], out=None):
    """Run one primitive on plain arrays, reordering to and from the formats that it wants.

    ``out`` is what the destination holds before, for a sum post-op.
    """
    primitive = pd.create()
    scratchpad = primitive.scratchpad_nbytes
    dst = primitive.arg_desc(core.ARG_DST)
    packed = {
        arg: core.prepack(array, desc(array.shape), primitive.arg_desc(arg), THREADS)
        for arg, array in arrays.items()
    }
    target = core.prepack(
        np.zeros(out_shape, F32) if out is None else out, desc(out_shape), dst, THREADS
    )
    program = core.Program(scratchpad, list(packed.values()), [dst.nbytes], [dst.nbytes], THREADS)
    program.add_copy((OUTPUTS, 0, 0), (INPUTS, 0, 0), dst.nbytes)
    args = [(arg, primitive.arg_desc(arg), CONSTANTS, i, 0) for i, arg in enumerate(packed)]
    args.append((core.ARG_DST, dst, OUTPUTS, 0, 0))
    if scratchpad:
        args.append((core.ARG_SCRATCHPAD, primitive.arg_desc(core.ARG_SCRATCHPAD), ARENA, 0, 0))
    program.add_primitive(primitive, args)
    program.freeze()
    program.poison = True
    raw = np.empty(dst.nbytes, np.uint8)
    program.run([target.array()], [raw])
    plain = core.prepack(raw, dst, desc(out_shape), THREADS)
    return plain.array().view(F32).reshape(out_shape).copy()


def relu_program(shape=(1, 16, 8, 8), threads=THREADS):
    """y = relu(x)."""
    d = desc(shape)
    primitive = core.eltwise("relu", d, d, threads=threads).create()
    program = core.Program(0, [], [d.nbytes], [d.nbytes], threads)
    program.add_primitive(
        primitive, [(core.ARG_SRC, d, INPUTS, 0, 0), (core.ARG_DST, d, OUTPUTS, 0, 0)]
    )
    program.freeze()
    return program


def chain_program(c=16, size=10, threads=THREADS):
    """y = relu(x) * w + 0.5, with every space in use and both middle values in the arena."""
    d = desc((1, c, size, size))
    w = desc((1, c, 1, 1))
    relu = core.eltwise("relu", d, d, threads=threads).create()
    mul = core.binary("mul", d, w, d, threads=threads).create()
    add = core.binary("add", d, d, d, threads=threads).create()
    weights = random(c, seed=7)
    n = d.nbytes
    program = core.Program(3 * n, [core.Buffer.from_array(weights)], [n], [n], threads)
    program.add_fill((ARENA, 0, 2 * n), n // 4, 0.5)
    program.add_primitive(relu, [(core.ARG_SRC, d, INPUTS, 0, 0), (core.ARG_DST, d, ARENA, 0, 0)])
    program.add_primitive(
        mul,
        [
            (core.ARG_SRC, d, ARENA, 0, 0),
            (core.ARG_SRC_1, w, CONSTANTS, 0, 0),
            (core.ARG_DST, d, ARENA, 0, n),
        ],
    )
    program.add_primitive(
        add,
        [
            (core.ARG_SRC, d, ARENA, 0, n),
            (core.ARG_SRC_1, d, ARENA, 0, 2 * n),
            (core.ARG_DST, d, OUTPUTS, 0, 0),
        ],
    )
    program.freeze()
    return program, lambda x: np.maximum(x, 0) * weights.reshape(1, -1, 1, 1) + F32(0.5)
