"""Sluicegate: operations toolkit for exactly-once streams on Apache Spark."""

from __future__ import annotations

TYPE_CHECKING = False  # as mypy knows it, so that --version need not import typing
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """What PySpark applications use, imported when it is asked for: PySpark comes with it."""
    if name not in ("Gate", "commit_offsets", "starting_offsets"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("sluicegate.job"), name)
