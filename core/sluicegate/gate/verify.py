"""Is a stream sound? Chain, blobs, and on request every byte, within a time budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from shlex import quote

from sluicegate import codec, units
from sluicegate.blobs import BlobDamaged, Ref
from sluicegate.chain.link import Link
from sluicegate.errors import Corrupt, NotFound, SluicegateError, StorageFailed, UsageError
from sluicegate.findings import Finding, Severity, has_errors, worst_first
from sluicegate.gate import rules
from sluicegate.gate.collect import declared_numbers, old_temporaries
from sluicegate.gate.stream import Stream
from sluicegate.gate.survey import Bad, BlobSurvey, Survey, spans, survey
from sluicegate.storage import LocalStorage

CURSOR = "verify.cursor"
_CURSOR_FORMAT = codec.Format("cursor", 1, 4096)
_ORPHANED = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Subset:
    """Which blobs are read: those of one part of `parts`, told by their digests."""

    part: int = 1
    parts: int = 1

    def has(self, ref: Ref) -> bool:
        """Whether a blob is in it."""
        return int(ref.digest[:15], 16) % self.parts == self.part - 1

    @classmethod
    def parse(cls, text: str) -> Subset:
        """From `3/10`, the third of ten parts, or `10%`, a part by chance."""
        number, slash, parts = text.partition("/")
        if slash and number.isdigit() and parts.isdigit() and 1 <= int(number) <= int(parts):
            return cls(int(number), int(parts))
        percent = text.removesuffix("%")
        if text.endswith("%") and percent.isdigit() and 1 <= int(percent) <= 100:
            import random

            count = max(1, round(100 / int(percent)))
            return cls(random.randint(1, count), count)
        raise UsageError(f"{text!r} is not a subset", hint="write 3/10 or 10%")


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of the content is read: a subset, and for how many seconds at most."""

    subset: Subset = Subset()
    max_duration: float | None = None


@dataclass(slots=True)
class Verified:
    """What a check found, and how far it came; `resume` if the time was up before the end."""

    findings: list[Finding] = field(default_factory=list)
    links: int = 0
    blobs: int = 0
    read_blobs: int = 0
    read_bytes: int = 0
    resume: bool = False
    last_complete: float | None = None
    floor: int = 0


