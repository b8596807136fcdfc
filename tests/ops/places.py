"""Installations to maintain: a stream, an offset store and a Spark checkpoint."""

from __future__ import annotations

import json
import time
from pathlib import Path

from sluicegate.offsets import LockFileOffsetStore
from sluicegate.positions import Position
from tests.stream.streams import made

CONFIG = """
home = "home"
[maintain]
keep = "0s"
keep_snapshots = 3
[targets.orders]
checkpoint = "checkpoint"
[targets.billing]
offsets = "store"
"""


def installation(root: Path, config: str = "") -> Path:
    """All is well there, and there is something to do; gives the stream's directory."""
    (root / "sluicegate.toml").write_text(config + CONFIG)
    make_checkpoint(root / "checkpoint", range(3))
    store = LockFileOffsetStore.create(str(root / "store"))
    store.save("invoices", Position("orders", 0, 42))
    stream = made(root / "home", epochs=12, dedup=True)
    return Path(stream.uri)


def make_checkpoint(root: Path, batches: range, planned: float | None = None) -> None:
    """A checkpoint as Spark lays one out."""
    for name in ("offsets", "commits"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "metadata").write_text('{"id":"3f2a6c1e-8f5d-4a53-9c4e-0b7d1a2e9f60"}')
    at = round((time.time() if planned is None else planned) * 1000)
    meta = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": at, "conf": {}})
    for batch in batches:
        position = json.dumps({"orders": {"0": batch * 10}})
        (root / "offsets" / str(batch)).write_text(f"v1\n{meta}\n{position}")
        (root / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
