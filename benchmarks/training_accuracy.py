"""Training beside PyTorch: losses of whole networks, and accuracies with and without Winograd.

It measures no times, so it can run on any machine; ``losses`` needs torchvision::

    .venv/bin/python benchmarks/training_accuracy.py losses   # 20 steps beside PyTorch in float64
    .venv/bin/python benchmarks/training_accuracy.py seeds    # a small network, five seeds

``losses`` trains the networks with both ways of Stridewise, and with PyTorch in float32 with other
numbers of threads and memory formats. They differ by rounding errors alone, so the differences
between PyTorch's are the natural scatter of a network. Each step has the same images;
``--batches 20 --lr 1e-3`` gives each its own, which lets rounding errors grow. Tables are printed,
and raw samples are written to ``benchmarks/results/training-accuracy-<command>.json``.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import stridewise as sw

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "examples"), str(Path(__file__).parent)]

RESULTS = Path(__file__).parent / "results"
NETWORKS = (
    "resnet18", "resnet50", "vgg16_bn", "mobilenet_v2", "densenet121", "efficientnet_b0",
    "convnext_tiny",
)  # fmt: skip
Step = Callable[[Any, Any], float]


# --- losses of networks -------------------------------------------------------------------------


def network(name: str, size: int) -> Any:
    """Return a network of torchvision with weights from a seed, without dropped values."""
    torch: Any = import_module("torch")
    torch.manual_seed(0)
    models: Any = import_module("torch_networks")
    net = getattr(models.torchvision_models(), name)(weights=None, num_classes=10)
    for layer in net.modules():
        if type(layer).__name__ in ("Dropout", "StochasticDepth"):
            layer.p = 0.0
    if name.startswith("vgg"):  # the pool makes 7 x 7 pixels of any number
        head = torch.nn.Linear(512 * (size // 32) ** 2, 4096)
        net = torch.nn.Sequential(net.features, torch.nn.Flatten(), head, *net.classifier[1:])
    return net.train()


def _step_of(net: Any, call: Any, options: argparse.Namespace, **given: Any) -> Step:
    """Return a step of PyTorch's optimizer.

    Args:
        net: has the parameters.
        call: computes the prediction.
        options: of the command line.
        **given: ``threads``, ``layout`` and ``dtype`` of PyTorch.
    """
    torch: Any = import_module("torch")
    optimizer = torch.optim.SGD(net.parameters(), options.lr, momentum=0.9)
    layout = given.get("layout", torch.contiguous_format)

    def step(x: Any, labels: Any) -> float:
        torch.set_num_threads(given.get("threads", options.threads))
        optimizer.zero_grad()
        images = torch.tensor(x, dtype=given.get("dtype", torch.float32))
        output = call(images.contiguous(memory_format=layout))
        loss = torch.nn.functional.cross_entropy(output, torch.tensor(labels))
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def _ways(net: Any, options: argparse.Namespace) -> dict[str, tuple[Step, Any]]:
    """Return for each way of training a step, and what has running statistics."""
    torch: Any = import_module("torch")
    import_module("stridewise.torch")
    shape = (options.batch, 3, options.size, options.size)
    reader: Any = import_module("tests.torch.module_graphs")
    given = {"threads": options.threads, "tune": options.tune, "accuracy": options.accuracy}
    rule = sw.SGD(options.lr, momentum=0.9)
    trainer = sw.Trainer(reader.graph_of(net, shape), optimizer=rule, **given)
    last = {"layout": torch.channels_last}
    found: dict[str, tuple[Step, Any]] = {"trainer": (trainer.step, trainer)}
    for name, more in {"compile": {}, "compile, channels-last": last}.items():
        own = copy.deepcopy(net).to(memory_format=more.get("layout", torch.contiguous_format))
        call = torch.compile(own, backend="stridewise", options={"fallback": "error", **given})
        found[name] = _step_of(own, call, options, **more), own
    others: dict[str, dict[str, Any]] = {
        "PyTorch": {},
        "PyTorch, one thread": {"threads": 1},
        "PyTorch, channels-last": last,
        "PyTorch, float64": {"dtype": torch.float64},
    }
    for name, more in others.items():
        own = copy.deepcopy(net).to(memory_format=more.get("layout", torch.contiguous_format))
        own = own.double() if name.endswith("float64") else own
        found[name] = _step_of(own, own, options, **more), own
    return found


def _statistics(learner: Any) -> dict[str, Any]:
    """Return the running means and variances by name."""
    if not isinstance(learner, sw.Trainer):
        return {n.replace("running_", ""): b for n, b in learner.named_buffers() if "running" in n}
    states = dict(learner.model.states)
    return {n.replace("variance", "var"): a for n, a in states.items() if "optimizer" not in n}


def _distance(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
    """Return the norm of all differences over the norm of all that is wanted."""
    pairs = [(np.asarray(found[name], float), np.asarray(b)) for name, b in wanted.items()]
    error = sum(float(((a - b) ** 2).sum()) for a, b in pairs)
    return (error / max(sum(float((b**2).sum()) for _, b in pairs), 1e-30)) ** 0.5


def losses(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Train networks in all ways with the same batches."""
    torch: Any = import_module("torch")
    document, rows = dict[str, Any](), list[list[str]]()
    for name in options.networks or NETWORKS:
        torch._dynamo.reset()
        ways = _ways(network(name, options.size), options)
        rng = np.random.default_rng(0)
        found: dict[str, list[float]] = {way: [] for way in ways}
        shape = (options.batch, 3, options.size, options.size)
        batches = [
            (rng.standard_normal(shape, np.float32), rng.integers(0, 10, options.batch))
            for _ in range(options.batches)
        ]
        for number in range(options.steps):
            x, labels = batches[number % options.batches]
            for way, (step, _) in ways.items():
                found[way].append(step(x, labels))
        exact = _statistics(ways["PyTorch, float64"][1])
        moved = {way: _distance(_statistics(own), exact) for way, (_, own) in ways.items()}
        document[name] = {"losses": found, "statistics": moved}
        rows += _rows(name, found, moved)
        print(_table(HEADS, rows[-len(ways) + 1 :]), flush=True)
    return document, _table(HEADS, rows)


