"""The dedup engine against what people use: a Python set of tuples, and a primary key in SQLite."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
from harness import Bar, Row

from sluicegate.dedup.ledger import DUPLICATE, Ledger, ledger_of
from sluicegate.dedup.segment import Entries
from sluicegate.dedup.stamp import Column, Stamps

COUNT, PRODUCERS = 10_000_000, 1_000
BATCH = 1_000_000  # producers; stamps come in one call
AGAIN, GAPS = 0.05, 0.01
SEGMENTS, PER_SEGMENT = 10_000, 500
GIB = 2**30
T = TypeVar("T")


def rows() -> Iterator[Row]:
    producers, sequences = _traffic(GAPS)
    shuffle = np.random.default_rng(1).permutation(len(producers))
    for name, order, least in (("in order", None, 20.0), ("shuffled", shuffle, 5.0)):
        numbers = (producers, sequences) if order is None else (producers[order], sequences[order])
        ours = _ours(*numbers)
        for peer, measure in (("a Python set", _set), ("SQLite", _sqlite)):
            title = f"insert and check 10 M stamps {name} / {peer}"
            yield _row(title, ours, measure(*numbers), Bar("rate at least", least))
    yield from _memory()
    yield _merge()
    yield _many_producers()


def _traffic(gaps: float) -> tuple[Column, Column]:
    """Producers that send in turns, skip some numbers, and send some messages again later."""
    chance = np.random.default_rng(0)
    first = round(COUNT * (1 - AGAIN)) // PRODUCERS
    steps = np.where(chance.random(first) < gaps, 2, 1).cumsum()
    producers, sequences = np.tile(np.arange(PRODUCERS), first), np.repeat(steps, PRODUCERS)
    again = np.sort(chance.integers(0, len(producers), COUNT - len(producers)))
    later = np.minimum(again + chance.integers(1, 50_000, len(again)), len(producers))
    return (
        np.insert(producers, later, producers[again]),
        np.insert(sequences, later, sequences[again]),
    )


def _ours(producers: Column, sequences: Column) -> float:
    names = pa.array([f"producer-{i}" for i in range(PRODUCERS)]).take(pa.array(producers))
    partitions = np.zeros(len(sequences), np.int64)

    def insert() -> int:
        return Ledger().insert(Stamps.of(names, partitions, sequences)).count(DUPLICATE)

    times = []
    for _ in range(3):
        seconds, again = _timed(insert)
        assert again == round(COUNT * AGAIN)
        times.append(seconds)
    return sorted(times)[1]


def _set(producers: Column, sequences: Column) -> float:
    names = [f"producer-{i}" for i in range(PRODUCERS)]
    shared = [names[i] for i in producers.tolist()]
    zeros, numbers = [0] * len(shared), sequences.tolist()

    def insert() -> int:
        seen: set[tuple[str, int, int]] = set()
        again = 0
        for stamp in zip(shared, zeros, numbers, strict=True):
            if stamp in seen:
                again += 1
            else:
                seen.add(stamp)
        return again

    seconds, again = _timed(insert)
    assert again == round(COUNT * AGAIN)
    return seconds


def _sqlite(producers: Column, sequences: Column) -> float:
    database = sqlite3.connect(":memory:")
    database.execute(
        "create table seen (producer text, partition int, sequence int, "
        "primary key (producer, partition, sequence)) without rowid"
    )
    names = [f"producer-{i}" for i in range(PRODUCERS)]
    stamps = zip([names[i] for i in producers.tolist()], sequences.tolist(), strict=True)
    insert = "insert or ignore into seen values (?, 0, ?)"
    seconds, _ = _timed(lambda: database.executemany(insert, stamps))
    (count,) = database.execute("select count(*) from seen").fetchone()
    assert count == COUNT - round(COUNT * AGAIN)
    return seconds


def _memory() -> Iterator[Row]:
    """Resting memory against the set's, by how many numbers are missing."""
    peer = float(_in_a_process("set_bytes"))
    for gaps in (0.0, 0.01, 0.1):
        producers, sequences = _traffic(gaps)
        names = pa.array([f"producer-{i}" for i in range(PRODUCERS)]).take(pa.array(producers))
        ledger = Ledger()
        ledger.insert(Stamps.of(names, np.zeros(len(sequences), np.int64), sequences))
        # The bar is for traffic in order; the other two show the cost of gaps.
        bar = Bar("time at most", 1 / 50) if gaps <= GAPS else Bar("time at most", 1)
        ratio = ledger.bytes / peer
        name = f"resting memory, {gaps:.0%} gaps / a Python set"
        yield Row(name, ledger.bytes, peer, ratio, str(bar), bar.met(ratio), unit="bytes")


def set_bytes() -> None:
    """Print what a set of all stamps takes."""
    producers, sequences = _traffic(GAPS)
    names = [f"producer-{i}" for i in range(PRODUCERS)]
    before = _resident()
    seen = {(names[p], 0, s) for p, s in zip(producers.tolist(), sequences.tolist(), strict=True)}
    assert len(seen) == COUNT - round(COUNT * AGAIN)
    print(_resident() - before)


def _merge() -> Row:
    """Many small segments become one: intervals per second against five million."""
    parts = [_segment(number) for number in range(SEGMENTS)]
    runs = [_timed(partial(ledger_of, *parts)) for _ in range(3)]
    assert all(merged.stamps == SEGMENTS * PER_SEGMENT for _, merged in runs)
    seconds = sorted(seconds for seconds, _ in runs)[1]
    peer = SEGMENTS * PER_SEGMENT / 5e6
    name = f"merge {SEGMENTS:,} segments / 5 M intervals per second"
    return _row(name, seconds, peer, Bar("rate at least", 1))


def _segment(number: int) -> Entries:
    names = pa.array([f"producer-{number % PRODUCERS}"]).take(pa.array(np.zeros(PER_SEGMENT, int)))
    first = (np.arange(PER_SEGMENT) * SEGMENTS + number) * 2
    zeros = np.zeros(PER_SEGMENT, np.int64)
    return Entries(names, zeros, first, first, zeros, np.zeros(PER_SEGMENT, bool))


def _many_producers() -> Row:
    peak = float(_in_a_process("many_producers"))
    bar = Bar("time at most", 1)
    ratio = peak / (2 * GIB)
    name = "10 M producers with one stamp each / 2 GiB"
    return Row(name, peak, 2 * GIB, ratio, str(bar), bar.met(ratio), unit="bytes")


def many_producers() -> None:
    """Print the peak memory of a process that sees ten million producers."""
    ledger = Ledger()
    for start in range(0, COUNT, BATCH):
        numbers = pa.array(np.arange(start, start + BATCH)).cast(pa.string())
        zeros = np.zeros(BATCH, np.int64)
        ledger.insert(Stamps.of(numbers, zeros, zeros))
    assert ledger.keys == COUNT
    # Not getrusage: that also counts what the parent had when it started this process.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(int(status["VmHWM"].split()[0]) * 1024)


def _in_a_process(function: str) -> str:
    code = f"import sys; sys.path.insert(0, {sys.path[0]!r}); import dedup; dedup.{function}()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def _row(name: str, ours: float, peer: float, bar: Bar) -> Row:
    ratio = bar.ratio(ours, peer)
    return Row(name, ours, peer, ratio, str(bar), bar.met(ratio))
