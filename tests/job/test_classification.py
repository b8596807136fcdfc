"""Tasks that classify: what is fresh is written, what is not is counted, once for every record."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluicegate.dedup.ledger import Ledger, ledger_of
from sluicegate.dedup.segment import Entries, decode
from sluicegate.dedup.stamp import Stamps
from sluicegate.job import aggregate, tasks
from sluicegate.job.aggregate import RESULT, SEGMENT
from sluicegate.job.records import OFFSET, PARTITION, REASON, VALUE, Records
from sluicegate.job.tasks import RecordClassifier
from sluicegate.job.work import Classified, Work
from sluicegate.sinks.base import DATA, REJECTS
from sluicegate.state.backend import EpochIncomplete
from sluicegate.storage.blobs import Ref
from sluicegate.stream import segments
from tests.job.truth import Row, Table
from tests.job.works import INCARNATION, blobs_of, classify, parsed, rows_in, work_of

TABLE = Table()


def event(sequence: int, *, producer: str = "p", partition: int = 0, price: int = 1) -> Row:
    return {
        "producer": producer,
        "partition": partition,
        "seq": sequence,
        "user": f"u{sequence % 3}",
        "price": price,
    }


def result_of(batch: Any) -> Classified:
    return Classified.from_text(batch.column(RESULT)[0].as_py())


def seen(work: Work, *sequences: int, expire: bool = False, producer: str = "p") -> Ref:
    """A segment that knows these sequences, or only that it is below a floor."""
    ledger = Ledger()
    count = len(sequences)
    ledger.insert(Stamps.of([producer] * count, [0] * count, sequences), at_ms=1)
    if expire:
        ledger.expire(2)
    return put(work, ledger.entries())


def put(work: Work, entries: Entries) -> Ref:
    ref = segments.put(blobs_of(work), entries)
    assert ref
    return ref


def test_duplicates_in_a_piece_between_pieces_and_of_before(tmp_path: Path) -> None:
    work = work_of(tmp_path, TABLE)
    work = replace(work, dedup=(seen(work, 0, 1, 2),))
    one = parsed(work, [event(n) for n in (2, 3, 4, 3)])
    two = parsed(work, [event(n) for n in (4, 5, 1)], first=4)
    classified, batches = classify(work, one, two)
    assert (classified.read, classified.applied, classified.duplicates, classified.rejected) == (
        7,
        3,
        4,
        0,
    )
    assert [(r["seq"], r[OFFSET]) for r in rows_in(work, classified, DATA)] == [
        (3, 1),
        (4, 2),
        (5, 5),
    ]
    learnt = decode(batches[-1].column(SEGMENT)[0].as_py(), "learnt")
    assert (learnt.first.tolist(), learnt.last.tolist()) == ([3], [5])


def test_the_first_of_equal_ones_counts(tmp_path: Path) -> None:
    work = work_of(tmp_path, TABLE)
    rows = [event(1, price=10), event(1, price=20)]
    classified, _ = classify(work, parsed(work, rows))
    assert [r["price"] for r in rows_in(work, classified, DATA)] == [10]


def test_source_positions_as_stamps(tmp_path: Path) -> None:
    work = work_of(tmp_path, Table(stamp=()))
    again = [{"user": "u", "price": 1}] * 3
    classified, batches = classify(
        work, parsed(work, again), parsed(work, again, partition=1, first=8)
    )
    assert (classified.read, classified.applied) == (6, 6)
    learnt = decode(batches[-1].column(SEGMENT)[0].as_py(), "learnt")
    assert learnt.producers.to_pylist() == [INCARNATION] * 2
    assert (learnt.first.tolist(), learnt.last.tolist()) == ([0, 8], [2, 10])
    # What was read is not read again, and a log that was replaced has other records.
    work = replace(work, dedup=(put(work, learnt),))
    classified, _ = classify(work, parsed(work, again, first=2))
    assert (classified.applied, classified.duplicates) == (2, 1)
    classified, _ = classify(replace(work, incarnation="events@2"), parsed(work, again, first=2))
    assert classified.applied == 3


def test_stamps_below_a_floor_are_rejected_with_the_record(tmp_path: Path) -> None:
    work = work_of(tmp_path, TABLE)
    work = replace(work, dedup=(seen(work, 0, 1, 9, expire=True),))
    rows = [event(4), event(9), event(10), event(10), {"user": "no stamp"}]
    classified, _ = classify(work, parsed(work, rows, partition=2, first=50))
    assert (classified.read, classified.applied, classified.duplicates, classified.rejected) == (
        5,
        1,
        1,
        3,
    )
    rejects = {r[OFFSET]: r for r in rows_in(work, classified, REJECTS)}
    assert {(r[PARTITION], r[OFFSET]) for r in rejects.values()} == {(2, 50), (2, 51), (2, 54)}
    assert "below the retention floor" in rejects[50][REASON]
    # As it can be read again.
    assert json.loads(rejects[50][VALUE]) == event(4)
    assert rejects[54][REASON] == "it has no stamp"


def test_rejects_that_are_read_again_are_duplicates(tmp_path: Path) -> None:
    """By their place; a record that a fixed table can read is classified by its own stamp."""
    fixed = Table(stamp=(), columns={"price": "string"})
    for table in (TABLE, Table(stamp=())):
        work = work_of(tmp_path, table)
        bad = [{"user": "no stamp"}, {**event(1), "price": "1"}]
        classified, batches = classify(work, parsed(work, bad, first=7))
        assert classified.rejected == (2 if table.stamp else 1)
        learnt = decode(batches[-1].column(SEGMENT)[0].as_py(), "learnt")
        work = replace(work, dedup=(put(work, learnt),))
        classified, _ = classify(work, parsed(work, bad, first=7))
        assert (classified.read, classified.duplicates, dict(classified.files)) == (2, 2, {})
    other = replace(work_of(tmp_path, fixed), dedup=work.dedup)
    classified, _ = classify(other, parsed(other, bad, first=7))
    assert (classified.applied, classified.duplicates) == (1, 1)


def test_nothing_fresh_writes_nothing(tmp_path: Path) -> None:
    work = work_of(tmp_path, TABLE)
    work = replace(work, dedup=(seen(work, 0, 1),))
    classified, batches = classify(work, parsed(work, [event(0), event(1)]))
    assert (classified.applied, classified.duplicates, dict(classified.files)) == (0, 2, {})
    assert len(batches) == 1
    assert os.listdir(work.attempts) == []


def test_a_repeated_attempt_gives_the_same(tmp_path: Path) -> None:
    """Spark may run a task several times, in one worker that keeps what it knows."""
    work = work_of(tmp_path, TABLE)
    work = replace(work, dedup=(seen(work, 3),))
    records = parsed(work, [event(n) for n in range(6)])
    first, second = classify(work, records), classify(work, records)
    assert first[0].applied == second[0].applied == 5
    assert first[1][-1].column(SEGMENT) == second[1][-1].column(SEGMENT)
    names = {each.files[DATA][0].name for each in (first[0], second[0])}
    assert len(names) == 2, "an attempt never writes to the file of another one"


def test_a_worker_follows_whatever_becomes_of_the_dedup_log(tmp_path: Path) -> None:
    """It grows, is compacted, and is rolled back; a worker's cache follows."""
    chance = random.Random(3)
    work = work_of(tmp_path, TABLE)
    sets: list[set[int]] = []
    refs: list[Ref] = []
    for _ in range(40):
        match chance.choice(["grow", "grow", "grow", "roll back", "compact", "elsewhere"]):
            case "grow":
                sets.append({chance.randrange(50) for _ in range(4)})
                refs.append(seen(work, *sets[-1]))
            case "roll back":
                keep = chance.randint(0, len(refs))
                sets, refs = sets[:keep], refs[:keep]
            case "compact" if refs:
                merged = ledger_of(*(decode(blobs_of(work).get(r), r.key) for r in refs))
                sets, refs = [set().union(*sets)], [seen(work, *sorted(set().union(*sets)))]
                assert merged.stamps == len(sets[0])
            case _:
                other = work_of(tmp_path / "other", TABLE)
                classify(
                    replace(other, dedup=(seen(other, *range(50)),)), parsed(other, [event(1)])
                )
        known: set[int] = set().union(*sets)
        classified, _ = classify(
            replace(work, dedup=tuple(refs)), parsed(work, map(event, range(50)))
        )
        assert classified.duplicates == len(known)


