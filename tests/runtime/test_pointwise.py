"""Expressions of elementwise operators by kernels of our own: any broadcast, any format."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.graph import Node
from stridewise.ops import OPS, evaluate
from stridewise.ops.activation import SNAPS
from stridewise.ops.pointwise import OPERANDS, parse_expression
from stridewise.runtime.binding.factories import numbered
from stridewise.runtime.binding.library import load_core

core = load_core()
ISAS = core.pointwise_isas()
EXACT = ("add", "sub", "mul", "div", "maximum", "minimum", "where", "less", "equal")
INPUTS, OUTPUTS = 2, 3
PARAMETERS = {
    "leaky_relu": (0.1, 0.0), "clip": (-0.5, 0.75), "hard_sigmoid": (0.2, 0.5),
    "hard_swish": (1 / 6, 0.5), "thresholded_relu": (0.4, 0.0), "shrink": (0.5, 0.25),
    "selu": (1.67, 1.05), "celu": (0.8, 0.0), "swish": (1.25, 0.0), "elu": (0.7, 0.0),
    "power": (1.7, 0.0),
}  # fmt: skip


def strides_of(shape: tuple[int, ...], order: tuple[int, ...]) -> list[int]:
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return strides


TYPES = {"float32": "f32", "int8": "s8", "uint8": "u8"}


def stored(array: np.ndarray, order: tuple[int, ...]) -> tuple[Any, np.ndarray]:
    """Return the description of an array stored in an order of its axes, and its bytes."""
    dtype = TYPES[array.dtype.name]
    desc = core.MemoryDesc.strided(array.shape, dtype, strides_of(array.shape, order))
    return desc, np.ascontiguousarray(array.transpose(order))


def blocked(array: np.ndarray, block: int) -> tuple[Any, np.ndarray]:
    """Return the description of images in blocks of channels, and their bytes with zeros."""
    array = array.astype(np.float32) if array.dtype == np.float64 else array
    n, c, h, w = array.shape
    padded = np.zeros((n, -(-c // block) * block, h, w), array.dtype)
    padded[:, :c] = array
    bytes_ = padded.reshape(n, -1, block, h, w).transpose(0, 1, 3, 4, 2)
    desc = core.MemoryDesc(array.shape, TYPES[array.dtype.name], f"aBcd{block}b")
    return desc, np.ascontiguousarray(bytes_)


def kernel_of(
    expression: tuple[str, ...],
    sources: list[Any],
    dst: Any,
    threads: int,
    isa: str,
    grids: list[tuple[float, float]] | None = None,
) -> Any:
    steps, literals = numbered(parse_expression(expression, len(sources)), len(sources))
    return core.Pointwise(steps, literals, sources, dst, grids or [], threads=threads, isa=isa)


def run(kernel: Any, arrays: list[np.ndarray], result: np.ndarray, threads: int) -> None:
    """Run a kernel over memory full of NaN."""
    program = core.Program(0, [], [a.nbytes for a in arrays], [result.nbytes], threads)
    args = [
        (arg, kernel.arg_desc(arg), INPUTS, number, 0)
        for number, arg in enumerate(core.ARG_MULTIPLE_SRC + i for i in range(len(arrays)))
    ]
    program.add_primitive(
        kernel, [*args, (core.ARG_DST, kernel.arg_desc(core.ARG_DST), OUTPUTS, 0, 0)]
    )
    program.freeze()
    result.fill(np.nan if result.dtype == np.float32 else 77)
    program.run(arrays, [result])


def computed(expression: tuple[str, ...], arrays: list[np.ndarray], isa: str) -> np.ndarray:
    """Return an expression of arrays of one shape, by the kernels of an instruction set."""
    descs = [stored(np.atleast_1d(array), tuple(range(array.ndim))) for array in arrays]
    desc, result = stored(np.empty_like(arrays[0]), tuple(range(arrays[0].ndim)))
    run(
        kernel_of(expression, [d for d, _ in descs], desc, 1, isa), [b for _, b in descs], result, 1
    )
    return result


@st.composite
def cases(draw: Any) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Return the shapes of up to three operands that broadcast, and that of the result."""
    rank = draw(st.integers(1, 5))
    result = tuple(draw(st.sampled_from([1, 2, 3, 5, 17])) for _ in range(rank))
    operands = [tuple(draw(st.sampled_from([1, extent])) for extent in result) for _ in range(2)]
    return [*operands, result], result


