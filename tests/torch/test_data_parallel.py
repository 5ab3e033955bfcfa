"""Data-parallel training: two processes with compiled modules against one with the whole batch."""

from __future__ import annotations

import socket

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

import stridewise.torch  # noqa: E402, F401

nn = torch.nn
STEPS, BATCH = 6, 8


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2), nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip


def batches():
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        images = torch.randn(BATCH, 3, 12, 12, generator=generator)
        yield images, torch.randint(0, 5, (BATCH,), generator=generator)


def losses(net, parameters, share=slice(None)):
    optimizer = torch.optim.SGD(parameters, 0.1, momentum=0.9)
    found = []
    for images, labels in batches():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images[share]), labels[share])
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return torch.tensor(found)


def worker(rank, port, is_inside, results):
    """Train with one half of each batch.

    Args:
        rank: of the process.
        port: where the processes meet.
        is_inside: whether the compiled module is inside of the parallel one, or around it.
        results: a queue for the losses and the last parameters.
    """
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    parallel, options = nn.parallel.DistributedDataParallel, {"fallback": "error"}
    inner = model(rank)  # the first process gives all others its parameters
    if is_inside:
        net = parallel(torch.compile(inner, backend="stridewise", options=options))
    else:
        net = torch.compile(parallel(inner), backend="stridewise", options=options)
    half = slice(rank * BATCH // 2, (rank + 1) * BATCH // 2)
    found = losses(net, inner.parameters(), half)
    torch.distributed.all_reduce(found)
    results.put((rank, (found / 2).tolist(), [p.detach().tolist() for p in inner.parameters()]))
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed"
)
@pytest.mark.parametrize("is_inside", [True, False], ids=["inside", "around"])
def test_two_processes_train_as_one(is_inside):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [
        context.Process(target=worker, args=(rank, port, is_inside, results)) for rank in range(2)
    ]
    for process in workers:
        process.start()
    found = sorted(results.get(timeout=300) for _ in workers)
    for process in workers:
        process.join(60)
        assert process.exitcode == 0
    whole = model()
    fast = torch.compile(whole, backend="stridewise", options={"fallback": "error"})
    wanted = losses(fast, whole.parameters())
    for _, ours, parameters in found:
        torch.testing.assert_close(torch.tensor(ours), wanted, rtol=1e-4, atol=1e-5)
        for a, b in zip(parameters, whole.parameters(), strict=True):
            torch.testing.assert_close(torch.tensor(a), b.detach(), rtol=1e-3, atol=1e-5)
