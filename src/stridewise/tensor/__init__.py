"""Tensors: what they mean (Origin) and how they are stored (Storage)."""

from stridewise.tensor.desc import TensorDesc

__all__ = ["TensorDesc"]