@given(
    shapes=cases(),
    op=st.sampled_from(EXACT),
    isa=st.sampled_from(ISAS),
    threads=st.integers(1, 4),
    data=st.data(),
)
def test_every_broadcast_in_every_order_is_that_of_numpy(
    shapes: tuple[list[tuple[int, ...]], tuple[int, ...]],
    op: str,
    isa: str,
    threads: int,
    data: Any,
) -> None:
    rng = np.random.default_rng(0)
    operands, shape = shapes
    count = OPERANDS[op]
    # The last operand of the result's shape makes sure that it has that one.
    expression = (f"{op}({', '.join(f'x{i}' for i in range(count))})", "add(t0, x2)")
    arrays = [rng.integers(-2, 3, s).astype(np.float32) for s in operands]
    orders = list(permutations(range(len(shape))))
    described = [stored(array, data.draw(st.sampled_from(orders))) for array in arrays]
    order = data.draw(st.sampled_from(orders))
    desc, result = stored(np.empty(shape, np.float32), order)
    kernel = kernel_of(expression, [d for d, _ in described], desc, threads, isa)
    assert kernel.impl == f"pointwise:{isa}"
    run(kernel, [bytes_ for _, bytes_ in described], result, threads)
    x = [arrays[0] != 0, *arrays[1:]] if op == "where" else arrays
    with np.errstate(all="ignore"):
        (first,) = OPS[op].evaluate(Node("y", op, ("a",) * count, ("y",)), x[:count])
        wanted = first.astype(np.float32) + arrays[2]
    np.testing.assert_array_equal(result, wanted.transpose(order))


@given(
    channels=st.sampled_from([1, 3, 8, 16, 20, 33]),
    size=st.sampled_from([(1, 1), (5, 3), (1, 40)]),
    block=st.sampled_from([8, 16]),
    shapes=st.lists(st.tuples(*[st.booleans()] * 4), min_size=1, max_size=3),
    plain=st.booleans(),
    isa=st.sampled_from(ISAS),
    threads=st.integers(1, 3),
)
def test_blocks_of_channels_with_padding(
    channels: int,
    size: tuple[int, int],
    block: int,
    shapes: list[tuple[bool, ...]],
    plain: bool,
    isa: str,
    threads: int,
) -> None:
    rng = np.random.default_rng(0)
    whole = (2, channels, *size)
    x = rng.standard_normal(whole).astype(np.float32)
    others = [
        rng.standard_normal([e if kept else 1 for e, kept in zip(whole, s, strict=True)]).astype(
            "f"
        )
        for s in shapes
    ]
    expression = tuple(f"sub({f't{i - 1}' if i else 'x0'}, x{i + 1})" for i in range(len(others)))
    expression = (*expression, f"exp(t{len(others) - 1})")
    first = blocked(x, block)
    described = [first, *(stored(o, (0, 1, 2, 3)) if plain else blocked(o, block) for o in others)]
    result = np.empty_like(first[1])
    kernel = kernel_of(expression, [d for d, _ in described], first[0], threads, isa)
    run(kernel, [bytes_ for _, bytes_ in described], result, threads)
    wanted = x
    for other in others:
        wanted = wanted - other
    # The padding of the exponential would be 1.
    np.testing.assert_allclose(result, blocked(np.exp(wanted), block)[1], 1e-6)


# --- integers -------------------------------------------------------------------------------------

GRIDS = {
    "float32": [(1.0, 0.0)],
    "int8": [(0.02, 0.0), (0.37, -5.0), (1.0, 127.0)],
    "uint8": [(0.013, 117.0), (0.5, 0.0), (2.0, 255.0)],
}


def real(array: np.ndarray, grid: tuple[float, float]) -> np.ndarray:
    """Return what integers stand for, by ONNX's DequantizeLinear."""
    if array.dtype == np.float32:
        return array
    return (array.astype(np.float32) - np.float32(grid[1])) * np.float32(grid[0])


