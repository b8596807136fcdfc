"""What the README's tour is told of, made anew for every story: a checkpoint, a store, a stream.

A world is a directory that stands for the root of the reader's machine, with a clock that stands
for the reader's: what happened at 14:00 in the README happened as long before now.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluicegate.process import myself
from sluicegate.shards.hashing import shards_of
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.writer import LogWriter
from sluicegate.storage import LocalStorage
from sluicegate.stream.home import MARKER
from sluicegate.units import utc

ROOT = Path(__file__).parents[2]
PLACES = ("data", "srv", "new")
"""What the README's absolute paths begin with."""
READER = "ada@edge-3"
_PATH = re.compile(rf"(?<![\w./])/(?=(?:{'|'.join(PLACES)})(?:/|\b))")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
# The paths and times that Spark writes into logs: of offsets, of a file source, of a file sink.
_LOGS = ("checkpoint/offsets", "checkpoint/sources/0", "out/_spark_metadata")
_BATCH_TIME = re.compile(rb'(?<="batchTimestampMs":)\d+|(?<="modificationTime":)\d+')
_HOLDER = """
import sys
from pathlib import Path
from sluicegate.locks import FileLock
with FileLock(Path(sys.stdin.readline().strip())).hold():
    print("held", flush=True)
    sys.stdin.read()
"""
CONFIG = """\
home = "/srv/streams"

[targets.orders]
checkpoint = "/data/orders/checkpoint"
sink = "/data/orders/out"

[targets.billing]
offsets = "/data/billing/offsets"

[streams.clicks]
source = "/srv/clicks/log"
stamp = ["producer", "partition", "seq"]
key = "user"
columns = { price = "long" }
aggregates = { clicks = "count", spent = "sum(price)" }
shards = 16
sink = "/srv/clicks/out"
"""


