"""Tensors: what they mean (Origin) and how they are stored (Storage); strides as PyTorch has them.

:mod:`stridewise.tensor.strided` has PyTorch's rules.
"""

from stridewise.tensor.desc import TensorDesc, View
from stridewise.tensor.quantization import Quantization
from stridewise.tensor.storage import Spell, Storage

__all__ = ["Quantization", "Spell", "Storage", "TensorDesc", "View"]
