"""Streams to try things on: a job that counts, what it must have counted, and the rules of a chain.

The source is endless: partition `p` holds an event at every offset. The state counts, for each key,
the events and the sum of their offsets, so that an event which was lost or counted twice shows
whichever it was. The counters record up to which offset of each partition events were counted,
which also lets the job drop what it reads again after a reset.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from sluicegate.dedup.ledger import Ledger
from sluicegate.dedup.stamp import Stamps
from sluicegate.findings import Severity
from sluicegate.journal import Approval, Entry
from sluicegate.positions import Positions
from sluicegate.process import myself
from sluicegate.state import delta, manifest
from sluicegate.state.delta import Merge
from sluicegate.storage import LocalStorage
from sluicegate.storage.blobs import Ref
from sluicegate.storage.local import Calls
from sluicegate.stream import segments
from sluicegate.stream.append import Epoch
from sluicegate.stream.history import content_of, intact_snapshots
from sluicegate.stream.home import MARKER
from sluicegate.stream.journal import StreamJournal, StreamOperation, operation_class
from sluicegate.stream.snapshot import Kind, Manifest, Snapshot, extended
from sluicegate.stream.state import shards_of, state_backend
from sluicegate.stream.stream import Stream
from sluicegate.stream.verify import Reading, verify
from sluicegate.stream.writer import Run, StreamWriter

NAME, TOPIC = "clicks", "events"
PARTITIONS, SHARDS, KEYS = 2, 2, 5
STEP = 3
NEW_GENERATION = {Kind.RESET, Kind.ROLLBACK, Kind.REPAIR, Kind.IMPORT}
Counted = Mapping[int, int]
"""Partition → the offset before which all its events are counted."""
State = dict[str, tuple[int, int]]
"""Key → how many events, and the sum of their offsets."""


class NothingToDo(Exception):
    """A plan without actions, which a command would not apply."""


@contextmanager
def in_memory() -> Iterator[Path]:
    """A directory, in memory where there is such a place: labs decide what survives."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as path:
        yield Path(path)


def at(*offsets: int) -> Positions:
    return Positions({TOPIC: dict(enumerate(offsets))})


def make_home(root: Path) -> Path:
    """A home with a directory for the stream, but no chain yet."""
    root.mkdir(exist_ok=True)
    MARKER.create(LocalStorage(root))
    (root / NAME).mkdir()
    return root


def opened(root: Path, calls: Calls | None = None, timeout: float = 60.0) -> Stream:
    """The stream in a home, whose system calls go through `calls`."""
    storage, home = LocalStorage(root / NAME, calls=calls), LocalStorage(root, calls=calls)
    return Stream(storage, home, NAME, timeout=timeout)


def begin(stream: Stream, *, dedup: bool = False) -> Snapshot:
    """Genesis; with `dedup`, as a stream that keeps a dedup log."""
    content = {"dedup": Manifest(stamps_of(stream, {0: (0, 1)}, "before"))} if dedup else None
    return StreamWriter(stream).genesis(at(*[0] * PARTITIONS), content=content)


def made(root: Path, *, epochs: int = 0, dedup: bool = False) -> Stream:
    """A home with a stream of so many epochs."""
    stream = opened(make_home(root))
    begin(stream, dedup=dedup)
    work(stream, epochs)
    return stream


def work(stream: Stream, epochs: int, *, run: str | None = None, force: bool = False) -> Snapshot:
    """A job that starts, commits so many epochs, and ends; gives the head."""
    if epochs == 0:
        return StreamWriter(stream).head()
    with StreamWriter(stream).claim(app="job", run=run, force=force) as job:
        return [commit(job) for _ in range(epochs)][-1]


def as_run(stream: Stream, run: str, base: Snapshot | None = None) -> Run:
    """The run that has claimed the stream already, in whatever process this is."""
    return Run(StreamWriter(stream), run, base or stream.chain.head(), "job")


def commit(run: Run, step: int = STEP, watermark_ns: int | None = None) -> Snapshot:
    """Read `step` events of every partition, and commit what they change."""
    return run.commit(epoch_after(run._writer, run.snapshot, step, watermark_ns))


