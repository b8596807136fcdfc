"""What a consumer does before its first message, against f37eb7e: claim, dedup log, one verdict.

Each opens a stream that it made itself: 300 epochs, 1 M keys in 64 shards, 1,000 producers. f37eb7e
imported pandas on the way. Times are of the processor, with bytecode; the first row is of a process
that has imported its modules already.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

EPOCHS, KEYS, SHARDS = 300, 1_000_000, 64
PRODUCERS, EVENTS, GAPS = 1_000, 10_000, 0.01
ROUNDS = 15
HERE = Path(__file__).resolve()
ROOT = HERE.parents[1]
REVISION = "f37eb7e"
# What the modules are called now, and what they were called then.
NAMES = {
    "sluicegate.state.delta": "sluicegate.state.delta",
    "sluicegate.stream.append": "sluicegate.gate.drafts",
    "sluicegate.stream.segments": "sluicegate.gate.segments",
    "sluicegate.stream.stream": "sluicegate.gate.stream",
    "sluicegate.stream.transactions": "sluicegate.gate.coordinator",
    "sluicegate.stream.writer": "sluicegate.gate.gate",
}


def rows() -> Iterator[Any]:
    from harness import Bar, Row

    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
        place = Path(scratch)
        if not (then := _then(place)):
            print(f"opening: {REVISION} is not in this repository", file=sys.stderr)
            return
        codes = {"now": ROOT / "core", "then": then}
        for name, code in codes.items():
            _run("make", place / name, code)
        # One round to write bytecode, which is not counted.
        rounds = [
            {name: _run("open", place / name, code) for name, code in codes.items()}
            for _ in range(ROUNDS + 1)
        ][1:]
    for part, title, limit in (
        ("opening", "open a stream of 300 epochs, 1 M keys", 0.25),
        ("process", "the same, and start Python", 0.75),
    ):
        ours, peer = (
            statistics.median(each[name][part] for each in rounds) for name in ("now", "then")
        )
        bar = Bar("time at most", limit)
        ratio = bar.ratio(ours, peer)
        yield Row(f"{title} / {REVISION}", ours, peer, ratio, str(bar), bar.met(ratio))


def _then(place: Path) -> Path | None:
    """The code as it was, from the history; None if that is not here."""
    archive = ["git", "-C", str(ROOT), "archive", REVISION, "core"]
    packed = subprocess.run(archive, capture_output=True, check=False)
    if packed.returncode:
        return None
    subprocess.run(["tar", "-x", "-C", str(place)], input=packed.stdout, check=True)
    return place / "core"


def _run(what: str, place: Path, code: Path) -> Mapping[str, float]:
    """Do something in a process of its own, with the code in this directory."""
    environment = os.environ | {"PYTHONPATH": str(code)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, str(HERE), what, str(place)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: Mapping[str, float] = json.loads(done.stdout or "{}")
    return found


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return import_module(NAMES[name])


def _writer(module: Any, stream: Any) -> Any:
    """The writer of a stream; older releases call it `Gate`."""
    return (getattr(module, "StreamWriter", None) or module.Gate)(stream)


def open_stream(place: Path) -> None:
    """Print how long the opening took, and the process up to its end."""
    stream, writer = _module("sluicegate.stream.stream"), _module("sluicegate.stream.writer")
    consumer, stamp = _module("sluicegate.stream.transactions"), _module("sluicegate.dedup.stamp")
    began = time.process_time()
    opened = stream.open_stream(str(place), read_only=False)
    with _writer(writer, opened).claim(app="bench") as run:
        coordinator = consumer.Coordinator(run, shards=SHARDS)
        assert coordinator.begin(stamp.Stamp("producer-7", 0, 3)) is None, "it was seen"
        ended = time.process_time()
    print(json.dumps({"opening": ended - began, "process": ended}))


def make_stream(place: Path) -> None:
    """A stream whose epochs bring new keys and come back to old ones."""
    place.mkdir()
    opened = _module("sluicegate.stream.stream").open_stream(str(place), read_only=False)
    writer = _writer(_module("sluicegate.stream.writer"), opened)
    writer.genesis(_at(0), pins={"shards": SHARDS})
    chance, following = np.random.default_rng(1), np.zeros(PRODUCERS, np.int64)
    with writer.claim(app="bench") as run:
        for number in range(EPOCHS):
            snapshot = run.snapshot
            epoch = _module("sluicegate.stream.append").Epoch(
                start=snapshot.positions,
                end=_at((number + 1) * EVENTS),
                events=EVENTS,
                deltas=_deltas(opened, number, chance),
                version=snapshot.version,
                generation=snapshot.generation,
                stamps=_stamps(opened, chance, following),
                number=number + 1,
            )
            run.commit(epoch)


def _deltas(stream: Any, number: int, chance: Any) -> dict[int, Any]:
    hashing, delta = _module("sluicegate.shards.hashing"), _module("sluicegate.state.delta")
    import pyarrow as pa

    first, last = KEYS * number // EPOCHS, KEYS * (number + 1) // EPOCHS
    again = chance.integers(0, max(1, first), (last - first) // 2)
    users = np.unique(np.concatenate([np.arange(first, last), again])).tolist()
    names = np.array([f"user-{user}" for user in users])
    shards = hashing.remainders(hashing.hashes_of(pa.array(names.tolist())), SHARDS)
    refs = {}
    for shard in np.unique(shards).tolist():
        keys = names[shards == shard].tolist()
        values = {"events": [1] * len(keys), "spent": chance.integers(0, 9_999, len(keys)).tolist()}
        table = delta.table(keys, values, dict.fromkeys(values, delta.Merge.SUM))
        refs[shard] = stream.blobs.put(delta.encode(table))
    return refs


def _stamps(stream: Any, chance: Any, following: Any) -> Any:
    """The stamps of an epoch: every producer continues, and sometimes skips a number."""
    ledger, stamp = _module("sluicegate.dedup.ledger"), _module("sluicegate.dedup.stamp")
    producers = np.sort(chance.integers(0, PRODUCERS, EVENTS))
    total = np.cumsum(np.where(chance.random(EVENTS) < GAPS, 2, 1))
    sequences = following[producers] + total - total[np.searchsorted(producers, producers)]
    np.maximum.at(following, producers, sequences + 1)
    seen = ledger.Ledger()
    names = [f"producer-{producer}" for producer in producers.tolist()]
    seen.insert(stamp.Stamps.of(names, np.zeros(EVENTS, np.int64), sequences))
    return _module("sluicegate.stream.segments").put(stream.blobs, seen.entries())


def _at(offset: int) -> Any:
    return _module("sluicegate.positions").Positions({"events": {0: offset}})


if __name__ == "__main__":
    {"make": make_stream, "open": open_stream}[sys.argv[1]](Path(sys.argv[2]))
