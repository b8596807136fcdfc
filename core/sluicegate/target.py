"""What a word on the command line means: a named target or a path, of which kind, and why.

Detection looks at names and, where they do not decide, at the first bytes of files; it never
decides by a file's name alone what only its content can tell.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from shlex import quote

from sluicegate.config import Config, NamedStream, NamedTarget
from sluicegate.errors import (
    Corrupt,
    NotFound,
    SluicegateError,
    StorageFailed,
    UnsupportedFormat,
    UsageError,
)
from sluicegate.findings import Finding, Severity, has_errors, rule
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
# As `chain.hint` names them.
_HINT = ".head"
# As `shards.files` reads them: JSON with one of these keys first, or CSV.
_ASSIGNMENT = re.compile(
    rb'(\xef\xbb\xbf)?\s*(\{\s*"(\d+|version|nodes|owners|partitions|assignment_version)"\s*:'
    rb"|\[\s*(\"|null)|(shard|\d+)\s*,)",
)
# As `offsets.reference` reads them.
_REFERENCE_OFFSET = re.compile(r"topic-(0|[1-9][0-9]*)-consumer-(0|[1-9][0-9]*)\.offset", re.ASCII)

MISSING = rule(
    "SG-TARGET-MISSING",
    Severity.ERROR,
    "a named target does not exist",
    "The path that the configuration gives for this target is not there. The disk may not be "
    "mounted, the job may not have run yet, or the path is wrong.",
)
NOT_STARTED = rule(
    "SG-TARGET-NOT-STARTED",
    Severity.NOTE,
    "a configured stream has no chain yet",
    "The stream is described in the configuration but has never run, so there is nothing in the "
    "home for it.",
)
UNREADABLE = rule(
    "SG-TARGET-UNREADABLE",
    Severity.ERROR,
    "a named target cannot be read",
    "The operating system refuses to read the target (permission, I/O error), or its storage is "
    "not supported by this release.",
)
UNRECOGNISED = rule(
    "SG-TARGET-UNRECOGNISED",
    Severity.ERROR,
    "a named target is none of the known kinds",
    "The path exists but is not a Spark checkpoint, an offset store, a gated stream or a v1 "
    "checkpoint file. It may be the directory above or below the one that was meant.",
)
MISMATCH = rule(
    "SG-TARGET-MISMATCH",
    Severity.WARNING,
    "a named target is not what the configuration calls it",
    "The configuration says `checkpoint` or `offsets`, but what lies there looks like another "
    "kind of target.",
)


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


_ROLES = {"checkpoint": TargetKind.SPARK_CHECKPOINT, "offsets": TargetKind.OFFSET_STORE}


@dataclass(frozen=True, slots=True)
class Target:
    """Something to work on; `why` says in a few words how its kind is known."""

    name: str
    uri: str
    kind: TargetKind
    why: str
    configured_name: str | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """A named target as it was found: the target if it could be told, and what is wrong."""

    name: str
    uri: str
    target: Target | None
    findings: tuple[Finding, ...]


def resolve(word: str, config: Config, home: str, kind: TargetKind | None = None) -> Target:
    """The target that a name or path means; `kind` overrides the detection."""
    named = _named(word, config, home)
    if named is None and not _looks_like_path(word):
        raise _unknown_name(word, config, home)
    uri = _uri_of(named, home) if named else word
    configured = named.name if named else None
    if kind is not None:
        _is_directory(uri)
        return Target(word, uri, kind, "you said so with --as", configured)
    if isinstance(named, NamedStream) and is_remembered(home, named.name):
        # Whatever is left of it: as a stream it is refused with the right words.
        return Target(word, uri, TargetKind.STREAM, "the home remembers it", configured)
    if isinstance(named, NamedTarget) and named.role == "offsets" and not _holds_anything(uri):
        # A disk that is not mounted; as a store it is refused with the right words.
        return Target(word, uri, TargetKind.OFFSET_STORE, "configured as offsets", configured)
    if isinstance(named, NamedStream) and not _exists(uri):
        raise NotFound(
            f"the stream {word} has not begun: {uri} does not exist",
            hint=f"begin it with: sluicegate init --stream {quote(word)}",
            place=uri,
        )
    return Target(word, uri, *detect(uri), configured)


def place_of(word: str, config: Config, home: str) -> str:
    """Where a name leads, whatever is there; what is no name is a path."""
    named = _named(word, config, home)
    return _uri_of(named, home) if named else word


def _named(word: str, config: Config, home: str) -> NamedTarget | NamedStream | None:
    named = config.targets.get(word) or config.streams.get(word)
    if named is None and not _looks_like_path(word) and word in home_streams(home):
        return NamedStream(word, "")
    return named


def only_target(config: Config, home: str) -> str:
    """The name to work on when none is given: the default stream, or the only one there is."""
    names = _known_names(config, home)
    if config.default_stream is not None:
        return config.default_stream
    if len(names) == 1:
        return names[0]
    if not names:
        raise UsageError(
            "no target was given, and sluicegate.toml names none",
            hint="give a path, or name your targets in sluicegate.toml",
        )
    raise UsageError(
        f"no target was given, and there are several: {', '.join(names)}",
        hint="give one of them, or set default_stream",
    )


def detect(uri: str) -> tuple[TargetKind, str]:
    """What lies at a URI, and how that shows; `UnsupportedFormat` if it is nothing we know."""
    if _is_directory(uri):
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


def survey(config: Config, home: str) -> list[Sighting]:
    """Every target and stream the configuration names, those that need a person first."""
    unnamed = [NamedStream(name, "") for name in home_streams(home) if name not in config.streams]
    seen = [_sight(named, home) for named in (*_all_named(config), *unnamed)]
    return sorted(seen, key=lambda sighting: (not has_errors(sighting.findings), sighting.name))


def _sight(named: NamedTarget | NamedStream, home: str) -> Sighting:
    try:
        uri = _uri_of(named, home)
        local_root(uri)
    except SluicegateError as e:
        place = home if isinstance(named, NamedStream) else named.uri
        return Sighting(named.name, place, None, (UNREADABLE.at(place, e.message),))
    try:
        kind, why = detect(uri)
    except NotFound as e:
        begun = not isinstance(named, NamedStream) or is_remembered(home, named.name)
        finding = MISSING if begun else NOT_STARTED
        return Sighting(named.name, uri, None, (finding.at(uri, e.message),))
    except UnsupportedFormat as e:
        return Sighting(named.name, uri, None, (UNRECOGNISED.at(uri, e.message),))
    except SluicegateError as e:
        return Sighting(named.name, uri, None, (UNREADABLE.at(uri, e.message),))
    wanted = TargetKind.STREAM if isinstance(named, NamedStream) else _ROLES[named.role]
    odd = f"configured as {wanted.value}, but it is {kind.value}: {why}"
    findings = () if kind is wanted else (MISMATCH.at(uri, odd),)
    return Sighting(named.name, uri, Target(named.name, uri, kind, why, named.name), findings)


def home_streams(home: str) -> list[str]:
    """The streams that a home holds, or remembers though they are gone; none if it is no home."""
    try:
        storage = open_storage(home, read_only=True)
        entries = [entry.name for entry in storage.list() if entry.kind == "directory"]
        here = [name for name in entries if storage.stat(f"{name}/chain")]
        hints = storage.list("heads") if "heads" in entries else []
    except SluicegateError:
        return []
    return sorted({*here, *(e.name.removesuffix(_HINT) for e in hints if e.name.endswith(_HINT))})


def is_remembered(home: str, name: str) -> bool:
    """Whether a home knows of a stream, whether its directory is there or not."""
    try:
        return open_storage(home, read_only=True).stat(f"heads/{name}{_HINT}") is not None
    except SluicegateError:
        return False


def _all_named(config: Config) -> Iterator[NamedTarget | NamedStream]:
    yield from config.targets.values()
    yield from config.streams.values()


def _uri_of(named: NamedTarget | NamedStream, home: str) -> str:
    return named.uri if isinstance(named, NamedTarget) else str(local_root(home) / named.name)


def _looks_like_path(word: str) -> bool:
    return "/" in word or word in (".", "..") or _exists(word)


def _exists(word: str) -> bool:
    try:
        return local_root(word).exists()
    except OSError:
        # Too long for a file name, or in a directory that may not be searched.
        return False


def _known_names(config: Config, home: str) -> list[str]:
    return list(dict.fromkeys([*(n.name for n in _all_named(config)), *home_streams(home)]))


def _unknown_name(word: str, config: Config, home: str) -> NotFound:
    names = _known_names(config, home)
    known = (
        f"known names: {', '.join(names)}" if names else "no targets are named in sluicegate.toml"
    )
    return NotFound(f"there is no target or file called {word!r}; {known}")


def _holds_anything(uri: str) -> bool:
    return not _is_directory(uri) or bool(open_storage(uri, read_only=True).list())


def _is_directory(uri: str) -> bool:
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
    from sluicegate import v1

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