def rounded(numbers: np.ndarray, dtype: str, grid: tuple[float, float]) -> np.ndarray:
    """Return the integers of numbers, by ONNX's QuantizeLinear."""
    if dtype == "float32":
        return numbers
    limits = np.iinfo(dtype)
    whole = np.rint(numbers / np.float32(grid[0])) + grid[1]
    return np.clip(whole, limits.min, limits.max).astype(dtype)


def _rectified(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, np.float32(0))


EXPRESSIONS = [
    (("mul(x0, x1)",), lambda x, y: x * y),
    (("sub(x0, x1)",), lambda x, y: x - y),
    (("add(x0, x1)", "relu(t0)"), lambda x, y: _rectified(x + y)),
    (("mul(x1, x0)", "maximum(t0, -3.0)"), lambda x, y: np.maximum(x * y, np.float32(-3))),
    (("mul(x0, x1)", "add(t0, x1)", "relu(t1)"), lambda x, y: _rectified(x * y + y)),
    (("mul(x0, x1)", "add(x0, t0)"), lambda x, y: x + x * y),
    (("mul(x0, 0.37)", "mul(t0, x1)"), lambda x, y: x * np.float32(0.37) * y),
    (("relu(x0)", "add(t0, x1)", "relu(t0)"), lambda x, y: _rectified(_rectified(x)) + 0 * y),
]
"""Some whose first and last steps are computed while integers are loaded and stored."""


@given(
    kinds=st.tuples(*[st.sampled_from(list(TYPES))] * 3),
    expression=st.sampled_from(EXPRESSIONS),
    shape=st.tuples(st.integers(1, 2), *[st.sampled_from([1, 3, 16, 20])] * 2, st.integers(1, 40)),
    kept=st.tuples(*[st.booleans()] * 4),
    layout=st.sampled_from([(0, 1, 2, 3), (0, 2, 3, 1), 8, 16]),
    isa=st.sampled_from(ISAS),
    threads=st.integers(1, 3),
    data=st.data(),
)
def test_integers_are_rounded_as_onnx_rounds_them(
    kinds: tuple[str, str, str],
    expression: Any,
    shape: tuple[int, ...],
    kept: tuple[bool, ...],
    layout: Any,
    isa: str,
    threads: int,
    data: Any,
) -> None:
    rng = np.random.default_rng(0)
    grids = [data.draw(st.sampled_from(GRIDS[kind])) for kind in kinds]
    shapes = [shape, tuple(n if keep else 1 for n, keep in zip(shape, kept, strict=True))]
    arrays = [rng.integers(0, 256, item).astype(np.uint8) for item in shapes]
    arrays = [
        (array / np.float32(16) - 8).astype(np.float32) if kind == "float32" else array.view(kind)
        for array, kind in zip(arrays, kinds[:2], strict=True)
    ]

    def described(array: np.ndarray) -> tuple[Any, np.ndarray]:
        return blocked(array, layout) if isinstance(layout, int) else stored(array, layout)

    sources = [described(array) for array in arrays]
    x, y = (real(array, grid) for array, grid in zip(arrays, grids[:2], strict=True))
    steps, definition = expression
    wanted = rounded(definition(x, y), kinds[2], grids[2])
    desc, bytes_ = described(wanted)
    result = np.empty_like(bytes_)
    kernel = kernel_of(steps, [d for d, _ in sources], desc, threads, isa, grids)
    run(kernel, [b for _, b in sources], result, threads)
    differs = result != bytes_
    if any(step.startswith("add(t0, x1)") for step in steps) and kinds[2] != "float32":
        # A product and a sum are scaled before they are computed, which moves halves.
        quotient = definition(x, y) / np.float32(grids[2][0])
        near = np.abs(quotient - np.floor(quotient) - np.float32(0.5)) < 2**-12
        differs &= described(near.astype(np.uint8))[1] == 0
    assert not differs.any()


