"""PyTorch tensors in any format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

import stridewise as sw  # noqa: E402
from stridewise import torch as swt  # noqa: E402
from stridewise.errors import FormatError  # noqa: E402

FORMATS = ("NCHW", "NHWC", "CHWN", "nChw4c", "nChw8c", "nChw16c")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int8)
shapes = st.tuples(*[st.integers(1, n) for n in (3, 20, 5, 5)])


def image(shape, dtype=torch.float32):
    return (torch.randn(shape) * 10).to(dtype)


@given(shapes, st.sampled_from(FORMATS), st.sampled_from(DTYPES), st.permutations(range(4)))
def test_round_trips(shape, name, dtype, order):
    x = image(shape, dtype).permute(order).contiguous().permute([order.index(i) for i in range(4)])
    found = swt.contiguous(x, name)
    assert found.dtype == dtype
    desc = sw.TensorDesc(shape, swt.desc_of(x).dtype, "NCHW", name)
    back = sw.reorder(found, desc, "NCHW")
    assert torch.equal(back, x)
    if desc.storage.format.is_plain:
        assert torch.equal(found, x)
        assert found.numel() == 1 or swt.desc_of(found).same_bytes(name)
    else:
        assert tuple(found.shape) == desc.storage.shape


@given(shapes)
def test_channels_last_is_that_of_pytorch(shape):
    x = image(shape)
    wanted = x.contiguous(memory_format=torch.channels_last)
    found = swt.contiguous(x, "NHWC")
    assert torch.equal(found, wanted)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert swt.suggest_memory_format(wanted) == swt.desc_of(wanted).storage.format
    new = swt.empty(shape, "NHWC")
    assert new.shape == x.shape
    assert new.is_contiguous(memory_format=torch.channels_last)


def test_ten_channels_in_blocks_of_eight():
    x = image((2, 10, 6, 6)).contiguous(memory_format=torch.channels_last)
    blocked = swt.contiguous(x, "nChw8c")
    assert blocked.shape == (2, 2, 6, 6, 8)
    assert not blocked[:, 1, :, :, 2:].any()
    desc = sw.TensorDesc((2, 10, 6, 6), "f32", "NCHW", "nChw8c")
    back = sw.reorder(blocked, desc, "NHWC")
    assert back.shape == x.shape
    assert back.stride() == x.stride()
    assert torch.equal(back, x)
    assert torch.equal(sw.reorder(blocked, "nChw8c", "NCHW", shape=(2, 10, 6, 6)), x)
    assert not swt.empty((2, 10, 6, 6), "nChw8c").any()


def test_a_tensor_in_the_format_is_returned():
    x = image((2, 3, 4, 5)).contiguous(memory_format=torch.channels_last)
    assert swt.contiguous(x, "NHWC") is x
    assert str(swt.suggest_memory_format(x)) == "NHWC"
    assert swt.suggest_memory_format(x[:, :, ::2]) == swt.suggest_memory_format(x)


def test_gaps_and_repeated_elements():
    x = image((2, 8, 6, 6))
    for strided in (x[:, ::2], x[:, :1].expand(2, 8, 6, 6).contiguous()[:, 1:]):
        assert torch.equal(swt.contiguous(strided, "NHWC"), strided)
    with pytest.raises(FormatError, match="gaps"):
        swt.desc_of(x[:, ::2])


def test_volumes_and_rows():
    x = image((2, 3, 4, 5, 6))
    found = swt.contiguous(x, "NDHWC")
    assert found.is_contiguous(memory_format=torch.channels_last_3d)
    assert swt.contiguous(torch.ones(3, 4), "CN").stride() == (1, 3)


def test_numpy_stays_numpy():
    x = image((1, 3, 2, 2)).numpy()
    assert type(sw.reorder(x, "NCHW", "NHWC")) is type(x)


def test_tensors_whose_elements_overlap_are_copied_first():
    x = torch.randn(1, 5, 3, 3).expand(2, 5, 3, 3)
    windows = torch.arange(12.0).as_strided((1, 2, 3, 3), (0, 3, 1, 2))
    for tensor in (x, windows):
        for fmt in ("NCHW", "NHWC", "nChw8c"):
            expected = swt.contiguous(tensor.clone(), fmt)
            assert torch.equal(swt.contiguous(tensor, fmt), expected)
