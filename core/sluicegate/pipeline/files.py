"""Parquet files that a task writes: durable when they are closed, and known by their digest."""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sluicegate.gate.output import File


class Writer:
    """One file, made when there is something to write; its name is no other attempt's."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self._path = directory / f"part-{uuid.uuid4().hex}.parquet"
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0

    def write(self, rows: pa.Table) -> None:
        """Add rows."""
        if not rows.num_rows:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, self._schema, compression="zstd")
        self._writer.write_table(rows.select(self._schema.names).cast(self._schema))
        self._rows += rows.num_rows

    def close(self) -> tuple[File, ...]:
        """The file, durable; none if nothing was written."""
        if self._writer is None:
            return ()
        self._writer.close()
        with self._path.open("rb") as stream:
            os.fsync(stream.fileno())
            digest = hashlib.file_digest(stream, _blake2b).hexdigest()
            size = stream.tell()
        return (File(self._path.name, size, self._rows, digest),)


def _blake2b() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=32)
