"""Ten thousand damaged inputs for each parser of state files, and huge healthy ones.

Each runs in a process of its own that may not grow beyond a fixed size: only our errors may come
out, whatever the input, and soon.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain as join
from itertools import repeat
from pathlib import Path

import pytest

from sluicegate.checkpoint.format.checksums import check_hidden, check_visible
from sluicegate.checkpoint.format.lz4block import blocks
from sluicegate.checkpoint.format.rocksdb import read_zip
from sluicegate.checkpoint.format.state_data import StateKind, read_lineage, scan
from sluicegate.checkpoint.format.state_store import (
    chain,
    chain_by_lineage,
    sort_names,
    state_versions,
)
from sluicegate.errors import SluicegateError
from tests.checkpoint import state_encoder as enc

ROOT = Path(__file__).parents[2]
COUNT = 10_000
GROWTH = 128 << 20
SLOWEST = 2.0
VISIBLE = b'{"algorithm":"CRC32C","value":-459948731,"mainFileSize":175,"timestampMs":1}'
RECORDS = [
    (enc.PUT, b"key-%d" % i, b"value " * i) if i % 3 else (enc.DELETE, b"gone", None)
    for i in range(12)
]
TYPED = [*RECORDS, (enc.MERGE, b"list", b"item"), (enc.DELETE_RANGE, b"a", b"b")]
CHANGELOG = StateKind.CHANGELOG


def framed(rng: random.Random, payload: bytes) -> bytes:
    """Damage inside intact blocks half of the time, which no checksum finds; else outside."""
    size = rng.choice((16, 64, 1 << 15))
    if rng.random() < 0.5:
        return enc.lz4(enc.damage(rng, payload), size)
    return enc.damage(rng, enc.lz4(payload, size, pack=rng.random() < 0.5))


def fuzz_lz4(rng: random.Random) -> None:
    whole = rng.choice((*enc.REAL.values(), enc.lz4(b"abc" * 99, 64)))
    for _ in blocks(io.BytesIO(enc.damage(rng, whole)), "f"):
        pass


def fuzz_delta(rng: random.Random) -> None:
    scan(io.BytesIO(framed(rng, enc.plain(RECORDS))), StateKind.DELTA, "f")


def fuzz_snapshot(rng: random.Random) -> None:
    puts = [record for record in RECORDS if record[0] == enc.PUT]
    scan(io.BytesIO(framed(rng, enc.plain(puts))), StateKind.SNAPSHOT, "f")


def fuzz_changelog(rng: random.Random) -> None:
    version = rng.randrange(1, 5)
    records = RECORDS if version % 2 else TYPED
    data = framed(rng, enc.changelog(version, records, [(1, enc.UID), (2, enc.UID)]))
    scan(io.BytesIO(data), CHANGELOG, "f")


def fuzz_lineage(rng: random.Random) -> None:
    text = json.dumps([{"version": 1, "checkpointUniqueId": enc.UID}]).encode()
    data = enc.text(b"v3") + enc.text(enc.damage(rng, text)) + enc.plain(())
    found = read_lineage(io.BytesIO(enc.lz4(data)), "f")
    names = [f"2_{enc.UID}.changelog", f"1_{enc.UID}.zip"]
    chain_by_lineage(sort_names(names), 2, enc.UID, lambda _: found)


def fuzz_zip(rng: random.Random) -> None:
    text = enc.metadata([(f"000008-{enc.UID}.sst", 9)] * 3, columnFamilyMapping={"default": 0})
    if inside := rng.random() < 0.5:
        text = enc.damage(rng, text)
    entries = {"CURRENT": b"MANIFEST-000005\n", "MANIFEST-000005": bytes(3000), "metadata": text}
    data = enc.rocks_zip(entries, rng.choice((0, 8)))
    read_zip(io.BytesIO(data if inside else enc.damage(rng, data)), "f", read_data=True)


def fuzz_hidden_crc(rng: random.Random) -> None:
    data = rng.randbytes(1500)
    sums = enc.damage(rng, enc.hadoop_crc(data))
    if check_hidden(io.BytesIO(data), io.BytesIO(sums), "f"):
        raise SluicegateError("it differs")


def fuzz_visible_crc(rng: random.Random) -> None:
    data = enc.REAL[CHANGELOG, 3]
    checksum = enc.damage(rng, VISIBLE)
    if check_visible(io.BytesIO(data), io.BytesIO(checksum), "f"):
        raise SluicegateError("it differs")


def fuzz_names(rng: random.Random) -> None:
    names = [f"{v}.delta" for v in range(5)] + [f"{v}_{enc.UID}.zip" for v in range(5, 9)]
    names = [enc.damage(rng, name.encode()).decode("utf-8", "surrogateescape") for name in names]
    found = sort_names(names)
    for version in (0, 4, 9, 2**63):
        if chain(found, version).loadable is not (version in {0, *state_versions(found).loadable}):
            raise AssertionError(names)
    if not chain(found, 8).loadable:
        raise SluicegateError("something is missing")


class Endless(io.RawIOBase):
    """A stream that is made while it is read."""

    def __init__(self, parts: join[bytes]) -> None:
        self._parts = parts
        self._rest = b""

    def read(self, size: int = -1, /) -> bytes:
        while len(self._rest) < size and (part := next(self._parts, b"")):
            self._rest += part
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


def huge_value(_: random.Random) -> None:
    """One value of a gibibyte, and a million small records."""
    zeros = enc.block(bytes(1 << 20), enc.repeats(0, 1 << 20), level=10)
    start = enc.block(enc.counted(b"k") + (1 << 30).to_bytes(4, "big"))
    small = enc.block((enc.counted(b"key") + enc.counted(b"value")) * 1000)
    parts = join((start,), repeat(zeros, 1024), repeat(small, 1000), (enc.lz4(enc.plain(())),))
    found = scan(Endless(parts), StateKind.DELTA, "f")  # type: ignore[arg-type]
    assert found.value_bytes == (1 << 30) + 5_000_000
    assert found.puts == 1_000_001
    assert found.remark is None


def huge_blocks(_: random.Random) -> None:
    """Blocks of the largest size that the format allows."""
    size = 1 << 25
    largest = enc.block(b"\0", enc.repeats(0, size), level=15)
    checksum = (0x0BA68691).to_bytes(4, "little")
    largest = largest[:13] + size.to_bytes(4, "little") + checksum + largest[21:]
    read = sum(map(len, blocks(Endless(join(repeat(largest, 8), (enc.END,))), "f")))  # type: ignore[arg-type]
    assert read == 8 * size


PARSERS: dict[str, Callable[[random.Random], None]] = {
    "lz4": fuzz_lz4,
    "delta": fuzz_delta,
    "snapshot": fuzz_snapshot,
    "changelog": fuzz_changelog,
    "lineage": fuzz_lineage,
    "zip": fuzz_zip,
    "hidden crc": fuzz_hidden_crc,
    "visible crc": fuzz_visible_crc,
    "names": fuzz_names,
}
HUGE: dict[str, Callable[[random.Random], None]] = {"value": huge_value, "blocks": huge_blocks}


def limited(what: str, count: int) -> dict[str, float]:
    """Run in a process that may not grow: how many inputs were refused, and the slowest one."""
    code = f"from tests.checkpoint.test_state_fuzz import child; child({what!r}, {count})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'core'}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, float] = json.loads(done.stdout)
    return result


def child(what: str, count: int) -> None:
    import xxhash

    enc.hasher = xxhash.xxh32_intdigest  # the encoder's own takes most of the time
    feed = (PARSERS | HUGE)[what]
    rng = random.Random(20)
    refused, slowest = 0, 0.0
    for turn in range(count):
        if turn == 0:
            limit = int(Path("/proc/self/statm").read_text().split()[0]) * 4096 + GROWTH
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        start = time.perf_counter()
        try:
            feed(rng)
        except SluicegateError:
            refused += 1
        slowest = max(slowest, time.perf_counter() - start)
    print(json.dumps({"refused": refused, "slowest": slowest}))


@pytest.mark.parametrize("what", PARSERS)
def test_damaged_inputs(what: str) -> None:
    result = limited(what, COUNT)
    assert result["slowest"] < SLOWEST
    assert COUNT / 20 < result["refused"] < COUNT, "some damage must be felt, and some must not"


@pytest.mark.parametrize("what", HUGE)
def test_huge_inputs_take_little_memory(what: str) -> None:
    assert limited(what, 1)["refused"] == 0
