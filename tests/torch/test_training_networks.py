"""Networks of torchvision, small, trained with ``torch.compile``: losses follow eager PyTorch."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import stridewise.torch as st  # noqa: E402

from .test_training import CLASSES, NETWORKS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
ACCURACY = {"contiguous": "fast", "channels_last": "exact"}
COMPARED = 6
"""Steps whose losses are compared. A rounding error that moves an activation across 0 changes a
gradient at once, and training amplifies that a thousand times within some ten steps, in PyTorch as
well: from then on, losses tell nothing. Winograd convolution, with larger errors, gets there
sooner."""


def step(net, optimizer, x, labels):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), labels)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "resnet50"])
def test_losses_follow_pytorch(name, layout):
    net = NETWORKS[name]().train().to(memory_format=LAYOUTS[layout])
    exact, twin = copy.deepcopy(net).double(), copy.deepcopy(net)
    options = {"fallback": "error", "accuracy": ACCURACY[layout]}
    fast = torch.compile(net, backend="stridewise", options=options)
    optimizers = [torch.optim.SGD(n.parameters(), 3e-4, momentum=0.9) for n in (net, twin, exact)]
    rng, allowed = np.random.default_rng(0), 1e-3
    for _ in range(COMPARED):
        x = torch.tensor(rng.normal(size=(4, 3, 64, 64)), dtype=torch.float32)
        x = x.contiguous(memory_format=LAYOUTS[layout])
        labels = torch.tensor(rng.integers(0, CLASSES, 4))
        ours = step(fast, optimizers[0], x, labels)
        theirs = step(twin, optimizers[1], x, labels)
        wanted = step(exact, optimizers[2], x.double(), labels)
        # Batch norms of few elements let rounding errors grow step by step, in PyTorch as well.
        allowed = max(allowed, 3 * abs(theirs - wanted) / wanted)
        assert abs(ours - wanted) <= allowed * wanted
    assert allowed < 0.1
    graphs = st.report(net).graphs
    assert [graph.calls for graph in graphs] == [COMPARED, COMPARED]
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
