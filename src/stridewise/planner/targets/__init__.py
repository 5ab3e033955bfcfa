"""Targets: which storage formats a machine has kernels for, as data. One file each."""

from stridewise.planner.targets.load import SHIPPED, load_target, shipped
from stridewise.planner.targets.onednn_cpu import onednn_cpu
from stridewise.planner.targets.table import TableTarget
from stridewise.planner.targets.target import Accuracy, FormatKind, LibraryTarget, Machine, Target

__all__ = [
    "SHIPPED",
    "Accuracy",
    "FormatKind",
    "LibraryTarget",
    "Machine",
    "TableTarget",
    "Target",
    "load_target",
    "onednn_cpu",
    "shipped",
]
