"""Producers: damage is reported or cut off, never guessed."""

from __future__ import annotations

import os
import random
import shutil
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from sluicegate.codec import Format
from sluicegate.dedup.stamp import Stamp
from sluicegate.errors import Corrupt, UnsupportedFormat
from sluicegate.producer.outbox import OutboxDamaged, encode_group
from sluicegate.producer.producer import IdempotentProducer, Options
from sluicegate.producer.state import MARKER, StateDamaged
from tests.producer.producers import ID, SMALL, abandon, segments, sent, stamp


class TestDamage:
    @pytest.fixture
    def issued(self, home: Path) -> dict[Stamp, bytes]:
        """Messages in two segments that are full and in one that was growing; not closed."""
        producer = IdempotentProducer.open(home, SMALL)
        issued = {producer.issue(0, b"%d" % n * 25): b"%d" % n * 25 for n in range(5)}
        abandon(producer)
        assert len(segments(home)) == 3
        return issued

    def test_a_damaged_state_is_reported(self, home: Path, issued: dict[Stamp, bytes]) -> None:
        (path,) = home.glob("*.state")
        intact = path.read_bytes()
        chance = random.Random(3)
        damages = [intact[:at] for at in (0, 7, 63, 64, len(intact) - 1)]
        for _ in range(60):
            at = chance.randrange(len(intact))
            damages.append(
                intact[:at] + bytes([intact[at] ^ chance.randint(1, 255)]) + intact[at + 1 :]
            )
        damages += [intact + b"x", b"", encode_group([(0, 0, b"")], 1, 0)]
        for damage in damages:
            path.write_bytes(damage)
            with pytest.raises(StateDamaged) as caught:
                IdempotentProducer.open(home)
            assert str(path) in caught.value.message
            assert "backup" in caught.value.hint
        path.unlink()
        with pytest.raises(StateDamaged, match="no state"):
            IdempotentProducer.open(home)
        with pytest.raises(StateDamaged):
            IdempotentProducer.create(home, ID)
        path.write_bytes(intact)
        with IdempotentProducer.open(home) as producer:
            assert sent(producer) == issued, "nothing was changed by refusing"

    def test_the_marker_too(self, home: Path) -> None:
        (home / MARKER.name).write_bytes(b"x")
        for refused in (
            IdempotentProducer.open,
            partial(IdempotentProducer.create, producer_id=ID),
        ):
            with pytest.raises(Corrupt):
                refused(home)

    def test_any_flip_in_any_segment_is_reported_or_cut(
        self, home: Path, issued: dict[Stamp, bytes]
    ) -> None:
        """Damage to what a state calls durable is refused; behind that it is like a torn end."""
        refused = cut = 0
        chance = random.Random(5)
        for number, path in enumerate(segments(home)):
            intact = path.read_bytes()
            for at in chance.sample(range(len(intact)), 60):
                copy = home.with_name("copy")
                shutil.copytree(home, copy)
                flipped = bytearray(intact)
                flipped[at] ^= chance.randint(1, 255)
                (copy / path.name).write_bytes(flipped)
                try:
                    producer = IdempotentProducer.open(copy, SMALL)
                except (OutboxDamaged, UnsupportedFormat) as e:
                    assert str(copy / path.name) in e.message
                    refused += 1
                else:
                    assert number == 2, "full segments have a known length"
                    self.check_cut(producer, issued)
                    cut += 1
                shutil.rmtree(copy)
        assert refused > 120
        assert cut > 20

    def check_cut(self, producer: IdempotentProducer, issued: dict[Stamp, bytes]) -> None:
        with producer:
            assert producer.found.cut > 0
            assert sent(producer).items() <= issued.items()
            assert producer.issue(0, b"new") not in issued, "issued stamps are not used again"

    @pytest.mark.parametrize("end", [b"\x89", b"\x89SOB", b"half a header", b"whole header", b""])
    def test_a_torn_end_is_cut_and_leaves_no_gap(
        self, home: Path, issued: dict[Stamp, bytes], end: bytes
    ) -> None:
        last = segments(home)[-1]
        epoch = int(last.name[:20])
        group = encode_group([(0, 5, b"torn" * 9)], epoch, last.stat().st_size)
        torn = {b"half a header": group[:20], b"whole header": group[:-1]}.get(end, end)
        with last.open("ab") as stream:
            stream.write(torn)
        for _ in range(2):
            producer = IdempotentProducer.open(home)
            assert sent(producer) == issued
            assert (producer.found.cut, producer.found.doubtful) == (len(torn), False)
            torn = b""
            assert not producer.was_issued(stamp(5))
            abandon(producer)
        with IdempotentProducer.open(home) as producer:
            assert producer.issue(0, b"a") == stamp(5)

    @pytest.mark.parametrize("end", [b"garbage", bytes(4096), b"\x89SOB" * 20])
    def test_an_end_that_may_be_damage_costs_its_range(
        self, home: Path, issued: dict[Stamp, bytes], end: bytes
    ) -> None:
        with segments(home)[-1].open("ab") as stream:
            stream.write(end)
        with IdempotentProducer.open(home) as producer:
            assert (producer.found.cut, producer.found.doubtful) == (len(end), True)
            assert sent(producer) == issued
            assert producer.issue(0, b"a").sequence == 8, "reserved up to there"
            assert not producer.was_issued(stamp(6))
            producer.reconcile({0: [6]})
            assert producer.was_issued(stamp(6))

    def test_payloads_that_look_like_groups_are_not_mistaken(self, home: Path) -> None:
        with IdempotentProducer.open(home) as producer:
            producer.issue(0, b"first")
            path = segments(home)[-1]
            epoch, size = int(path.name[:20]), path.stat().st_size
            inner = encode_group([(0, 77, b"inner")], epoch, size)
            producer.issue(0, inner + b"the end")
            abandon(producer)
        os.truncate(path, path.stat().st_size - 1)
        with IdempotentProducer.open(home) as producer:
            assert sent(producer) == {stamp(0): b"first"}

    @pytest.mark.parametrize("number", range(3))
    def test_salvage_keeps_what_can_be_read(
        self, home: Path, issued: dict[Stamp, bytes], number: int
    ) -> None:
        path = segments(home)[number]
        damaged = bytearray(path.read_bytes())
        damaged[damaged.index(b"%d" % (number * 2) * 25)] ^= 1
        if number == 2:
            damaged += encode_group([(0, 9, b"behind")], int(path.name[:20]), len(damaged))
            issued[stamp(9)] = b"behind"
        path.write_bytes(damaged)
        with pytest.raises(OutboxDamaged, match="damaged before its end") as caught:
            IdempotentProducer.open(home)
        assert "salvage=True" in caught.value.hint
        producer = IdempotentProducer.open(home, Options(salvage=True))
        del issued[stamp(number * 2)]
        assert sent(producer) == issued
        assert producer.found.damaged == [str(path)]
        assert path.with_name(path.name + ".damaged").read_bytes() == damaged
        abandon(producer)
        with IdempotentProducer.open(home) as producer:
            assert sent(producer) == issued
            assert producer.issue(0, b"new") not in issued

    def test_a_missing_segment_is_reported(self, home: Path, issued: dict[Stamp, bytes]) -> None:
        segments(home)[1].unlink()
        with pytest.raises(OutboxDamaged, match="is missing"):
            IdempotentProducer.open(home)
        with IdempotentProducer.open(home, Options(salvage=True)) as producer:
            assert set(sent(producer)) == {stamp(0), stamp(1), stamp(4)}

    def test_a_segment_that_rots_while_open_is_reported(
        self, home: Path, issued: dict[Stamp, bytes]
    ) -> None:
        with IdempotentProducer.open(home) as producer:
            path = segments(home)[0]
            path.write_bytes(path.read_bytes().replace(b"0" * 25, b"1" * 25))
            with pytest.raises(OutboxDamaged, match=path.name):
                list(producer.pending())

    def test_newer_formats_are_not_guessed_at(self, home: Path) -> None:
        newer = patch("sluicegate.producer.state.FORMAT", Format("producer", 2, 65536))
        with newer, IdempotentProducer.open(home):
            pass
        with pytest.raises(UnsupportedFormat, match="version 2"):
            IdempotentProducer.open(home)
