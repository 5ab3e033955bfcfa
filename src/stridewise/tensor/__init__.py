"""Tensors: logical view (Origin), stored view (Storage), and PyTorch's rules for strides.

PyTorch's rules are in :mod:`stridewise.tensor.strided`.
"""

from stridewise.tensor.desc import TensorDesc, View
from stridewise.tensor.quantization import Grid, Quantization
from stridewise.tensor.storage import Spell, Storage

__all__ = ["Grid", "Quantization", "Spell", "Storage", "TensorDesc", "View"]
