"""Train a small network on pictures of squares, discs and crosses, which are drawn here.

It reaches an accuracy above 0.95 in a minute or two, and writes the trained model and the curve of
its losses into the current folder.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import stridewise as sw
from stridewise.graph import Graph
from stridewise.report.loss_curve import loss_curve

SIZE, BATCH, CLASSES = 24, 32, 3
Pictures = NDArray[np.float32]
Classes = NDArray[np.int64]


def draw(count: int, seed: int) -> tuple[Pictures, Classes]:
    """Return noisy pictures [count, 1, SIZE, SIZE] and the class of each."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, CLASSES, count)
    across, down = np.meshgrid(np.arange(SIZE), np.arange(SIZE))
    pictures = rng.normal(0, 0.3, (count, 1, SIZE, SIZE))
    for picture, kind in zip(pictures, classes, strict=True):
        radius = rng.uniform(4, 8)
        middle = rng.uniform(radius, SIZE - radius, 2)
        x, y = np.abs(across - middle[0]), np.abs(down - middle[1])
        disc = x * x + y * y < radius * radius
        square = np.maximum(x, y) < radius * 0.89
        cross = square & (np.minimum(x, y) < radius * 0.35)
        picture[0] += (square, disc, cross)[kind]
    return pictures.astype(np.float32), classes


def network(seed: int = 0) -> Graph:
    """Return three convolutions with batch norms, pooling, and a dense layer."""
    b = sw.GraphBuilder("shapes", seed=seed, training=True)
    y = b.input("x", (BATCH, 1, SIZE, SIZE))
    for filters in (16, 32, 64):
        y = b.conv2d(y, filters, 3, padding=1, bias=False)
        y = b.max_pool2d(b.relu(b.batch_norm(y)), 2)
    return b.build([b.dense(b.flatten(b.global_avg_pool(y)), CLASSES)])


def accuracy(graph: Graph, pictures: Pictures, classes: Classes) -> float:
    """Return the share of pictures whose class the graph finds."""
    model = sw.compile(graph, tune="model")
    batches = pictures.reshape(-1, BATCH, *pictures.shape[1:])
    logits = np.concatenate([model(batch) for batch in batches])
    return float((logits.argmax(1) == classes).mean())


def main(epochs: int = 6, count: int = 2048) -> float:
    """Train, and return the accuracy on pictures that the network has not seen."""
    steps = epochs * count // BATCH

    def schedule(step: int) -> float:
        return 0.05 * (1 - step / steps)

    optimizer = sw.SGD(lr=schedule, momentum=0.9, nesterov=True, weight_decay=1e-4)
    trainer = sw.Trainer(network(), optimizer=optimizer, tune="model")
    pictures, classes = draw(count, seed=0)
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(count).reshape(-1, BATCH)
        losses = trainer.fit((pictures[chosen], classes[chosen]) for chosen in order)
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}")
    found = accuracy(trainer.graph(), *draw(512, seed=1))
    print(f"accuracy {found:.4f}")
    sw.save(trainer.graph(), "shapes.onnx")
    Path("shapes.svg").write_text(loss_curve(trainer.losses))
    return found


if __name__ == "__main__":
    main()
