"""The files of a stream before its chain is walked: hints, identity, numbers, and obstacles."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from shlex import quote

from sluicegate.errors import Corrupt, NotFound, StorageFailed
from sluicegate.findings import Finding, Severity, rule
from sluicegate.storage import Storage, open_storage
from sluicegate.stream.chain import HEAD, Hint, home_key, read_hint
from sluicegate.stream.snapshot import HeadDamaged, Snapshot, decode, key_of
from sluicegate.stream.stream import Stream

CHAIN = "chain"
# No chain loses so many snapshots in a row; a file beyond that was never part of it.
_FAR = 1 << 20

HEAD_DAMAGED = rule(
    "SG-CHAIN-HEAD-DAMAGED",
    Severity.ERROR,
    "the HEAD hint is missing or damaged",
    "The file `HEAD` names the newest durable snapshot. Without it, the loss of a snapshot at the "
    "end of the chain would go unnoticed, so no job starts. After `sluicegate checkpoint repair`, "
    "the stream resumes from the newest snapshot that is there, as a new generation.",
)
FOREIGN = rule(
    "SG-CHAIN-FOREIGN",
    Severity.ERROR,
    "stream identity mismatch",
    "The home remembers a stream of this name with another identity. The directory was replaced. "
    "Restore the right directory. If the old stream is abandoned, remove the hint that the message "
    "names.",
)
SNAPSHOT_DAMAGED = rule(
    "SG-CHAIN-SNAPSHOT-DAMAGED",
    Severity.ERROR,
    "a snapshot is missing or damaged",
    "The file of a snapshot is missing, cannot be read, does not match its checksum, or is not the "
    "one that its successor names as its parent. If it is the newest, the stream cannot resume; an "
    "older one only cannot be restored. `sluicegate checkpoint repair` appends a snapshot that "
    "records the damage, and the stream resumes from that snapshot.",
)
UNREADABLE = rule(
    "SG-STREAM-UNREADABLE",
    Severity.ERROR,
    "a file of the stream cannot be read",
    "The operating system refuses to read it (permission, I/O error). It may be intact: nothing is "
    "discarded or repaired before it can be read.",
)


@dataclass(slots=True)
class Evidence:
    """The hints that are believed, the identity they give the stream, and the files there are.

    `obstacles` are findings that the operator must fix, with the command that each names.
    """

    hint: Hint | None = None
    mark: Hint | None = None
    stream_id: str | None = None
    numbers: list[int] = field(default_factory=list)
    listed: bool = True
    foreign: bool = False
    findings: list[Finding] = field(default_factory=list)
    obstacles: list[Finding] = field(default_factory=list)

    @property
    def hints(self) -> list[Hint]:
        """The hints that exist."""
        return [hint for hint in (self.hint, self.mark) if hint]


def gather(stream: Stream) -> Evidence:
    """Read the hints, then list the chain, which has the snapshots of the hints by then."""
    found = Evidence()
    headless = not _read_head(stream, found)
    _read_mark(stream, found)
    try:
        found.numbers = stream.chain.numbers()
    except StorageFailed as e:
        found.listed = False
        found.obstacles.append(unreadable(stream.storage, CHAIN, e))
    if headless and found.numbers not in ([], [0]):
        detail = "it is missing, so the newest snapshot is not known for sure"
        found.findings.append(HEAD_DAMAGED.at(f"{stream.uri}/{HEAD}", detail))
    _identify(stream, found)
    _refuse_stray(stream, found)
    return found


def identity_of(stream: Stream) -> str | None:
    """Which stream this is, also if its chain is damaged; None if no snapshot can be read."""
    try:
        return stream.chain.head().stream_id
    except (Corrupt, NotFound):
        found = gather(stream)
        snapshot = _first_snapshot(stream, found.numbers[::-1])
        return found.stream_id or (snapshot.stream_id if snapshot else None)


def unreadable(storage: Storage, key: str, error: StorageFailed) -> Finding:
    """The finding of an unreadable file, with the command that makes it readable."""
    seen = key
    while seen and (kind := _kind(storage, seen)) is None:
        # Not even the directory that it is in.
        seen = seen.rpartition("/")[0]
    place = f"{storage.uri}/{seen}" if seen else storage.uri
    if seen == key and kind != "file" and key != CHAIN:
        return in_the_way(place, str(kind))
    access = "u+r" if seen and kind == "file" else "u+rwx"
    return UNREADABLE.at(place, error.message, repair=f"chmod {access} {quote(place)}")


def _kind(storage: Storage, key: str) -> str | None:
    """What is there; None if that cannot be seen."""
    try:
        stat = storage.stat(key)
    except StorageFailed:
        return None
    return stat.kind if stat else "file"


def in_the_way(place: str, kind: str) -> Finding:
    """The finding of something else in the place of a file."""
    what = "a directory" if kind == "directory" else "not a regular file"
    detail = f"{place} is {what}; the file that belongs there cannot be read or written"
    return UNREADABLE.at(place, detail, repair=_move_away(place))


def _move_away(place: str) -> str:
    return f"mv {quote(place)} {quote(place + '.away')}"


def _read_head(stream: Stream, found: Evidence) -> bool:
    """Whether there is anything at `HEAD`."""
    try:
        found.hint = read_hint(stream.storage, HEAD)
    except HeadDamaged as e:
        found.findings.append(HEAD_DAMAGED.at(f"{stream.uri}/{HEAD}", e.message))
    except StorageFailed as e:
        found.obstacles.append(unreadable(stream.storage, HEAD, e))
    else:
        return found.hint is not None
    return True


def _read_mark(stream: Stream, found: Evidence) -> None:
    home, key = str(PurePath(stream.uri).parent), home_key(stream.name)
    try:
        found.mark = stream.chain.remembered()
    except HeadDamaged as e:
        detail = f"the home's hint of the stream is damaged: {e.message}"
        place = f"{home}/{key}"
        found.obstacles.append(HEAD_DAMAGED.at(place, detail, repair=_move_away(place)))
    except StorageFailed as e:
        found.obstacles.append(unreadable(open_storage(home, read_only=True), key, e))


def _identify(stream: Stream, found: Evidence) -> None:
    """Which stream this is, according to the home, HEAD and the snapshots."""
    ends = [_first_snapshot(stream, each) for each in (found.numbers, found.numbers[::-1])]
    inside = {snapshot.stream_id for snapshot in ends if snapshot}
    for hint in found.hints[::-1]:
        if not inside or hint.stream_id in inside:
            found.stream_id = hint.stream_id
            break
    odd = [hint for hint in found.hints if hint.stream_id != found.stream_id]
    if odd == [found.hint] and found.stream_id:
        found.hint = None
        place = f"{stream.uri}/{HEAD}"
        found.findings.append(HEAD_DAMAGED.at(place, "it belongs to another stream"))
    elif odd:
        found.foreign = True
        detail = "HEAD and the snapshots are of different streams"
        if found.mark:
            mark = f"{home_key(stream.name)} in the home"
            detail = f"{mark} remembers stream {found.mark.stream_id} under this name"
        found.obstacles.append(FOREIGN.at(stream.uri, detail))


def _first_snapshot(stream: Stream, numbers: list[int]) -> Snapshot | None:
    """The first of these numbers whose file is a snapshot."""
    for number in numbers:
        try:
            raw = stream.chain.raw(number)
            snapshot = None if raw is None else decode(raw, key_of(number))
        except (Corrupt, StorageFailed):
            continue
        if snapshot and snapshot.number == number:
            return snapshot
    return None


def _refuse_stray(stream: Stream, found: Evidence) -> None:
    """Refuse a file far above all others: the next snapshot would get a number above it."""
    *others, newest = (0, *(hint.number for hint in found.hints), *found.numbers)
    if newest - max(others, default=0) > _FAR and _first_snapshot(stream, [newest]) is None:
        place = f"{stream.uri}/{key_of(newest)}"
        detail = f"unexpected file: snapshot number jumps from {max(others)} to {newest}"
        found.obstacles.append(SNAPSHOT_DAMAGED.at(place, detail, repair=_move_away(place)))
