"""Producers of a log: everything that was sent is there, under one stamp each."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluicegate.dedup.stamp import Stamp
from sluicegate.errors import Locked, NotFound, StorageFailed, UsageError
from sluicegate.producer.log_producer import STAMP, Columns, LogProducer, RecordInvalid, Sending
from sluicegate.producer.producer import IdempotentProducer, Options
from sluicegate.sources.log.layout import MAX_RECORD, segment_key
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.writer import LogWriter, LogWriterStopped
from sluicegate.storage import LocalStorage
from tests.sources.logs import forget, held, in_memory
from tests.support.faults import Aftermath, Disk, cut_points, files_up_to

ID = "shop/checkout"
EVERYTHING = os.environ.get("SG_LAB") == "all"
AFTERMATHS = tuple(Aftermath) if EVERYTHING else (Aftermath.KILL, Aftermath.POWER_LOSS)
SMALL = Sending(segment_bytes=200, outbox=Options(reserve=4, segment_bytes=300), timeout=0)


@pytest.fixture
def scratch() -> Iterator[Path]:
    forget()
    with in_memory() as path:
        yield path


@pytest.fixture
def log(scratch: Path) -> Log:
    return Log.create(str(scratch / "log"), 2)


def opened(scratch: Path, **changes: Any) -> LogProducer:
    return LogProducer.open(str(scratch / "log"), scratch / "producer", ID, **changes)


def records(log: Log, partition: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in held(log, partition)]


class TestSending:
    def test_records_carry_their_stamps(self, scratch: Path, log: Log) -> None:
        with opened(scratch) as producer:
            stamps = producer.send_many([(1, {"user": "ä"}), (0, b'{"n": 1}'), (1, "{}")])
            assert producer.send(1, {"n": None}) == Stamp(ID, 1, 2)
        assert stamps == [Stamp(ID, 1, 0), Stamp(ID, 0, 0), Stamp(ID, 1, 1)]
        stamp = {"producer": ID, "partition": 1}
        assert records(log, 0) == [{"n": 1, "producer": ID, "partition": 0, "seq": 0}]
        assert records(log, 1) == [
            {"user": "ä", **stamp, "seq": 0},
            {**stamp, "seq": 1},
            {"n": None, **stamp, "seq": 2},
        ]
        with opened(scratch) as producer:
            assert producer.next_sequence(1) == 3
            assert producer.flush() == 0, "nothing is owed"
            assert producer.send(1, {}).sequence == 3

    def test_the_columns_have_other_names_on_request(self, scratch: Path, log: Log) -> None:
        with opened(scratch, stamp=("p", "%d", '"q"')) as producer:
            producer.send(0, {"partition": 7})
        assert records(log) == [{"partition": 7, "p": ID, "%d": 0, '"q"': 0}]

    @pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "b"), ("a", "", "c"), "abc"])
    def test_columns_that_cannot_be(self, names: Any) -> None:
        with pytest.raises(UsageError):
            Columns(names, ID)

    @pytest.mark.parametrize(
        "wrong",
        [
            [1],
            7,
            None,
            b"[1]",
            b"{",
            b"\xff{}",
            "{} {}",
            '{"x": NaN}',
            {"x": float("inf")},
            {"x": object()},
            {"x": "\ud800"},
            {"seq": 1},
            b'{"partition": 1}',
            {"x": "x" * MAX_RECORD},
        ],
        ids=lambda wrong: repr(wrong)[:20],
    )
    def test_what_is_no_record_is_refused_altogether(
        self, scratch: Path, log: Log, wrong: Any
    ) -> None:
        with opened(scratch) as producer:
            with pytest.raises(RecordInvalid):
                producer.send_many([(0, {"good": 1}), (0, wrong)])
            with pytest.raises(UsageError):
                producer.send_many([(0, {"good": 1}), (2, {})])
            assert producer.send(0, {}).sequence == 0
        assert len(held(log)) == 1

    def test_json_over_several_lines_becomes_one(self, scratch: Path, log: Log) -> None:
        value = {"a": [1, {"b": "x\ny"}], "c": 1.5}
        with opened(scratch) as producer:
            producer.send(0, "\n" + json.dumps(value, indent=2) + " \n")
            producer.send(0, b"{\n}")
        assert [{**r, "seq": 0} for r in records(log)] == [
            {**value, "producer": ID, "partition": 0, "seq": 0},
            {"producer": ID, "partition": 0, "seq": 0},
        ]

    def test_there_must_be_a_log(self, scratch: Path) -> None:
        with pytest.raises(NotFound):
            opened(scratch)
        assert not (scratch / "producer").exists()


class TestOwing:
    def test_what_is_owed_is_sent_first_and_in_order(self, scratch: Path, log: Log) -> None:
        impatient = Sending(timeout=0)
        with opened(scratch, sending=impatient) as producer:
            with LogWriter(log.uri, 0), pytest.raises(Locked):
                producer.send_many([(0, {"n": 0}), (1, {"n": 0}), (0, {"n": 1})])
            assert held(log) == []
            producer.send(0, {"n": 2})
            assert [r["n"] for r in records(log)] == [0, 1, 2]
            assert [r["n"] for r in records(log, 1)] == [0]

    def test_what_is_owed_is_sent_by_the_next_opening(self, scratch: Path, log: Log) -> None:
        with (
            opened(scratch, sending=Sending(timeout=0)) as producer,
            LogWriter(log.uri, 0),
            pytest.raises(Locked),
        ):
            producer.send_many([(0, {"n": n}) for n in range(2500)])
        with opened(scratch) as producer:
            assert [r["n"] for r in records(log)] == list(range(2500))
            assert producer.next_sequence(0) == 2500

    def test_given_what_the_log_holds_it_does_not_send_it_again(
        self, scratch: Path, log: Log
    ) -> None:
        with IdempotentProducer.create(scratch / "producer", ID) as issued:
            issued.issue_many([(0, b"{}")] * 3)
        with opened(scratch, sending=Sending(in_log={0: range(2)})) as producer:
            assert [r["seq"] for r in records(log)] == [2]
            assert producer.send(0, {}).sequence == 3

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
    def test_after_a_failure_it_stops_and_the_next_opening_continues(
        self, scratch: Path, log: Log, code: int
    ) -> None:
        number = stopped = 0
        left: int | None = None
        failed = True

        def fail(_at: int, _call: str) -> None:
            nonlocal failed, left
            if left == 0:
                failed, left = True, None
                raise OSError(code, os.strerror(code))
            left = None if left is None else left - 1

        while failed:
            failed = False
            process = Disk(scratch).process(fail)
            sending = Sending(segment_bytes=300, outbox=SMALL.outbox, calls=process)
            with opened(scratch, sending=sending) as producer:
                before, left = producer.next_sequence(0), number
                try:
                    producer.send_many([(0, {"round": number})] * 3)
                except StorageFailed:
                    try:
                        producer.send(0, {})
                    except LogWriterStopped:
                        stopped += 1
                left = None
            with opened(scratch) as producer:
                assert failed or producer.next_sequence(0) == before + 3
            number += 1
        assert number > 5
        assert stopped > 2
        found = [r["seq"] for r in records(log)]
        assert found == list(range(len(found))), "each once and in order, whatever failed"

    def test_after_a_full_disk_only_what_is_missing_is_sent(self, scratch: Path, log: Log) -> None:
        """The kernel writes as much as there is room for, and then refuses."""
        with opened(scratch) as producer:
            producer.send_many([(0, {"n": n}) for n in range(200)])
            segment = scratch / "log" / segment_key(0, 0)
            with files_up_to(segment.stat().st_size + 1000), pytest.raises(StorageFailed):
                producer.send_many([(0, {"n": n}) for n in range(200, 240)])
        some = log.end(0)
        assert 200 < some < 240, "a part of the batch is in the log"
        with opened(scratch) as producer:
            assert producer.next_sequence(0) == 240
        assert [r["seq"] for r in records(log)] == list(range(240))

    def test_records_of_others_are_not_taken_for_its_own(self, scratch: Path, log: Log) -> None:
        with LogWriter(log.uri, 0) as writer:
            other = Columns(STAMP, "other")
            own = b'"producer":"%s","partition":0,"seq":%d}' % (ID.encode(), 0)
            writer.append(
                [
                    b'{"nested":{' + own + b"}",
                    b'{"a\\' + own,
                    b'{"partition":1,' + own.replace(b'"partition":0', b'"partition":1'),
                    *other.stamped(0, [(0, b"{}"), (1, b"{" + own)]),
                ]
            )
        with IdempotentProducer.create(scratch / "producer", ID) as issued:
            issued.issue_many([(0, b"{}")] * 2)
        with opened(scratch):
            assert [r["seq"] for r in records(log) if r.get("producer") == ID][-2:] == [0, 1]
            assert log.end(0) == 7

    def test_it_looks_into_older_segments(self, scratch: Path, log: Log) -> None:
        """Others have appended since."""
        with IdempotentProducer.create(scratch / "producer", ID) as issued:
            issued.issue_many([(0, b"{}")] * 5)
        with LogWriter(log.uri, 0, segment_bytes=1) as writer:
            for line in Columns(STAMP, ID).stamped(0, [(n, b"{}") for n in range(3)]):
                writer.append([line])
                writer.append([b"{}"])
        with opened(scratch):
            found = [r["seq"] for r in records(log) if r]
            assert found == list(range(5))


def _act(storage: LocalStorage) -> None:
    sending = Sending(SMALL.segment_bytes, 0, SMALL.outbox, calls=storage._calls)
    root = Path(storage.uri)
    with opened(root, sending=sending) as producer:
        producer.send_many([(n % 2, {"n": n}) for n in range(4, 10)])
        producer.send(0, {"n": 10})


def _prepare(storage: LocalStorage) -> None:
    root = Path(storage.uri)
    Log.create(str(root / "log"), 2)
    with opened(root, sending=SMALL) as producer:
        producer.send_many([(n % 2, {"n": n}) for n in range(4)])


def test_killed_at_every_call(scratch: Path) -> None:
    """What was acknowledged is in the log, and nothing is there twice."""
    cuts = 0
    for cut in cut_points(scratch, _prepare, _act, AFTERMATHS):
        forget()
        cuts += 1
        try:
            with opened(cut.root, sending=SMALL) as producer:
                sent = {p: producer.next_sequence(p) for p in (0, 1)}
                producer.send_many([(0, {"n": "after"}), (1, {"n": "after"})])
            log = Log.open(str(cut.root / "log"))
            for partition in (0, 1):
                found = records(log, partition)
                by_stamp = {r["seq"]: r["n"] for r in found}
                assert [r["seq"] for r in found] == sorted(by_stamp), "each once and in order"
                numbers = [by_stamp[seq] for seq in sorted(by_stamp)]
                whole = [n for n in range(11) if n % 2 == partition]
                assert numbers[:-1] == whole[: len(numbers) - 1]
                assert len(numbers) - 1 >= 2
                assert numbers[:-1] == whole or not cut.acknowledged
                assert by_stamp[sent[partition]] == "after"
        except Exception as e:
            e.add_note(str(cut))
            raise
        forget()
    assert cuts > 100
