"""What an epoch wrote for others to read: the list of its files, a blob that its link names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate import codec
from sluicegate.blobs import Ref
from sluicegate.errors import Corrupt
from sluicegate.gate.stream import Stream

DATA, REJECTS = "data", "rejects"
KINDS = (DATA, REJECTS)
_LIST = codec.Format("output", 1, 64 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class File:
    """A file that a task wrote, complete and durable."""

    name: str
    size: int
    rows: int
    digest: str

    def fields(self) -> list[Any]:
        """As plain values."""
        return [self.name, self.size, self.rows, self.digest]


@dataclass(frozen=True, slots=True)
class Output:
    """The files of one epoch, by kind."""

    files: Mapping[str, tuple[File, ...]]

    def __bool__(self) -> bool:
        return any(self.files.values())

    def rows(self, kind: str) -> int:
        """How many rows there are of a kind."""
        return sum(each.rows for each in self.files.get(kind, ()))


def encode(output: Output) -> bytes:
    """The blob that lists the files of an epoch."""
    return codec.encode(
        _LIST, {kind: [f.fields() for f in files] for kind, files in output.files.items() if files}
    )


def read_output(stream: Stream, ref: Ref) -> Output:
    """The files that an epoch wrote."""
    fields = codec.decode(_LIST, stream.blobs.get(ref), ref.key)
    try:
        return Output({kind: tuple(_file(*each) for each in fields[kind]) for kind in fields})
    except (TypeError, ValueError) as e:
        raise Corrupt(f"{ref.key} does not list files: {e!r}", place=ref.key) from e


def _file(name: str, size: int, rows: int, digest: str) -> File:
    return File(str(name), int(size), int(rows), str(digest))
