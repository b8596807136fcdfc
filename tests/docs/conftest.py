"""The lab's checkpoints, for the README's tour."""

from __future__ import annotations

from tests.spark.conftest import lab

__all__ = ["lab"]
