"""The lab's checkpoints, for the README's tour."""

from __future__ import annotations

from tests.checkpoint.conftest import lab

__all__ = ["lab"]
