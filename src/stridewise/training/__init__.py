"""Training: gradients of graphs."""

from stridewise.training.gradient import grad

__all__ = ["grad"]
