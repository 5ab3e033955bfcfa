"""The kernel of attention on every instruction set, in any strides, with any number of threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .winograd_layers import CORE, F32, Array

ISAS = {
    "f32": tuple(dict.fromkeys([*CORE.kernel_isas(16), *CORE.kernel_isas(8)])),
    "bf16": tuple(dict.fromkeys([*CORE.kernel_isas(16, halves=True), *CORE.kernel_isas(8)])),
}
KERNELS = [(dtype, isa) for dtype, isas in ISAS.items() for isa in isas]
NUMPY = {"f32": np.dtype(F32), "bf16": np.dtype(ml_dtypes.bfloat16)}
TOLERANCE = {"f32": 4e-6, "bf16": 1.2e-2}


@dataclass(frozen=True)
class Step:
    """What is done to scores: the shape of the operand and its type."""

    name: str
    shape: tuple[int, ...]
    fill: float = 0.0
    dtype: str = "f32"

    def operand(self, rng: np.random.Generator) -> Array:
        found = rng.normal(size=self.shape)
        return (found > 0.3 if self.name.startswith("where") else found).astype(NUMPY[self.dtype])

    def of(self, scores: Array, operand: Array) -> Array:
        wide = operand.astype(np.float64)
        if self.name in ("add", "mul"):
            return scores + wide if self.name == "add" else scores * wide
        return np.where((wide != 0) == (self.name == "where"), self.fill, scores)


@dataclass(frozen=True)
class Layer:
    """Matrices, in memory with the axes of ``order``; steps see ``shape`` with these axes."""

    batch: tuple[int, ...] = (2,)
    queries: int = 5
    keys: int = 7
    depth: int = 4
    width: int = 3
    orders: tuple[tuple[int, ...], ...] = ()
    query_axes: tuple[int, ...] = ()
    key_axes: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()
    scale: float = 0.5
    zeroed: str = ""

    @property
    def rank(self) -> int:
        return len(self.batch) + 2

    @property
    def shape(self) -> tuple[int, ...]:
        """The scores as steps see them."""
        return (*self.batch, *(self.query_axes or (self.queries,)),
                *(self.key_axes or (self.keys,)))  # fmt: skip


@dataclass
class Tensors:
    """The tensors of a layer: queries, keys and values as matrices, and operands of steps."""

    layer: Layer
    dtype: str
    seed: int = 0
    matrices: list[Array] = field(default_factory=list[Array])
    operands: list[Array] = field(default_factory=list[Array])

    def __post_init__(self) -> None:
        rng, layer = np.random.default_rng(self.seed), self.layer
        rows = (layer.queries, layer.depth), (layer.keys, layer.depth), (layer.keys, layer.width)
        for index, shape in enumerate(rows):
            array = rng.normal(size=(*layer.batch, *shape)).astype(NUMPY[self.dtype])
            order = self.order(index)
            self.matrices.append(
                np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
            )
        self.operands = [step.operand(rng) for step in layer.steps]

    def order(self, index: int) -> tuple[int, ...]:
        return self.layer.orders[index] if self.layer.orders else tuple(range(self.layer.rank))

    def wanted(self) -> Array:
        q, k, v = (item.astype(np.float64) for item in self.matrices)
        scores = (q @ np.swapaxes(k, -1, -2)) * self.layer.scale
        whole = scores.shape
        scores = scores.reshape(self.layer.shape)
        for step, operand in zip(self.layer.steps, self.operands, strict=True):
            scores = step.of(scores, operand)
        scores = scores.reshape(whole)
        most = scores.max(axis=-1, keepdims=True)
        with np.errstate(invalid="ignore"):
            weights = np.exp(scores - most)
            weights = weights / weights.sum(axis=-1, keepdims=True)
        if self.layer.zeroed:
            weights[np.broadcast_to(most == -np.inf, weights.shape)] = 0
        if self.layer.zeroed == "nan":
            weights[np.isnan(weights)] = 0
        return weights @ v

    def found(self, isa: str, threads: int = 1) -> Array:
        """Run the kernel in an arena of NaN, on results that are NaN."""
        layer = self.layer
        order = self.order(3)
        result = np.full((*layer.batch, layer.queries, layer.width), np.nan, NUMPY[self.dtype])
        result = np.ascontiguousarray(result.transpose(order)).transpose(np.argsort(order))
        descs = [self._described(item, self.dtype) for item in (*self.matrices, result)]
        steps = [
            (step.name, step.fill, self._described(operand, step.dtype))
            for step, operand in zip(layer.steps, self.operands, strict=True)
        ]
        op = CORE.Attention(
            *descs, steps, scale=layer.scale, query_axes=layer.query_axes or (layer.queries,),
            key_axes=layer.key_axes or (layer.keys,), zeroed=layer.zeroed, threads=threads,
            isa=isa,
        )  # fmt: skip
        assert op.impl == f"attention:{isa}"
        inputs = [*self.matrices, *self.operands]
        memory = [np.frombuffer(_whole(item).tobytes(), np.uint8) for item in inputs]
        out = np.frombuffer(bytearray(_whole(result).tobytes()), np.uint8)
        program = CORE.Program(
            op.scratchpad_nbytes, [], [item.nbytes for item in memory], [out.nbytes], threads
        )
        sources = [CORE.ARG_SRC, CORE.ARG_SRC_1, CORE.ARG_SRC_2]
        sources += [CORE.ARG_MULTIPLE_SRC + index for index in range(len(steps))]
        places = {arg: (2, index) for index, arg in enumerate(sources)}
        places |= {CORE.ARG_DST: (3, 0), CORE.ARG_SCRATCHPAD: (0, 0)}
        args = [*op.args, CORE.ARG_SCRATCHPAD]
        program.add_primitive(op, [(arg, op.arg_desc(arg), *places[arg], 0) for arg in args])
        program.freeze()
        program.poison = True
        program.run(memory, [out])
        shape = tuple(result.shape[axis] for axis in order)
        return out.view(result.dtype).reshape(shape).transpose(np.argsort(order))

    @staticmethod
    def _described(array: Array, dtype: str) -> object:
        strides = [step // array.itemsize for step in array.strides]
        return CORE.MemoryDesc.strided(array.shape, dtype, strides)


def _whole(array: Array) -> Array:
    """Return the elements in the order of memory."""
    return array.transpose(np.argsort([-step for step in array.strides], kind="stable"))


def check(tensors: Tensors, isa: str, threads: int = 1) -> None:
    wanted, found = tensors.wanted(), tensors.found(isa, threads).astype(np.float64)
    scale = max(np.abs(wanted[np.isfinite(wanted)]).max(initial=0), 1e-3)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE[tensors.dtype] * scale)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Draw matrices in any order of axes, and steps whose operands are broadcast in any way."""
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    queries = draw(st.lists(st.sampled_from((1, 2, 3, 5, 17, 40)), min_size=1, max_size=2))
    keys = draw(st.lists(st.sampled_from((1, 2, 3, 8, 23)), min_size=1, max_size=2))
    depth, width = (draw(st.sampled_from((1, 2, 7, 16, 33))) for _ in range(2))
    rank = len(batch) + 2
    orders = tuple(tuple(draw(st.permutations(range(rank)))) for _ in range(4))
    shape = (*batch, *queries, *keys)
    steps: list[Step] = []
    for _ in range(draw(st.integers(0, 3))):
        operand = tuple(draw(st.sampled_from((1, extent))) for extent in shape)
        name = draw(st.sampled_from(("add", "mul", "where", "where_not")))
        fill, dtype = draw(st.sampled_from((-20.0, 0.0))), draw(st.sampled_from(("f32", "bf16")))
        steps.append(Step(name, operand, fill, dtype))
    return Layer(
        batch, int(np.prod(queries)), int(np.prod(keys)), depth, width, orders,
        tuple(queries), tuple(keys), tuple(steps),
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "isa"), KERNELS)
@settings(max_examples=60)
@given(layer=layers(), seed=st.integers(0, 99), threads=st.integers(1, 3))
def test_attention_is_what_it_is_defined_as(
    dtype: str, isa: str, layer: Layer, seed: int, threads: int
):
    check(Tensors(layer, dtype, seed), isa, threads)


