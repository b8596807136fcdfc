"""The storage interface, the wrapper that refuses every write, and opening a storage by its URI.

A *key* is a relative path of validated names joined by `/`. Every mutating call is atomic (readers
see all of it or nothing) and durable (fsynced with its directory) when it returns; a call that
raises may or may not have happened, and the caller must check.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Flag, auto
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol

from sluicegate.errors import (
    InvalidName,
    NotFound,
    ReadOnlyViolation,
    UnsupportedFormat,
    UsageError,
)

if TYPE_CHECKING:
    from sluicegate.locks import Lock


Kind = Literal["file", "directory", "other"]

DEFAULT_LIMIT = 64 * 1024 * 1024
"""Largest object that `get` reads by default; larger ones are streamed with `open`."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME_BYTES = 200
_COMPONENT_BYTES = 255


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory; `other` is neither file nor directory (links, pipes).

    Size and age are set for files, if requested.
    """

    name: str
    kind: Kind
    size: int = field(default=0, compare=False)
    modified_ns: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Stat:
    """Size, age and kind of one object; names with equal `identity` are the same file."""

    kind: Kind
    size: int
    modified_ns: int
    identity: str = ""


class Capabilities(Flag):
    """Features that not every kind of storage has."""

    HARD_LINK = auto()
    """`link` gives a second name and copies nothing."""
    MOVE_DIRECTORY = auto()
    """`move` moves a directory with its contents, in one step."""
    FILE_LOCK = auto()
    """`lock` is held by a process, and free as soon as the process has ended."""
    PROCESSES = auto()
    """Processes on this machine that have its files open can be found."""


class Storage(Protocol):
    """The interface through which Sluicegate reads and writes durable files."""

    @property
    def uri(self) -> str:
        """The URI of this storage, for messages."""

    @property
    def read_only(self) -> bool:
        """Whether every change is refused."""

    @property
    def capabilities(self) -> Capabilities:
        """Its features beyond those that all have."""

    def spellings(self) -> frozenset[str]:
        """The paths of the storage that files in it may contain: as named, and resolved."""

    def open(self, key: str) -> BinaryIO:
        """A readable stream of one file; it keeps its content even if the key is replaced."""

    def get(self, key: str, *, limit: int = DEFAULT_LIMIT) -> bytes:
        """The complete content of a file of at most `limit` bytes."""

    def put_if_absent(self, key: str, data: bytes | Iterable[bytes]) -> bool:
        """Create the file; of any number of racing callers exactly one gets True.

        In both cases the key durably exists afterwards. Large content comes in pieces.
        """

    def replace(
        self, key: str, data: bytes, *, keep_as: str | None = None, drop: tuple[str, ...] = ()
    ) -> None:
        """Create the file or replace its content.

        In the same directory, and with the same fsync, the new content is also kept under the
        name `keep_as`, and the names in `drop` are removed. The key itself changes in one step;
        after a crash the others may or may not have happened.
        """

    def link(self, source: str, key: str, *, replace: bool = False) -> None:
        """Give a file a second key, durably with its content; nothing is copied.

        With `replace`, an existing file is replaced in one step.
        """

    def move(self, source: str, key: str, *, create: bool = True) -> bool:
        """Give a file or directory another key, which must be free; False if there is none.

        The contents of a directory must be durable before. Without `create`, the directory that it
        goes to must exist (else `NotFound`). Both keys are looked up at the moment of the move, so
        it fails if a directory above one of them was renamed.
        """

    def delete(self, key: str) -> bool:
        """Remove the file; False if there was none."""

    def delete_all(self, key: str) -> None:
        """Remove a directory and its contents, if it exists; not in one step."""

    def list(self, key: str = "", *, temporary: bool = False, sizes: bool = False) -> list[Entry]:
        """The entries of a directory by name; with `temporary`, only files of dead writers.

        With `sizes`, also the size and age of files: one more call per file on some file systems.
        """

    def stat(self, key: str) -> Stat | None:
        """Size, age and kind of an object, or None; links are not followed."""

    def sync(self, key: str) -> None:
        """Make a file that another program wrote durable, with the directories above it."""

    def lock(self, key: str) -> Lock:
        """The lock of a name; no file is created before it is held."""

    def local_path(self, key: str = "") -> Path | None:
        """The path on this machine, if the storage is local.

        Only for local uses: Spark's tasks, programs that are started, and the search for
        processes.
        """


def validate_name(name: str, what: str = "name") -> str:
    """`name` if it can be a stream, target, consumer or node name; else `InvalidName`.

    The rule keeps a name usable as one file name, one word of a command line and one cell of a
    table: no separators, nothing invisible, no leading dot or dash.
    """
    reason = _name_fault(name)
    if reason:
        raise InvalidName(f"{what} {_shown(name)} {reason}")
    return name


def split_key(key: str) -> list[str]:
    """The components of a key; `InvalidName` for anything that could leave the storage."""
    parts = key.split("/")
    for part in parts:
        if not part or part in (".", ".."):
            raise InvalidName(f"path {_shown(key)} has an empty, '.' or '..' component")
        if _CONTROL.search(part):
            raise InvalidName(f"path {_shown(key)} has a control character")
        if part.startswith(".sg-") and part.endswith(".tmp"):
            raise InvalidName(f"path {_shown(key)} has the name of a temporary file")
        if len(part.encode("utf-8", "surrogateescape")) > _COMPONENT_BYTES:
            raise InvalidName(f"path {_shown(key)} has a component over {_COMPONENT_BYTES} bytes")
    return parts


def _name_fault(name: str) -> str | None:
    if not name:
        return "is empty"
    if "/" in name or "\\" in name:
        return "contains a path separator"
    if not name.isprintable():
        return "contains a control or invisible character"
    if len(name.encode()) > _NAME_BYTES:
        return f"is over {_NAME_BYTES} bytes long"
    if name[0] in ".-" or name != name.strip():
        return "starts with '.' or '-', or has spaces around it"
    return None


def _shown(text: str) -> str:
    short = text if len(text) <= 80 else text[:77] + "..."
    return ascii(short) if not short.isprintable() else repr(short)


def files_below(storage: Storage, key: str) -> Iterator[str]:
    """Every file in a directory and its subdirectories; none if it does not exist."""
    try:
        entries = storage.list(key)
    except NotFound:
        return
    for entry in entries:
        below = f"{key}/{entry.name}" if key else entry.name
        if entry.kind == "directory":
            yield from files_below(storage, below)
        elif entry.kind == "file":
            yield below


def old_temporaries(storage: Storage, keys: Iterable[str], limit_ns: float) -> Iterator[Path]:
    """The unfinished files in some directories that were not written to since a time."""
    for key in keys:
        root = storage.local_path(key) if key else storage.local_path()
        try:
            found = storage.list(key, temporary=True)
        except NotFound:
            continue
        for entry in found:
            assert root
            if is_old(root / entry.name, limit_ns):
                yield root / entry.name


def is_old(path: Path, limit_ns: float) -> bool:
    """Whether a file or directory exists, and was last changed before a time."""
    try:
        return path.stat().st_mtime_ns <= limit_ns
    except FileNotFoundError:
        # Its writer is alive, and has just finished it.
        return False


class ReadOnlyStorage:
    """`Storage` whose mutating calls raise `ReadOnlyViolation` before anything happens."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def read_only(self) -> bool:
        return True

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    def spellings(self) -> frozenset[str]:
        return self._inner.spellings()

    def lock(self, key: str) -> Lock:
        return self._inner.lock(key)

    def open(self, key: str) -> BinaryIO:
        return self._inner.open(key)

    def get(self, key: str, *, limit: int = DEFAULT_LIMIT) -> bytes:
        return self._inner.get(key, limit=limit)

    def list(self, key: str = "", *, temporary: bool = False, sizes: bool = False) -> list[Entry]:
        return self._inner.list(key, temporary=temporary, sizes=sizes)

    def stat(self, key: str) -> Stat | None:
        return self._inner.stat(key)

    def local_path(self, key: str = "") -> Path | None:
        return self._inner.local_path(key)

    def put_if_absent(self, key: str, data: bytes | Iterable[bytes]) -> bool:
        raise self._refusal("create", key)

    def replace(
        self, key: str, data: bytes, *, keep_as: str | None = None, drop: tuple[str, ...] = ()
    ) -> None:
        raise self._refusal("replace", key)

    def link(self, source: str, key: str, *, replace: bool = False) -> None:
        raise self._refusal("link", key)

    def move(self, source: str, key: str, *, create: bool = True) -> bool:
        raise self._refusal("move", source)

    def delete(self, key: str) -> bool:
        raise self._refusal("delete", key)

    def delete_all(self, key: str) -> None:
        raise self._refusal("delete", key)

    def sync(self, key: str) -> None:
        raise self._refusal("sync", key)

    def _refusal(self, verb: str, key: str) -> ReadOnlyViolation:
        place = f"{self.uri}/{key}"
        return ReadOnlyViolation(f"refused to {verb} {place}: opened read-only", place=place)


