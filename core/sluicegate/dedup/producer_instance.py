"""One instance of a producer: its claim, its state and its outbox, kept in step.

The order of durable steps is what everything rests on. A segment is made before the state that
declares it, and that state is written before anything is appended; a range is reserved before a
sequence of it is used; a state without a segment is written before the segment is deleted. And the
claim is looked at after each of these writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from sluicegate.dedup.outbox import Found, Key, Messages, Outbox
from sluicegate.dedup.producer_files import (
    Claim,
    look,
    read_newest,
    segment_name,
    state_name,
)
from sluicegate.dedup.producer_segment import MAX_GROUP
from sluicegate.dedup.producer_state import END, Counter
from sluicegate.errors import NotFound, SluicegateError, StorageFailed, UsageError
from sluicegate.storage import LocalStorage
from sluicegate.storage.calls import Calls


class SequencesExhausted(SluicegateError):
    """A partition of a producer has used up all 2^63 sequences."""

    default_hint = "send under another producer id, or on another partition"


@dataclass(frozen=True, slots=True)
class Options:
    """How an instance works.

    It reserves so many sequences at a time, begins a new segment of its outbox after so many
    bytes, waits so many seconds for the lock, and with `salvage` goes on with what can be read of
    a damaged outbox.
    """

    reserve: int = 1024
    segment_bytes: int = 8 * 1024 * 1024
    patience: float = 0.0
    salvage: bool = False

    def __post_init__(self) -> None:
        if self.reserve < 1 or not 1 <= self.segment_bytes <= MAX_GROUP:
            raise UsageError(f"{self} cannot be: reserve at least 1, segments up to {MAX_GROUP}")


class Instance:
    """What a producer does durably; the caller holds the lock and lets in one thread at a time."""

    def __init__(self, storage: LocalStorage, calls: Calls, options: Options) -> None:
        """Take over the directory, and fence older instances."""
        self._storage = storage
        self._options = options
        self._unsaved = 0
        # In this order: what is issued by others after their claims were taken, they find out.
        self.claim = Claim.take(storage)
        self.state = read_newest(storage)
        self.outbox = Outbox(storage, calls, self.claim.epoch, options.segment_bytes)
        self.found = self.outbox.load(self.state, rescue=options.salvage)
        self.state.epoch = self.claim.epoch
        self._continue_behind(self.found)
        self.save()
        self._tidy()

    @property
    def is_due(self) -> bool:
        """Whether acknowledgements are worth a durable state."""
        return self._unsaved >= self._options.reserve or bool(self.outbox.finished())

    def counter(self, partition: int) -> Counter:
        """The counter of a partition, made if it is new."""
        return self.state.counters.setdefault(partition, Counter())

    def next_sequence(self, partition: int) -> int:
        """The sequence that the next message of a partition gets."""
        counter = self.state.counters.get(partition)
        return counter.next if counter else 0

    def stamped(self, wanted: list[tuple[int, bytes]]) -> tuple[Messages, dict[int, int]]:
        """Messages with their sequences, and where each partition then stands."""
        ends: dict[int, int] = {}
        stamped: Messages = []
        for partition, payload in wanted:
            sequence = ends.get(partition)
            if sequence is None:
                sequence = self.next_sequence(partition)
            stamped.append((partition, sequence, payload))
            ends[partition] = sequence + 1
        spent = [partition for partition, end in ends.items() if end > END]
        if spent:
            raise SequencesExhausted(f"partition {spent[0]} has no sequence left up to 2^63-1")
        return stamped, ends

    def make_room(self, ends: Mapping[int, int], size: int) -> None:
        """Reserve sequences up to there and a place in the outbox; one durable state for both."""
        short = [p for p, end in ends.items() if end > self.counter(p).reserved]
        if not self.outbox.has_room(size):
            self.outbox.begin()
        elif not short:
            return
        try:
            self.save({p: min(ends[p] + self._options.reserve - 1, END) for p in short})
        except BaseException:
            # The next one must not find room in a segment that no state declares.
            self.outbox.seal()
            raise

    def append(self, stamped: Messages) -> None:
        """Put messages into the outbox, durably."""
        try:
            self.outbox.append(stamped)
        except NotFound:
            self.claim.lose("its outbox was replaced, as by the restore of a backup")
            self.claim.check()

    def drop(self, keys: Iterable[Key]) -> int:
        """Take messages that the log holds out of the outbox."""
        dropped = 0
        for key in keys:
            if self.outbox.drop(key):
                self.counter(key[0]).acknowledged.add(key[1], key[1] + 1)
                dropped += 1
        self._unsaved += dropped
        return dropped

    def drop_range(self, partition: int, first: int, end: int) -> int:
        """The same for consecutive messages of one partition."""
        if end - first > len(self.outbox):
            waiting = self.outbox.keys()
            return self.drop(k for k in waiting if k[0] == partition and first <= k[1] < end)
        keys = [(partition, sequence) for sequence in range(first, end)]
        if not all(map(self.outbox.__contains__, keys)):
            return self.drop(keys)
        for key in keys:
            self.outbox.drop(key)
        self.counter(partition).acknowledged.add(first, end)
        self._unsaved += len(keys)
        return len(keys)

    def save(self, reserve: Mapping[int, int] = MappingProxyType({})) -> None:
        """Replace the durable state, then delete what it no longer names."""
        state, finished = self.state, self.outbox.finished()
        state.segments, state.growing = self.outbox.declared(), self.outbox.growing
        self._storage.replace(state_name(state.epoch), state.encode(reserve))
        # A newer instance may have read the state before; then it does not know this one.
        self.claim.check()
        self._unsaved = 0
        for partition, counter in state.counters.items():
            counter.reserved = max(counter.reserved, counter.next, reserve.get(partition, 0))
        for segment in finished:
            for partition, span in segment.spans.items():
                self.counter(partition).acknowledged.remove(*span)
        self.outbox.forget(finished)

    def _continue_behind(self, found: Found) -> None:
        for partition, highest in found.highest.items():
            counter = self.counter(partition)
            counter.next = max(counter.next, highest + 1)
        if found.doubtful:
            # What was lost at the end may have been sent: its sequences are not given again.
            for counter in self.state.counters.values():
                counter.skip_to(counter.reserved)

    def _tidy(self) -> None:
        """Delete what older instances left and the durable state does not name."""
        files = look(self._storage)
        named = {(each.epoch, each.number) for each in self.state.segments}
        stale = [state_name(epoch) for epoch in files.states if epoch < self.claim.epoch]
        stale += [
            segment_name(*each)
            for each in files.segments
            if each[0] <= self.claim.epoch and each not in named
        ]
        for name in stale:
            # The next opening tries again.
            with suppress(StorageFailed):
                self._storage.delete(name)
        for entry in self._storage.list(temporary=True):
            # Whoever writes here holds the lock, or is fenced and must not finish anyway.
            with suppress(OSError):
                Path(self._storage.uri, entry.name).unlink()
