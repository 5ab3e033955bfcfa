"""Gradients of random modules: compiled, they are those of the same graph in PyTorch."""

from __future__ import annotations

import copy
import random
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

from stridewise.torch.options import FallbackWarning  # noqa: E402

from .random_modules import random_net  # noqa: E402
from .test_gradients import relative  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

TOLERANCES = {"exact": 1e-5, "fast": 1e-4}


def trained(model, net, x, weights):
    """Return results, the gradients of the input and of the parameters, and buffers."""
    leaf = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    torch.manual_seed(7)  # dropout draws the same numbers
    results = model(leaf)
    loss = sum((y * w.to(y.dtype)).sum() for y, w in zip(results, weights, strict=True))
    wanted = [leaf, *(p for p in net.parameters() if p.requires_grad)]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [y.detach() for y in results], list(found), [b.clone() for b in net.buffers()]


def scatter(net, x, weights):
    """Return by how much float64 gradients change with rounding errors of the input.

    A ReLU or a maximum passes a gradient on or does not, so it jumps where two sides are equal.
    """
    runs = []
    for size in (0.0, 3e-7, 3e-7):
        wide, noise = copy.deepcopy(net).double(), torch.randn(x.shape, dtype=torch.float64)
        runs.append(trained(wide, wide, x.double() * (1 + size * noise), weights)[1])
    return [
        0.0 if a is None else max(relative(b, a), relative(c, a))
        for a, b, c in zip(*runs, strict=True)
    ]


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(list(TOLERANCES)), st.booleans())
def test_gradients_are_those_of_pytorch(seed, accuracy, is_last):
    rng = random.Random(seed)
    net, x = random_net(rng.randrange, 1 + rng.randrange(6))
    if is_last:
        net, x = (item.to(memory_format=torch.channels_last) for item in (net, x))
    with torch.no_grad():
        weights = [torch.randn(y.shape) for y in copy.deepcopy(net)(x)]
    allowed = scatter(net, x, weights)
    runs = []
    for backend, options in (("aot_eager", None), ("stridewise", {"accuracy": accuracy})):
        torch._dynamo.reset()
        own = copy.deepcopy(net)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            model = torch.compile(own, backend=backend, options=options)
            runs.append(trained(model, own, x, weights))
    (wanted, theirs, before), (found, ours, after) = runs
    tolerance = TOLERANCES[accuracy]
    for a, b in zip((*found, *after), (*wanted, *before), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=10 * tolerance)
    largest = max([float(b.norm()) for b in theirs if b is not None], default=0.0)
    leaves = [x, *(p for p in net.parameters() if p.requires_grad)]
    for a, b, more, leaf in zip(ours, theirs, allowed, leaves, strict=True):
        assert (a is None) == (b is None)
        if a is not None and float(b.norm()) > 1e-5 * largest:  # others are sums that cancel
            assert relative(a, b) <= max(tolerance, 5 * more)
            assert strides(a) in (strides(b), strides(leaf))


def strides(tensor):
    """Return the strides that count."""
    return [step for step, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]
