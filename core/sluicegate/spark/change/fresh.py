"""Making checkpoints: a fresh one that starts at given offsets, and a copy that lies elsewhere.

A new directory is startable only when it is complete: the barrier is the first file in it and the
last to go, so a copy that was interrupted is refused by Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from shlex import quote
from urllib.parse import quote as percent

from sluicegate.errors import SluicegateError, UsageError
from sluicegate.plan import Action, Plan
from sluicegate.positions import Positions, to_spark
from sluicegate.spark.change.operation import HOME
from sluicegate.spark.checkpoint import METADATA, SOURCES, STATE, look_at
from sluicegate.spark.log import stream_lines
from sluicegate.storage import LocalStorage, Storage, local_root

_TEMPORARY = re.compile(r"\..*\.tmp(\.crc)?|\.sg-.*\.tmp")
_PIECE = 1 << 20
_PATH = "/!$&'()*+,;=:@-._~"
_SEED_READS = (
    "The query starts with batch 1 and reads from these offsets on, whatever its startingOffsets "
    "say. Partitions that are not named are read from their beginning."
)
_SEED_WRITES = (
    "Its state is empty. A file sink that has a batch 1 already would skip it: write to a new "
    "output."
)
_BARRIER = "sluicegate: this checkpoint is not complete; remove it and make it again\n"


def plan_seed(uri: str, positions: Positions, query_id: str) -> Plan:
    """A fresh checkpoint whose first batch reads from the given positions on."""
    root = local_root(uri).absolute()
    _refuse_occupied(root)
    actions = [Action("make", str(root), f"a checkpoint of query {query_id}")]
    actions += [
        Action("start at", f"{each.topic}[{each.partition}]", "", None, each.offset)
        for each in positions
    ]
    return Plan(
        f"Seed a checkpoint in {root}",
        tuple(actions),
        (_SEED_READS, _SEED_WRITES),
    )


def seed(uri: str, positions: Positions, query_id: str) -> None:
    """Make the checkpoint that `plan_seed` describes."""
    storage = LocalStorage.create(local_root(uri).absolute())
    offsets = json.dumps(to_spark(positions), separators=(",", ":"))
    storage.put_if_absent("offsets/1", _BARRIER.encode())
    storage.put_if_absent(METADATA, json.dumps({"id": query_id}, separators=(",", ":")).encode())
    storage.put_if_absent("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
    head = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n'
    storage.put_if_absent("offsets/0", (head + offsets).encode())
    storage.delete("offsets/1")


def plan_relocate(source: Storage, destination: str, moves: Mapping[str, str]) -> Plan:
    """A copy of a checkpoint that can be started where it lies; the source stays as it is."""
    root = local_root(destination).absolute()
    _refuse_occupied(root)
    files = list(_files(source))
    rewritten = [key for key in files if _has_paths(key)]
    mapped = [Action("replace", old, f"by {new}") for old, new in moves.items()]
    return Plan(
        f"Copy {source.uri} to {root}",
        (
            Action("copy", source.uri, f"{len(files)} files"),
            Action("rewrite paths", str(root), f"in {len(rewritten)} files"),
            *mapped,
        ),
        (
            "The original is only read. Start the query on one of the two, never on both.",
            "The query has the same id in both, so sinks that recognise it go on where they were.",
        ),
    )


def relocate(source: Storage, destination: str, moves: Mapping[str, str]) -> Storage:
    """Make the copy that `plan_relocate` describes."""
    old_root = str(local_root(source.uri).absolute())
    storage = LocalStorage.create(local_root(destination).absolute())
    last = look_at(source).last_batch
    barrier = f"offsets/{0 if last is None else last + 1}"
    storage.put_if_absent(barrier, _BARRIER.encode())
    all_moves = {old_root: storage.uri, **moves}
    for key in _files(source):
        rewrites = _has_paths(key)
        pieces = _rewritten(source, key, all_moves) if rewrites else _pieces(source, key)
        storage.put_if_absent(key, pieces)
    storage.delete(barrier)
    return storage


def cut_over(source: str, destination: str) -> list[str]:
    """What is left to do by hand after a copy."""
    return [
        f"Set checkpointLocation to {destination} and start the query.",
        f"Once it runs well, remove the original: rm -r {quote(source)}",
    ]


def _refuse_occupied(root: Path) -> None:
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise SluicegateError(
            f"{root} exists and is not empty; nothing was written",
            hint="name a new directory",
            place=str(root),
        )


def _files(storage: Storage, directory: str = "") -> Iterator[str]:
    """Every file that belongs to the checkpoint; not what is temporary or ours."""
    for entry in storage.list(directory):
        key = f"{directory}/{entry.name}" if directory else entry.name
        if entry.kind == "directory":
            if key != HOME:
                yield from _files(storage, key)
        elif entry.kind == "file" and not _TEMPORARY.fullmatch(entry.name) and not _is_stale(key):
            yield key


def _is_stale(key: str) -> bool:
    """Hadoop's checksums of files whose paths are rewritten."""
    directory, _, name = key.rpartition("/")
    plain = name[1:-4] if name.startswith(".") and name.endswith(".crc") else None
    return plain is not None and _has_paths(f"{directory}/{plain}")


def _has_paths(key: str) -> bool:
    """Whether a file of the checkpoint holds absolute paths."""
    parts = key.split("/")
    hidden = parts[-1].startswith(".")
    if hidden or len(parts) < 3:
        return False
    return parts[0] == SOURCES or (parts[0] == STATE and "_metadata" in parts and "v2" in parts)


def _pieces(storage: Storage, key: str) -> Iterator[bytes]:
    with storage.open(key) as stream:
        while piece := stream.read(_PIECE):
            yield piece


def _rewritten(storage: Storage, key: str, moves: Mapping[str, str]) -> Iterator[bytes]:
    """The content line by line, with the beginnings of paths replaced."""
    with storage.open(key) as stream:
        for number, line in enumerate(stream_lines(stream, key)):
            yield (b"\n" if number else b"") + _moved(line, moves)


def _moved(line: bytes, moves: Mapping[str, str]) -> bytes:
    for old, new in moves.items():
        pairs = {(old, new), (percent(old, safe=_PATH), percent(new, safe=_PATH))}
        for before, after in pairs:
            # After a quote or the scheme's slashes, and up to the next part of the path.
            pattern = rb'(?<=["/:])' + re.escape(before.lstrip("/").encode()) + rb'(?=[/"])'
            line = re.sub(pattern, after.lstrip("/").encode().replace(b"\\", rb"\\"), line)
    return line


def parse_moves(words: Iterable[str]) -> dict[str, str]:
    """`OLD=NEW` words as a map of absolute paths."""
    moves: dict[str, str] = {}
    for word in words:
        old, equals, new = word.partition("=")
        if not equals or not old.startswith("/") or not new.startswith("/"):
            raise UsageError(f"--map {word!r} is not /OLD=/NEW")
        moves[old.rstrip("/")] = new.rstrip("/")
    return moves