HEADS = (
    "network",
    "way",
    "loss",
    "steps 1 to 2",
    "3 to 5",
    "6 to 10",
    "11 to 20",
    "running statistics",
)
"""Of a table of greatest relative differences from PyTorch in float64."""
_PARTS = ((0, 2), (2, 5), (5, 10), (10, 20))


def _rows(
    name: str, found: Mapping[str, Sequence[float]], moved: Mapping[str, float]
) -> list[list[str]]:
    """Return a row of the table for each way."""
    wanted = np.array(found["PyTorch, float64"])
    rows: list[list[str]] = []
    for way in list(found)[:-1]:
        error = np.abs(np.array(found[way]) - wanted) / wanted
        worst = [f"{error[low:high].max(initial=0):.0e}" for low, high in _PARTS]
        span = f"{wanted[0]:.2f} to {wanted[-1]:.2f}"
        rows.append([name, way, span, *worst, f"{moved[way]:.0e}"])
    return rows


# --- accuracy over seeds --------------------------------------------------------------------------


def seeds(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Train the network of ``examples/train_shapes.py`` exactly and with Winograd gradients."""
    shapes: Any = import_module("train_shapes")
    document: dict[str, Any] = {"exact": [], "fast": []}
    test = shapes.draw(1024, seed=10**6)
    steps = options.epochs * options.count // shapes.BATCH
    rule = sw.SGD(lambda step: 0.05 * (1 - step / steps), 0.9, nesterov=True, weight_decay=1e-4)
    for seed in range(options.seeds):
        data = shapes.draw(options.count, seed=seed)
        for accuracy, found in document.items():
            trainer = sw.Trainer(
                shapes.network(seed), optimizer=rule, accuracy=accuracy, tune=options.tune,
                threads=options.threads,
            )  # fmt: skip
            for epoch in range(options.epochs):
                order = np.random.default_rng([seed, epoch]).permutation(options.count)
                for chosen in order.reshape(-1, shapes.BATCH):
                    trainer.step(*(part[chosen] for part in data))
            found.append(shapes.accuracy(trainer.graph(), *test))
            print(f"seed {seed}, {accuracy}: {found[-1]:.4f}", flush=True)
    rows = [
        [name, *(f"{x:.3f}" for x in found), f"{np.mean(found):.4f}"]
        for name, found in document.items()
    ]
    return document, _table(["accuracy", *map(str, range(options.seeds)), "mean"], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


COMMANDS: Mapping[str, Callable[[argparse.Namespace], tuple[dict[str, Any], str]]] = {
    "losses": losses,
    "seeds": seeds,
}


def main() -> None:
    """Run the command, print its table, and keep the raw samples."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("networks", nargs="*", help="names in torchvision.models")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=64, help="extent of the images")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batches", type=int, default=1, help="after so many, the first again")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--accuracy", default="fast", choices=("fast", "exact"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--count", type=int, default=2048, help="pictures of a seed")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tune", default="model", choices=("auto", "measure", "model"))
    options = parser.parse_args()
    document, table = COMMANDS[options.command](options)
    print(table)
    if not options.networks:
        path = RESULTS / f"training-accuracy-{options.command}.json"
        path.write_text(json.dumps({"options": vars(options), **document}, indent=1) + "\n")


if __name__ == "__main__":
    main()
