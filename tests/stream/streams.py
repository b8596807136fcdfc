"""Streams to try things on: a job that counts, what it must have counted, and the rules of a chain.

The source is endless: partition `p` holds an event at every offset. The state counts, for each key,
the events and the sum of their offsets, so that an event which was lost or counted twice shows
whichever it was. The counters say up to which offset of each partition events were counted, which
also lets the job drop what it reads again after a reset.
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
from sluicegate.storage.syscalls import Calls
from sluicegate.stream import segments
from sluicegate.stream.append import Epoch
from sluicegate.stream.history import content_of, sound_links
from sluicegate.stream.home import MARKER
from sluicegate.stream.journal import StreamJournal, operation_class
from sluicegate.stream.operations.base import StreamOperation
from sluicegate.stream.snapshot import Kind, Link, Manifest, extended
from sluicegate.stream.state import shards_of, state_backend
from sluicegate.stream.stream import Stream
from sluicegate.stream.verify import Reading, verify
from sluicegate.stream.writer import Gate, Run

NAME, TOPIC = "clicks", "events"
PARTITIONS, SHARDS, KEYS = 2, 2, 5
STEP = 3
OVERTAKING = {Kind.RESET, Kind.ROLLBACK, Kind.REPAIR, Kind.IMPORT}
Counted = Mapping[int, int]
"""Partition → the offset before which all its events are counted."""
State = dict[str, tuple[int, int]]
"""Key → how many events, and the sum of their offsets."""


class NothingToDo(Exception):
    """A plan without actions, which a command would not apply."""


@contextmanager
def in_memory() -> Iterator[Path]:
    """A directory, in memory where there is such a place: labs say what survives by themselves."""
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


def opened(root: Path, calls: Calls | None = None, patience: float = 60.0) -> Stream:
    """The stream in a home, whose system calls go through `calls`."""
    storage, home = LocalStorage(root / NAME, calls=calls), LocalStorage(root, calls=calls)
    return Stream(storage, home, NAME, patience=patience)


def begin(stream: Stream, *, dedup: bool = False) -> Link:
    """Genesis; with `dedup`, as a stream that keeps a dedup log."""
    content = {"dedup": Manifest(stamps_of(stream, {0: (0, 1)}, "before"))} if dedup else None
    return Gate(stream).genesis(at(*[0] * PARTITIONS), content=content)


def made(root: Path, *, epochs: int = 0, dedup: bool = False) -> Stream:
    """A home with a stream of so many epochs."""
    stream = opened(make_home(root))
    begin(stream, dedup=dedup)
    work(stream, epochs)
    return stream


def work(stream: Stream, epochs: int, *, run: str | None = None, force: bool = False) -> Link:
    """A job that starts, seals so many epochs, and ends; gives the head."""
    if epochs == 0:
        return Gate(stream).head()
    with Gate(stream).claim(app="job", run=run, force=force) as job:
        return [seal(job) for _ in range(epochs)][-1]


def as_run(stream: Stream, run: str, base: Link | None = None) -> Run:
    """The run that has claimed the stream already, in whatever process this is."""
    return Run(Gate(stream), run, base or stream.chain.head(), "job")


def seal(run: Run, step: int = STEP, watermark_ns: int | None = None) -> Link:
    """Read `step` events of every partition, and seal what they change."""
    return run.seal(epoch_after(run._gate, run.link, step, watermark_ns))


def epoch_after(gate: Gate, link: Link, step: int = STEP, watermark_ns: int | None = None) -> Epoch:
    """The epoch that follows a link, its partials written and complete."""
    offsets = offsets_of(link)
    end = {p: offset + step for p, offset in offsets.items()}
    seen = counted_of(link)
    fresh = {p: (max(offsets[p], seen[p]), max(end[p], seen[p])) for p in offsets}
    backend, number = state_backend(gate), link.epoch + 1
    for shard in range(SHARDS):
        data = partial_of(shard, tuple(sorted(fresh.items())))
        if data is None:
            backend.leave_unchanged(shard, number, link.version)
        else:
            backend.write_partial(shard, number, link.version, data)
    more = {str(p): stop - start for p, (start, stop) in fresh.items()}
    return Epoch(
        start=link.positions,
        end=Positions({TOPIC: end}),
        events=sum(more.values()),
        partials=backend.epoch_complete(number, range(SHARDS)),
        version=link.version,
        generation=link.generation,
        watermark_ns=watermark_ns,
        counters=more,
        stamps=stamps_of(gate.stream, fresh) if link.dedup else None,
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
def partial_of(shard: int, spans: tuple[tuple[int, tuple[int, int]], ...]) -> bytes | None:
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


def offsets_of(link: Link) -> dict[int, int]:
    return dict(link.positions.by_topic[TOPIC])


def counted_of(link: Link) -> dict[int, int]:
    return {p: link.counters.get(str(p), 0) for p in range(PARTITIONS)}


def state_at(stream: Stream, link: Link) -> State:
    """What the blobs of a link say was counted."""
    state: State = {}
    for refs in shards_of(stream, link).values():
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


def check(stream: Stream, *, read: bool = True) -> Link:
    """Nothing is damaged, no event is lost or counted twice, and every link was allowed."""
    assert errors_of(stream, read=read) == []
    head = Gate(stream).head()
    replay([*sound_links(stream, head.floor, head.number)])
    check_counted(stream, head)
    return head


def check_counted(stream: Stream, link: Link) -> None:
    counted = counted_of(link)
    assert state_at(stream, link) == state_of({p: range(n) for p, n in counted.items()})
    assert link.sequence == sum(counted.values())
    offsets = offsets_of(link)
    assert all(offsets[p] <= counted[p] for p in offsets), "an event was passed over"
    if link.dedup:
        check_stamps(stream, link)
    else:
        assert offsets == counted


def check_stamps(stream: Stream, link: Link) -> None:
    """The dedup log knows what was counted, and nothing else."""
    found = segments.read(stream.blobs, link.dedup.refs).entries()
    known = zip(found.producers.to_pylist(), found.partitions, found.first, found.last, strict=True)
    expected = [("before", 0, 0, 0)]
    expected += [(TOPIC, p, 0, n - 1) for p, n in sorted(counted_of(link).items()) if n]
    assert list(known) == expected
    assert not found.expired.any()


def go_on(stream: Stream) -> Link:
    """A new job finds nothing in its way."""
    before = Gate(stream).head()
    after = work(stream, 2, force=True)
    assert (after.number, after.epoch) == (before.number + 3, before.epoch + 2)
    assert offsets_of(after) == {p: n + 2 * STEP for p, n in offsets_of(before).items()}
    check_counted(stream, after)
    return after


def replay(links: Sequence[Link]) -> None:
    """Every link is one that its parent allowed: the race table, told from its outcome.

    What follows on a damaged link is not judged; that it was repaired is for verify to say.
    """
    known = {each.number: each for each in links}
    for parent, link in pairwise(links):
        try:
            if link.number == parent.number + 1:
                _follow(parent, link, known)
        except AssertionError as e:
            e.add_note(f"link {link.number} ({link.kind.value}) after {parent.kind.value}")
            raise


def _follow(parent: Link, link: Link, known: Mapping[int, Link]) -> None:
    assert (link.stream_id, link.stream) == (parent.stream_id, parent.stream)
    assert link.created_at >= parent.created_at
    assert link.changed == (parent.changed if parent.kind is Kind.EPOCH else parent.number)
    overtakes = link.kind in OVERTAKING
    # A repair leaves room for what lost links may have raised.
    if link.kind is not Kind.REPAIR:
        assert link.parent == parent.digest
        assert link.generation == parent.generation + overtakes
        assert link.version == parent.version + (link.kind is Kind.REBALANCE)
        assert link.epoch == parent.epoch + (link.kind is Kind.EPOCH)
    assert link.writer == parent.writer or link.kind is Kind.CLAIM
    assert link.floor >= parent.floor
    assert (link.floor != parent.floor) is (link.kind is Kind.PRUNE)
    if link.kind is Kind.EPOCH:
        _follow_epoch(parent, link)
    elif overtakes:
        _follow_overtaking(parent, link, known)
    else:
        unchanged = content_of(parent).keys() - {"lineage"}
        if link.kind is Kind.COMPACT:
            changed = {
                n for n in ("state", "dedup") if content_of(parent)[n] != content_of(link)[n]
            }
            assert len(changed) == 1
            unchanged -= changed
        assert all(content_of(parent)[name] == content_of(link)[name] for name in unchanged)
    if not overtakes and link.kind is not Kind.PRUNE:
        assert link.lineage == extended(parent.lineage, link.number)


def _follow_epoch(parent: Link, link: Link) -> None:
    moved = {p: n - offsets_of(parent)[p] for p, n in offsets_of(link).items()}
    assert len(set(moved.values())) == 1, "an epoch reads as much of every partition"
    assert set(moved.values()) != {0}
    more = sum(counted_of(link).values()) - sum(counted_of(parent).values())
    assert link.sequence == parent.sequence + more
    assert (link.partials is not None) is (more > 0)
    if link.partials and link.state.deltas:
        assert link.state == Manifest(parent.state.base, (*parent.state.deltas, link.partials))
    assert (link.watermark_ns or 0) >= (parent.watermark_ns or 0)


def _follow_overtaking(parent: Link, link: Link, known: Mapping[int, Link]) -> None:
    if link.kind is Kind.RESET:
        assert link.state == parent.state
        return
    # What was restored is the newest that is left of the lineage; it may be pruned by now.
    aim = link.lineage[-1][1] - 1 if link.lineage[-1][0] < link.number else link.lineage[-2][1]
    if aim in known:
        restored, content = content_of(known[aim]), content_of(link)
        assert {**restored, "lineage": ()} == {**content, "lineage": ()}
        assert link.lineage == extended(known[aim].lineage, link.number)
