"""Machine code loops that multiply and add, read, write or copy (x86-64).

The loops do not depend on the code generation of a compiler or a library. Python assembles them
from the encodings in Intel's manual (volume 2, instruction formats). Vectors of 32 bytes need AVX2
and FMA, multiplications of vectors of 64 bytes need AVX-512F. ``ctypes`` releases the GIL during a
call, so Python threads can measure several cores.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable
from itertools import chain

__all__ = ["LINE", "Code", "copy", "multiply_add", "read", "write"]

LINE = 512
"""Bytes per iteration of a memory loop; a power of two."""

_VECTOR = 32
_ACCUMULATORS = 12
"""Number of independent sums: enough for two units with a latency of four or five cycles."""
_UNROLLED = 4
_LOAD, _STORE, _STREAM, _XOR = 0x10, 0x11, 0x2B, 0x57
_DESTINATION, _SOURCE = 8, 9  # r8, r9: the current addresses
_OPERAND = 15
_SMALL = b"\xb8\x6f\x12\x83\x3a\xc5\x79\x6e\xf8"
"""mov eax, 0.001f; vmovd xmm15, eax: with this factor sums stay finite and normal for hours."""
_ENDING = b"\x0f\xae\xf8\xc5\xf8\x77\xc3"  # sfence; vzeroupper; ret


class Code:
    """A function ``f(destination, source, lines, passes)`` of machine code.

    A memory loop runs ``passes`` times over ``lines`` lines of :data:`LINE` bytes. The arithmetic
    loop runs ``passes`` iterations and ignores the other arguments.
    """

    def __init__(self, code: bytes, flops: int = 0) -> None:
        """Make machine code callable.

        Args:
            code: a complete function with the System V calling convention.
            flops: floating-point operations of one pass.

        Raises:
            OSError: the system does not allow pages that are writable and executable.
        """
        self.code, self.flops = code, flops
        self._pages = mmap.mmap(
            -1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        )
        self._pages.write(code)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        kind = ctypes.CFUNCTYPE(None, *(2 * [ctypes.c_void_p] + 2 * [ctypes.c_size_t]))
        self._call = kind(start)

    def __call__(self, destination: int, source: int, lines: int, passes: int) -> None:
        """Run the loop on two addresses; both counts must be at least 1."""
        if lines < 1 or passes < 1:
            raise ValueError(f"expected at least one line and one pass, got {lines} and {passes}")
        self._call(destination, source, lines, passes)


def _vex(opcode: int, register: int, operand: int, memory: int | None = None) -> bytes:
    """Return an instruction of map 0F on vectors of 32 bytes, without a prefix.

    The last operand is ``register`` again, or memory at an offset of ``memory`` bytes from a base
    register.
    """
    base = register if memory is None else operand
    second = operand if memory is None else 0
    first = (~register >> 3 & 1) << 7 | 1 << 6 | (~base >> 3 & 1) << 5 | 1
    mode = 0xC0 if memory is None else 0x80
    code = bytes(
        (0xC4, first, (~second & 15) << 3 | 4, opcode, mode | (register & 7) << 3 | base & 7)
    )
    return code if memory is None else code + memory.to_bytes(4, "little")


def _fma(accumulator: int, wide: bool) -> bytes:
    """Return ``vfmadd231ps accumulator, operand, operand``."""
    flipped = (~accumulator >> 3 & 1) << 7 | 1 << 6 | (~_OPERAND >> 3 & 1) << 5
    second = (~_OPERAND & 15) << 3
    tail = bytes((0xB8, 0xC0 | (accumulator & 7) << 3 | _OPERAND & 7))
    if wide:
        return bytes((0x62, flipped | 1 << 4 | 2, second | 5, 0x48)) + tail
    return bytes((0xC4, flipped | 2, second | 5)) + tail


def _again(body: bytes, count_down: bytes) -> bytes:
    """Return a loop around a body that ends when a counter is zero: ``dec; jnz``."""
    back = -(len(body) + len(count_down) + 6)
    return body + count_down + b"\x0f\x85" + back.to_bytes(4, "little", signed=True)


def _through_memory(instructions: Iterable[bytes]) -> Code:
    """Return a loop over lines inside a loop over passes."""
    step = LINE.to_bytes(4, "little")
    advance = b"\x49\x81\xc0" + step + b"\x49\x81\xc1" + step  # add r8, LINE; add r9, LINE
    lines = _again(b"".join(instructions) + advance, b"\x49\xff\xca")  # dec r10
    start = b"\x49\x89\xf8\x49\x89\xf1\x49\x89\xd2"  # mov r8, rdi; mov r9, rsi; mov r10, rdx
    return Code(_again(start + lines, b"\x48\xff\xc9") + _ENDING)  # dec rcx


def multiply_add(wide: bool) -> Code:
    """Return a loop of fused multiplications and additions on registers alone.

    Args:
        wide: whether vectors have 64 bytes, which needs AVX-512F, or 32.
    """
    zeros = b"".join(_vex(_XOR, index, index) for index in range(_ACCUMULATORS))
    broadcast = b"\x62\x52\x7d\x48\x18\xff" if wide else b"\xc4\x42\x7d\x18\xff"
    body = b"".join(_fma(index, wide) for index in range(_ACCUMULATORS)) * _UNROLLED
    flops = 2 * _ACCUMULATORS * _UNROLLED * (16 if wide else 8)
    return Code(_SMALL + broadcast + zeros + _again(body, b"\x48\xff\xc9") + _ENDING, flops)


def read() -> Code:
    """Return a loop that loads the source."""
    offsets = range(0, LINE, _VECTOR)
    return _through_memory(_vex(_LOAD, at // _VECTOR % 8, _SOURCE, at) for at in offsets)


def write(stream: bool) -> Code:
    """Return a loop that writes the destination with cached or streaming stores."""
    opcode = _STREAM if stream else _STORE
    return _through_memory(_vex(opcode, 0, _DESTINATION, at) for at in range(0, LINE, _VECTOR))


def copy(stream: bool) -> Code:
    """Return a loop that copies source to destination with cached or streaming stores."""
    opcode = _STREAM if stream else _STORE
    pairs = (
        (
            _vex(_LOAD, at // _VECTOR % 8, _SOURCE, at),
            _vex(opcode, at // _VECTOR % 8, _DESTINATION, at),
        )
        for at in range(0, LINE, _VECTOR)
    )
    return _through_memory(chain.from_iterable(pairs))
