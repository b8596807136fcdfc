"""What a word on the command line means: a target that the configuration names, or a path."""

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

# What a home remembers of a stream beside its directory: a hint where the chain ends.
HEADS, HINT = "heads", ".head"

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
_ROLES = {"checkpoint": TargetKind.SPARK_CHECKPOINT, "offsets": TargetKind.OFFSET_STORE}


def resolve(
    word: str,
    config: Config,
    home: str,
    kind: TargetKind | None = None,
    options: Options | None = None,
) -> Target:
    """The target that a name or path means; `kind` overrides the detection."""
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
        return kind, "you said so with --as"
    if isinstance(named, NamedStream) and _remembers(home, named.name):
        # Whatever is left of it: as a stream it is refused with the right words.
        return TargetKind.STREAM, "the home remembers it"
    if isinstance(named, NamedTarget) and named.role == "offsets" and not _holds_anything(uri):
        # A disk that is not mounted; as a store it is refused with the right words.
        return TargetKind.OFFSET_STORE, "configured as offsets"
    if isinstance(named, NamedStream) and not _exists(uri):
        raise NotFound(
            f"the stream {word} has not begun: {uri} does not exist",
            hint=f"begin it with: {command('init', '--stream', word)}",
            place=uri,
        )
    return detect(uri, _likely(named) if named else None)


def _likely(named: NamedTarget | NamedStream) -> TargetKind:
    """The kind that the configuration calls a target."""
    return TargetKind.STREAM if isinstance(named, NamedStream) else _ROLES[named.role]


def open_target(
    word: str,
    *,
    config: str | None = None,
    home: str | None = None,
    kind: str | None = None,
    **options: Any,
) -> Target:
    """The target that a name of sluicegate.toml or a path means, to be looked at and changed.

    `kind` overrides the detection; `options` are those of `Options`, such as `sink` or `consumer`.
    """
    found = load_config(Path(config) if config else None)
    chosen = next((each for each in TargetKind if each.value == kind), None)
    if kind is not None and chosen is None:
        raise UsageError(f"{kind!r} is no kind of target", hint="see: sluicegate status --help")
    where = home or found.home or DEFAULT_HOME
    return resolve(word, found, where, chosen, Options(**{"read_only": False, **options}))


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


@dataclass(frozen=True, slots=True)
class TargetEntry:
    """A named target as it was found: the target if its kind is known, and what is wrong."""

    name: str
    uri: str
    target: Target | None
    findings: tuple[Finding, ...]


def list_targets(config: Config, home: str) -> list[TargetEntry]:
    """Every target and stream the configuration names, those that need a person first."""
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
    """The streams that a home holds, or remembers though they are gone; none if it is no home."""
    try:
        storage = open_storage(home, read_only=True)
        entries = [entry.name for entry in storage.list() if entry.kind == "directory"]
        here = [name for name in entries if storage.stat(f"{name}/{CHAIN}")]
        hints = storage.list(HEADS) if HEADS in entries else []
    except SluicegateError:
        return []
    return sorted({*here, *(e.name.removesuffix(HINT) for e in hints if e.name.endswith(HINT))})


def _remembers(home: str, name: str) -> bool:
    """Whether a home knows of a stream, whether its directory is there or not."""
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
    known = (
        f"known names: {', '.join(names)}" if names else "no targets are named in sluicegate.toml"
    )
    return NotFound(f"there is no target or file called {word!r}; {known}")


def _holds_anything(uri: str) -> bool:
    return not is_directory(uri) or bool(open_storage(uri, read_only=True).list())
