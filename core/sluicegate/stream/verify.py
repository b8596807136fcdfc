"""Verifying a stream: chain, blobs, and on request every byte, within a time budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace

from sluicegate import codec, units
from sluicegate.errors import Corrupt, NotFound, SluicegateError, StorageFailed, UsageError
from sluicegate.findings import Finding, Severity, has_errors, rule, worst_first
from sluicegate.sinks.base import Sink
from sluicegate.storage import Storage
from sluicegate.storage.blobs import Ref
from sluicegate.stream import evidence
from sluicegate.stream.gc import GRACE, old_temporaries
from sluicegate.stream.output import TWICE, compare, gone
from sluicegate.stream.scan import Bad, Survey, look_at, survey
from sluicegate.stream.snapshot import Snapshot, merged, shown
from sluicegate.stream.spec import SOURCE_CHANGED, source_findings
from sluicegate.stream.stream import Stream

BELOW_FLOOR = rule(
    "SG-CHAIN-BELOW-FLOOR",
    Severity.NOTE,
    "pruned snapshots are still there",
    "A prune was interrupted before it removed all files. The next prune removes them.",
)
REPAIRED = rule(
    "SG-CHAIN-REPAIRED",
    Severity.NOTE,
    "damage that a repair has recorded",
    "These snapshots are damaged, missing or refer to damaged blobs, and a repair has recorded "
    "that in the chain. The stream does not need them, but it cannot be rolled back to them.",
)
ORPHANS = rule(
    "SG-BLOB-ORPHANS",
    Severity.NOTE,
    "blobs that nothing refers to",
    "Attempts that were never committed left them. They are removed when they are a day old.",
)
TEMPORARY = rule(
    "SG-STREAM-TEMPORARY",
    Severity.NOTE,
    "unfinished files of writers that died",
    "They were never part of the stream, and are removed when they are a day old.",
)
CURSOR = "verify.cursor"
_CURSOR_FORMAT = codec.Format("cursor", 1, 64 * 1024)
_KEPT = 256
"""How many bad blobs the cursor remembers."""


@dataclass(frozen=True, slots=True)
class Subset:
    """Which blobs are read: those of one part of `parts`, chosen by their digests."""

    part: int = 1
    parts: int = 1

    @property
    def shown(self) -> str:
        """As it is written: the third of ten parts is `3/10`."""
        return f"{self.part}/{self.parts}"

    def has(self, ref: Ref) -> bool:
        """Whether a blob is in it."""
        return int(ref.digest[:15], 16) % self.parts == self.part - 1

    @classmethod
    def parse(cls, text: str) -> Subset:
        """From `3/10`, the third of ten parts, or `10%`, a random part."""
        number, slash, parts = text.partition("/")
        if slash and number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts):
            return cls(int(number), int(parts))
        percent = text.removesuffix("%")
        if text.endswith("%") and percent.isdecimal() and 1 <= int(percent) <= 100:
            import random

            count = max(1, round(100 / int(percent)))
            return cls(random.randint(1, count), count)
        raise UsageError(f"{text!r} is not a subset", hint="write 3/10 or 10%")


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of the content is read: a subset, and for how many seconds at most.

    A check with a time limit saves in `notes` how far it got, for the next one.
    """

    subset: Subset = Subset()
    max_duration: float | None = None
    notes: Storage | None = None


@dataclass(slots=True)
class Verified:
    """What a check found, and how far it got; `resume` if the time was up before the end.

    `live` are the digests of all blobs that the snapshots up to the head lead to, if all is intact.
    """

    findings: list[Finding] = field(default_factory=list)
    snapshots: int = 0
    blobs: int = 0
    read_blobs: int = 0
    read_bytes: int = 0
    resume: bool = False
    last_complete: float | None = None
    head: Snapshot | None = None
    live: frozenset[str] = frozenset()


def verify(
    stream: Stream,
    reading: Reading | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
    sink: Sink | None = None,
) -> Verified:
    """Check every snapshot and every blob; with `reading`, also the content of blobs.

    With `sink`, also that the chain knows all published output.
    """
    found = survey(stream)
    if found.newest < 0 and not found.findings and not found.obstacles:
        raise NotFound(f"there is no chain in {stream.uri}", place=stream.uri)
    result = Verified(snapshots=found.snapshots, blobs=len(found.live))
    if reading and found.head:
        bad = _read(stream, reading, sorted(found.live - found.bad.keys()), result, on_progress)
        if bad:
            # Again, to find the snapshots that they belong to.
            found = survey(stream, known=[*bad, *(each for each, _ in found.bad.values())])
    findings = (
        *found.findings,
        *found.obstacles,
        *_published(stream, sink),
        *(source_findings(found.head) if found.head else ()),
        *_notes(stream, found),
    )
    result.findings = worst_first(_with_repair(stream, each) for each in findings)
    result.head, result.live = found.head, frozenset(ref.digest for ref in found.live)
    return result


def _published(stream: Stream, sink: Sink | None) -> Iterator[Finding]:
    """What is published, but not by this chain; and what should be, and is gone."""
    if sink is None:
        return
    # Where the chain is damaged, that is reported, and its repair looks at the sink again.
    with suppress(Corrupt, NotFound):
        yield from compare(stream, sink).findings(stream, sink)
        yield from gone(stream, sink)


