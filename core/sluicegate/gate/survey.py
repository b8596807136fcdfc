"""A survey of a stream: every link and every blob, whether sound or not, and what follows.

The chain is walked from its newest number down. Trust flows the same way: the hints vouch for the
newest link, each link vouches for its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sluicegate.blobs import BlobDamaged, Blobs, Ref, digest_of
from sluicegate.chain import hint as hints
from sluicegate.chain.errors import HeadDamaged, LinkDamaged
from sluicegate.chain.hint import HEAD, Hint
from sluicegate.chain.link import Link, decode, key_of
from sluicegate.errors import Corrupt, StorageFailed
from sluicegate.findings import Finding
from sluicegate.gate import rules
from sluicegate.gate.collect import inner_refs
from sluicegate.gate.stream import Stream


@dataclass(frozen=True, slots=True)
class Damage:
    """Links that are not sound; `raw` is the digest of the bytes that are there, if any are."""

    first: int
    last: int
    what: str
    raw: str | None = None

    @property
    def shown(self) -> str:
        """The numbers, for people."""
        return (
            f"link {self.first}" if self.first == self.last else f"links {self.first}-{self.last}"
        )


@dataclass(slots=True)
class Survey:
    """What was found; `head` is the newest sound link, `newest` the highest number ever used."""

    hint: Hint | None = None
    mark: Hint | None = None
    head: Link | None = None
    newest: int = -1
    generation: int = 0
    damaged: list[Damage] = field(default_factory=list)
    declared: list[Damage] = field(default_factory=list)
    below_floor: int = 0
    links: int = 0
    findings: list[Finding] = field(default_factory=list)
    unreadable: bool = False
    foreign: bool = False
    expected: dict[int, str] = field(default_factory=dict)

    @property
    def floor(self) -> int:
        """The lowest number that must be there, as far as is known; a floor never goes back."""
        known = (self.head, self.hint, self.mark)
        return max((each.floor for each in known if each), default=0)

    @property
    def is_whole(self) -> bool:
        """Whether the newest number ever used is the head, and nothing is damaged."""
        return (
            self.head is not None
            and self.head.number == self.newest
            and not self.damaged
            and not self.findings
        )


def survey(stream: Stream, on_link: Callable[[Link], None] = lambda _: None) -> Survey:
    """Look at every link, newest first; `on_link` gets the sound ones."""
    walker = _Walker(stream, on_link)
    walker.read_hints()
    walker.walk()
    walker.judge()
    return walker.found


class _Walker:
    def __init__(self, stream: Stream, on_link: Callable[[Link], None]) -> None:
        self.found = Survey()
        self._stream = stream
        self._on_link = on_link
        self._claims: dict[int, str | None] = {}
        self._given_up: set[int] = set()
        self._child: Link | None = None

    def read_hints(self) -> None:
        found, chain = self.found, self._stream.chain
        place = f"{self._stream.uri}/{HEAD}"
        try:
            found.hint = hints.read_hint(self._stream.storage, HEAD)
            if found.hint is None and len(chain.numbers()) > 1:
                self._report(rules.HEAD_DAMAGED.at(place, f"{place} is missing"))
        except HeadDamaged as e:
            self._report(rules.HEAD_DAMAGED.at(place, e.message))
        except StorageFailed as e:
            self._unreadable(place, e)
        try:
            found.mark = chain.remembered()
        except HeadDamaged as e:
            self._report(rules.HEAD_DAMAGED.at(e.place or place, e.message))
        except StorageFailed as e:
            self._unreadable(e.place or place, e)
        for hint in (found.hint, found.mark):
            if hint:
                found.expected[hint.number] = hint.digest
                found.generation = max(found.generation, hint.generation)

    def walk(self) -> None:
        found = self.found
        numbers = self._stream.chain.numbers()
        hinted = [hint.number for hint in (found.hint, found.mark) if hint]
        found.newest = max([*numbers[-1:], *hinted], default=-1)
        above = found.newest + 1
        for number in reversed(numbers):
            if number < found.floor:
                break
            self._gap(number + 1, above - 1)
            above = number
            self._look(number)
        self._gap(found.floor, above - 1)
        found.below_floor = sum(number < found.floor for number in numbers)

    def judge(self) -> None:
        """The findings that follow from what was seen."""
        found = self.found
        known = next((hint for hint in (found.hint, found.mark) if hint), None)
        if found.hint and found.mark and found.hint.stream_id != found.mark.stream_id:
            found.foreign = True
            place = f"{self._stream.uri}/{HEAD}"
            detail = f"the home remembers stream {found.mark.stream_id}"
            self._report(rules.FOREIGN.at(place, detail))
        elif known and found.head and found.head.number < known.number and not found.unreadable:
            self._report(self._short())
        for damage in found.damaged:
            place = f"{self._stream.uri}/{key_of(damage.first)}"
            self._report(rules.LINK_DAMAGED.at(place, f"{damage.shown}: {damage.what}"))

    def _short(self) -> Finding:
        found = self.found
        assert found.head
        known = max(hint.number for hint in (found.hint, found.mark) if hint)
        detail = (
            f"link {known} is known to have been there; the newest that is sound is "
            f"{found.head.number}"
        )
        return rules.SHORT.at(self._stream.uri, detail)

    def _gap(self, first: int, last: int) -> None:
        """Numbers without a file, from `first` to `last`."""
        if first > last:
            return
        missing = Damage(first, last, "missing")
        self._child = None
        if all(number in self._given_up for number in range(first, last + 1)):
            self.found.declared.append(missing)
        else:
            self.found.damaged.append(missing)

    def _look(self, number: int) -> None:
        found = self.found
        try:
            raw = self._stream.chain.raw(number)
        except StorageFailed as e:
            self._unreadable(f"{self._stream.uri}/{key_of(number)}", e)
            self._child = None
            return
        except Corrupt as e:
            self._damaged(number, e.message, None)
            return
        if raw is None:
            # Pruned while we look.
            return
        try:
            link = self._sound(number, raw)
        except LinkDamaged as e:
            self._damaged(number, e.message, digest_of(raw))
            return
        if self._child:
            self._check_order(link, self._child)
        self._child = link
        found.links += 1
        found.head = found.head or link
        found.generation = max(found.generation, link.generation)
        for name in ("damaged", "unusable"):
            for first, last, *_ in link.details.get(name, ()):
                self._given_up |= set(range(first, last + 1))
        for first, last, raw_digest in link.details.get("damaged", ()):
            self._claims |= dict.fromkeys(range(first, last + 1), raw_digest)
        if link.parent and number - 1 not in self._claims:
            found.expected[number - 1] = link.parent
        self._on_link(link)

    def _sound(self, number: int, raw: bytes) -> Link:
        """The link in these bytes, if it is the one that belongs there."""
        found = self.found
        link = decode(raw, key_of(number))
        if link.number != number:
            raise LinkDamaged(f"it holds link {link.number}")
        expected = found.expected.get(number)
        if expected and link.digest != expected:
            raise LinkDamaged("it is not the link that its successor, or a hint, names")
        vouched = found.expected.get(number - 1)
        if vouched and number - 1 not in self._claims and link.parent != vouched:
            raise LinkDamaged(f"its parent is not link {number - 1}")
        known = found.head.stream_id if found.head else None
        known = known or (found.hint.stream_id if found.hint else None)
        if known and link.stream_id != known:
            raise LinkDamaged("it belongs to another stream")
        return link

    def _damaged(self, number: int, what: str, raw: str | None) -> None:
        self._child = None
        damage = Damage(number, number, what, raw)
        if number in self._claims and self._claims[number] == raw:
            self.found.declared.append(damage)
        else:
            self.found.damaged.append(damage)

    def _check_order(self, link: Link, child: Link) -> None:
        for name in ("generation", "version", "epoch", "created_at", "floor"):
            before, after = getattr(link, name), getattr(child, name)
            if before > after:
                place = f"{self._stream.uri}/{key_of(child.number)}"
                detail = f"{name} of link {child.number} is {after}, of its parent {before}"
                self._report(rules.ORDER.at(place, detail))

    def _unreadable(self, place: str, error: StorageFailed) -> None:
        self.found.unreadable = True
        self._report(rules.UNREADABLE.at(place, error.message, repair=f"chmod u+r {place}"))

    def _report(self, finding: Finding) -> None:
        self.found.findings.append(finding)


@dataclass(frozen=True, slots=True)
class Bad:
    """A blob that is not sound."""

    ref: Ref
    what: str
    unreadable: bool = False


class BlobSurvey:
    """Looks at the blobs of links, at each of them once; with `read` at their content, too."""

    def __init__(self, blobs: Blobs, *, read: bool = False) -> None:
        self.live: set[Ref] = set()
        self._blobs = blobs
        self._read = read
        self._bad: dict[Ref, Bad] = {}
        self._inside: dict[Ref, tuple[Bad, ...]] = {}

    def of(self, link: Link) -> list[Bad]:
        """The blobs that make a link unusable."""
        bad = [found for ref in dict.fromkeys(link.refs) if (found := self._look(ref))]
        manifests = dict.fromkeys([*link.state.refs, *([link.partials] if link.partials else [])])
        for ref in manifests:
            if ref not in self._bad:
                bad += self._look_inside(ref)
        return bad

    def _look_inside(self, ref: Ref) -> tuple[Bad, ...]:
        if ref not in self._inside:
            try:
                inner = list(dict.fromkeys(inner_refs(self._blobs, ref)))
            except Corrupt as e:
                self._inside[ref] = (Bad(ref, e.message),)
            else:
                self._inside[ref] = tuple(bad for each in inner if (bad := self._look(each)))
        return self._inside[ref]

    def _look(self, ref: Ref) -> Bad | None:
        if ref not in self.live:
            self.live.add(ref)
            try:
                self._blobs.check(ref, read=self._read)
            except BlobDamaged as e:
                self._bad[ref] = Bad(ref, e.message)
            except StorageFailed as e:
                self._bad[ref] = Bad(ref, e.message, unreadable=True)
        return self._bad.get(ref)


def spans(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Numbers, ascending, as ranges."""
    start = last = None
    for number in numbers:
        if last is not None and number == last + 1:
            last = number
            continue
        if start is not None and last is not None:
            yield start, last
        start = last = number
    if start is not None and last is not None:
        yield start, last
