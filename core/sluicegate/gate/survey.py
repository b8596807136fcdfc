"""A survey of a stream: every link and every blob, whether sound or not, and what follows.

The chain is walked from its newest number down. Trust flows the same way: the hints vouch for the
newest link, each link vouches for its parent. A link is *sound* if its file is; it is *whole* if
its blobs are, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from shlex import quote

from sluicegate.blobs import BlobDamaged, Blobs, Ref, digest_of
from sluicegate.chain.errors import LinkDamaged
from sluicegate.chain.hint import HEAD
from sluicegate.chain.link import Link, decode, key_of
from sluicegate.errors import Corrupt, SluicegateError, StorageFailed
from sluicegate.findings import Finding
from sluicegate.gate import rules
from sluicegate.gate.condition import Bad, Damage, Survey, given_up_by
from sluicegate.gate.evidence import gather, in_the_way, unreadable
from sluicegate.gate.spans import Span, has, shown, spans, without
from sluicegate.gate.stream import Stream
from sluicegate.state import manifest

_ATTEMPTS = 3


def survey(
    stream: Stream,
    *,
    read: Callable[[Ref], bool] = lambda _: False,
    known: Iterable[Bad] = (),
) -> Survey:
    """Look at every link, newest first, and at its blobs; `read` says whose content is read.

    `known` are blobs that were found bad before.
    """
    while True:
        walker = _Walker(stream, BlobSurvey(stream.blobs, read=read, known=known))
        if not walker.found.evidence.foreign:
            walker.walk()
            walker.judge()
        found = walker.found
        if not (found.findings or found.obstacles) or not _pruned_since(stream, found.floor):
            return found


def _pruned_since(stream: Stream, floor: int) -> bool:
    """Whether links were given up while we looked, and what they refer to with them."""
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
        self._child: Link | None = None
        self._spare: Link | None = None
        self._distrusted: list[Span] = []
        for hint in seen.hints:
            self.found.expected[hint.number] = hint.digest
            self.found.peak.rise(hint)

    def walk(self) -> None:
        found, numbers = self.found, self.found.evidence.numbers
        found.newest = max([*numbers[-1:], found.peak.number])
        above = found.newest + 1
        for number in reversed(numbers):
            # What is below the floor only counts if there is nothing else to go on from.
            if number < found.floor and (found.base or self._spare):
                break
            self._gap(max(number + 1, found.floor), above - 1)
            above = number
            self._look(number)
        if found.evidence.listed:
            self._gap(found.floor, above - 1)
        found.below_floor = sum(number < found.floor for number in numbers)
        # Better what was once taken back than nothing at all.
        found.base = found.base or self._spare

    def judge(self) -> None:
        """The findings that follow from what was seen."""
        found = self.found
        known = max((hint.number for hint in found.evidence.hints), default=-1)
        last = found.head.number if found.head else -1
        if known > last and not found.obstacles:
            newest = f"the newest that is sound is {last}" if found.head else "no link is sound"
            detail = f"link {known} is known to have been there; {newest}"
            found.findings.append(rules.SHORT.at(self._stream.uri, detail))
        for damage in found.damaged:
            place = f"{self._stream.uri}/{key_of(damage.first)}"
            found.findings.append(rules.LINK_DAMAGED.at(place, f"{damage.shown}: {damage.what}"))
        if found.head and not found.findings and not found.obstacles:
            found.findings += self._as_a_job_sees_it()
        for bad, numbers in found.bad.values():
            self._judge_blob(bad, numbers)

    def _as_a_job_sees_it(self) -> Iterator[Finding]:
        """Whatever keeps a job from starting is a finding, even if every file is sound."""
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

    def _judge_blob(self, bad: Bad, numbers: list[int]) -> None:
        storage, key = self._stream.storage, bad.ref.key
        place = f"{storage.uri}/{key}"
        stat = None if bad.unreadable else storage.stat(key)
        if bad.unreadable:
            self._obstruct(unreadable(storage, key, bad.unreadable))
        elif stat and stat.kind != "file":
            self._obstruct(in_the_way(place, stat.kind))
        else:
            detail = f"{bad.what}; links that refer to it: {shown(spans(numbers))}"
            command = f"sluicegate checkpoint repair {quote(storage.uri)}"
            command += " --read-data" if bad.by_reading else ""
            self.found.findings.append(rules.BLOB_DAMAGED.at(place, detail, repair=command))

    def _obstruct(self, finding: Finding) -> None:
        """Once for each place: of a directory, every file would tell the same."""
        if all(each.place != finding.place for each in self.found.obstacles):
            self.found.obstacles.append(finding)

    def _gap(self, first: int, last: int) -> None:
        """Numbers without a file, from `first` to `last`."""
        if first > last:
            return
        self._child = None
        for span in without((first, last), self.found.given_up):
            self.found.damaged.append(Damage(*span, "missing"))

    def _look(self, number: int) -> None:
        found, raw = self.found, None
        given_up = has(found.given_up, number)
        try:
            raw = self._stream.chain.raw(number)
            link = self._sound(number, raw) if raw is not None else None
        except StorageFailed as e:
            self._child = None
            if not given_up:
                self._obstruct(unreadable(self._stream.storage, key_of(number), e))
        except Corrupt as e:
            self._child = None
            if not given_up and number >= found.floor:
                digest = None if raw is None else digest_of(raw)
                found.damaged.append(Damage(number, number, e.message, digest))
        else:
            # None: pruned while we look.
            if link:
                self._take(link, given_up=given_up)

    def _sound(self, number: int, raw: bytes) -> Link:
        """The link in these bytes, if it is the one that belongs there."""
        found = self.found
        link = decode(raw, key_of(number))
        if link.number != number:
            raise LinkDamaged(f"it holds link {link.number}")
        if found.expected.get(number, link.digest) != link.digest:
            raise LinkDamaged("it is not the link that its successor, or a hint, names")
        vouched = found.expected.get(number - 1)
        if vouched and link.parent != vouched and not has(found.given_up, number - 1):
            raise LinkDamaged(f"its parent is not link {number - 1}")
        identity = found.evidence.stream_id or (found.head.stream_id if found.head else None)
        if identity and link.stream_id != identity:
            raise LinkDamaged("it belongs to another stream")
        return link

    def _take(self, link: Link, *, given_up: bool) -> None:
        """A sound link: what it vouches for, and whether it is whole."""
        found = self.found
        found.given_up += given_up_by(link)
        self._distrusted += given_up_by(link, "damaged")
        believed = not has(self._distrusted, link.number)
        if link.parent and believed and not has(found.given_up, link.number - 1):
            found.expected[link.number - 1] = link.parent
        if given_up:
            self._child = None
            return
        if self._child:
            self._check_order(link, self._child)
        self._child = link
        found.links += 1
        found.head = found.head or link
        found.peak.rise(link)
        bad = self._blobs.of(link)
        if not bad:
            self._spare = self._spare or link
            if found.base is None and found.head.includes(link.number):
                found.base = link
        elif link.number >= found.floor:
            found.unusable.append(link.number)
            for each in bad:
                found.bad.setdefault(each.ref, (each, []))[1].append(link.number)

    def _check_order(self, link: Link, child: Link) -> None:
        found = self.found
        for name in ("generation", "version", "epoch", "floor", "created_at"):
            before, after = getattr(link, name), getattr(child, name)
            if before > after:
                place = f"{self._stream.uri}/{key_of(child.number)}"
                detail = f"{name} of link {child.number} is {after}, of its parent {before}"
                found.findings.append(rules.ORDER.at(place, detail))
                found.disordered.append(child.number)
                found.base = None if found.base is child else found.base
                self._spare = None if self._spare is child else self._spare


class BlobSurvey:
    """Looks at the blobs of links, at each of them once, and reads the content of some.

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

    def of(self, link: Link) -> list[Bad]:
        """The blobs that make a link unusable."""
        manifests = {*link.state.refs, link.partials}
        bad: dict[Ref, Bad] = {}
        for ref in dict.fromkeys(link.refs):
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
    """What is wrong with one blob; its content is judged only with `read`."""
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