def seconds(moment: str) -> float:
    """A time of the README as seconds since 1970."""
    return datetime.strptime(moment, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


@dataclass
class World:
    """The machine of one story; `now` is when the README's story begins."""

    root: Path
    now: str
    lab: Path
    job: Job | None = None
    others: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ahead = int(time.time()) - seconds(self.now)
        for place in (*PLACES, "work"):
            (self.root / place).mkdir()
        (self.work / "sluicegate.toml").write_text(self.real(CONFIG))

    @property
    def work(self) -> Path:
        """Where commands are typed."""
        return self.root / "work"

    def place(self, path: str) -> Path:
        """Where an absolute path of the README is."""
        return Path(f"{self.root}{path}")

    def at(self, moment: str) -> float:
        """When a time of the README is, by the clock of this machine."""
        return seconds(moment) + self._ahead

    def real(self, text: str) -> str:
        """A command of the README as it can be run here."""
        text = _PATH.sub(f"{self.root}/", text)
        return _TIME.sub(lambda found: utc(self.at(found[0])), text)

    def told(self, text: str) -> str:
        """What was printed here, as it would be on the reader's machine."""
        text = text.replace(str(self.root / "work"), "/home/ada").replace(str(self.root), "")
        me = myself()
        text = text.replace(f"{me.user}@{me.host}", READER)
        return _TIME.sub(lambda found: utc(seconds(found[0]) - self._ahead), text)

    def orders(self, recipe: str, first: str, every: float = 600.0) -> Path:
        """A real checkpoint and what its file sink wrote, with batches planned every so often."""
        place = self.place("/data/orders")
        shutil.copytree(self.lab / recipe, place)
        begun = 1000 * self.at(first)
        for path in (path for log in _LOGS for path in (place / log).iterdir()):
            if path.name.startswith("."):
                # A checksum of what was there before.
                path.unlink()
                continue
            at = b"%d" % round(begun + 1000 * every * int(path.name.partition(".")[0]))
            data = _BATCH_TIME.sub(at, path.read_bytes())
            path.write_bytes(data.replace(bytes(self.lab / recipe), bytes(place)))
        self.age(place)
        return place / "checkpoint"

    def age(self, place: Path) -> None:
        """Let all files be an hour old, as after the end of a job."""
        for path in (*place.rglob("*"), place):
            os.utime(path, (time.time() - 3600,) * 2)

    def billing(self, first: str, every: float = 600.0) -> None:
        """An offset store whose consumer has committed every so often."""
        place = self.place("/data/billing")
        place.mkdir()
        script = place / "billing.py"
        script.symlink_to(Path(__file__).with_name("tour_consumer.py"))
        asked = f"{place / 'offsets'}\n{self.at(first)}\n{every}\n"
        subprocess.run([sys.executable, script], input=asked, text=True, check=True)

    def clicks(self, first: str, every: float = 600.0, nodes: tuple[str, ...] = ()) -> Job:
        """A stream whose job committed an epoch every so often, and lives until the story ends."""
        epochs = 6
        home = self.empty_home()
        produce(self.place("/srv/clicks/log"), epochs + 2)
        script = self.place("/srv/clicks/job.py")
        script.symlink_to(Path(__file__).with_name("tour_job.py"))
        asked = {"home": str(home), "config": str(self.work / "sluicegate.toml")}
        self.job = Job(script, {**asked, "stream": "clicks"}, self.at(first), every)
        for _ in range(epochs):
            self.job.commit()
        if nodes:
            self._join(nodes)
        return self.job

    def empty_home(self) -> Path:
        """A home without streams."""
        home = self.place("/srv/streams")
        home.mkdir()
        MARKER.create(LocalStorage(home))
        return home

    def hold(self, lock: str) -> None:
        """Let another process hold a lock until the story ends."""
        script = self.place("/data/billing/job.py")
        script.write_text(_HOLDER)
        words: list[str | Path] = [sys.executable, script]
        holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert holder.stdin
        assert holder.stdout
        holder.stdin.write(f"{self.place(lock)}\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "held\n"
        self.others.append(holder)

    def _join(self, nodes: tuple[str, ...]) -> None:
        program = Path(sys.executable).with_name("sluicegate")
        words: list[str | Path] = [program, "shards", "join", "clicks", *nodes, "--yes"]
        subprocess.run(words, cwd=self.work, check=True, capture_output=True)


SHARDS = 16
EVENTS = 200
"""That many are read of each partition in an epoch; some came before."""
AGAIN = 7


def produce(place: Path, epochs: int) -> None:
    """A log of two partitions, in which every epoch has some messages that were sent again."""
    Log.create(str(place), partitions=2)
    for partition in range(2):
        sent = 0
        with LogWriter(str(place), partition) as writer:
            for _ in range(epochs):
                again = AGAIN if sent else 0
                numbers = [*range(sent - again, sent), *range(sent, sent + EVENTS - again)]
                writer.append([record(partition, number) for number in numbers])
                sent += EVENTS - again


@cache
def users() -> list[str]:
    """Keys that are not spread evenly: three of four are in the first four shards."""
    names = [f"user-{number}" for number in range(500)]
    shards = shards_of(pa.array(names), SHARDS)
    chosen = [name for at, name in enumerate(names) if shards[at] < 4 or at % 11 == 0]
    return ["alice", "bob", *chosen[:118]]


def record(partition: int, number: int) -> bytes:
    user = users()[number % len(users())]
    fields = {"producer": f"web-{partition}", "partition": partition, "seq": number}
    return json.dumps({**fields, "user": user, "price": 100 + number % 50}).encode()


class Job:
    """The job of a stream, a process that commits when it is told to."""

    def __init__(self, script: Path, asked: dict[str, str], first: float, every: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._at, self._every, self._committed = first, every, 0
        self._send({"at": first, **asked})

    def commit(self) -> int:
        """Let it commit the next epoch; the number of the snapshot."""
        self._committed += 1
        self._at += self._every
        end = [EVENTS * self._committed] * 2
        self._send({"at": min(self._at, time.time()), "end": end})
        assert self._process.stdout
        return int(self._process.stdout.readline())

    def end(self) -> None:
        """Let it end."""
        if self._process.poll() is None:
            self._process.communicate(timeout=60)
        assert self._process.returncode == 0

    def _send(self, asked: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()


@contextmanager
def world(now: str, lab: Path) -> Iterator[World]:
    """A world for one story; its path is as long every time, so that lines break alike."""
    with tempfile.TemporaryDirectory(prefix="tour-", dir="/tmp") as root:
        made = World(Path(root), now, lab)
        try:
            yield made
        finally:
            for process in made.others:
                process.communicate(timeout=60)
            if made.job:
                made.job.end()
