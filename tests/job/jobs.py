"""Gated streams to run jobs on, and whether the output of a job is right."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from sluicegate.config import NamedStream, load_config
from sluicegate.findings import Severity
from sluicegate.job.epoch import EpochContext, Epochs, Step
from sluicegate.job.job import Settings, StreamJob
from sluicegate.journal import Approval
from sluicegate.process import myself
from sluicegate.sources.base import admitted, complete
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.writer import LogWriter
from sluicegate.storage import LocalStorage
from sluicegate.stream.home import MARKER
from sluicegate.stream.operations.begin import begin, start_of
from sluicegate.stream.output import Publisher, open_sink
from sluicegate.stream.snapshot import Snapshot
from sluicegate.stream.spec import describe
from sluicegate.stream.state import scan
from sluicegate.stream.stream import Stream, open_stream
from sluicegate.stream.verify import Reading, verify
from sluicegate.stream.writer import StreamWriter as Snapshots
from tests.job.truth import STAMP, Row, Table, Truth, published, records, same, truth

NAME = "clicks"
AGGREGATES = {"n": "count", "spent": "sum(price)", "top": "max(price)", "mean": "avg(price)"}


class Place:
    """A directory with a log, a configuration, a home and a sink."""

    def __init__(self, root: Path, *, partitions: int = 2, **table: Any) -> None:
        self.root = root
        self.table = Table(
            columns=table.pop("columns", {"price": "long"}),
            stamp=table.pop("stamp", STAMP),
            key=table.pop("key", "user"),
            aggregates=table.pop("aggregates", AGGREGATES),
        )
        root.mkdir(parents=True, exist_ok=True)
        self.log = Log.create(str(root / "log"), partitions=partitions)
        self.config = root / "sluicegate.toml"
        self.write_config(**{"shards": 4, "sink": "out", **table})

    def write_config(self, **table: Any) -> None:
        """The configuration, with these keys beside those that make the truth."""
        own = {
            "source": "log",
            "stamp": list(self.table.stamp),
            "columns": self.table.columns,
            "aggregates": self.table.aggregates if self.table.key else {},
            **({"key": self.table.key} if self.table.key else {}),
        }
        lines = [f"{name} = {_toml(value)}" for name, value in {**own, **table}.items()]
        self.config.write_text("\n".join(['home = "home"', f"[streams.{NAME}]", *lines, ""]))

    @property
    def named(self) -> NamedStream:
        return load_config(self.config).streams[NAME]

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def sink(self) -> Path:
        return self.root / "out"

    @property
    def stream(self) -> Stream:
        return open_stream(str(self.home / NAME), read_only=False)

    @property
    def head(self) -> Snapshot:
        return self.stream.chain.head()

    def begin(self) -> Self:
        self.home.mkdir()
        MARKER.create(LocalStorage(self.home))
        start = start_of(self.named.source, "earliest")
        begin(str(self.home), self.named, start, Approval(myself(), "a test"))
        return self

    def append(self, partition: int, rows: Iterable[Row | bytes]) -> None:
        """Write records, given as fields or as they are."""
        lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        with LogWriter(self.log.uri, partition, timeout=10) as writer:
            writer.append(lines)

    @contextmanager
    def claimed(
        self, spark: Any, process: Any = None, step: Step = lambda _: None, *, force: bool = False
    ) -> Iterator[Epochs]:
        """The epochs of a run, begun as the job begins one; without a streaming query."""
        named, stream = self.named, self.stream
        with Snapshots(stream).claim(app="test", force=force) as run:
            publisher = Publisher(stream, open_sink(stream, named.sink))
            publisher.begin(run)
            yield Epochs(
                spark, EpochContext(run, self.log, publisher, describe(named)), process, step
            )

    def commit_all(self, spark: Any, process: Any = None, **more: Any) -> Snapshot:
        """Read all there is, in epochs of `max_events`; gives the head."""
        with self.claimed(spark, process, **more) as epochs:
            while (begin := complete(self.log, self.head.positions)) != self.log.latest():
                epochs.commit(admitted(begin, self.log.latest(), self.named.max_events))
            epochs.commit(begin)
        return self.head

    def job(self, spark: Any, **settings: Any) -> StreamJob:
        settings = {"available_now": True, **settings}
        return StreamJob(spark, Settings(self.named, str(self.home), **settings))

    def run(self, spark: Any, process: Any = None, **settings: Any) -> Snapshot:
        """Read all there is; gives the head."""
        self.job(spark, **settings).run(process)
        return self.head

    def truth(self) -> Truth:
        return truth(records(Path(self.log.uri)), self.table)

    def state(self) -> dict[str, Row]:
        """What the stream has counted, key by key."""
        return {each.key: each.values or {} for each in scan(self.stream, self.head)}

    def check(self, *, counted: bool = True) -> Truth:
        """Everything was read, and state, output, rejects and counters are the truth."""
        wanted = self.truth()
        assert self.head.positions == self.log.latest()
        check_state(self.state(), wanted)
        if "sink" in self.config.read_text():
            check_rows(published(self.sink, "data"), wanted, self.table)
            check_rejects(published(self.sink, "rejects"), wanted, records(Path(self.log.uri)))
        counts = self.head.counters
        if counted:
            assert counts["read"] == wanted.read
            assert counts["duplicates"] == wanted.duplicates
        assert counts["applied"] == len(wanted.rows) == self.head.sequence
        assert counts["rejected"] == len(wanted.rejects)
        found = verify(self.stream, Reading()).findings
        assert [f for f in found if f.severity is Severity.ERROR] == []
        return wanted


def check_state(found: Mapping[str, Row], wanted: Truth) -> None:
    assert found.keys() == wanted.state.keys()
    wrong = {k: (found[k], v) for k, v in wanted.state.items() if not same(found[k], v)}
    assert not wrong


def check_rows(rows: list[Row], wanted: Truth, table: Table) -> None:
    """Every event is published once, as it was produced, from a place where it was."""
    seen = set()
    for row in rows:
        place = (row.pop("_partition"), row.pop("_offset"))
        stamp = tuple(row[name] for name in table.stamp) if table.stamp else place
        assert stamp not in seen, f"{stamp} is published twice"
        seen.add(stamp)
        assert same(row, wanted.rows[stamp])
        assert place in wanted.places[stamp]
    assert seen == wanted.rows.keys()


def check_rejects(rows: list[Row], wanted: Truth, produced: Mapping[Any, bytes]) -> None:
    places = [(row["_partition"], row["_offset"]) for row in rows]
    assert len(places) == len(set(places))
    assert set(places) == wanted.rejects
    for row, place in zip(rows, places, strict=True):
        assert row["_value"] == produced[place]
        assert row["_reason"]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {json.dumps(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)
