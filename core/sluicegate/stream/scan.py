"""A scan of a stream: every snapshot and every blob, intact or not, and what follows from it.

The chain is walked from its newest number down. Trust flows the same way: the hints vouch for the
newest snapshot, each snapshot vouches for its parent. A snapshot is *intact* if its file is; it is
*complete* if its blobs are intact, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sluicegate.codec import digest_of
from sluicegate.errors import Corrupt, SluicegateError, StorageFailed
from sluicegate.findings import Finding, Severity, rule
from sluicegate.state import manifest
from sluicegate.storage.blobs import BlobDamaged, Blobs, Ref
from sluicegate.stream import evidence as rules
from sluicegate.stream.chain import HEAD, Hint
from sluicegate.stream.evidence import Evidence, gather, in_the_way, unreadable
from sluicegate.stream.snapshot import (
    Kind,
    Snapshot,
    SnapshotDamaged,
    Span,
    decode,
    has,
    key_of,
    shown,
    spans,
    without,
)
from sluicegate.stream.stream import Stream
from sluicegate.units import command

SHORT = rule(
    "SG-CHAIN-SHORT",
    Severity.ERROR,
    "the chain ends before the newest snapshot that was known to be durable",
    "`HEAD`, or what the home remembers of the stream, names a snapshot that is not there: "
    "snapshots were deleted, or an old backup was restored. Restore the missing files if you can. "
    "After `sluicegate checkpoint repair`, the stream resumes from the newest snapshot that is "
    "there, under a number that was never used; events committed after it are read again.",
)
ORDER = rule(
    "SG-CHAIN-ORDER",
    Severity.ERROR,
    "a number that must only grow has decreased",
    "Generation, version of the assignment, epoch or creation time of a snapshot is lower than its "
    "parent's. No writer of this release makes such a snapshot.",
)
BLOB_DAMAGED = rule(
    "SG-BLOB-DAMAGED",
    Severity.ERROR,
    "a blob is missing or damaged",
    "A file that snapshots refer to is missing, has another size, or does not match the digest in "
    "its name. Every snapshot that refers to it is unusable. Restore the blob from a backup if you "
    "can. Otherwise run `sluicegate checkpoint repair`: the stream then resumes from the newest "
    "complete snapshot.",
)


@dataclass(frozen=True, slots=True)
class Damage:
    """Snapshots that are not intact; `raw` is the digest of the bytes that are there, if any."""

    first: int
    last: int
    what: str
    raw: str | None = None

    @property
    def shown(self) -> str:
        """The numbers, for people."""
        numbers = shown([(self.first, self.last)])
        return f"snapshot {numbers}" if self.first == self.last else f"snapshots {numbers}"


@dataclass(frozen=True, slots=True)
class Bad:
    """A blob that is not intact; `by_reading` if only its content shows that."""

    ref: Ref
    what: str
    by_reading: bool = False
    unreadable: StorageFailed | None = None


@dataclass(slots=True)
class Peak:
    """The highest known value of each number that only grows along a chain."""

    number: int = -1
    generation: int = 0
    version: int = 0
    epoch: int = 0
    floor: int = 0
    created_at: float = 0.0

    def rise(self, known: Snapshot | Hint) -> None:
        """Take in the numbers of a snapshot, or of a hint."""
        self.number = max(self.number, known.number)
        self.generation = max(self.generation, known.generation)
        self.version = max(self.version, known.version)
        self.epoch = max(self.epoch, known.epoch)
        self.floor = max(self.floor, known.floor)
        self.created_at = max(self.created_at, known.created_at)


@dataclass(slots=True)
class Survey:
    """What was found.

    `head` is the newest intact snapshot, `base` the one to resume from: the newest complete one of
    those that belong to the stream. `newest` is the highest number ever used. `live` are the blobs
    that snapshots lead to, `bad` those of them that are not intact, with the snapshots they belong
    to. `obstacles` are findings that the operator must fix before anything is repaired.
    """

    evidence: Evidence
    head: Snapshot | None = None
    base: Snapshot | None = None
    newest: int = -1
    snapshots: int = 0
    below_floor: int = 0
    damaged: list[Damage] = field(default_factory=list)
    disordered: list[int] = field(default_factory=list)
    unusable: list[int] = field(default_factory=list)
    live: set[Ref] = field(default_factory=set)
    bad: dict[Ref, tuple[Bad, list[int]]] = field(default_factory=dict)
    discarded: list[Span] = field(default_factory=list)
    expected: dict[int, str] = field(default_factory=dict)
    peak: Peak = field(default_factory=Peak)
    findings: list[Finding] = field(default_factory=list)
    obstacles: list[Finding] = field(default_factory=list)

    @property
    def floor(self) -> int:
        """The number of the oldest kept snapshot, as far as is known."""
        return self.peak.floor

    @property
    def last(self) -> Snapshot | Hint | None:
        """The snapshot or hint of the newest number, if there is one."""
        known: Iterable[Snapshot | Hint | None] = (self.head, *self.evidence.hints)
        return next((each for each in known if each and each.number == self.newest), None)


def discarded_by(snapshot: Snapshot, *names: str) -> Iterator[Span]:
    """The snapshots that a repair lists as `damaged` (or lost), `unusable`, or either."""
    if snapshot.kind is not Kind.REPAIR:
        return
    for name in names or ("damaged", "unusable"):
        listed = snapshot.details.get(name)
        for span in listed if isinstance(listed, list) else ():
            match span:
                case [int(first), int(last), *_]:
                    yield first, min(last, snapshot.number - 1)


_ATTEMPTS = 3


def survey(
    stream: Stream,
    *,
    read: Callable[[Ref], bool] = lambda _: False,
    known: Iterable[Bad] = (),
) -> Survey:
    """Look at every snapshot, newest first, and at its blobs; `read` chooses whose content is read.

    `known` are blobs that were found bad before.
    """
    while True:
        walker = _Walker(stream, BlobSurvey(stream.blobs, read=read, known=known))
        if not walker.found.evidence.foreign:
            walker.walk()
            walker.conclude()
        found = walker.found
        if not (found.findings or found.obstacles) or not _pruned_since(stream, found.floor):
            return found


def _pruned_since(stream: Stream, floor: int) -> bool:
    """Whether snapshots were pruned while we looked, and their blobs with them."""
    try:
        return stream.chain.head().floor > floor
    except SluicegateError:
        return False


class _Walker:
    def __init__(self, stream: Stream, blobs: BlobSurvey) -> None:
        seen = gather(stream)
        self.found = Survey(seen, live=blobs.live, findings=seen.findings, obstacles=seen.obstacles)
        self._stream = stream
        self._blobs = blobs
        self._child: Snapshot | None = None
        self._spare: Snapshot | None = None
        self._distrusted: list[Span] = []
        for hint in seen.hints:
            self.found.expected[hint.number] = hint.digest
            self.found.peak.rise(hint)

    def walk(self) -> None:
        found, numbers = self.found, self.found.evidence.numbers
        found.newest = max([*numbers[-1:], found.peak.number])
        above = found.newest + 1
        for number in reversed(numbers):
            # Snapshots below the floor only count if there is nothing else to resume from.
            if number < found.floor and (found.base or self._spare):
                break
            self._gap(max(number + 1, found.floor), above - 1)
            above = number
            self._look(number)
        if found.evidence.listed:
            self._gap(found.floor, above - 1)
        found.below_floor = sum(number < found.floor for number in numbers)
        # Better a snapshot that was rolled back than nothing at all.
        found.base = found.base or self._spare

    def conclude(self) -> None:
        """The findings that follow from what was seen."""
        found = self.found
        known = max((hint.number for hint in found.evidence.hints), default=-1)
        last = found.head.number if found.head else -1
        if known > last and not found.obstacles:
            newest = f"the newest intact one is {last}" if found.head else "no snapshot is intact"
            detail = f"snapshot {known} is known to have existed; {newest}"
            found.findings.append(SHORT.at(self._stream.uri, detail))
        for damage in found.damaged:
            place = f"{self._stream.uri}/{key_of(damage.first)}"
            found.findings.append(
                rules.SNAPSHOT_DAMAGED.at(place, f"{damage.shown}: {damage.what}")
            )
        if found.head and not found.findings and not found.obstacles:
            found.findings += self._as_a_job_sees_it()
        for bad, numbers in found.bad.values():
            self._report_blob(bad, numbers)

    def _as_a_job_sees_it(self) -> Iterator[Finding]:
        """Everything that keeps a job from starting is a finding, even if all files are intact."""
        problem = ""
        for _ in range(_ATTEMPTS):
            try:
                # Others may append between the two.
                self._stream.chain.check_home(self._stream.chain.head())
            except Corrupt as e:
                problem = e.message
            else:
                return
        yield rules.HEAD_DAMAGED.at(f"{self._stream.uri}/{HEAD}", problem)

    def _report_blob(self, bad: Bad, numbers: list[int]) -> None:
        storage, key = self._stream.storage, bad.ref.key
        place = f"{storage.uri}/{key}"
        stat = None if bad.unreadable else storage.stat(key)
        if bad.unreadable:
            self._obstruct(unreadable(storage, key, bad.unreadable))
        elif stat and stat.kind != "file":
            self._obstruct(in_the_way(place, stat.kind))
        else:
            detail = f"{bad.what}; snapshots that refer to it: {shown(spans(numbers))}"
            deep = ("--read-data",) if bad.by_reading else ()
            again = command("checkpoint", "repair", storage.uri, *deep)
            self.found.findings.append(BLOB_DAMAGED.at(place, detail, repair=again))

    def _obstruct(self, finding: Finding) -> None:
        """Once for each place: every file of a directory would report the same."""
        if all(each.place != finding.place for each in self.found.obstacles):
            self.found.obstacles.append(finding)

    def _gap(self, first: int, last: int) -> None:
        """Numbers without a file, from `first` to `last`."""
        if first > last:
            return
        self._child = None
        for span in without((first, last), self.found.discarded):
            self.found.damaged.append(Damage(*span, "missing"))

    def _look(self, number: int) -> None:
        found, raw = self.found, None
        discarded = has(found.discarded, number)
        try:
            raw = self._stream.chain.raw(number)
            snapshot = self._intact(number, raw) if raw is not None else None
        except StorageFailed as e:
            self._child = None
            if not discarded:
                self._obstruct(unreadable(self._stream.storage, key_of(number), e))
        except Corrupt as e:
            self._child = None
            if not discarded and number >= found.floor:
                digest = None if raw is None else digest_of(raw)
                found.damaged.append(Damage(number, number, e.message, digest))
        else:
            # None: pruned while we look.
            if snapshot:
                self._take(snapshot, discarded=discarded)

    def _intact(self, number: int, raw: bytes) -> Snapshot:
        """The snapshot in these bytes, if it is the one that belongs there."""
        found = self.found
        snapshot = decode(raw, key_of(number))
        if snapshot.number != number:
            raise SnapshotDamaged(f"it holds snapshot {snapshot.number}")
        if found.expected.get(number, snapshot.digest) != snapshot.digest:
            raise SnapshotDamaged("it is not the snapshot that its successor, or a hint, names")
        vouched = found.expected.get(number - 1)
        if vouched and snapshot.parent != vouched and not has(found.discarded, number - 1):
            raise SnapshotDamaged(f"its parent is not snapshot {number - 1}")
        identity = found.evidence.stream_id or (found.head.stream_id if found.head else None)
        if identity and snapshot.stream_id != identity:
            raise SnapshotDamaged("it belongs to another stream")
        return snapshot

    def _take(self, snapshot: Snapshot, *, discarded: bool) -> None:
        """Take in an intact snapshot: what it vouches for, and whether it is complete."""
        found = self.found
        found.discarded += discarded_by(snapshot)
        self._distrusted += discarded_by(snapshot, "damaged")
        believed = not has(self._distrusted, snapshot.number)
        if snapshot.parent and believed and not has(found.discarded, snapshot.number - 1):
            found.expected[snapshot.number - 1] = snapshot.parent
        if discarded:
            self._child = None
            return
        if self._child:
            self._check_order(snapshot, self._child)
        self._child = snapshot
        found.snapshots += 1
        found.head = found.head or snapshot
        found.peak.rise(snapshot)
        bad = self._blobs.of(snapshot)
        if not bad:
            self._spare = self._spare or snapshot
            if found.base is None and found.head.includes(snapshot.number):
                found.base = snapshot
        elif snapshot.number >= found.floor:
            found.unusable.append(snapshot.number)
            for each in bad:
                found.bad.setdefault(each.ref, (each, []))[1].append(snapshot.number)

    def _check_order(self, snapshot: Snapshot, child: Snapshot) -> None:
        found = self.found
        for name in ("generation", "version", "epoch", "floor", "created_at"):
            before, after = getattr(snapshot, name), getattr(child, name)
            if before > after:
                place = f"{self._stream.uri}/{key_of(child.number)}"
                detail = f"{name} of snapshot {child.number} is {after}, of its parent {before}"
                found.findings.append(ORDER.at(place, detail))
                found.disordered.append(child.number)
                found.base = None if found.base is child else found.base
                self._spare = None if self._spare is child else self._spare


class BlobSurvey:
    """Looks at the blobs of snapshots, at each of them once, and reads the content of some.

    Manifests are always read, because they lead to more.
    """

    def __init__(
        self,
        blobs: Blobs,
        *,
        read: Callable[[Ref], bool] = lambda _: False,
        known: Iterable[Bad] = (),
    ) -> None:
        self.live: set[Ref] = set()
        self._blobs = blobs
        self._read = read
        self._bad = {bad.ref: bad for bad in known}
        self._inside: dict[Ref, tuple[Bad, ...]] = {}

    def of(self, snapshot: Snapshot) -> list[Bad]:
        """The blobs that make a snapshot unusable."""
        manifests = {*snapshot.state.refs, snapshot.state_delta}
        bad: dict[Ref, Bad] = {}
        for ref in dict.fromkeys(snapshot.refs):
            if found := self._look(ref):
                bad[ref] = found
            elif ref in manifests:
                bad |= {each.ref: each for each in self._look_inside(ref)}
        return list(bad.values())

    def _look_inside(self, ref: Ref) -> tuple[Bad, ...]:
        if ref not in self._inside:
            try:
                inner = dict.fromkeys(manifest.refs_in(self._blobs, ref))
                self._inside[ref] = tuple(bad for each in inner if (bad := self._look(each)))
            except StorageFailed as e:
                self._inside[ref] = (Bad(ref, e.message, unreadable=e),)
            except Corrupt as e:
                self._inside[ref] = (Bad(ref, e.message),)
        return self._inside[ref]

    def _look(self, ref: Ref) -> Bad | None:
        if ref not in self.live:
            self.live.add(ref)
            if ref not in self._bad and (bad := look_at(self._blobs, ref, read=self._read(ref))):
                self._bad[ref] = bad
        return self._bad.get(ref)


def look_at(blobs: Blobs, ref: Ref, *, read: bool) -> Bad | None:
    """What is wrong with one blob; its content is checked only with `read`."""
    reading = False
    try:
        blobs.check(ref)
        if reading := read:
            blobs.check(ref, read=True)
    except BlobDamaged as e:
        return Bad(ref, e.message, by_reading=reading)
    except StorageFailed as e:
        return Bad(ref, e.message, unreadable=e)
    return None
