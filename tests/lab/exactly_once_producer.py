"""A producer that retries, overtakes itself, leaves gaps and writes nonsense.

`python -m tests.lab.exactly_once_producer LOG DIRECTORY NAME LIFE` runs until it is killed, and
goes on where it was when it is started again: what its outbox owes the log is sent once more.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from sluicegate.producer.log_producer import LogProducer
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.writer import LogWriter

NONSENSE = [
    b"{",
    b"null",
    b"\xff\xfe",
    b'{"user":"nobody"}',
    b'{"producer":"p","partition":0,"seq":1}',
    b'{"producer":"p","partition":0,"seq":-1,"user":"u"}',
    b'{"producer":"p","partition":0,"seq":1,"user":"u","price":"much"}',
    b'{"user":"u","producer":"p","partition":0,"seq":2} {"user":"v"}',
]
_PAUSE = 0.15
_USERS = 97


class Producer:
    """One life of a producer; several at a time write to the same log."""

    def __init__(self, log: str, directory: Path, name: str, life: int) -> None:
        self._log = log
        self._partitions = len(Log.open(log).partitions())
        self._chance = random.Random(f"{name} {life}")
        self._own = LogProducer.open(log, directory, name)
        self._raw = f"{name}-raw-{life}"
        self._next = 0
        self._sent: list[dict[str, Any]] = []

    def run(self) -> None:
        """Until somebody ends it."""
        acts = [self.send, self.send, self.send, self.retry, self.send_mixed_up, self.babble]
        while True:
            self._chance.choice(acts)()
            time.sleep(self._chance.uniform(0, 2 * _PAUSE))

    def send(self) -> None:
        """As applications do."""
        partitions = range(self._partitions)
        rows = [(self._chance.choice(partitions), self._row()) for _ in range(30)]
        stamps = self._own.send_many(rows)
        for stamp, (_, row) in zip(stamps, rows, strict=True):
            named = {"producer": stamp.producer_id, "partition": stamp.partition}
            self._remember({**row, **named, "seq": stamp.sequence})

    def send_mixed_up(self) -> None:
        """With gaps, out of order, some at once through several partitions."""
        sequences = [n for n in range(self._next, self._next + 40) if self._chance.random() < 0.95]
        self._next += 40
        self._chance.shuffle(sequences)
        rows = [{**self._row(), "producer": self._raw, "partition": 0, "seq": n} for n in sequences]
        self._append(self._chance.randrange(self._partitions), rows)
        if self._chance.random() < 0.2:
            self._append(self._chance.randrange(self._partitions), rows[:10])
        for row in rows:
            self._remember(row)

    def retry(self) -> None:
        """What was sent before, once more."""
        if self._sent:
            again = self._chance.choices(self._sent, k=20)
            self._append(self._chance.randrange(self._partitions), again)

    def babble(self) -> None:
        """What is no record of anybody."""
        with LogWriter(self._log, self._chance.randrange(self._partitions), timeout=30) as writer:
            writer.append(self._chance.choices(NONSENSE, k=3))

    def _row(self) -> dict[str, Any]:
        price = self._chance.choice([None, self._chance.randrange(-1000, 1000)])
        return {"user": f"user-{self._chance.randrange(_USERS)}", "price": price}

    def _remember(self, row: dict[str, Any]) -> None:
        self._sent.append(row)
        del self._sent[:-2000]

    def _append(self, partition: int, rows: list[dict[str, Any]]) -> None:
        with LogWriter(self._log, partition, timeout=30) as writer:
            writer.append([json.dumps(row).encode() for row in rows])


if __name__ == "__main__":
    log, directory, name, life = sys.argv[1:]
    Producer(log, Path(directory), name, int(life)).run()