# At least two letters, so that a Windows drive does not look like a scheme.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//)?")


def local_root(uri: str) -> Path:
    """The path of a URI or plain path; Spark prints paths as `file:/x`."""
    scheme = _scheme(uri)
    if scheme is None:
        return _path(uri, uri)
    if scheme == "file":
        return _file_path(uri)
    raise _unsupported(scheme, uri)


def open_storage(uri: str, *, read_only: bool = False, create: bool = False) -> Storage:
    """The storage at a URI; with `read_only` every write is refused by the storage itself.

    With `create` it is created first, durably, if it is missing.
    """
    scheme = _scheme(uri) or "file"
    if scheme not in BACKENDS:
        raise _unsupported(scheme, uri)
    module, _, function = BACKENDS[scheme].partition(":")
    storage: Storage = getattr(import_module(module), function)(uri, create=create)
    return ReadOnlyStorage(storage) if read_only else storage


def open_beside(uri: str, *, read_only: bool = False) -> tuple[Storage, str]:
    """The storage that holds the file at a URI, and its key there."""
    above, _, name = canonical_uri(uri).rpartition("/")
    return open_storage(above or "/", read_only=read_only), name


def canonical_uri(uri: str) -> str:
    """A URI that does not depend on the current directory, for records and plans."""
    if _scheme(uri) in (None, "file"):
        return str(local_root(uri).absolute())
    return uri.rstrip("/")


