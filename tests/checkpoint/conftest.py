"""Real checkpoints for the tests, made once by real Spark and kept below build/."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

import pytest

from sluicegate.checkpoint import journal
from sluicegate.liveness import Evidence
from tests.lab.environments import cached


@pytest.fixture(scope="session")
def lab() -> Path:
    """The directory of checkpoints made by the installed Spark, or by the one in $SG_LAB_SPARK."""
    return cached(os.environ.get("SG_LAB_SPARK") or metadata.version("pyspark"))


@pytest.fixture
def no_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No check for running jobs: that takes seconds while other tests run Spark."""
    monkeypatch.setattr(journal, "refuse_living", lambda *_args, **_options: Evidence(()))
