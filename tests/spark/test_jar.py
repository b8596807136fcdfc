"""A jar application under real spark-submit: positions, checkpoint, reported failure."""

from __future__ import annotations

import json
from importlib import util
from pathlib import Path

import pytest

from sluicegate.checkpoint.view import look_at
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.positions import Positions
from sluicegate.storage import open_storage
from tests.conftest import Sg
from tests.spark.jars import build, can_build


def pyspark() -> Path:
    found = util.find_spec("pyspark")
    assert found
    assert found.origin
    return Path(found.origin).parent


@pytest.mark.skipif(not can_build(), reason="there is no Java compiler")
def test_a_jar(sg: Sg, tmp_path: Path) -> None:
    """It starts where the store is, resumes from its checkpoint, and its failure is reported."""
    build(tmp_path / "job.jar", pyspark())
    store = LockFileOffsetStore.create(str(tmp_path / "store"))
    store.save_many("billing", Positions({"events": {0: 41, 1: 7}}))
    words = (
        *("submit", "--app", "job.jar", "--class", "Job", "--master", "local[1]"),
        *("--checkpoint", "checkpoint", "--conf", "spark.ui.enabled=false"),
    )
    first = sg(*words, "--offsets-store", "store")
    assert first.returncode == 0, first.stderr
    assert first.stdout == 'starts at {"events":{"0":41,"1":7}}\nbatch 0\n'
    # Spark prefers what the checkpoint says, so both together are a contradiction.
    both = sg(*words, "--offsets-store", "store")
    assert both.returncode == 2
    assert "would be ignored" in both.stderr
    again = sg(*words, "--", "fail")
    assert again.returncode == 20
    assert again.stdout == "starts at earliest\nbatch 1\n", "the checkpoint wins"
    assert "clean: the start begins with batch 1" in again.stderr
    assert "the job ended with exit code 1" in again.stderr
    assert "IllegalStateException: asked to fail" in again.stderr
    storage = open_storage(str(tmp_path / "checkpoint"), read_only=True)
    assert look_at(storage).last_commit == 1
    shown = sg(*words, "--dry-run", "--json")
    assert json.loads(shown.stdout)["checkpoint"]["next_batch"] == 2
