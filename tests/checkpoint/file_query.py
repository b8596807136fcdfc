"""A checkpoint over files with a file sink, written by hand."""

from __future__ import annotations

import json
import os
from pathlib import Path

THEN = 1_794_000_000
PER_BATCH = 3
INTERVAL = 3
LAST = 7


class Query:
    """A checkpoint over files with a file sink, several files a batch, compacted every third."""

    def __init__(self, root: Path) -> None:
        self.checkpoint, self.input, self.sink = root / "c", root / "in ü#", root / "out"
        self.source_log = self.checkpoint / "sources/0"
        self.sink_log = self.sink / "_spark_metadata"
        write(self.checkpoint / "metadata", '{"id":"6333c2b4-3922-44db-8ea9-726a16064721"}')
        read, written = [], []
        for batch in range(LAST + 1):
            read += [self._read(batch, i) for i in range(PER_BATCH)]
            written += [self._written(batch, i) for i in range(PER_BATCH)]
            moment = (THEN + batch) * 1000
            head = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{moment},"conf":{{}}}}\n'
            write(self.checkpoint / f"offsets/{batch}", head + f'{{"logOffset":{batch}}}')
            commit = self.checkpoint / f"commits/{batch}"
            write(commit, 'v1\n{"nextBatchWatermarkMs":0}')
            os.utime(commit, (THEN + batch + 0.5, THEN + batch + 0.5))
            is_compact = (batch + 1) % INTERVAL == 0
            name = f"{batch}.compact" if is_compact else str(batch)
            since = 0 if is_compact else -PER_BATCH
            write(self.source_log / name, "\n".join(["v1", *read[since:]]))
            write(self.sink_log / name, "\n".join(["v1", *written[since:]]))

    def _read(self, batch: int, i: int) -> str:
        path = self.input / f"{batch} {i}.json"
        write(path, "x")
        os.utime(path, (THEN + batch - 0.5, THEN + batch - 0.5))
        shown = f"file://{self.input.parent}/in%20ü%23/{batch}%20{i}.json"
        entry = {"path": shown, "timestamp": (THEN + batch) * 1000 - 500, "batchId": batch}
        return json.dumps(entry, separators=(",", ":"), ensure_ascii=False)

    def _written(self, batch: int, i: int) -> str:
        name = f"part-{i:05}-{batch:08x}-bbbb-cccc-dddd-eeeeeeeeeeee-c000.parquet"
        path = self.sink / name
        write(path, "abc")
        os.utime(path, (THEN + batch, THEN + batch))
        entry = {"path": f"file://{path}", "size": 3, "isDir": False}
        entry |= {"modificationTime": (THEN + batch) * 1000, "action": "add"}
        return json.dumps(entry, separators=(",", ":"))


def write(path: Path, text: str) -> None:
    """A file, with the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
