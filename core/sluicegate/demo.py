"""The promise everything else stands on, shown with real processes and real SIGKILLs.

Writers count up one shared file, each step under a lock and through `storage`, and acknowledge a
step once it is durable. They are killed at random moments and started again. Afterwards every
acknowledged step must be in the file, once, and no reader may ever have seen half a file.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sluicegate import codec
from sluicegate.errors import Corrupt, SluicegateError
from sluicegate.locks import FileLock
from sluicegate.storage import LocalStorage

_FORMAT = codec.Format("demo", version=1, max_body=1 << 20)
_FILE = "counts"
_WRITERS = 3
_LIFETIME = (0.15, 0.45)
_PATIENCE = 30.0


@dataclass(slots=True)
class Outcome:
    """What was acknowledged, what is in the file, and what readers saw."""

    kills: int = 0
    acknowledged: int = 0
    committed: int = 0
    lost: int = 0
    doubled: int = 0
    torn_reads: int = 0
    reads: int = 0
    lock_left_held: bool = False
    seconds: float = 0.0

    @property
    def well(self) -> bool:
        broken = self.lost or self.doubled or self.torn_reads or self.lock_left_held
        return self.acknowledged > 0 and not broken


@dataclass(slots=True)
class _Writer:
    """One named writer over all its lives; `steps` are the acknowledgements it printed."""

    name: str
    process: subprocess.Popen[str]
    output: Path
    steps: list[int] = field(default_factory=list)


def run(kills: int, on_kill: Callable[[int], None] = lambda _: None, seed: int = 0) -> Outcome:
    """Kill writers `kills` times and report; `on_kill` hears of each one."""
    chance = random.Random(seed)
    started = time.monotonic()
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="sluicegate-demo-") as scratch:
        root = Path(scratch)
        LocalStorage(root).replace(_FILE, codec.encode(_FORMAT, {}))
        writers = [_start(root, f"writer-{n}", life=0) for n in range(_WRITERS)]
        try:
            for life in range(1, kills + 1):
                victim = chance.randrange(_WRITERS)
                _read_for(chance.uniform(*_LIFETIME), root, writers[victim], outcome)
                _kill(writers[victim])
                outcome.kills += 1
                on_kill(life)
                writers[victim] = _start(root, f"writer-{victim}", life, writers[victim].steps)
        finally:
            for writer in writers:
                _kill(writer)
        _judge(root, writers, outcome)
    outcome.seconds = time.monotonic() - started
    return outcome


def _start(root: Path, name: str, life: int, steps: list[int] | None = None) -> _Writer:
    output = root / f"{name}.{life}.acknowledged"
    with output.open("w") as stream:
        process = subprocess.Popen(
            # -P: what lies in the current directory must not be imported.
            [sys.executable, "-P", "-m", "sluicegate.demo", str(root), name, str(os.getpid())],
            stdout=stream,
            text=True,
            # Ctrl-C is for the demonstration, which then ends its writers itself.
            start_new_session=True,
        )
    return _Writer(name, process, output, steps or [])


def _kill(writer: _Writer) -> None:
    writer.process.send_signal(signal.SIGKILL)
    writer.process.wait()
    lines = writer.output.read_text().split("\n")
    # What follows the last newline was cut off in the middle: not acknowledged.
    writer.steps += [int(line) for line in lines[:-1]]


def _read_for(seconds: float, root: Path, victim: _Writer, outcome: Outcome) -> None:
    """Read the file over and over; longer on a slow machine, until the victim has done a step."""
    storage = LocalStorage(root)
    deadline, at_most = time.monotonic() + seconds, time.monotonic() + _PATIENCE
    while (now := time.monotonic()) < deadline or (
        now < at_most and victim.output.stat().st_size == 0
    ):
        outcome.reads += 1
        try:
            _load(storage)
        except Corrupt:
            outcome.torn_reads += 1


def _judge(root: Path, writers: list[_Writer], outcome: Outcome) -> None:
    counts = _load(LocalStorage(root))
    for writer in writers:
        outcome.acknowledged += len(writer.steps)
        outcome.lost += sum(step > counts.get(writer.name, 0) for step in writer.steps)
        outcome.doubled += len(writer.steps) - len(set(writer.steps))
    outcome.committed = sum(counts.values())
    outcome.lock_left_held = FileLock(root / "counts.lock").is_held()


def _load(storage: LocalStorage) -> dict[str, int]:
    counts: dict[str, int] = codec.decode(_FORMAT, storage.get(_FILE), _FILE)
    return counts


def _write_for_ever(root: Path, name: str, parent: int) -> None:
    storage, lock = LocalStorage(root), FileLock(root / "counts.lock")
    # The demonstration may be interrupted at any moment; its writers must not outlive it.
    while os.getppid() == parent:
        with lock.hold(timeout=60):
            counts = _load(storage)
            step = counts[name] = counts.get(name, 0) + 1
            storage.replace(_FILE, codec.encode(_FORMAT, counts))
        print(step, flush=True)


if __name__ == "__main__":
    try:
        _write_for_ever(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    except SluicegateError:
        if Path(sys.argv[1]).exists():
            raise
