"""The promise everything else stands on, shown with real processes and real SIGKILLs.

Writers commit to one consumer of a real offset store, each its own partition, and keep an audit log
of what was acknowledged. They are killed at random moments and started again. Afterwards every
acknowledged commit must be in the store, once, and no reader may ever have seen half a file or an
older position than before.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sluicegate.errors import SluicegateError
from sluicegate.offsets import HookedOffsetStore, JsonLinesHook, LockFileOffsetStore
from sluicegate.positions import Position

_STORE = "offsets"
_CONSUMER = "demo"
_TOPIC = "events"
_WRITERS = 3
_LIFETIME = (0.15, 0.45)
_PATIENCE = 30.0


@dataclass(slots=True)
class Outcome:
    """What was acknowledged, what is in the store, and what readers saw."""

    kills: int = 0
    acknowledged: int = 0
    committed: int = 0
    lost: int = 0
    doubled: int = 0
    bad_reads: int = 0
    reads: int = 0
    lock_left_held: bool = False
    seconds: float = 0.0

    @property
    def well(self) -> bool:
        broken = self.lost or self.doubled or self.bad_reads or self.lock_left_held
        return self.acknowledged > 0 and not broken


@dataclass(slots=True)
class _Writer:
    """One writer over all its lives: its partition, and the log of what was acknowledged."""

    partition: int
    log: Path
    process: subprocess.Popen[bytes]


def run(kills: int, on_kill: Callable[[int], None] = lambda _: None, seed: int = 0) -> Outcome:
    """Kill writers `kills` times and report; `on_kill` hears of each one."""
    chance = random.Random(seed)
    started = time.monotonic()
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="sluicegate-demo-") as scratch:
        root = Path(scratch)
        store = LockFileOffsetStore.create(str(root / _STORE))
        writers = [_start(root, partition) for partition in range(_WRITERS)]
        try:
            for life in range(1, kills + 1):
                victim = chance.randrange(_WRITERS)
                _read_for(chance.uniform(*_LIFETIME), store, writers[victim], outcome)
                _kill(writers[victim])
                outcome.kills += 1
                on_kill(life)
                writers[victim] = _start(root, victim)
        finally:
            for writer in writers:
                _kill(writer)
        _judge(store, writers, outcome)
    outcome.seconds = time.monotonic() - started
    return outcome


def _start(root: Path, partition: int) -> _Writer:
    log = root / f"acknowledged-{partition}.jsonl"
    process = subprocess.Popen(
        # -P: what lies in the current directory must not be imported.
        [
            sys.executable,
            "-P",
            "-m",
            "sluicegate.demo",
            str(root),
            str(partition),
            str(os.getpid()),
        ],
        # Ctrl-C is for the demonstration, which then ends its writers itself.
        start_new_session=True,
    )
    return _Writer(partition, log, process)


def _kill(writer: _Writer) -> None:
    writer.process.send_signal(signal.SIGKILL)
    writer.process.wait()


def _read_for(
    seconds: float, store: LockFileOffsetStore, victim: _Writer, outcome: Outcome
) -> None:
    """Read over and over; longer on a slow machine, until the victim has committed something."""
    deadline, at_most = time.monotonic() + seconds, time.monotonic() + _PATIENCE
    size, newest = _size(victim.log), 0
    while (now := time.monotonic()) < deadline or (now < at_most and _size(victim.log) == size):
        outcome.reads += 1
        try:
            record = store.load(_CONSUMER)
        except SluicegateError:
            outcome.bad_reads += 1
            continue
        sequence = record.sequence if record else 0
        outcome.bad_reads += sequence < newest
        newest = sequence


def _judge(store: LockFileOffsetStore, writers: list[_Writer], outcome: Outcome) -> None:
    record = store.load(_CONSUMER)
    sequences = []
    for writer in writers:
        position = (record.positions.get(_TOPIC, writer.partition) if record else None) or 0
        acknowledged = list(_acknowledged(writer.log))
        sequences += [sequence for sequence, _ in acknowledged]
        outcome.acknowledged += len(acknowledged)
        outcome.committed += position
        outcome.lost += sum(offset > position for _, offset in acknowledged)
    outcome.doubled = len(sequences) - len(set(sequences))
    outcome.lock_left_held = store.lock(_CONSUMER).is_held()


def _acknowledged(log: Path) -> list[tuple[int, int]]:
    """Sequence and offset of every commit in a log; half a line was not acknowledged."""
    found = []
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        (offset,) = fields["put"][_TOPIC].values()
        found.append((fields["sequence"], offset))
    return found


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _write_for_ever(root: Path, partition: int, parent: int) -> None:
    store = LockFileOffsetStore.open(str(root / _STORE))
    logged = HookedOffsetStore(store, [JsonLinesHook(root / f"acknowledged-{partition}.jsonl")])
    record = store.load(_CONSUMER)
    offset = (record.positions.get(_TOPIC, partition) if record else None) or 0
    # The demonstration may be interrupted at any moment; its writers must not outlive it.
    while os.getppid() == parent:
        offset += 1
        logged.save(_CONSUMER, Position(_TOPIC, partition, offset))


if __name__ == "__main__":
    try:
        _write_for_ever(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    except SluicegateError:
        if Path(sys.argv[1]).exists():
            raise