def _notes(stream: Stream, found: Survey) -> Iterator[Finding]:
    if found.below_floor:
        detail = units.counted(found.below_floor, "pruned snapshot")
        yield BELOW_FLOOR.at(f"{stream.uri}/chain", detail)
    kept = [(max(first, found.floor), last) for first, last in merged(found.discarded)]
    if numbers := shown(span for span in kept if span[0] <= span[1]):
        yield REPAIRED.at(f"{stream.uri}/chain", f"snapshots {numbers}")
    if has_errors((*found.findings, *found.obstacles)):
        # The blobs of damaged snapshots are not known.
        return
    limit = (time.time() - GRACE) * 1e9
    live = {ref.digest for ref in found.live}
    try:
        lost = [blob.key for blob in stream.blobs.stored() if blob.digest not in live]
        old = [key for key in lost if (s := stream.storage.stat(key)) and s.modified_ns <= limit]
        left = _temporaries(stream, limit)
    except StorageFailed as e:
        yield evidence.UNREADABLE.at(e.place or f"{stream.uri}/blobs", e.message)
        return
    if old:
        yield ORPHANS.at(f"{stream.uri}/blobs", units.counted(len(old), "blob"))
    if left:
        yield TEMPORARY.at(stream.uri, units.counted(left, "file"))


def _temporaries(stream: Stream, limit_ns: float) -> int:
    try:
        return sum(1 for _ in old_temporaries(stream, limit_ns))
    except FileNotFoundError:
        # A writer is active; the next check reports them.
        return 0


def _with_repair(stream: Stream, finding: Finding) -> Finding:
    by_hand = (evidence.FOREIGN, SOURCE_CHANGED, TWICE)
    if finding.repair or finding.severity is not Severity.ERROR or finding.rule in by_hand:
        return finding
    return finding.rule.at(
        finding.place, finding.detail, repair=units.command("checkpoint", "repair", stream.uri)
    )


def _read(
    stream: Stream,
    reading: Reading,
    refs: list[Ref],
    result: Verified,
    on_progress: Callable[[int, int], None],
) -> list[Bad]:
    """Read content in the order of digests, from where the last check ran out of time.

    Blobs that were bad then are read first, so that they are reported until they are repaired.
    """
    budgeted = reading.max_duration is not None
    cursor = _load_cursor(stream, reading.subset) if budgeted else Cursor(reading.subset.shown)
    if budgeted:
        # Before the work, so that none is done where the cursor cannot be saved.
        _save_cursor(reading, cursor)
    again = [ref for ref in refs if ref.digest in cursor.bad]
    fresh = (ref for ref in refs if reading.subset.has(ref) and ref.digest > cursor.after)
    todo = [*again, *(ref for ref in fresh if ref.digest not in cursor.bad)]
    deadline = time.monotonic() + (reading.max_duration or 0.0)
    total = sum(ref.size for ref in todo)
    found: list[Bad] = []
    last = cursor.after
    for number, ref in enumerate(todo):
        # At least one each time, so that even the smallest budget finishes eventually.
        if budgeted and number > len(again) and time.monotonic() >= deadline:
            result.resume = True
            break
        if bad := look_at(stream.blobs, ref, read=True):
            found.append(bad)
        result.read_blobs += 1
        result.read_bytes += ref.size
        last = ref.digest if number >= len(again) else last
        on_progress(result.read_bytes, total)
    else:
        complete = time.time() if reading.subset.parts == 1 else cursor.complete
        last, cursor = "", replace(cursor, complete=complete)
    result.last_complete = cursor.complete
    if budgeted:
        bad_digests = tuple(each.ref.digest for each in found[:_KEPT])
        _save_cursor(reading, replace(cursor, after=last, bad=bad_digests))
    return found


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a check of one subset got, what was bad, and when all was last read."""

    subset: str
    after: str = ""
    complete: float | None = None
    bad: tuple[str, ...] = ()


def _load_cursor(stream: Stream, subset: Subset) -> Cursor:
    try:
        data = stream.storage.get(CURSOR, limit=_CURSOR_FORMAT.max_frame)
        fields = codec.decode(_CURSOR_FORMAT, data, CURSOR)
    except (NotFound, Corrupt, StorageFailed):
        # It only saves work.
        return Cursor(subset.shown)
    match fields:
        case {
            "subset": str(of),
            "after": str(after),
            "complete": None | float() as complete,
            "bad": [*bad],
        }:
            where = after if of == subset.shown else ""
            return Cursor(subset.shown, where, complete, tuple(map(str, bad)))
    return Cursor(subset.shown)


def _save_cursor(reading: Reading, cursor: Cursor) -> None:
    if reading.notes is None:
        return
    try:
        fields = asdict(cursor) | {"bad": list(cursor.bad)}
        reading.notes.replace(CURSOR, codec.encode(_CURSOR_FORMAT, fields))
    except SluicegateError as e:
        raise StorageFailed(
            f"the progress of the check cannot be saved: {e.message}",
            hint="make the stream's directory writable, or omit --max-duration",
        ) from e


def last_complete(stream: Stream) -> float | None:
    """When all content was last read to its end, in portions or at once within a budget."""
    return _load_cursor(stream, Subset()).complete