@given(
    scale=st.floats(2**-70, 2**70, width=32),
    zero=st.integers(0, 255),
    isa=st.sampled_from(ISAS),
    seed=st.integers(0, 2**32 - 1),
)
def test_quotients_are_those_of_divisions(scale: float, zero: int, isa: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    halves = rng.integers(-520, 520, 1000).astype(np.float32) / 2 * np.float32(scale)
    x = (halves.view(np.int32) + rng.integers(-3, 4, 1000, np.int32)).view(np.float32)
    x = np.where(halves == 0, halves, x)
    wanted = rounded(x, "uint8", (scale, float(zero)))
    source, bytes_ = stored(x, (0,))
    desc, _ = stored(wanted, (0,))
    result = np.empty_like(wanted)
    kernel = kernel_of(("add(x0, 0.0)",), [source], desc, 1, isa, [(1.0, 0.0), (scale, zero)])
    run(kernel, [bytes_], result, 1)
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e38])
def test_factors_and_terms_that_are_not_finite(isa: str, place: int, number: float) -> None:
    rng, grids = np.random.default_rng(0), [(0.5, 3.0), (1.0, 0.0), (1.0, 0.0), (0.25, 7.0)]
    arrays = [
        rng.integers(0, 256, (1, 20, 9, 9)).astype(np.uint8),
        *(rng.normal(size=(1, 20, 1, 1)).astype(np.float32) for _ in range(2)),
    ]
    arrays[place][0, 5] = number
    x, factor, term = (real(array, grid) for array, grid in zip(arrays, grids[:3], strict=True))
    with np.errstate(all="ignore"):
        wanted = rounded(
            np.nan_to_num(x * factor + term, posinf=np.inf, neginf=-np.inf), "uint8", grids[3]
        )
    sources = [stored(array, (0, 2, 3, 1)) for array in arrays]
    desc, bytes_ = stored(wanted, (0, 2, 3, 1))
    result = np.empty_like(bytes_)
    steps = ("mul(x0, x1)", "add(t0, x2)")
    kernel = kernel_of(steps, [d for d, _ in sources], desc, 1, isa, grids)
    run(kernel, [b for _, b in sources], result, 1)
    np.testing.assert_array_equal(result, bytes_)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_halves_infinities_and_nan(dtype: str, isa: str) -> None:
    zero = 3.0
    halves = np.arange(-300, 300, dtype=np.float32) / 2
    special = np.array([np.inf, -np.inf, 3e38, -3e38, 1e-40, np.nan], np.float32)
    # Next to a half, the quotient of float32 decides.
    near = np.nextafter(halves, np.float32(99))
    x = np.concatenate([halves, near, special]) * np.float32(0.5)
    wanted = rounded(np.nan_to_num(x, nan=0.0, posinf=np.inf, neginf=-np.inf), dtype, (0.5, zero))
    source, bytes_ = stored(x, (0,))
    desc, _ = stored(wanted, (0,))
    result = np.empty_like(wanted)
    kernel = kernel_of(("add(x0, 0.0)",), [source], desc, 1, isa, [(1.0, 0.0), (0.5, zero)])
    run(kernel, [bytes_], result, 1)
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize(
    ("grids", "reason"),
    [
        ([], "expected a scale and a zero point of"),
        ([(1.0, 0.0), (0.0, 0.0)], "expected a positive scale"),
        ([(1.0, 0.0), (1.0, 256.0)], "a zero point that is one of the integers"),
        ([(1.0, 0.0), (1.0, 0.5)], "a zero point that is one of the integers"),
    ],
)
def test_grids_that_are_refused(grids: Any, reason: str) -> None:
    desc, dst = core.MemoryDesc((2, 3), "f32", "ab"), core.MemoryDesc((2, 3), "u8", "ab")
    with pytest.raises(ValueError, match=reason):
        kernel_of(("add(x0, 0.0)",), [desc], dst, 1, "", grids)


# --- operators ------------------------------------------------------------------------------------


def inputs_of(op: str) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    special = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1, -1, 1e-30, -1e-30, 1e30, 88, -88, 710])
    if OPERANDS[op] == 1:
        return [np.concatenate([special, rng.standard_normal(400) * 4]).astype(np.float32)]
    pairs = np.stack(np.meshgrid(special, special)).reshape(2, -1)
    drawn = rng.standard_normal((2, 300)) * 3
    a, b = np.concatenate([pairs, drawn], 1).astype(np.float32)
    return [a, b] if OPERANDS[op] == 2 else [(a > 0).astype(np.float32), a, b]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("op", sorted(OPERANDS.keys() - SNAPS.keys()))  # which become others
