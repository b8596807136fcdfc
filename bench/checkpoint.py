"""`checkpoint inspect` on huge checkpoints, against find and cat of what it must read."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import Bar, Row, compare

SLUICEGATE = str(Path(sys.executable).with_name("sluicegate"))
BATCHES = 100_000
GIGABYTE = 10**9
MOST_MEMORY = 200 * 2**20
OFFSETS = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1794805004757,"conf":{}}\n'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
ENTRY = '\n{"path":"file:///data/in/part-%09d.json","timestamp":1700000000000,"batchId":%d}'


def rows() -> Iterator[Row]:
    build = Path(__file__).parent.parent / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build) as directory:
        many = _many_batches(Path(directory) / "many")
        newest = "'(metadata|offsets/99999|commits/99999)$'"
        yield compare(
            "inspect 100,000 batches / find, cat of what it reads",
            lambda: _inspect(many),
            lambda: _shell(f"find {many} -type f | grep -E {newest} | xargs cat"),
            Bar("time at most", 10),
            rounds=5,
        )
        yield _memory("peak memory, 100,000 batches / 200 MiB", many)
        half, full = _compact(directory, GIGABYTE // 2), _compact(directory, GIGABYTE)
        yield compare(
            "inspect a 1 GB compact file / find, cat",
            lambda: _inspect(full),
            lambda: _shell(f"find {full} -type f | xargs cat"),
            Bar("time at most", 10),
            rounds=5,
        )
        yield _memory("peak memory, 1 GB compact file / 200 MiB", full)
        yield compare(
            "inspect 1 GB / 0.5 GB (linear: 2)",
            lambda: _inspect(full),
            lambda: _inspect(half),
            Bar("time at most", 2.5),
            rounds=5,
        )


def _memory(name: str, checkpoint: Path) -> Row:
    process = subprocess.Popen(_command(checkpoint), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    # Linux counts in KiB, macOS in bytes.
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    ratio = peak / MOST_MEMORY
    return Row(name, peak, MOST_MEMORY, ratio, "≤ 1", ratio <= 1, unit="bytes")


def _command(checkpoint: Path) -> list[str]:
    return [SLUICEGATE, "checkpoint", "inspect", str(checkpoint)]


def _inspect(checkpoint: Path) -> None:
    subprocess.run(_command(checkpoint), stdout=subprocess.DEVNULL, check=True)


def _shell(line: str) -> None:
    subprocess.run(["sh", "-c", line], stdout=subprocess.DEVNULL, check=True)


def _many_batches(root: Path) -> Path:
    for log in ("offsets", "commits"):
        (root / log).mkdir(parents=True)
    (root / "metadata").write_text('{"id":"bench"}')
    for number in range(BATCHES):
        (root / "offsets" / str(number)).write_text(f'{OFFSETS}{{"t":{{"0":{number}}}}}')
        (root / "commits" / str(number)).write_text(COMMIT)
    return root


def _compact(directory: str, size: int) -> Path:
    root = Path(directory) / f"compact-{size}"
    for log in ("offsets", "commits", "sources/0"):
        (root / log).mkdir(parents=True)
    (root / "metadata").write_text('{"id":"bench"}')
    (root / "offsets" / "9").write_text(OFFSETS + '{"logOffset":9}')
    (root / "commits" / "9").write_text(COMMIT)
    block = "".join(ENTRY % (number, 9) for number in range(20_000)).encode()
    with (root / "sources/0/9.compact").open("wb") as stream:
        stream.write(b"v1")
        for _ in range(size // len(block)):
            stream.write(block)
    return root
