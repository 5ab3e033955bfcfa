"""The machine that plans and costs hold for."""

from __future__ import annotations

from stridewise.classes import dataclass

__all__ = ["Machine"]


@dataclass(frozen=True, slots=True)
class Machine:
    """What plans and cost figures depend on.

    Attributes:
        cpu: the processor's model name.
        isa: the instruction set that the library uses, in oneDNN's spelling.
        threads: how many threads run a model.
        library: name and version of the kernel library.
    """

    cpu: str
    isa: str
    threads: int
    library: str

    @property
    def has_avx512(self) -> bool:
        """Whether 16 float32 lanes are in use."""
        return self.isa.startswith("AVX512") or self.isa.startswith("AVX10")

    @property
    def has_bfloat16(self) -> bool:
        """Whether products of bfloat16 take instructions of their own."""
        return any(name in self.isa for name in ("BF16", "FP16", "AMX", "AVX10"))

    @property
    def has_tiles(self) -> bool:
        """Whether instructions multiply tiles of bfloat16 and of 8-bit integers (AMX)."""
        return "AMX" in self.isa

    @property
    def has_int8(self) -> bool:
        """Whether there are kernels on 8-bit integers: with AVX-512 and VNNI, and with AVX2."""
        return self.has_int8_products or self.isa.startswith("AVX2")

    @property
    def has_int8_products(self) -> bool:
        """Whether the library's products of 8-bit integers are exact.

        Without VNNI, sums of two products saturate at 16 bits. Of processors with AVX2 only, those
        with VNNI are left out, on which nothing was tested.
        """
        known = ("VNNI", "BF16", "FP16", "AMX", "AVX10")
        return self.has_avx512 and any(name in self.isa for name in known)

    def __str__(self) -> str:
        return f"{self.cpu}, {self.isa}, {self.threads} threads, {self.library}"