def verify(
    stream: Stream,
    reading: Reading | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Verified:
    """Check every link and every blob; with `reading`, the content of blobs, too."""
    while True:
        result = _verify(stream, reading, on_progress)
        if not has_errors(result.findings) or not _pruned_since(stream, result.floor):
            return result


def _pruned_since(stream: Stream, floor: int) -> bool:
    """Whether links were given up while we looked, and what they refer to with them."""
    try:
        return stream.chain.head().floor > floor
    except SluicegateError:
        return False


def _verify(
    stream: Stream, reading: Reading | None, on_progress: Callable[[int, int], None]
) -> Verified:
    blobs = BlobSurvey(stream.blobs)
    unusable: dict[Ref, tuple[Bad, list[int]]] = {}
    given_up: set[int] = set()

    def on_link(link: Link) -> None:
        nonlocal given_up
        given_up |= declared_numbers(link)
        for bad in blobs.of(link) if link.number not in given_up else ():
            unusable.setdefault(bad.ref, (bad, []))[1].append(link.number)

    found = survey(stream, on_link)
    if found.newest < 0 and not found.findings:
        raise NotFound(f"there is no chain in {stream.uri}", place=stream.uri)
    result = Verified(list(found.findings), found.links, len(blobs.live))
    result.floor = found.floor
    result.findings += [_blob(stream, bad, numbers) for bad, numbers in unusable.values()]
    result.findings += _notes(stream, found, blobs, given_up)
    if reading:
        _read(stream, reading, sorted(blobs.live - unusable.keys()), result, on_progress)
    result.findings = worst_first(_with_repair(stream, each) for each in result.findings)
    return result


def _blob(stream: Stream, bad: Bad, numbers: list[int]) -> Finding:
    used = ", ".join(_span(*span) for span in spans(sorted(set(numbers))))
    place = f"{stream.uri}/{bad.ref.key}"
    if bad.unreadable:
        return rules.UNREADABLE.at(place, bad.what, repair=f"chmod u+r {quote(place)}")
    return rules.BLOB_DAMAGED.at(place, f"{bad.what}; links that refer to it: {used}")


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _notes(stream: Stream, found: Survey, blobs: BlobSurvey, given_up: set[int]) -> list[Finding]:
    notes = []
    if found.below_floor:
        detail = f"{found.below_floor} links below the floor"
        notes.append(rules.BELOW_FLOOR.at(f"{stream.uri}/chain", detail))
    if given_up and found.head:
        kept = sorted(number for number in given_up if number >= found.floor)
        if kept:
            told = ", ".join(_span(*span) for span in spans(kept))
            notes.append(rules.REPAIRED.at(f"{stream.uri}/chain", f"links {told}"))
    limit = (time.time() - _ORPHANED) * 1e9
    live = {ref.digest for ref in blobs.live}
    try:
        lost = [blob.key for blob in stream.blobs.stored() if blob.digest not in live]
        old = [key for key in lost if (s := stream.storage.stat(key)) and s.modified_ns <= limit]
        if old and not has_errors(found.findings):
            notes.append(rules.ORPHANS.at(f"{stream.uri}/blobs", f"{len(old)} blobs"))
        if left := len(list(old_temporaries(stream, limit))):
            notes.append(rules.TEMPORARY.at(stream.uri, f"{left} files"))
    except (StorageFailed, OSError) as e:
        notes.append(rules.UNREADABLE.at(f"{stream.uri}/blobs", str(e)))
    return notes


def _with_repair(stream: Stream, finding: Finding) -> Finding:
    if finding.repair or finding.severity is not Severity.ERROR or finding.rule is rules.FOREIGN:
        return finding
    return finding.rule.at(
        finding.place, finding.detail, repair=f"sluicegate checkpoint repair {quote(stream.uri)}"
    )


def _read(
    stream: Stream,
    reading: Reading,
    refs: list[Ref],
    result: Verified,
    on_progress: Callable[[int, int], None],
) -> None:
    """Read content in the order of digests, from where the last check ran out of time."""
    budgeted = reading.max_duration is not None
    cursor, last_complete = _load_cursor(stream) if budgeted else ("", None)
    wanted = [ref for ref in refs if reading.subset.has(ref)]
    todo = [ref for ref in wanted if ref.digest > cursor]
    deadline = time.monotonic() + (reading.max_duration or 0.0)
    total = sum(ref.size for ref in todo)
    for ref in todo:
        # At least one each time, so that the smallest budget comes to an end some day.
        if budgeted and result.read_blobs and time.monotonic() >= deadline:
            result.resume, result.last_complete = True, last_complete
            _save_cursor(stream, cursor, last_complete)
            return
        try:
            stream.blobs.check(ref, read=True)
        except BlobDamaged as e:
            place = f"{stream.uri}/{ref.key}"
            detail = f"{e.message}; {_users(stream, ref)}"
            result.findings.append(rules.BLOB_DAMAGED.at(place, detail))
        result.read_blobs += 1
        result.read_bytes += ref.size
        cursor = ref.digest
        on_progress(result.read_bytes, total)
    result.last_complete = time.time()
    if budgeted:
        _save_cursor(stream, "", result.last_complete)


def _users(stream: Stream, ref: Ref) -> str:
    """Which links refer to a blob; asked only when it is damaged."""
    numbers: list[int] = []

    class Users(BlobSurvey):
        def _look(self, each: Ref) -> Bad | None:
            return Bad(each, "") if each == ref else None

    users = Users(stream.blobs)
    survey(stream, lambda link: numbers.append(link.number) if users.of(link) else None)
    return "links that refer to it: " + ", ".join(_span(*s) for s in spans(sorted(numbers)))


def _load_cursor(stream: Stream) -> tuple[str, float | None]:
    try:
        data = stream.storage.get(CURSOR, limit=_CURSOR_FORMAT.max_frame)
        fields = codec.decode(_CURSOR_FORMAT, data, CURSOR)
    except (NotFound, Corrupt):
        # It only saves work.
        return "", None
    match fields:
        case {"after": str(after), "complete": None | float() as complete}:
            return after, complete
    return "", None


def _save_cursor(stream: Stream, after: str, complete: float | None) -> None:
    root = stream.storage.local_path()
    if root is None:
        return
    data = codec.encode(_CURSOR_FORMAT, {"after": after, "complete": complete})
    try:
        # Also from a read-only look: it is no part of the stream.
        LocalStorage(root).replace(CURSOR, data)
    except SluicegateError as e:
        raise StorageFailed(
            f"how far the check came cannot be remembered: {e.message}",
            hint="make the stream's directory writable, or leave --max-duration out",
        ) from e


def shown_complete(result: Verified) -> str:
    """When all content was last read, for people."""
    return units.utc(result.last_complete) if result.last_complete else "never"