def test_every_operator_is_its_reference_also_for_nan_and_infinity(op: str, isa: str) -> None:
    arrays = inputs_of(op)
    parameters = PARAMETERS.get(op)
    operands = ", ".join(f"x{index}" for index in range(len(arrays)))
    given_ = f", {parameters[0]}, {parameters[1]}" if parameters else ""
    if op.startswith("logical"):
        arrays = [(array > 0).astype(np.float32) for array in arrays]
    found = computed((f"{op}({operands}{given_})",), arrays, isa)
    if op.startswith("logical"):
        arrays = [array != 0 for array in arrays]
    if op == "where":
        arrays[0] = arrays[0] != 0
    attrs = (("alpha", parameters[0]), ("beta", parameters[1])) if parameters else ()
    node = Node("y", op, tuple("abc"[: len(arrays)]), ("y",), attrs)
    with np.errstate(all="ignore"):
        exact = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
        (wanted,) = evaluate(node, exact)
        wanted = wanted.astype(np.float32)
    # Functions that cancel, such as GELU, are as exact as the reference in float32.
    np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=1e-6)
    assert (np.isnan(found) == np.isnan(wanted)).all()


@pytest.mark.parametrize("isa", ISAS)
def test_exponentials_and_logarithms_are_exact_to_the_last_bits(isa: str) -> None:
    x = np.linspace(-103, 88.7, 20001, dtype=np.float32)
    exact = np.exp(x.astype(np.float64))
    found = computed(("exp(x0)",), [x], isa).astype(np.float64)
    usual = exact > 1e-37
    assert np.max(np.abs(found / exact - 1)[usual]) < 3e-7
    # Results below the smallest normal number are zero.
    assert np.max(np.abs(found - exact)[~usual]) < np.finfo(np.float32).smallest_normal
    y = np.exp(np.linspace(-87.3, 88, 20001)).astype(np.float32)
    exact = np.log(y.astype(np.float64))
    found = computed(("log(x0)",), [y], isa).astype(np.float64)
    assert np.max(np.abs(found - exact) / np.maximum(np.abs(exact), 1e-3)) < 3e-7


@pytest.mark.parametrize("isa", ISAS)
def test_powers_and_sines_are_exact_to_the_last_bit(isa: str) -> None:
    rng = np.random.default_rng(3)
    bases = np.exp(rng.uniform(-87, 88, 20000)).astype(np.float32)
    bases[::4] = 1 + rng.standard_normal(5000) * 1e-3
    scales = rng.choice([1e-3, 1.0, 1e3], 20000)
    exponents = (rng.standard_normal(20000) * scales).astype(np.float32)
    for fixed in (0.5, -0.5, 1.5, 3.0, 4.0, None):
        y = exponents if fixed is None else np.full_like(bases, fixed)
        with np.errstate(over="ignore"):
            exact = np.power(bases.astype(np.float64), y.astype(np.float64))
            wanted = exact.astype(np.float32)
        text = "pow(x0, x1)" if fixed is None else f"power(x0, {fixed}, 0.0)"
        found = computed((text,), [bases, y][: 2 if fixed is None else 1], isa)
        # Numbers below the smallest normal one are zero.
        normal = np.isfinite(wanted) & (exact > 1.2e-38)
        error = np.abs(found[normal] - exact[normal]) / np.spacing(wanted[normal])
        assert np.max(error) < 2
        assert (found[np.isinf(wanted)] == np.inf).all()
        assert np.max(found[exact <= 1.2e-38], initial=0) < 1.2e-38
    x = np.concatenate([exponents * 1e3, bases, -bases, [1e6, 999999.9, 3.4e38]]).astype(np.float32)
    for op, function in (("sin", np.sin), ("cos", np.cos)):
        found = computed((f"{op}(x0)",), [x], isa)
        exact = function(x.astype(np.float64))
        assert np.max(np.abs(found - exact)) < 1.2e-7
        small = np.abs(x) < 0.5
        assert np.max(np.abs(found / exact - 1)[small]) < 1.2e-7
    zeros = computed(("sin(x0)",), [np.array([0.0, -0.0], np.float32)], isa)
    assert np.signbit(zeros).tolist() == [False, True]


