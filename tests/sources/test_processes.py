"""Real processes that write to one partition, killed at random, and one that reads beside them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.producer.log_producer import LogProducer
from sluicegate.sources.log.log import Log
from tests.sources.logs import forget, held, in_memory

KILLS = 60 if os.environ.get("SG_LAB") == "all" else 8

WRITER = """
import sys
from sluicegate.sources.log.writer import LogWriter
root, reported = sys.argv[1], open(sys.argv[2], "a")
while True:
    with LogWriter(root, segment_bytes=20_000, timeout=30) as writer:
        for count in (1, 7, 30):
            end = writer.end
            numbers = range(end, end + count)
            writer.append([b'{"n":%d,"pad":"%s"}' % (n, b"x" * (n % 97)) for n in numbers])
            print(end + count, file=reported, flush=True)
"""
READER = """
import sys
from sluicegate.sources.log.log import (Log)
log, at, seen = Log.open(sys.argv[1]), 0, 0
while True:
    end = log.end(0)
    assert end >= at, (end, at)
    for piece in log.read(0, at, end, max_bytes=3000):
        assert piece.first == at
        for line in piece.data.splitlines(keepends=True):
            assert line.startswith(b'{"n":%d,' % at) and line.endswith(b'"}\\n'), (at, line)
            at += 1
        assert piece.first + piece.count == at
    assert at == end
    print(at, flush=True)
"""
PRODUCER = """
import sys
from sluicegate.producer.log_producer import LogProducer
root, name, total = sys.argv[1], sys.argv[2], int(sys.argv[3])
with LogProducer.open(root, f"{root}.{name}", name) as producer:
    while (first := producer.next_sequence(0)) < total:
        producer.send_many([(0, {"n": n}) for n in range(first, min(first + 5, total))])
"""


@pytest.fixture
def root() -> Iterator[Path]:
    forget()
    with in_memory() as path:
        Log.create(str(path / "log"))
        yield path / "log"


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(log: Log, end: int) -> None:
    deadline = time.monotonic() + 60
    while log.end(0) < end:
        assert time.monotonic() < deadline, f"no process writes; {log.end(0)} of {end}"
        time.sleep(0.001)


def test_a_reader_beside_writers_that_are_killed(root: Path) -> None:
    """It sees whole records only, in order, and everything that was acknowledged is among them."""
    chance = random.Random(7)
    reported = root.parent / "reported"
    log = Log.open(str(root))
    reader = start(READER, root)
    writers = [start(WRITER, root, reported) for _ in range(2)]
    try:
        for _ in range(KILLS):
            wait_for(log, log.end(0) + 100)
            time.sleep(chance.random() / 20)
            doomed = writers.pop(0)
            assert doomed.poll() is None, doomed.communicate()[1]
            doomed.kill()
            doomed.communicate()
            writers.append(start(WRITER, root, reported))
        wait_for(log, log.end(0) + 100)
        time.sleep(0.1)
        assert reader.poll() is None, reader.communicate()[1]
    finally:
        for process in (*writers, reader):
            process.kill()
    seen = [int(line) for line in reader.communicate()[0].split()]
    for process in writers:
        process.communicate()
    assert len(seen) > 2
    assert seen == sorted(seen)
    acknowledged = [int(line) for line in reported.read_text().split()]
    assert max(acknowledged) <= log.end(0)
    assert max(seen) <= log.end(0)
    assert len(log.bases(0)) > 2
    assert len(acknowledged) == len(set(acknowledged)), "no two got the same offsets"
    assert [json.loads(line)["n"] for line in held(log)] == list(range(log.end(0)))


def test_producers_take_turns_and_are_killed(root: Path) -> None:
    """Four processes on one partition: every record once per stamp, none missing, in order."""
    total, names = 1000, ["a", "b", "c", "d"]
    chance = random.Random(3)
    log = Log.open(str(root))
    running = {name: start(PRODUCER, root, name, total) for name in names}
    kills = 0
    try:
        for number in range(KILLS):
            wanted = number * total * len(names) // (KILLS + 2)
            wait_for(log, wanted)
            name = chance.choice(names)
            running[name].kill()
            _, errors = running[name].communicate()
            kills += running[name].returncode == -signal.SIGKILL
            assert running[name].returncode in (0, -signal.SIGKILL), errors
            running[name] = start(PRODUCER, root, name, total)
        for process in running.values():
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
    finally:
        for process in running.values():
            process.kill()
    assert kills > KILLS // 2
    found = [json.loads(line) for line in held(Log.open(str(root)))]
    assert all(r["n"] == r["seq"] for r in found), "one payload for each stamp"
    for name in names:
        sequences = [r["seq"] for r in found if r["producer"] == name]
        assert sorted(set(sequences)) == list(range(total))
        first_seen = list(dict.fromkeys(sequences))
        assert first_seen == list(range(total)), "in the order they were sent"
    assert len(Counter(r["producer"] for r in found)) == len(names)


def test_threads_share_a_producer(root: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with (
        LogProducer.open(str(root), root.parent / "p", "p") as producer,
        ThreadPoolExecutor(4) as pool,
    ):
        list(pool.map(lambda n: producer.send(0, {"n": n}), range(100)))
    found = [json.loads(line) for line in held(Log.open(str(root)))]
    assert sorted(r["n"] for r in found) == list(range(100))
    assert [r["seq"] for r in found] == list(range(100))
