"""Time training steps of ``torch.compile(backend="stridewise")`` beside eager PyTorch and Inductor.

Steps of all ways alternate in one process, and the table has the least time of each. Run it on a
quiet machine::

    python benchmarks/torch_training.py resnet18 mobilenet_v2 --batch 16 --steps 10 --inductor
"""

from __future__ import annotations

import argparse
import copy
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch_networks import torchvision_models

import stridewise.torch as st

Step = Callable[[], float]


def _step(net: Any, call: Callable[..., Any], x: Any, labels: Any, autocast: bool) -> Step:
    """Return a function that trains with one batch and returns the seconds that it took."""
    optimizer = torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9)

    def run() -> float:
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = torch.nn.functional.cross_entropy(call(x), labels)
        loss.backward()
        optimizer.step()
        return time.perf_counter() - start

    return run


def _ways(net: Any, arguments: argparse.Namespace) -> dict[str, tuple[Any, Callable[..., Any]]]:
    """Return for each way a copy of the network, and what is called."""
    names = ["eager", "stridewise", *(["inductor"] if arguments.inductor else [])]
    copies = {name: copy.deepcopy(net) for name in names}
    options = {"tune": arguments.tune}
    ways: dict[str, tuple[Any, Callable[..., Any]]] = {"eager": (copies["eager"],) * 2}
    fast = torch.compile(copies["stridewise"], backend="stridewise", options=options)
    ways["stridewise"] = copies["stridewise"], fast
    if arguments.inductor:
        ways["inductor"] = copies["inductor"], torch.compile(copies["inductor"])
    return ways


def measured(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the times of a network, in milliseconds."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    layout = torch.contiguous_format if arguments.nchw else torch.channels_last
    net = getattr(torchvision_models(), name)(weights=None).train().to(memory_format=layout)
    x = torch.randn(arguments.batch, 3, arguments.size, arguments.size)
    x = x.contiguous(memory_format=layout)
    labels = torch.randint(0, 1000, (arguments.batch,))
    steps = {
        way: _step(own, call, x, labels, arguments.autocast)
        for way, (own, call) in _ways(net, arguments).items()
    }
    first = {way: step() for way, step in steps.items()}
    samples: dict[str, list[float]] = {way: [] for way in steps}
    for _ in range(arguments.steps):
        for way, step in steps.items():
            samples[way].append(1e3 * step())
    return {"network": name, "first_s": first, "samples_ms": samples, "share": st.report().share}


def main() -> None:
    """Measure the networks of the command line and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("networks", nargs="+", help="names in torchvision.models")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=224, help="extent of the images")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tune", default="model", choices=("auto", "measure", "model"))
    parser.add_argument("--nchw", action="store_true", help="contiguous in place of channels-last")
    parser.add_argument("--autocast", action="store_true", help="bfloat16 by autocast")
    parser.add_argument("--inductor", action="store_true", help="also time Inductor")
    parser.add_argument("--json", help="a file for all samples")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore", st.FallbackWarning)
    rows = [measured(name, arguments) for name in arguments.networks]
    for row in rows:
        least = {way: min(values) for way, values in row["samples_ms"].items()}
        texts = [f"{way} {value:.1f} ms" for way, value in least.items()]
        best = min(value for way, value in least.items() if way != "stridewise")
        print(f"{row['network']}: {', '.join(texts)}; {best / least['stridewise']:.2f} x the best")
    if arguments.json:
        found = json.dumps({"arguments": vars(arguments), "rows": rows}, indent=1)
        Path(arguments.json).write_text(found, encoding="utf-8")


if __name__ == "__main__":
    main()
