"""The files of targets that come with the package."""

from __future__ import annotations

from pathlib import Path

__all__ = ["FOLDER", "SHIPPED"]

FOLDER = Path(__file__).parent

SHIPPED = {path.stem.replace("_", "-"): path.name for path in sorted(FOLDER.glob("*.toml"))}
"""The files beside this one, by the names of targets."""
