"""Laws of borders and parts: tensors survive them, and parts run in their order."""

from __future__ import annotations

import warnings
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

from tests.torch.aten_graphs import listed, region_of  # noqa: E402

from stridewise.frontends.torch.graphs import Border, memory_order, restored, stored  # noqa: E402  # noqa: E402
from stridewise.torch.options import FallbackWarning  # noqa: E402


@st.composite
def strided(draw):
    """Draw a tensor of any strides: permuted, cut, with gaps, and with repeated elements."""
    shape = draw(st.lists(st.integers(1, 4), min_size=0, max_size=5))
    steps = [draw(st.integers(1, 2)) for _ in shape]
    whole = torch.arange(
        1.0, 1 + torch.Size([n * s for n, s in zip(shape, steps, strict=True)]).numel()
    )
    x = whole.reshape([n * s for n, s in zip(shape, steps, strict=True)])
    x = x[tuple(slice(None, None, step) for step in steps)]
    x = x.permute(draw(st.permutations(range(len(shape)))))
    for axis, extent in enumerate(x.shape):
        if extent == 1 and draw(st.booleans()):
            x = x.expand([3 if other == axis else -1 for other in range(x.dim())])
    return x


@given(strided())
def test_tensors_survive_a_border(x):
    border = Border.of(x)
    array = stored(x, border)
    assert array.flags.c_contiguous
    assert array.shape == border.stored
    again = restored(torch.from_numpy(array.copy()), border)
    assert torch.equal(again, x)
    assert again.stride() == x.stride()


@given(strided(), strided())
def test_tensors_with_other_strides_than_promised(x, y):
    if x.shape == y.shape:
        assert (
            stored(x, Border.of(y)) == x.permute(memory_order(y.shape, y.stride())).numpy()
        ).all()


@given(st.lists(st.integers(1, 6), min_size=4, max_size=4), st.permutations(range(4)))
def test_dense_tensors_are_not_copied(shape, order):
    x = torch.empty(shape).permute(order)
    border = Border.of(x)
    assert border.is_dense
    assert stored(x, border).__array_interface__["data"][0] == x.data_ptr()


OPERATORS = {
    "relu": lambda a, _b: torch.relu(a),
    "add": lambda a, b: a + b,
    "conv": lambda a, b: a * 0.5 + b.mean(1, keepdim=True),
    "cumsum": lambda a, _b: torch.cumsum(a, 1) * 0.1,
    "sort": lambda a, b: torch.sort(a + b, 1).values,
    "permute": lambda a, _b: a.transpose(0, 1).contiguous().transpose(0, 1),
    "split": lambda a, b: torch.cat([a.split(2, 1)[1], b.split(2, 1)[0]], 1),
}


@settings(max_examples=12)
@given(st.data())
def test_parts_run_in_their_order(data):
    steps = data.draw(
        st.lists(
            st.tuples(st.sampled_from(list(OPERATORS)), st.integers(0, 99), st.integers(0, 99)),
            min_size=1,
            max_size=12,
        )
    )
    picks = data.draw(st.lists(st.integers(0, 99), min_size=1, max_size=3))

    def function(x):
        made = [x]
        for name, a, b in steps:
            made.append(OPERATORS[name](made[a % len(made)], made[b % len(made)]))
        return [made[1 + pick % (len(made) - 1)] for pick in picks]

    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    region = region_of(function, x, fallback="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        found = region([x])
    for a, b in zip(found, listed(function(x)), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-5)
    for program in region.programs():
        known = set(region.module.graph.find_nodes(op="placeholder"))
        for part in program.partition.parts:
            assert set(part.inputs) <= known
            known |= set(part.outputs)
        kinds = [part.is_native for part in program.partition.parts]
        assert all(a != b for a, b in pairwise(kinds))
