"""Find the target of a word on the command line: a name in the configuration, or a path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluicegate.config import DEFAULT_HOME, Config, NamedStream, NamedTarget, load_config
from sluicegate.errors import NotFound, SluicegateError, UnsupportedFormat, UsageError
from sluicegate.findings import Finding, Severity, has_errors, rule
from sluicegate.storage import joined_uri, local_root, open_storage
from sluicegate.target import CHAIN, Options, Target, TargetKind, detect, is_directory
from sluicegate.units import command

# The hints in a home: where the chain of each stream ends, outside the stream's directory.
HEADS, HINT = "heads", ".head"

MISSING = rule(
    "SG-TARGET-MISSING",
    Severity.ERROR,
    "a named target does not exist",
    "The path of this target in the configuration does not exist. The disk may not be mounted, "
    "the job may not have run yet, or the path is wrong.",
)
NOT_STARTED = rule(
    "SG-TARGET-NOT-STARTED",
    Severity.NOTE,
    "a configured stream has no chain yet",
    "The stream is described in the configuration but has never run, so the home has no data of "
    "it.",
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
    "the kind of a named target is unknown",
    "The path exists but is not a Spark checkpoint, an offset store, a gated stream or a legacy "
    "checkpoint file. It may be the directory above or below the intended one.",
)
MISMATCH = rule(
    "SG-TARGET-MISMATCH",
    Severity.WARNING,
    "a named target is of another kind than configured",
    "The configuration has the path as `checkpoint` or `offsets`, but the data there is another "
    "kind of target.",
)
_ROLES = {"checkpoint": TargetKind.SPARK_CHECKPOINT, "offsets": TargetKind.OFFSET_STORE}


def resolve(
    word: str,
    config: Config,
    home: str,
    kind: TargetKind | None = None,
    options: Options | None = None,
) -> Target:
    """The target of a name or path; `kind` overrides the detection."""
    named = _named(word, config, home)
    if named is None and not _looks_like_path(word):
        raise _unknown_name(word, config, home)
    uri = _uri_of(named, home) if named else word
    found, why = _kind_of(named, uri, home, word, kind)
    configured = named.name if named else None
    return found.adapter(word, uri, why, configured, config, options or Options())


def _kind_of(
    named: NamedTarget | NamedStream | None,
    uri: str,
    home: str,
    word: str,
    kind: TargetKind | None,
) -> tuple[TargetKind, str]:
    if kind is not None:
        is_directory(uri)
        return kind, "set with --as"
    if isinstance(named, NamedStream) and _remembers(home, named.name):
        # Even if its directory is damaged or missing: the stream's own error is the right one.
        return TargetKind.STREAM, "listed in the home"
    if isinstance(named, NamedTarget) and named.role == "offsets" and not _holds_anything(uri):
        # Perhaps a disk that is not mounted: the store's own error is the right one.
        return TargetKind.OFFSET_STORE, "configured as offsets"
    if isinstance(named, NamedStream) and not _exists(uri):
        raise NotFound(
            f"the stream {word} has not been created: {uri} does not exist",
            hint=f"create it with: {command('init', '--stream', word)}",
            place=uri,
        )
    return detect(uri, _likely(named) if named else None)


def _likely(named: NamedTarget | NamedStream) -> TargetKind:
    """The configured kind of a target."""
    return TargetKind.STREAM if isinstance(named, NamedStream) else _ROLES[named.role]


def open_target(
    word: str,
    *,
    config: str | None = None,
    home: str | None = None,
    kind: str | None = None,
    **options: Any,
) -> Target:
    """The target of a name in sluicegate.toml or of a path, to be read and changed.

    `kind` overrides the detection; `options` are those of `Options`, such as `sink` or `consumer`.
    """
    found = load_config(Path(config) if config else None)
    chosen = next((each for each in TargetKind if each.value == kind), None)
    if kind is not None and chosen is None:
        raise UsageError(f"{kind!r} is not a kind of target", hint="see: sluicegate status --help")
    where = home or found.home or DEFAULT_HOME
    return resolve(word, found, where, chosen, Options(**{"read_only": False, **options}))


def place_of(word: str, config: Config, home: str) -> str:
    """The place of a name, even if it does not exist; other words are paths."""
    named = _named(word, config, home)
    return _uri_of(named, home) if named else word


def _named(word: str, config: Config, home: str) -> NamedTarget | NamedStream | None:
    named = config.targets.get(word) or config.streams.get(word)
    if named is None and not _looks_like_path(word) and word in home_streams(home):
        return NamedStream(word, "")
    return named


def only_target(config: Config, home: str) -> str:
    """The target of a command that names none: the default stream, or the only target."""
    names = _known_names(config, home)
    if config.default_stream is not None:
        return config.default_stream
    if len(names) == 1:
        return names[0]
    if not names:
        raise UsageError(
            "the target is missing, and sluicegate.toml has none",
            hint="name a path, or add targets to sluicegate.toml",
        )
    raise UsageError(
        f"the target is missing, and there are several: {', '.join(names)}",
        hint="name one of them, or set default_stream",
    )


@dataclass(frozen=True, slots=True)
class TargetEntry:
    """A named target: the target if its kind is known, and its findings."""

    name: str
    uri: str
    target: Target | None
    findings: tuple[Finding, ...]


def list_targets(config: Config, home: str) -> list[TargetEntry]:
    """Every target and stream in the configuration, those with errors first."""
    unnamed = [NamedStream(name, "") for name in home_streams(home) if name not in config.streams]
    found = [_entry_of(named, config, home) for named in (*_all_named(config), *unnamed)]
    return sorted(found, key=lambda entry: (not has_errors(entry.findings), entry.name))


def _entry_of(named: NamedTarget | NamedStream, config: Config, home: str) -> TargetEntry:
    try:
        uri = _uri_of(named, home)
        local_root(uri)
    except SluicegateError as e:
        place = home if isinstance(named, NamedStream) else named.uri
        return TargetEntry(named.name, place, None, (UNREADABLE.at(place, e.message),))
    wanted = _likely(named)
    try:
        kind, why = detect(uri, wanted)
    except NotFound as e:
        begun = not isinstance(named, NamedStream) or _remembers(home, named.name)
        finding = MISSING if begun else NOT_STARTED
        return TargetEntry(named.name, uri, None, (finding.at(uri, e.message),))
    except UnsupportedFormat as e:
        return TargetEntry(named.name, uri, None, (UNRECOGNISED.at(uri, e.message),))
    except SluicegateError as e:
        return TargetEntry(named.name, uri, None, (UNREADABLE.at(uri, e.message),))
    odd = f"configured as {wanted.value}, but it is {kind.value}: {why}"
    findings = () if kind is wanted else (MISMATCH.at(uri, odd),)
    target = kind.adapter(named.name, uri, why, named.name, config)
    return TargetEntry(named.name, uri, target, findings)


def home_streams(home: str) -> list[str]:
    """The streams that a home holds or has a hint of; none if it is not a home."""
    try:
        storage = open_storage(home, read_only=True)
        entries = [entry.name for entry in storage.list() if entry.kind == "directory"]
        here = [name for name in entries if storage.stat(f"{name}/{CHAIN}")]
        hints = storage.list(HEADS) if HEADS in entries else []
    except SluicegateError:
        return []
    return sorted({*here, *(e.name.removesuffix(HINT) for e in hints if e.name.endswith(HINT))})


def _remembers(home: str, name: str) -> bool:
    """Whether a home has a hint of a stream, even if its directory is missing."""
    try:
        return open_storage(home, read_only=True).stat(f"{HEADS}/{name}{HINT}") is not None
    except SluicegateError:
        return False


def _all_named(config: Config) -> Iterator[NamedTarget | NamedStream]:
    yield from config.targets.values()
    yield from config.streams.values()


def _uri_of(named: NamedTarget | NamedStream, home: str) -> str:
    return named.uri if isinstance(named, NamedTarget) else joined_uri(home, named.name)


def _looks_like_path(word: str) -> bool:
    return "/" in word or word in (".", "..") or _exists(word)


def _exists(word: str) -> bool:
    try:
        return local_root(word).exists()
    except OSError:
        # Too long for a file name, or in a directory that may not be searched.
        return False


def _known_names(config: Config, home: str) -> Sequence[str]:
    return list(dict.fromkeys([*(n.name for n in _all_named(config)), *home_streams(home)]))


def _unknown_name(word: str, config: Config, home: str) -> NotFound:
    names = _known_names(config, home)
    known = f"known names: {', '.join(names)}" if names else "sluicegate.toml names no targets"
    return NotFound(f"there is no target or file {word!r}; {known}")


def _holds_anything(uri: str) -> bool:
    return not is_directory(uri) or bool(open_storage(uri, read_only=True).list())
