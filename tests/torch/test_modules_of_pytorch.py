"""The modules that PyTorch tests, with its own inputs, contiguous and channels-last."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")
modules = pytest.importorskip(
    "torch.testing._internal.common_modules", reason="PyTorch's test package is not complete"
)

import stridewise.torch as st  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

LEFT_OUT = ("Loss", "RNN", "LSTM", "GRU", "Transformer", "Lazy")
"""Losses and recurrent modules: they have no images."""

MODULES = [
    info
    for info in modules.module_db
    if torch.float32 in info.dtypes and not any(part in info.name for part in LEFT_OUT)
]


def leaves(tree):
    return [x for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def last(x):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if not isinstance(x, torch.Tensor) or x.dim() not in formats:
        return x
    return x.contiguous(memory_format=formats[x.dim()])


@pytest.mark.parametrize("info", [pytest.param(info, id=info.name) for info in MODULES])
def test_module(info):
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=False
    )
    for case in inputs[:3]:
        made = case.constructor_input
        module = info.module_cls(*made.args, **made.kwargs).to(torch.float32).eval()
        fast = torch.compile(module, backend="stridewise")
        args, kwargs = case.forward_input.args, case.forward_input.kwargs
        for given in (args, tuple(map(last, args))):
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore", st.FallbackWarning)
                torch.manual_seed(0)
                wanted = leaves(module(*given, **kwargs))
                torch.manual_seed(0)
                found = leaves(fast(*given, **kwargs))
            for a, b in zip(wanted, found, strict=True):
                assert a.dtype == b.dtype
                assert torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
                assert a.shape == b.shape
        torch._dynamo.reset()
