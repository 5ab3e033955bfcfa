"""Stridewise in PyTorch: a backend of ``torch.compile``, and a check of memory formats."""

from stridewise.torch.backend import backend, register
from stridewise.torch.options import FallbackWarning
from stridewise.torch.region import repack
from stridewise.torch.report import Report, report

__all__ = ["FallbackWarning", "Report", "backend", "repack", "report"]

register()