@pytest.mark.parametrize("isa", ISAS)
def test_signs_are_whole_numbers(isa: str) -> None:
    """Those of subnormal numbers are 0 where the processor takes these for 0."""
    x = np.array(
        [-np.inf, -3, -1e-30, -0.0, 0.0, 1e-30, 7, np.inf, np.nan, 1e-40, -1e-45], np.float32
    )
    found = computed(("sign(x0)",), [x], isa)
    np.testing.assert_array_equal(found[:9], np.sign(x[:9]))
    assert set(np.abs(found[9:])) <= {0.0, 1.0}


@given(size=st.integers(1, 3000), isa=st.sampled_from(ISAS))
def test_any_number_of_threads_gives_the_same_bits_in_place(size: int, isa: str) -> None:
    rng = np.random.default_rng(size)
    x, y = (rng.standard_normal(size).astype(np.float32) for _ in range(2))
    expression = ("gelu(x0)", "mul(t0, x1)", "tanh(t1)", "add(t2, x0)", "mul(t3, 1.5)")
    found: list[bytes] = []
    for threads in (1, 2, 3, 4):
        desc, bytes_ = stored(x.copy(), (0,))
        kernel = kernel_of(expression, [desc, desc], desc, threads, isa)
        program = core.Program(4 * size, [], [4 * size] * 2, [4 * size], threads)
        place = core.ARG_MULTIPLE_SRC
        program.add_copy((0, 0, 0), (INPUTS, 0, 0), 4 * size)
        program.add_primitive(
            kernel,
            [
                (place, desc, 0, 0, 0),
                (place + 1, desc, INPUTS, 1, 0),
                (core.ARG_DST, desc, 0, 0, 0),
            ],
            in_place=[(core.ARG_DST, place)],
        )
        program.add_copy((OUTPUTS, 0, 0), (0, 0, 0), 4 * size)
        program.freeze()
        result = np.full(size, np.nan, np.float32)
        program.run([bytes_, y], [result])
        found.append(result.tobytes())
    assert len(set(found)) == 1
    wanted = computed(expression, [x, y], isa)
    assert found[0] == wanted.tobytes()


@pytest.mark.parametrize(
    ("operands", "reason"),
    [
        ((("f32", (2, 3), "ab"), ("f32", (2, 2), "ab"), ("f32", (2, 3), "ab")),
         "an extent of 1 or 3, got 2"),
        ((("f32", (2, 3), "ab"), ("f32", (3,), "a"), ("f32", (2, 3), "ab")), "different ranks"),
        ((("f32", (1, 32, 2, 2), "aBcd8b"), ("f32", (1, 32, 1, 1), "abcd"),
          ("f32", (1, 32, 2, 2), "aBcd16b")), "the blocks of the result, or none"),
        ((("f16", (2, 3), "ab"),) * 3, "expected float32 or bfloat16 in a known format"),
        ((("f32", (2, 3), "any"), ("f32", (2, 3), "ab"), ("f32", (2, 3), "ab")), "a known format"),
    ],
)  # fmt: skip
def test_what_is_refused(operands: Any, reason: str) -> None:
    *sources, dst = (core.MemoryDesc(dims, dtype, tag) for dtype, dims, tag in operands)
    with pytest.raises(ValueError, match=reason):
        kernel_of(("add(x0, x1)",), sources, dst, 1, "")


@pytest.mark.parametrize(
    ("steps", "isa", "reason"),
    [
        ([("mod", [0, 0], 0.0, 0.0)], "", "there is no operation mod"),
        ([("add", [0], 0.0, 0.0)], "", "expected 2 operands of add, got 1"),
        ([("add", [0, 1], 0.0, 0.0)], "", "an operand below 1 of add, got 1"),
        ([], "", "expected 1 to 16 steps"),
        ([("add", [0, 0], 0.0, 0.0)], "sse", "there are no sse kernels here"),
    ],
)
def test_steps_that_are_refused(steps: Any, isa: str, reason: str) -> None:
    desc = core.MemoryDesc((2, 3), "f32", "ab")
    with pytest.raises(ValueError, match=reason):
        core.Pointwise(steps, [], [desc], desc, threads=1, isa=isa)
