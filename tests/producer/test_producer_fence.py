"""Producers: of two instances only the newer one issues."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch

import pytest

from sluicegate.dedup.stamp import Stamp
from sluicegate.errors import Fenced
from sluicegate.producer.producer import IdempotentProducer
from sluicegate.producer.state import ProducerFenced
from tests.producer.producers import ID, SMALL, abandon, lose_lock, sent, stamp
from tests.support.faults import Disk


class TestFence:
    """An instance whose lock was lost must find out before it hands out a stamp."""

    WORK: ClassVar[dict[str, Callable[[IdempotentProducer], object]]] = {
        "issue": lambda producer: producer.issue(0, b"zombie"),
        "a new segment": lambda producer: producer.issue(0, b"z" * 400),
        "a new range": lambda producer: producer.issue_many([(0, b"z")] * 9),
        "acknowledge": lambda producer: producer.acknowledge([stamp(0), stamp(1)]),
        "reissue": lambda producer: producer.reissue(stamp(70)),
        "reconcile": lambda producer: producer.reconcile({0: 80}),
    }

    @pytest.mark.parametrize("work", WORK)
    def test_a_zombie_is_fenced_for_good(self, home: Path, work: str) -> None:
        zombie = IdempotentProducer.open(home, SMALL)
        zombie.issue_many([(0, b"a"), (0, b"b")])
        lose_lock(home)
        with IdempotentProducer.open(home) as newer:
            assert newer.epoch > zombie.epoch
            for _ in range(2):
                with pytest.raises(ProducerFenced, match=f"epoch {newer.epoch} was opened by"):
                    self.WORK[work](zombie)
            assert newer.issue(0, b"c") == stamp(2)
            zombie.close()
            assert sent(newer) == {stamp(0): b"a", stamp(1): b"b", stamp(2): b"c"}
        with IdempotentProducer.open(home) as newest:
            assert len(sent(newest)) == 3
        assert issubclass(ProducerFenced, Fenced)

    @pytest.mark.parametrize("work", WORK)
    def test_whenever_it_is_superseded(self, scratch: Path, work: str) -> None:
        """At each call of the zombie's work another instance is opened and issues."""
        outcomes: set[bool] = set()
        number, done = 0, False
        while not done:
            root = scratch / str(number)
            done = self.take_over(root, work, number, outcomes)
            number += 1
        assert number > 2
        assert outcomes == {True, False}, "some must be fenced and some come before"

    def take_over(
        self,
        root: Path,
        name: str,
        number: int,
        outcomes: set[bool],
    ) -> bool:
        """One run, in which the other comes before call `number`; True if there are fewer."""
        IdempotentProducer.create(root, ID).close()
        known: dict[Stamp, bytes] = {}
        newer: list[IdempotentProducer] = []
        armed = False

        def come_between(at: int, _call: str) -> None:
            nonlocal armed
            if armed and at >= first + number:
                armed = False
                lose_lock(root)
                newer.append(IdempotentProducer.open(root, SMALL))
                known.update({newer[0].issue(0, b"newer"): b"newer"})

        process = Disk(root).process(come_between)
        zombie = IdempotentProducer.open(root, SMALL, calls=process)
        # In two segments, so that acknowledging deletes one; the second has room for more.
        known |= {zombie.issue(0, b"s" * size): b"s" for size in (200, 1)}
        first, armed = len(process.made), True
        try:
            answer = self.WORK[name](zombie)
        except ProducerFenced:
            outcomes.add(True)
        else:
            outcomes.add(False)
            issued = answer if isinstance(answer, list) else [answer]
            zombies = [each for each in issued if isinstance(each, Stamp)]
            assert not known.keys() & set(zombies), "two messages under one stamp"
            known |= dict.fromkeys(zombies, b"z")
        fewer, armed = armed, False
        zombie.close()
        for other in newer:
            assert other.issue(0, b"more") not in known
            abandon(other)
        with IdempotentProducer.open(root) as last:
            found = sent(last)
            for each, payload in known.items():
                assert each not in found or found[each].startswith(payload[:1])
            assert last.issue(0, b"last") not in known.keys() | found.keys()
            acknowledged = [stamp(0), stamp(1)] if name == "acknowledge" else []
            assert found.keys() >= known.keys() - set(acknowledged)
        shutil.rmtree(root)
        return fewer

    def test_whenever_it_wakes_up_while_another_opens(self, scratch: Path) -> None:
        """At each call of the other's opening and first issue the zombie tries to issue."""
        number, late = 0, False
        while not late:
            root = scratch / str(number)
            zombie = IdempotentProducer.create(root, ID, SMALL)
            known = {zombie.issue(0, b"a"): b"a"}

            def wake_up(at: int, _call: str) -> None:
                if at == number:  # noqa: B023
                    try:
                        known[zombie.issue(0, b"zombie")] = b"zombie"  # noqa: B023
                    except ProducerFenced:
                        known[stamp(0, 9)] = b"fenced"  # noqa: B023

            lose_lock(root)
            process = Disk(root).process(wake_up)
            newer = IdempotentProducer.open(root, SMALL, calls=process)
            late = len(process.made) <= number
            issued = newer.issue(0, b"newer")
            assert issued not in known
            known.pop(stamp(0, 9), None)
            assert sent(newer).items() >= known.items()
            newer.close()
            zombie.close()
            with IdempotentProducer.open(root) as last:
                assert sent(last) == known | {issued: b"newer"}
            number += 1
        assert number > 10

    def test_a_zombie_that_reads_is_fenced_too(self, home: Path) -> None:
        zombie = IdempotentProducer.open(home)
        zombie.issue_many([(0, b"a"), (0, b"b")])
        reading = zombie.pending()
        lose_lock(home)
        with IdempotentProducer.open(home) as newer:
            newer.acknowledge([stamp(0), stamp(1)])
        with pytest.raises(ProducerFenced):
            list(reading)
        with pytest.raises(ProducerFenced):
            zombie.pending()
        abandon(zombie)

    def test_an_instance_that_outlives_a_restore_is_fenced(self, scratch: Path, home: Path) -> None:
        shutil.copytree(home, scratch / "before")
        zombie = IdempotentProducer.open(home)
        zombie.issue(0, b"a")
        shutil.copytree(home, scratch / "while")
        zombie.issue(0, b"b")
        for backup in ("while", "before"):
            shutil.rmtree(home)
            shutil.copytree(scratch / backup, home)
            # Its claim is in one of the backups, but its outbox is not the file it writes to.
            with pytest.raises(ProducerFenced, match="restore of a backup"):
                zombie.issue(0, b"c")
        with IdempotentProducer.open(home, in_log={0: 1}) as newer:
            assert newer.issue(0, b"d") == stamp(2)
            with pytest.raises(ProducerFenced):
                zombie.issue(0, b"e")
        zombie.close()

    def test_an_epoch_is_not_used_again_though_the_clock_stands_still(self, home: Path) -> None:
        with patch("time.time", return_value=1.0):
            epochs = []
            for _ in range(3):
                with IdempotentProducer.open(home) as producer:
                    epochs.append(producer.epoch)
        assert sorted(set(epochs)) == epochs

    def test_a_forked_child_may_not_issue(self, home: Path) -> None:
        script = (
            "import os, sys; from sluicegate.producer.producer import IdempotentProducer as P\n"
            "from sluicegate.errors import Fenced\n"
            "producer = P.open(sys.argv[1])\n"
            "if os.fork() == 0:\n"
            "    try: producer.issue(0, b'child')\n"
            "    except Fenced as e: print(e, flush=True)\n"
            "    os._exit(0)\n"
            "os.wait()\n"
            "print(producer.issue(0, b'parent').sequence)"
        )
        command = [sys.executable, "-c", script, str(home)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "forked" in done.stdout
        assert done.stdout.endswith("\n0\n")
