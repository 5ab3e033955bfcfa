"""Targets: what the planner asks about a machine, its kernels and their costs.

``target.py`` says what a target is. ``onednn/`` has the native target, ``tables/`` the targets that
files describe. Nothing is exported here, so that the protocol is imported without any target.
"""