@pytest.mark.parametrize("most", [1, 10_000, 1 << 28])
def test_classified_together_the_smallest_position_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """What comes from several partitions in their order, with rejects among it, in pieces."""
    monkeypatch.setattr(tasks, "_PIECE_BYTES", most)
    chance = random.Random(1)
    work = work_of(tmp_path, TABLE, tasks=1)
    batches: list[pa.RecordBatch] = []
    places = bad = 0
    best: dict[int, int] = {}
    for partition in range(4):
        rows: list[Row] = []
        for offset in range(200):
            sequence = chance.randrange(150)
            rows.append(event(sequence, price=partition * 1000 + offset))
            best[sequence] = min(best.get(sequence, 9999), partition * 1000 + offset)
            places += 1
        rows.append({"user": "no stamp"})
        bad += 1
        batches += tasks._sent(work, parsed(work, rows, partition))
    places_of = [(PARTITION, "ascending"), (OFFSET, "ascending")]
    together = pa.Table.from_batches(batches).sort_by(places_of)
    results = list(tasks.classify_all(work, iter(together.to_batches(50))))[-1]
    classified = result_of(results)
    assert (classified.read, classified.applied) == (places + bad, len(best))
    assert classified.rejected == bad
    found = {r["seq"]: r["price"] for r in rows_in(work, classified, DATA)}
    assert found == best


