"""What is known of a chain before its links are read: the hints, and which numbers have a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from shlex import quote

from sluicegate.chain.errors import HeadDamaged
from sluicegate.chain.hint import HEAD, Hint, home_key, read_hint
from sluicegate.chain.link import Link, decode, key_of
from sluicegate.errors import Corrupt, StorageFailed
from sluicegate.findings import Finding
from sluicegate.gate import rules
from sluicegate.gate.stream import Stream
from sluicegate.storage import Storage, open_storage

CHAIN = "chain"
# No chain loses so many links in a row; a file with such a number was never part of it.
_FAR = 1 << 20


@dataclass(slots=True)
class Evidence:
    """The hints that are believed, the identity they give the stream, and the files there are.

    `obstacles` are findings that a person must deal with, by the command that each names.
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
        """Those that there are."""
        return [hint for hint in (self.hint, self.mark) if hint]


def gather(stream: Stream) -> Evidence:
    """Read the hints, then list the chain: what a hint names is there by then."""
    found = Evidence()
    headless = not _read_head(stream, found)
    _read_mark(stream, found)
    try:
        found.numbers = stream.chain.numbers()
    except StorageFailed as e:
        found.listed = False
        found.obstacles.append(unreadable(stream.storage, CHAIN, e))
    if headless and found.numbers not in ([], [0]):
        detail = "it is missing, so the newest link is not known for sure"
        found.findings.append(rules.HEAD_DAMAGED.at(f"{stream.uri}/{HEAD}", detail))
    _identify(stream, found)
    _refuse_stray(stream, found)
    return found


def unreadable(storage: Storage, key: str, error: StorageFailed) -> Finding:
    """The finding of something that cannot be read, with the command that changes that."""
    seen = key
    while seen and (kind := _kind(storage, seen)) is None:
        # Not even the directory that it is in.
        seen = seen.rpartition("/")[0]
    place = f"{storage.uri}/{seen}" if seen else storage.uri
    if seen == key and kind != "file" and key != CHAIN:
        return in_the_way(place, str(kind))
    access = "u+r" if seen and kind == "file" else "u+rwx"
    return rules.UNREADABLE.at(place, error.message, repair=f"chmod {access} {quote(place)}")


def _kind(storage: Storage, key: str) -> str | None:
    """What is there; None if that cannot be seen."""
    try:
        stat = storage.stat(key)
    except StorageFailed:
        return None
    return stat.kind if stat else "file"


def in_the_way(place: str, kind: str) -> Finding:
    """The finding of something that lies where a file belongs."""
    what = "a directory" if kind == "directory" else "no regular file"
    detail = f"{place} is {what}; whatever belongs there cannot be read or written"
    return rules.UNREADABLE.at(place, detail, repair=_move_away(place))


def _move_away(place: str) -> str:
    return f"mv {quote(place)} {quote(place + '.away')}"


def _read_head(stream: Stream, found: Evidence) -> bool:
    """Whether there is anything at `HEAD`."""
    try:
        found.hint = read_hint(stream.storage, HEAD)
    except HeadDamaged as e:
        found.findings.append(rules.HEAD_DAMAGED.at(f"{stream.uri}/{HEAD}", e.message))
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
        detail = f"what the home remembers of the stream is damaged: {e.message}"
        place = f"{home}/{key}"
        found.obstacles.append(rules.HEAD_DAMAGED.at(place, detail, repair=_move_away(place)))
    except StorageFailed as e:
        found.obstacles.append(unreadable(open_storage(home, read_only=True), key, e))


def _identify(stream: Stream, found: Evidence) -> None:
    """Which stream this is, by what the home, HEAD and the links say."""
    ends = [_first_link(stream, each) for each in (found.numbers, found.numbers[::-1])]
    inside = {link.stream_id for link in ends if link}
    for hint in found.hints[::-1]:
        if not inside or hint.stream_id in inside:
            found.stream_id = hint.stream_id
            break
    odd = [hint for hint in found.hints if hint.stream_id != found.stream_id]
    if odd == [found.hint] and found.stream_id:
        found.hint = None
        place = f"{stream.uri}/{HEAD}"
        found.findings.append(rules.HEAD_DAMAGED.at(place, "it belongs to another stream"))
    elif odd:
        found.foreign = True
        detail = "HEAD and the links are of different streams"
        if found.mark:
            mark = f"{home_key(stream.name)} in the home"
            detail = f"{mark} remembers stream {found.mark.stream_id} under this name"
        found.obstacles.append(rules.FOREIGN.at(stream.uri, detail))


def _first_link(stream: Stream, numbers: list[int]) -> Link | None:
    """The first of these numbers whose file is a link."""
    for number in numbers:
        try:
            raw = stream.chain.raw(number)
            link = None if raw is None else decode(raw, key_of(number))
        except (Corrupt, StorageFailed):
            continue
        if link and link.number == number:
            return link
    return None


def _refuse_stray(stream: Stream, found: Evidence) -> None:
    """A file far above all others would take the chain there with it."""
    *others, newest = (0, *(hint.number for hint in found.hints), *found.numbers)
    if newest - max(others, default=0) > _FAR and _first_link(stream, [newest]) is None:
        place = f"{stream.uri}/{key_of(newest)}"
        detail = f"no chain gets from link {max(others)} to link {newest}: it is no link at all"
        found.obstacles.append(rules.LINK_DAMAGED.at(place, detail, repair=_move_away(place)))