@pytest.mark.parametrize(("dtype", "isa"), KERNELS)
def test_many_keys_are_computed_in_blocks(dtype: str, isa: str):
    steps = (Step("add", (1, 2, 70, 3, 1201)), Step("mul", (1, 2, 1, 3, 1)))
    layer = Layer((1, 2), 70, 3603, 6, 5, (), (70,), (3, 1201), steps)
    check(Tensors(layer, dtype), isa, 2)


@pytest.mark.parametrize("isa", ISAS["f32"])
def test_rows_of_values_that_alias_in_caches_are_copied(isa: str):
    layer = Layer((8,), 50, 60, 64, 64, ((1, 0, 2),) * 4)
    check(Tensors(layer, "f32"), isa)


@pytest.mark.parametrize(("dtype", "isa"), KERNELS)
def test_any_number_of_threads_gives_the_same_bits(dtype: str, isa: str):
    tensors = Tensors(Layer((1, 2), 131, 600, 9, 20, steps=(Step("add", (1, 1, 131, 600)),)), dtype)
    first = tensors.found(isa, 1)
    for threads in (2, 3, 7, 16):
        np.testing.assert_array_equal(tensors.found(isa, threads), first)


@pytest.mark.parametrize(("dtype", "isa"), KERNELS)
@pytest.mark.parametrize("keys", [7, 700])
@pytest.mark.parametrize("zeroed", ["", "empty", "nan"])
def test_rows_without_keys_are_nan_or_0(dtype: str, isa: str, keys: int, zeroed: str):
    step = Step("where", (1, 40, keys), -np.inf)
    layer = Layer((1,), 40, keys, 5, 4, steps=(step,), zeroed=zeroed)
    tensors = Tensors(layer, dtype)
    mask = np.zeros((1, 40, keys), F32)
    mask[0, 3] = 1  # no key is left
    mask[0, 5, : keys - 1] = 1  # only the last one, behind a whole block without any
    mask[0, 6, 1:] = 1  # only the first one
    tensors.operands = [mask]
    assert np.isnan(tensors.wanted()[0, 3]).all() == (zeroed == "")
    check(tensors, isa)


