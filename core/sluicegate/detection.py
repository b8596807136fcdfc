"""Which kind of target lies at a place, and how that shows.

Detection looks at names and, where they do not decide, at the first bytes of files; it never
decides by a file's name alone what only its content can tell.
"""

from __future__ import annotations

import re
import stat
from enum import Enum

from sluicegate.errors import Corrupt, NotFound, SluicegateError, StorageFailed, UnsupportedFormat
from sluicegate.storage import Storage, local_root, open_storage

_SPARK_MARKS = (
    ("metadata", "file"),
    ("offsets", "directory"),
    ("commits", "directory"),
    ("sources", "directory"),
    ("state", "directory"),
)
STORE_MARKER = "sluicegate.store"
# As `log.files` and `dedup.producer_files` name them: directories that commands do not work on.
_OTHERS = {
    "sluicegate.log": (
        "an embedded log, the source of streams",
        "name a stream that reads it, or name it as a stream's source in sluicegate.toml",
    ),
    "sluicegate.producer": (
        "the directory of a producer",
        "its application opens it; commands work on streams and stores",
    ),
}
# As `shards.files` reads them: JSON with one of these keys first, or CSV.
_ASSIGNMENT = re.compile(
    rb'(\xef\xbb\xbf)?\s*(\{\s*"(\d+|version|nodes|owners|partitions|assignment_version)"\s*:'
    rb"|\[\s*(\"|null)|(shard|\d+)\s*,)",
)
# As `offsets.reference` reads them.
_REFERENCE_OFFSET = re.compile(r"topic-(0|[1-9][0-9]*)-consumer-(0|[1-9][0-9]*)\.offset", re.ASCII)


class TargetKind(Enum):
    """What commands can work on."""

    SPARK_CHECKPOINT = "spark-checkpoint"
    OFFSET_STORE = "offset-store"
    STREAM = "stream"
    V1_CHECKPOINT = "v1-checkpoint"
    ASSIGNMENT_FILE = "assignment-file"

    @property
    def shown(self) -> str:
        """With its article, as it stands in a sentence."""
        return f"{'an' if self.value[0] in 'ao' else 'a'} {self.value}"


def detect(uri: str) -> tuple[TargetKind, str]:
    """What lies at a URI, and how that shows; `UnsupportedFormat` if it is nothing we know."""
    if is_directory(uri):
        found = _detect_directory(open_storage(uri, read_only=True))
    else:
        # Resolved first: the operator named the file, so a link to it is meant to be followed.
        path = local_root(uri).resolve()
        found = _detect_file(open_storage(str(path.parent), read_only=True), path.name)
    if found is None:
        _refuse_others(uri)
        raise UnsupportedFormat(
            f"{uri} is not a Spark checkpoint, an offset store, a gated stream, a v1 checkpoint or "
            "an assignment file",
            hint="name the directory that holds offsets/ and commits/, or say what it is with --as",
            place=uri,
        )
    return found


def _refuse_others(uri: str) -> None:
    """Say what a directory is, if it is ours and no target."""
    root = local_root(uri)
    for marker, (what, hint) in _OTHERS.items():
        if (root / marker).is_file():
            raise UnsupportedFormat(f"{uri} is {what}, not a target", hint=hint, place=uri)


def is_directory(uri: str) -> bool:
    """Whether a directory is there, or a file; `NotFound` if neither."""
    path = local_root(uri)
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError as e:
        raise NotFound(f"{path} does not exist", place=uri) from e
    except OSError as e:
        raise StorageFailed(f"{path}: {(e.strerror or str(e)).lower()}", place=uri) from e


def _detect_directory(storage: Storage) -> tuple[TargetKind, str] | None:
    entries = {entry.name: entry.kind for entry in storage.list()}
    has_chain = entries.get("chain") == "directory"
    if has_chain or _frame_kind(storage, "HEAD") == "head":
        return TargetKind.STREAM, "it has chain/" if has_chain else "it has HEAD, but no chain/"
    # Two of them, so that a damaged checkpoint that lost some is still recognised.
    marks = [name for name, kind in _SPARK_MARKS if entries.get(name) == kind]
    if len(marks) >= 2:
        return TargetKind.SPARK_CHECKPOINT, f"it has {', '.join(marks)}"
    if _frame_kind(storage, STORE_MARKER) == "store":
        return TargetKind.OFFSET_STORE, f"it has {STORE_MARKER}"
    for name in entries:
        if _REFERENCE_OFFSET.fullmatch(name):
            return TargetKind.OFFSET_STORE, f"it has {name}, the reference layout"
        if name.endswith(".offsets") and _frame_kind(storage, name) == "offsets":
            return TargetKind.OFFSET_STORE, f"it has {name}"
    return None


def _detect_file(storage: Storage, name: str) -> tuple[TargetKind, str] | None:
    if (kind := _frame_kind(storage, name)) is not None:
        raise UnsupportedFormat(
            f"{storage.uri}/{name} is a single Sluicegate file of kind {kind!r}, not a target",
            hint="name the directory it belongs to",
        )
    from sluicegate.legacy import v1

    data = storage.get(name)
    try:
        checkpoint = v1.decode(data, name)
    except Corrupt:
        begins = _ASSIGNMENT.match(data)
        return (TargetKind.ASSIGNMENT_FILE, "it begins like one") if begins else None
    why = f"it decodes as one, at sequence {checkpoint.sequence}"
    return TargetKind.V1_CHECKPOINT, why


def _frame_kind(storage: Storage, name: str) -> str | None:
    from sluicegate import codec  # here, because most targets are known by their names

    try:
        with storage.open(name) as stream:
            head = stream.read(codec.HEADER_BYTES)
        return codec.read_header(head, name).kind
    except SluicegateError:
        # One odd entry must not hide what the rest of the directory is.
        return None