def epoch_after(
    writer: StreamWriter, snapshot: Snapshot, step: int = STEP, watermark_ns: int | None = None
) -> Epoch:
    """The epoch that follows a snapshot, its deltas written and complete."""
    offsets = offsets_of(snapshot)
    end = {p: offset + step for p, offset in offsets.items()}
    seen = counted_of(snapshot)
    fresh = {p: (max(offsets[p], seen[p]), max(end[p], seen[p])) for p in offsets}
    backend, number = state_backend(writer), snapshot.epoch + 1
    for shard in range(SHARDS):
        data = delta_of(shard, tuple(sorted(fresh.items())))
        if data is None:
            backend.leave_unchanged(shard, number, snapshot.version)
        else:
            backend.write_delta(shard, number, snapshot.version, data)
    more = {str(p): stop - start for p, (start, stop) in fresh.items()}
    return Epoch(
        start=snapshot.positions,
        end=Positions({TOPIC: end}),
        events=sum(more.values()),
        deltas=backend.epoch_complete(number, range(SHARDS)),
        version=snapshot.version,
        generation=snapshot.generation,
        watermark_ns=watermark_ns,
        counters=more,
        stamps=stamps_of(writer.stream, fresh) if snapshot.dedup else None,
        number=number,
    )


def stamps_of(
    stream: Stream, spans: Mapping[int, tuple[int, int]], producer: str = TOPIC
) -> Ref | None:
    """The segment of events at these offsets, if there are any."""
    ledger = Ledger()
    for partition, span in spans.items():
        numbers = range(*span)
        count = len(numbers)
        ledger.insert(Stamps.of([producer] * count, [partition] * count, numbers))
    return segments.put(stream.blobs, ledger.entries())


@cache
def delta_of(shard: int, spans: tuple[tuple[int, tuple[int, int]], ...]) -> bytes | None:
    """What the events in these spans change in a shard."""
    state = state_of({p: range(*span) for p, span in spans}, shard)
    return delta.encode(as_table(state)) if state else None


def as_table(state: State) -> object:
    keys = sorted(state)
    values = {"n": [state[k][0] for k in keys], "sum": [state[k][1] for k in keys]}
    return delta.table(keys, values, {"n": Merge.SUM, "sum": Merge.SUM})


def state_of(events: Mapping[int, Sequence[int]], shard: int | None = None) -> State:
    """What counting these events gives, in one shard or in all."""
    number: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for partition, offsets in events.items():
        for offset in offsets:
            if shard in (None, (offset + partition) % SHARDS):
                key = f"{(offset + partition) % SHARDS}-{offset % KEYS}"
                number[key] += 1
                total[key] += offset
    return {key: (number[key], total[key]) for key in number}


def offsets_of(snapshot: Snapshot) -> dict[int, int]:
    return dict(snapshot.positions.by_topic[TOPIC])


def counted_of(snapshot: Snapshot) -> dict[int, int]:
    return {p: snapshot.counters.get(str(p), 0) for p in range(PARTITIONS)}


def state_at(stream: Stream, snapshot: Snapshot) -> State:
    """The events that the blobs of a snapshot have counted."""
    state: State = {}
    for refs in shards_of(stream, snapshot).values():
        state |= _read_state(stream, refs)
    return state


def _read_state(stream: Stream, refs: Sequence[Ref]) -> State:
    table = manifest.contents(stream.blobs, refs)
    rows = table.to_pylist() if table else []
    return {row["key"]: (row["n"], row["sum"]) for row in rows}


def operation_of(operation: str, **values: object) -> StreamOperation:
    """An operation by the name that plans keep."""
    found: StreamOperation = operation_class(operation)(**values)
    return found


def apply(stream: Stream, operation: str, *, reason: str = "a test", **change: object) -> Entry:
    """Plan a change and apply it, as a command does."""
    journal = StreamJournal(stream)
    plan = journal.propose(operation_of(operation, **change))
    if not plan.actions:
        raise NothingToDo(plan.title)
    return journal.apply(plan, Approval(myself(), reason))


def errors_of(stream: Stream, *, read: bool = True) -> list[str]:
    """What verify calls an error."""
    found = verify(stream, Reading() if read else None).findings
    return [f"{f.code}: {f.detail}" for f in found if f.severity is Severity.ERROR]


def check(stream: Stream, *, read: bool = True) -> Snapshot:
    """Nothing is damaged, no event is lost or counted twice, and every snapshot was allowed."""
    assert errors_of(stream, read=read) == []
    head = StreamWriter(stream).head()
    replay([*intact_snapshots(stream, head.floor, head.number)])
    check_counted(stream, head)
    return head


def check_counted(stream: Stream, snapshot: Snapshot) -> None:
    counted = counted_of(snapshot)
    assert state_at(stream, snapshot) == state_of({p: range(n) for p, n in counted.items()})
    assert snapshot.sequence == sum(counted.values())
    offsets = offsets_of(snapshot)
    assert all(offsets[p] <= counted[p] for p in offsets), "an event was passed over"
    if snapshot.dedup:
        check_stamps(stream, snapshot)
    else:
        assert offsets == counted