@pytest.mark.parametrize(("dtype", "isa"), KERNELS)
@pytest.mark.parametrize("zeroed", ["", "empty", "nan"])
def test_infinities_and_nan_spread_as_defined(dtype: str, isa: str, zeroed: str):
    layer = Layer((1,), 40, 20, 5, 4, steps=(Step("add", (1, 40, 20)),), zeroed=zeroed)
    tensors = Tensors(layer, dtype)
    tensors.operands[0][0, 1, 2] = np.inf
    tensors.operands[0][0, 2, 3] = np.nan
    tensors.operands[0][0, 4, 5:] = -np.inf
    tensors.operands[0][0, 7] = 3e38
    tensors.operands[0][0, 9] = np.finfo(F32).min  # as masks have it that hide whole rows
    check(tensors, isa)


@pytest.mark.parametrize("isa", ISAS["f32"])
def test_large_scores_do_not_overflow(isa: str):
    check(Tensors(Layer((1,), 33, 1200, 5, 4, scale=3000.0), "f32"), isa)


def _attention(*shapes: tuple[int, ...], **options: object) -> object:
    descs = [CORE.MemoryDesc(shape, "f32", "abcd"[: len(shape)]) for shape in shapes]
    given: dict[str, Any] = {"scale": 1.0, "query_axes": (5,), "key_axes": (3,), "zeroed": ""}
    given |= {"threads": 1, **options}
    return CORE.Attention(*descs[:4], given.pop("steps", []), **given)


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (((2, 5, 4), (2, 3, 5), (2, 3, 6), (2, 5, 6)), {}, "matrices that fit"),
        (((2, 5, 4), (2, 3, 4), (2, 4, 6), (2, 5, 6)), {}, "matrices that fit"),
        (((2, 5, 4), (3, 3, 4), (2, 3, 6), (2, 5, 6)), {}, "equal batch axes"),
        (((5, 4), (2, 3, 4), (2, 3, 6), (2, 5, 6)), {}, "equal batch axes"),
        (((2, 5, 4), (2, 3, 4), (2, 3, 6), (2, 5, 6)), {"query_axes": (2, 2)}, "axes of 5 queries"),
        (((2, 5, 4), (2, 3, 4), (2, 3, 6), (2, 5, 6)), {"isa": "mmx"}, "there are no mmx kernels"),
        (((2, 5, 4), (2, 3, 4), (2, 3, 6), (2, 5, 6)), {"zeroed": "all"}, "zeroed as empty or nan"),
        (((2, 5, 4), (2, 3, 4), (2, 3, 6), (2, 5, 6)), {"threads": 0}, "at least 1"),
        (((4,), (4,), (4,), (4,)), {}, "expected matrices"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    shapes: tuple[tuple[int, ...], ...], options: dict[str, object], message: str
):
    with pytest.raises(ValueError, match=message):
        _attention(*shapes, **options)


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "message"),
    [
        ("sub", (2, 5, 3), "f32", "add, mul, where or where_not"),
        ("add", (2, 5, 2), "f32", "strided operands"),
        ("add", (5, 3), "f32", "strided operands"),
        ("add", (2, 5, 3), "s32", "strided operands"),
    ],
)
def test_steps_that_do_not_fit_are_refused(
    name: str, shape: tuple[int, ...], dtype: str, message: str
):
    operand = CORE.MemoryDesc(shape, dtype, "abc"[: len(shape)])
    with pytest.raises(ValueError, match=message):
        _attention((2, 5, 4), (2, 3, 4), (2, 3, 6), (2, 5, 6), steps=[(name, 0.0, operand)])


def test_more_steps_than_the_kernel_takes_are_refused():
    operand = CORE.MemoryDesc((1, 1, 1), "f32", "abc")
    with pytest.raises(ValueError, match="at most 8 steps"):
        _attention((2, 5, 4), (2, 3, 4), (2, 3, 6), (2, 5, 6), steps=[("add", 0.0, operand)] * 9)
