"""Stridewise in PyTorch: a backend of ``torch.compile``, and a check of memory formats."""

from stridewise.torch.backend import backend, register
from stridewise.torch.check import check
from stridewise.torch.convert import convert
from stridewise.torch.findings import Finding, LayoutCheck, OperatorLayout
from stridewise.torch.options import FallbackWarning
from stridewise.torch.report import Report, report
from stridewise.torch.tensors import contiguous, desc_of, empty, suggest_memory_format
from stridewise.torch.weights import repack

__all__ = [
    "FallbackWarning",
    "Finding",
    "LayoutCheck",
    "OperatorLayout",
    "Report",
    "backend",
    "check",
    "contiguous",
    "convert",
    "desc_of",
    "empty",
    "repack",
    "report",
    "suggest_memory_format",
]

register()
