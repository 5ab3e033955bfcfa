"""Training: gradients of graphs, losses, optimizers, and the graph of a training step."""

from stridewise.training.gradient import grad
from stridewise.training.losses import LOSSES, Loss, loss_of
from stridewise.training.optimizers import SGD, AdamW, Optimizer, Schedule
from stridewise.training.step import StepGraph, step_graph
from stridewise.training.trainable import evaluation_graph, trainable

__all__ = [
    "LOSSES",
    "SGD",
    "AdamW",
    "Loss",
    "Optimizer",
    "Schedule",
    "StepGraph",
    "evaluation_graph",
    "grad",
    "loss_of",
    "step_graph",
    "trainable",
]
