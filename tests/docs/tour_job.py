"""The job of a gated stream without a JVM: its own epochs, with the tasks called one by one.

The first line of its input, `{"at": SECONDS, "home": DIR, "config": FILE, "stream": NAME}`, begins
and claims a stream, as it would be at that time. Every other line, `{"at": SECONDS, "end": [OFFSET,
...]}`, commits an epoch that ends at these offsets; the number of its snapshot is printed. The end
of its input ends it.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.config import NamedStream, load_config
from sluicegate.dedup import segment
from sluicegate.job import tasks
from sluicegate.job.aggregate import TARGET, fold_shards
from sluicegate.job.epoch import EpochContext, Epochs, Results
from sluicegate.job.work import Classified, Folded, Work
from sluicegate.journal import Approval
from sluicegate.positions import Positions
from sluicegate.process import myself
from sluicegate.sources.base import open_source
from sluicegate.stream.operations.begin import begin, start_of
from sluicegate.stream.output import Publisher, open_sink
from sluicegate.stream.snapshot import Snapshot
from sluicegate.stream.spec import describe, pins_now
from sluicegate.stream.stream import open_stream
from sluicegate.stream.writer import Run, StreamWriter

_CORES: Any = SimpleNamespace(
    sparkContext=SimpleNamespace(defaultParallelism=2), range=lambda *_: None
)


class LocalEpochs(Epochs):
    """Epochs whose tasks run here, each on the batches that Spark would give it."""

    def _compute(self, head: Snapshot, end: Positions) -> tuple[Work, Results, str]:
        nonce = uuid.uuid4().hex
        _, work = self._work(head, end, nonce)
        return work, compute(work), nonce


def compute(work: Work) -> Results:
    """The results of the tasks of an epoch: one for each slice, one for each node."""
    classified: list[pa.RecordBatch] = []
    for number in range(len(work.slices)):
        given = pa.RecordBatch.from_pydict({"id": [number]})
        classified += tasks.classify_slices(work, iter([given]))
    results = Results([], [], [])
    for task in range(work.tasks):
        mine = [batch.filter(pc.equal(batch.column(TARGET), task)) for batch in classified]
        for row in fold_shards(work, task, mine).to_pylist():
            if row["data"] is None:
                results.folded.append(Folded.from_text(row["result"]))
            else:
                results.classified.append(Classified.from_text(row["result"]))
                results.seen.append(segment.decode(row["data"], "what a task saw"))
    return results


def work_on(named: NamedStream, run: Run, log: Any) -> None:
    """Commit what the lines of standard input ask for."""
    publisher = Publisher(run.stream, open_sink(run.stream, named.sink))
    publisher.begin(run)
    epochs = LocalEpochs(_CORES, EpochContext(run, log, publisher, describe(named)))
    for line in sys.stdin:
        asked = json.loads(line)
        end = Positions({log.topic: dict(enumerate(asked["end"]))})
        with at(asked["at"]):
            done = epochs.commit(end)
        print(done.snapshot.number if done else "-", flush=True)
    publisher.settle()


@contextmanager
def at(seconds: float) -> Iterator[None]:
    """The clock stands at a time, for the length of a `with` block."""
    with patch.object(time, "time", lambda: seconds):
        yield


def main() -> None:
    """Begin the stream, claim it, and work until the end of the input."""
    asked = json.loads(sys.stdin.readline())
    named = load_config(Path(asked["config"])).streams[asked["stream"]]
    log = open_source(named.source)
    with ExitStack() as claimed:
        with at(asked["at"]):
            start = start_of(named.source, "earliest")
            begin(asked["home"], named, start, Approval(myself(), None))
            stream = open_stream(f"{asked['home']}/{named.name}", read_only=False)
            pins = pins_now(named, stream.chain.head().pins)
            run = claimed.enter_context(StreamWriter(stream).claim(app="job.py", pins=pins))
        work_on(named, run, log)


if __name__ == "__main__":
    main()
