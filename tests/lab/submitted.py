"""`sluicegate submit` with an offset store, on every version of Spark.

The application adds the listener in one line. Its first run has no positions; its second one has a
fresh checkpoint and starts where the listener left the store.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path

from sluicegate.checkpoint.format.log import read_offsets
from sluicegate.checkpoint.view import look_at
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.positions import to_spark
from sluicegate.storage import open_storage
from tests.lab.environments import ROOT, environment
from tests.spark.jars import build

SUBMIT = "submit, twice, with an offset store"
GOES_ON = "from where the listener left it"

_APP = ROOT / "tests" / "submit" / "apps" / "versions.py"
_LAST = 2
# What the library needs inside an application, and the environments of other Sparks lack.
_NEEDED = ("msgpack", "portalocker", "lz4", "xxhash", "google_crc32c")


def submit_twice(version: str, scratch: Path) -> list[str]:
    """What did not go as it must; nothing, if all is well."""
    python = environment(version)
    spark = next(python.parent.parent.glob("lib/python3*/site-packages/pyspark"))
    build(scratch / "events.jar", spark)
    store = LockFileOffsetStore.create(str(scratch / "store"))
    faults = list(_run(python, scratch, "first", "starts at earliest"))
    record = store.load("orders")
    if record is None:
        return [*faults, "nothing was committed"]
    positions = to_spark(record.positions)
    ends = [_end(scratch / "first", batch) for batch in (_LAST - 1, _LAST, _LAST + 1)]
    if positions not in ends:
        faults.append(f"the store is at {positions}, the last batches end at {ends}")
    start = json.dumps(positions, separators=(",", ":"))
    return [*faults, *_run(python, scratch, "second", f"starts at {start}")]


def _run(python: Path, scratch: Path, checkpoint: str, told: str) -> Iterator[str]:
    words = [
        *(str(Path(sys.executable).with_name("sluicegate")), "submit", "--app", str(_APP)),
        *("--spark-submit", str(python.with_name("spark-submit")), "--master", "local[2]"),
        *("--jars", str(scratch / "events.jar"), "--checkpoint", checkpoint),
        *("--offsets-store", "store", "--consumer", "orders", "--allow-new-consumer"),
        *("--", checkpoint, "orders", str(_LAST)),
    ]
    variables = os.environ | {"PYTHONPATH": str(_library(scratch)), "PYSPARK_PYTHON": str(python)}
    done = subprocess.run(
        words, cwd=scratch, env=variables, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        yield f"{checkpoint}: exit code {done.returncode}: {done.stderr[-2000:]}"
    if not done.stdout.startswith(f"{told}\n"):
        yield f"{checkpoint}: {done.stdout!r} instead of {told!r}"
    lines = [line for line in done.stderr.splitlines() if line.startswith("{")]
    reports = [json.loads(line) for line in lines]
    if {report.get("committed") for report in reports} != {"orders"}:
        yield f"{checkpoint}: what was committed is not told: {reports}"


def _end(checkpoint: Path, batch: int) -> object:
    storage = open_storage(str(checkpoint), read_only=True)
    if batch not in look_at(storage).commits.batches:
        return None
    found = read_offsets(storage, batch).offsets[0].positions
    return to_spark(found) if found is not None else None


def _library(scratch: Path) -> Path:
    """A directory that holds the library and what it needs, and no Spark."""
    place = scratch / "library"
    if not place.is_dir():
        place.mkdir()
        for name in ("sluicegate", *_NEEDED):
            found = util.find_spec(name)
            assert found
            assert found.origin
            (place / name).symlink_to(Path(found.origin).parent)
    return place