def test_classified_together_out_of_order_ends_the_epoch(tmp_path: Path) -> None:
    work = work_of(tmp_path, TABLE, tasks=1)
    for first, second in (((0, 8), (0, 7)), ((1, 0), (0, 9))):
        batches = [
            batch
            for partition, offset in (first, second)
            for batch in tasks._sent(work, parsed(work, [event(offset)], partition, offset))
        ]
        with pytest.raises(EpochIncomplete, match="not sorted by their places"):
            list(tasks.classify_all(work, iter(batches)))


def test_classified_together_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts of 48 MB, of which no more than a few pieces are in memory."""
    monkeypatch.setattr(tasks, "_PIECE_BYTES", 4 << 20)
    monkeypatch.setattr(aggregate, "_BYTES_AT_ONCE", 4 << 20)
    table = Table(columns={"text": "string"}, aggregates={"last": "max(text)"})
    work = work_of(tmp_path, table, tasks=1)
    before, most = pa.total_allocated_bytes(), 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for at in range(0, 1024, 16):
            some = [{**event(n), "text": f"{n}" * 16384} for n in range(at, at + 16)]
            yield from tasks._sent(work, parsed(work, some, first=at))
            most = max(most, pa.total_allocated_bytes() - before)

    classified = result_of(list(tasks.classify_all(work, batches()))[-1])
    assert (classified.read, classified.applied) == (1024, 1024)
    assert 1 << 20 < most < 24 << 20


def test_nothing_at_all(tmp_path: Path) -> None:
    work = work_of(tmp_path, TABLE)
    classifier = RecordClassifier(work)
    empty = parsed(work, [event(1)])
    classifier.add(Records(empty.rows.slice(0, 0), empty.rejects))
    [results] = list(classifier.finish())
    assert result_of(results).read == 0
    [results] = list(tasks.classify_all(work, iter([])))
    assert result_of(results).read == 0
