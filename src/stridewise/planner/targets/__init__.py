"""Targets: which storage formats a machine has kernels for, as data. One file each."""

from stridewise.planner.targets.onednn_cpu import onednn_cpu
from stridewise.planner.targets.target import FormatKind, Machine, Target

__all__ = ["FormatKind", "Machine", "Target", "onednn_cpu"]