def check_stamps(stream: Stream, snapshot: Snapshot) -> None:
    """The dedup log knows what was counted, and nothing else."""
    found = segments.read(stream.blobs, snapshot.dedup.refs).entries()
    known = zip(found.producers.to_pylist(), found.partitions, found.first, found.last, strict=True)
    expected = [("before", 0, 0, 0)]
    expected += [(TOPIC, p, 0, n - 1) for p, n in sorted(counted_of(snapshot).items()) if n]
    assert list(known) == expected
    assert not found.expired.any()


def resume_job(stream: Stream) -> Snapshot:
    """A new job finds nothing in its way."""
    before = StreamWriter(stream).head()
    after = work(stream, 2, force=True)
    assert (after.number, after.epoch) == (before.number + 3, before.epoch + 2)
    assert offsets_of(after) == {p: n + 2 * STEP for p, n in offsets_of(before).items()}
    check_counted(stream, after)
    return after


def replay(snapshots: Sequence[Snapshot]) -> None:
    """Every snapshot is one that its parent allowed: the race table, seen from its outcome.

    Snapshots after a damaged one are not checked; verify reports whether it was repaired.
    """
    known = {each.number: each for each in snapshots}
    for parent, snapshot in pairwise(snapshots):
        try:
            if snapshot.number == parent.number + 1:
                _follow(parent, snapshot, known)
        except AssertionError as e:
            e.add_note(
                f"snapshot {snapshot.number} ({snapshot.kind.value}) after {parent.kind.value}"
            )
            raise


def _follow(parent: Snapshot, snapshot: Snapshot, known: Mapping[int, Snapshot]) -> None:
    assert (snapshot.stream_id, snapshot.stream) == (parent.stream_id, parent.stream)
    assert snapshot.created_at >= parent.created_at
    assert snapshot.changed == (parent.changed if parent.kind is Kind.EPOCH else parent.number)
    new_generation = snapshot.kind in NEW_GENERATION
    # A repair leaves room for what lost snapshots may have raised.
    if snapshot.kind is not Kind.REPAIR:
        assert snapshot.parent == parent.digest
        assert snapshot.generation == parent.generation + new_generation
        assert snapshot.version == parent.version + (snapshot.kind is Kind.REBALANCE)
        assert snapshot.epoch == parent.epoch + (snapshot.kind is Kind.EPOCH)
    assert snapshot.writer == parent.writer or snapshot.kind is Kind.CLAIM
    assert snapshot.floor >= parent.floor
    assert (snapshot.floor != parent.floor) is (snapshot.kind is Kind.PRUNE)
    if snapshot.kind is Kind.EPOCH:
        _follow_epoch(parent, snapshot)
    elif new_generation:
        _follow_overtaking(parent, snapshot, known)
    else:
        unchanged = content_of(parent).keys() - {"ancestry"}
        if snapshot.kind is Kind.COMPACT:
            changed = {
                n for n in ("state", "dedup") if content_of(parent)[n] != content_of(snapshot)[n]
            }
            assert len(changed) == 1
            unchanged -= changed
        assert all(content_of(parent)[name] == content_of(snapshot)[name] for name in unchanged)
    if not new_generation and snapshot.kind is not Kind.PRUNE:
        assert snapshot.ancestry == extended(parent.ancestry, snapshot.number)


def _follow_epoch(parent: Snapshot, snapshot: Snapshot) -> None:
    moved = {p: n - offsets_of(parent)[p] for p, n in offsets_of(snapshot).items()}
    assert len(set(moved.values())) == 1, "an epoch reads as much of every partition"
    assert set(moved.values()) != {0}
    more = sum(counted_of(snapshot).values()) - sum(counted_of(parent).values())
    assert snapshot.sequence == parent.sequence + more
    assert (snapshot.state_delta is not None) is (more > 0)
    if snapshot.state_delta and snapshot.state.deltas:
        assert snapshot.state == Manifest(
            parent.state.base, (*parent.state.deltas, snapshot.state_delta)
        )
    assert (snapshot.watermark_ns or 0) >= (parent.watermark_ns or 0)


def _follow_overtaking(parent: Snapshot, snapshot: Snapshot, known: Mapping[int, Snapshot]) -> None:
    if snapshot.kind is Kind.RESET:
        assert snapshot.state == parent.state
        return
    # What was restored is the newest that is left of the ancestry; it may be pruned by now.
    aim = (
        snapshot.ancestry[-1][1] - 1
        if snapshot.ancestry[-1][0] < snapshot.number
        else snapshot.ancestry[-2][1]
    )
    if aim in known:
        restored, content = content_of(known[aim]), content_of(snapshot)
        assert {**restored, "ancestry": ()} == {**content, "ancestry": ()}
        assert snapshot.ancestry == extended(known[aim].ancestry, snapshot.number)
