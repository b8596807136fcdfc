"""The directory of a producer: which files it has, and the claim that fences older instances.

    sluicegate.producer                       the marker
    producer.lock                             held by the instance that is open
    <epoch>.claim                             the newest instance; made exclusively, never changed
    <epoch>.state                             its state; of several the one of the highest epoch
    <epoch>-<number>.outbox                   its segments, and those it inherited
    <name>.outbox.damaged                     what salvage set aside

Each instance writes only to files that carry its own epoch, so one that lost its lock cannot
overwrite anything of a newer one. It finds out because the newer one removed its claim *before*
it looked at states and segments, and because it looks for its claim *after* each write and before
it tells anybody: whichever comes first, the other one sees it.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, field

from sluicegate import codec
from sluicegate.dedup import producer_state
from sluicegate.dedup.producer_state import State
from sluicegate.errors import Corrupt, Fenced, NotFound, SluicegateError, UsageError
from sluicegate.marker import Marker
from sluicegate.storage import Storage
from sluicegate.who import Who, myself

MAKE = "IdempotentProducer.create(DIRECTORY, PRODUCER_ID)"
MARKER = Marker("sluicegate.producer", "prodmark", "a producer")
LOCK = "producer.lock"
CLAIM = codec.Format("claim", version=1, max_body=65536)
_NAME = re.compile(r"(\d{20})(?:-(\d{8}))?\.(claim|state|outbox)")
_ATTEMPTS = 10


class ProducerFenced(Fenced):
    """A newer instance of the producer was opened, so this one may never issue again."""

    default_hint = "close it; what it had not sent is in pending() of the newer instance"


class StateDamaged(Corrupt):
    """The state of a producer is damaged or missing, so what it has issued is not known."""

    default_hint = (
        "restore the directory from a backup and open it with in_log=, so that it continues behind "
        "what the log holds; or create a producer with another id in another directory"
    )


def state_name(epoch: int) -> str:
    """The state file of an instance."""
    return f"{epoch:020d}.state"


def segment_name(epoch: int, number: int) -> str:
    """A segment of the outbox."""
    return f"{epoch:020d}-{number:08d}.outbox"


def _claim_name(epoch: int) -> str:
    return f"{epoch:020d}.claim"


@dataclass(slots=True)
class Files:
    """What a producer's directory holds, by epoch."""

    claims: list[int] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    segments: list[tuple[int, int]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    @property
    def newest(self) -> int:
        """The highest epoch anything tells of."""
        return max(*self.claims, *self.states, *(epoch for epoch, _ in self.segments), 0, 0)


def look(storage: Storage) -> Files:
    """The files of a producer, ascending."""
    files = Files()
    for entry in storage.list():
        match = _NAME.fullmatch(entry.name)
        if match is None:
            files.others.append(entry.name)
            continue
        epoch, number, kind = int(match[1]), match[2], match[3]
        if kind == "outbox" and number:
            files.segments.append((epoch, int(number)))
        elif kind in ("claim", "state") and not number:
            (files.claims if kind == "claim" else files.states).append(epoch)
        else:
            files.others.append(entry.name)
    return files


def read_newest(storage: Storage) -> State:
    """The state of the newest instance; never that of an older one in its place."""
    states = look(storage).states
    if not states:
        raise StateDamaged(f"{storage.uri} has no state of its producer", place=storage.uri)
    name = state_name(states[-1])
    place = f"{storage.uri}/{name}"
    try:
        data = storage.get(name, limit=producer_state.FORMAT.max_frame)
        state = producer_state.decode(data, place)
    except Corrupt as e:
        raise StateDamaged(e.message, place=place) from e
    if state.epoch != states[-1]:
        raise StateDamaged(f"{place} is the state of epoch {state.epoch}", place=place)
    return state


def create_files(storage: Storage, first: State) -> None:
    """Make a directory a producer's, or see that it is this one's; the caller holds the lock."""
    if storage.stat(MARKER.name) is not None:
        MARKER.read(storage, make=MAKE)
        there = read_newest(storage).producer_id
        if there != first.producer_id:
            raise UsageError(
                f"{storage.uri} is of another producer, {there!a:.80}",
                hint="give each producer a directory of its own",
            )
        return
    files = look(storage)
    if files.newest or set(files.others) - {LOCK}:
        # Also a producer whose marker got lost: starting anew would issue its stamps again.
        raise UsageError(
            f"{storage.uri} is not a producer, and not empty",
            hint="name a new directory, or restore the marker of the producer that was there",
        )
    storage.replace(state_name(0), first.encode({}))
    MARKER.create(storage)


class Claim:
    """The right of one instance to issue, which lasts until a newer one takes it."""

    def __init__(self, storage: Storage, epoch: int, data: bytes) -> None:
        self.epoch = epoch
        self._storage = storage
        self._data = data
        self._pid = os.getpid()
        self._lost: str | None = None

    @classmethod
    def take(cls, storage: Storage) -> Claim:
        """Claim a new epoch durably, and take their claims from all older instances.

        An epoch is the time in milliseconds, or one more than the highest there is: an instance
        that outlives the restore of a backup must not share its epoch with the next one.
        """
        for _ in range(_ATTEMPTS):
            now = time.time()
            epoch = max(look(storage).newest + 1, int(now * 1000))
            fields = {"by": myself().fields(), "at": now, "nonce": os.urandom(16)}
            data = codec.encode(CLAIM, fields)
            if storage.put_if_absent(_claim_name(epoch), data):
                for older in look(storage).claims:
                    if older < epoch:
                        storage.delete(_claim_name(older))
                return cls(storage, epoch, data)
        raise ProducerFenced(
            f"{storage.uri}: other instances keep opening this producer",
            hint="stop the others; the lock file must be on a file system that all of them share",
            place=storage.uri,
        )

    def check(self) -> None:
        """Raise `ProducerFenced` if the claim was lost; once lost, it is lost for good."""
        if self._lost is None:
            self._lost = self._look()
        if self._lost is not None:
            place = self._storage.uri
            message = f"the producer in {place}, epoch {self.epoch}, is fenced: {self._lost}"
            raise ProducerFenced(message, place=place)

    def lose(self, why: str) -> None:
        """Give it up: what it protects turned out to be somebody else's."""
        self._lost = self._lost or why

    def _look(self) -> str | None:
        if os.getpid() != self._pid:
            # The lock stayed with the parent, and both would issue the same sequences.
            return "it was opened by the process this one was forked from"
        try:
            found = self._storage.get(_claim_name(self.epoch), limit=CLAIM.max_frame)
        except NotFound:
            return self._successor()
        return None if found == self._data else "its claim was replaced"

    def _successor(self) -> str:
        """Who has it now, as far as that can be told."""
        newer = [epoch for epoch in look(self._storage).claims if epoch > self.epoch]
        if not newer:
            return "its claim is gone, as after the restore of a backup"
        place = f"{self._storage.uri}/{_claim_name(newer[-1])}"
        try:
            data = self._storage.get(_claim_name(newer[-1]), limit=CLAIM.max_frame)
            who = Who.from_fields(codec.decode(CLAIM, data, place)["by"])
        except (SluicegateError, KeyError, TypeError):
            # Evidence only: that there is a newer claim is enough.
            who = None
        return f"epoch {newer[-1]} was opened by {who or 'somebody'}"
