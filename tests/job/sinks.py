"""Sinks to try things on: epochs that write, and what must be published of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from sluicegate.sinks.base import DATA, KINDS, REJECTS, File, Output, Reach
from sluicegate.sinks.files import FileSink, directory_of
from sluicegate.stream.history import intact_snapshots
from sluicegate.stream.output import Publisher, encode, name_of, read_output
from sluicegate.stream.snapshot import Kind, Snapshot
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Run, StreamWriter
from tests.stream.streams import STEP, epoch_after, offsets_of

Contents = dict[str, str]
"""Kind and name of a published directory → what its files hold."""


def write(sink: FileSink, nonce: str, what: Mapping[str, str]) -> Output:
    """What tasks do: a file for each kind, beside one of a task that failed."""
    attempts = Path(sink.attempts(nonce)).relative_to(sink.uri)
    files = {}
    for kind, text in what.items():
        name, data = f"part-{kind}.parquet", text.encode()
        sink._storage.put_if_absent(f"{attempts}/{name}", data)
        digest = blake2b(data, digest_size=32).hexdigest()
        files[kind] = (File(name, len(data), 1, digest),)
    (Path(sink.attempts(nonce)) / "part-failed.parquet").write_text("half a f")
    return Output(files)


def commit(run: Run, sink: FileSink, *kinds: str, nonce: str | None = None) -> Snapshot:
    """An epoch that writes these kinds, committed and not yet published."""
    nonce = nonce or uuid.uuid4().hex
    head = run.refresh()
    epoch = epoch_after(run._writer, head, STEP)
    text = f"epoch {head.epoch + 1} from {offsets_of(head)}"
    output = write(sink, nonce, {kind: f"{kind} of {text}" for kind in kinds})
    sink.stage(nonce, output, Reach(head.generation, head.positions, epoch.end))
    ref = run.stream.blobs.put(encode(output)) if output else None
    counters = {**epoch.counters, "written": output.rows(DATA), "rejected": output.rows(REJECTS)}
    return run.commit(replace(epoch, output=ref, counters=counters), nonce)


@contextmanager
def started(stream: Stream, sink: FileSink, run: str | None = None) -> Iterator[Run]:
    """A run, begun as the job begins one."""
    with StreamWriter(stream).claim(app="job", run=run) as claimed:
        Publisher(stream, sink).begin(claimed)
        yield claimed


def wanted(stream: Stream) -> Contents:
    """What must be published: the output of the epochs in the ancestry of the head."""
    head = stream.chain.head()
    snapshots = {snapshot.number: snapshot for snapshot in intact_snapshots(stream, 0, head.number)}
    found = {}
    for snapshot in snapshots.values():
        if snapshot.kind is Kind.EPOCH and snapshot.output and head.includes(snapshot.number):
            before = snapshots[snapshot.number - 1]
            text = f"epoch {snapshot.epoch} from {offsets_of(before)}"
            for kind in KINDS:
                if snapshot.counters[_count(kind)] > before.counters.get(_count(kind), 0):
                    found[f"{kind}/{directory_of(name_of(snapshot))}"] = f"{kind} of {text}"
    return found


def _count(kind: str) -> str:
    return {DATA: "written", REJECTS: "rejected"}[kind]


def shown(root: Path) -> Contents:
    """What is published: one file in each directory."""
    found = {}
    for kind in KINDS:
        for directory in (root / kind).glob("[!_]*"):
            [file] = directory.glob("*.parquet")
            found[f"{kind}/{directory.name}"] = file.read_text()
    return found


def publish(stream: Stream, sink: FileSink, snapshot: Snapshot) -> None:
    """Publish a committed epoch, as the job does."""
    kinds = read_output(stream, snapshot.output).kinds if snapshot.output else ()
    Publisher(stream, sink).publish(snapshot, kinds)
