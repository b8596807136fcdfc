"""Producers: any sequence of calls and crashes equals a dictionary."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sluicegate.dedup.stamp import Stamp
from sluicegate.producer.producer import IdempotentProducer
from sluicegate.producer.state import ProducerFenced
from tests.producer.producers import ID, SMALL, abandon, lose_lock, sent, stamp
from tests.support.faults import Aftermath, Disk, Killed

PARTITIONS = (0, 1)
WINDOW = 12


class ProducerMachine(RuleBasedStateMachine):
    """A producer against dictionaries: any order of work, deaths at any call, zombies."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = TemporaryDirectory(
            dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        )
        self.root = Path(self.scratch.name) / "producer"
        IdempotentProducer.create(self.root, ID, SMALL, window=WINDOW).close()
        self.issued: dict[Stamp, bytes] = {}
        self.in_log: set[Stamp] = set()
        self.next = dict.fromkeys(PARTITIONS, 0)
        self.gaps: set[Stamp] = set()
        self.count = 0
        self.ending: tuple[int, Aftermath, int] | None = None
        self.zombies: list[IdempotentProducer] = []
        self.start()

    def start(self) -> None:
        self.left = -1
        self.disk = Disk(self.root)
        process = self.disk.process(self.on_call)
        self.producer = IdempotentProducer.open(self.root, SMALL, calls=process)
        assert not self.producer.found.doubtful

    def on_call(self, _number: int, _call: str) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def do(self, work: Callable[[], object], happen: Callable[[], object]) -> object:
        """Work that a doomed producer may die in; the model follows if it happened."""
        self.left, aftermath, seed = self.ending or (-1, Aftermath.KILL, 0)
        try:
            answer = work()
            happen()
        except Killed:
            self.crash(aftermath, seed)
            if {each: self.producer.next_sequence(each) for each in PARTITIONS} != self.next:
                happen()
            return None
        self.left, self.ending = -1, None
        return answer

    def crash(self, aftermath: Aftermath, seed: int) -> None:
        abandon(self.producer)
        self.disk.crash(aftermath, seed)
        self.ending = None
        self.start()

    @rule(calls=st.integers(0, 25), aftermath=st.sampled_from(Aftermath), seed=st.integers(0, 99))
    def doom(self, calls: int, aftermath: Aftermath, seed: int) -> None:
        self.ending = calls, aftermath, seed

    @rule(where=st.lists(st.sampled_from(PARTITIONS), max_size=7), size=st.integers(0, 90))
    def issue(self, where: list[int], size: int) -> None:
        messages = []
        for partition in where:
            self.count += 1
            messages.append((partition, b"%d." % self.count + b"x" * size))

        def happen() -> None:
            for partition, payload in messages:
                each = stamp(self.next[partition], partition)
                assert each not in self.issued
                self.issued[each] = payload
                self.next[partition] += 1

        before = dict(self.next)
        answer = self.do(lambda: self.producer.issue_many(messages), happen)
        if answer is not None:
            expected = [stamp(n, p) for p in PARTITIONS for n in range(before[p], self.next[p])]
            assert sorted(answer) == sorted(expected)  # type: ignore[call-overload]

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        if self.issued:
            chosen = data.draw(st.lists(st.sampled_from(sorted(self.issued)), max_size=9))
            self.in_log |= set(chosen)
            self.do(lambda: self.producer.acknowledge(chosen), lambda: None)

    @rule(partition=st.sampled_from(PARTITIONS), ahead=st.integers(-3, 5))
    def reissue(self, partition: int, ahead: int) -> None:
        chosen = stamp(max(0, self.next[partition] + ahead), partition)

        def happen() -> None:
            skipped = range(self.next[partition], chosen.sequence)
            self.gaps |= {stamp(each, partition) for each in skipped}
            self.gaps.discard(chosen)
            self.next[partition] = max(self.next[partition], chosen.sequence + 1)

        if self.ending and chosen in self.gaps:
            # Whether this happened cannot be seen from the position of the partition.
            self.ending = None
        self.do(lambda: self.producer.reissue(chosen), happen)

    @rule(partition=st.sampled_from(PARTITIONS), ahead=st.integers(-3, 5), whole=st.booleans())
    def reconcile(self, partition: int, ahead: int, whole: bool) -> None:
        highest = max(0, self.next[partition] + ahead)
        held = range(highest + 1) if whole else range(highest, highest + 1)
        there = {stamp(each, partition) for each in held}
        self.in_log |= there & self.issued.keys()
        if there & self.gaps:
            self.ending = None

        def happen() -> None:
            self.gaps -= there
            self.next[partition] = max(self.next[partition], highest + 1)

        in_log = {partition: held if whole else highest}
        self.do(lambda: self.producer.reconcile(in_log), happen)

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        if clean:
            self.do(self.producer.close, lambda: None)
            if not self.producer._closed:
                return
        self.producer.close() if clean else abandon(self.producer)
        self.start()

    @rule(aftermath=st.sampled_from(Aftermath), seed=st.integers(0, 99))
    def power_off(self, aftermath: Aftermath, seed: int) -> None:
        self.crash(aftermath, seed)

    @rule()
    def take_over(self) -> None:
        self.zombies.append(self.producer)
        lose_lock(self.root)
        self.start()

    @rule()
    def wake_up(self) -> None:
        for each in self.zombies:
            with pytest.raises(ProducerFenced):
                each.issue(0, b"zombie")
            each.close()
        self.zombies.clear()

    @invariant()
    def is_as_the_model(self) -> None:
        self.left = -1
        found = sent(self.producer)
        assert found.items() <= self.issued.items()
        assert found.keys() >= self.issued.keys() - self.in_log
        for partition in PARTITIONS:
            end = self.next[partition]
            assert self.producer.next_sequence(partition) == end
            for number in range(end + 3):
                each = stamp(number, partition)
                exact = number < end and each not in self.gaps
                assert self.producer.was_issued(each) == (number < end - WINDOW or exact)

    def teardown(self) -> None:
        for each in (*self.zombies, self.producer):
            abandon(each)
        self.scratch.cleanup()


TestProducerMachine = ProducerMachine.TestCase
TestProducerMachine.settings = settings(
    max_examples=100, stateful_step_count=30, suppress_health_check=list(HealthCheck)
)
