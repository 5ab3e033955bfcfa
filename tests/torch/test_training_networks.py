"""Networks of torchvision, small, trained with ``torch.compile``: losses follow eager PyTorch."""

from __future__ import annotations

import copy
import warnings
from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if find_spec("torchvision") is None:
    pytest.skip("torchvision is not installed", allow_module_level=True)

import stridewise.torch as st  # noqa: E402

from .test_training import NETWORKS, RATES, STEPS, batch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
ACCURACY = {"contiguous": "fast", "channels_last": "exact"}


def step(net, optimizer, x, labels):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), labels)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_losses_follow_pytorch(name, layout):
    net = NETWORKS[name]().train().to(memory_format=LAYOUTS[layout])
    exact = copy.deepcopy(net).double()
    options = {"fallback": "error", "accuracy": ACCURACY[layout]}
    fast = torch.compile(net, backend="stridewise", options=options)
    rate = RATES.get(name, 1e-3)
    optimizers = [torch.optim.SGD(n.parameters(), rate, momentum=0.9) for n in (net, exact)]
    images, labels = batch(4)
    x, labels = torch.tensor(images), torch.tensor(labels)
    x = x.contiguous(memory_format=LAYOUTS[layout])
    ours = [step(fast, optimizers[0], x, labels) for _ in range(STEPS)]
    wanted = [step(exact, optimizers[1], x.double(), labels) for _ in range(STEPS)]
    np.testing.assert_allclose(ours, wanted, rtol=1e-3)
    assert wanted[-1] < 0.98 * wanted[0]  # or the losses would say nothing about gradients
    graphs = st.report(net).graphs
    assert [graph.calls for graph in graphs] == [STEPS, STEPS]
    assert [node for graph in graphs for node in graph.fallback_nodes] == []


def test_running_statistics_of_an_epoch():
    """A compiled network moves the statistics that eager PyTorch moves."""
    net = NETWORKS["vgg_bn"]().train()
    twin = copy.deepcopy(net)
    fast = torch.compile(net, backend="stridewise", options={"fallback": "error"})
    with warnings.catch_warnings():
        warnings.simplefilter("error", st.FallbackWarning)
        for _ in range(3):
            x = torch.randn(4, 3, 32, 32)
            fast(x), twin(x)
    for (name, a), b in zip(net.named_buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=name)