def joined_uri(uri: str, name: str) -> str:
    """The URI of a name below another."""
    if _scheme(uri) in (None, "file"):
        return str(local_root(uri) / name)
    return f"{uri.rstrip('/')}/{name}"


BACKENDS = {"file": "sluicegate.storage.local:open_local"}
"""Scheme → function that opens its storage, from the URI and whether to create it.

A plain path has the scheme `file`. The module is imported when the scheme is first used.
"""


def _scheme(uri: str) -> str | None:
    found = _SCHEME.match(uri)
    if found is None:
        return None
    scheme = found[1].lower()
    return scheme if found[2] or scheme == "file" else None


def _unsupported(scheme: str, uri: str) -> UnsupportedFormat:
    return UnsupportedFormat(
        f"{scheme}:// storage is not supported by this release: {uri}",
        hint="copy it to a local or mounted directory and name that path",
    )


def _file_path(uri: str) -> Path:
    from urllib.parse import unquote  # here, because it costs start-up time and is rarely needed

    path = unquote(uri[len("file:") :])
    if path.startswith("//"):
        host, slash, rest = path[2:].partition("/")
        if host not in ("", "localhost"):
            raise UsageError(
                f"{uri} names the host {host!r}, but files are read on this machine",
                hint=f"write file:///{host}{slash}{rest} if {host!r} is a directory",
            )
        path = slash + rest
    if not path.startswith("/"):
        raise UsageError(f"{uri} is not absolute", hint="write file:///absolute/path")
    return _path(path, uri)


def _path(text: str, shown: str) -> Path:
    if not text:
        raise UsageError("the path is empty", hint="name a directory or file")
    if "\0" in text:
        raise UsageError(f"{shown!a} contains a NUL character", hint="check the path")
    try:
        return Path(text).expanduser()
    except RuntimeError as e:
        raise UsageError(f"{shown}: {e}", hint="write the directory out in full") from e
