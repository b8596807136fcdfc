"""`sluicegate.toml`: a table of all keys, and the named targets of an installation.

The checks, the commented example that `sluicegate init` writes, and sluicegate.toml(5) are all
generated from these tables.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluicegate.errors import ConfigInvalid, Corrupt, InvalidName, NotFound, UsageError
from sluicegate.storage import LocalStorage, validate_name
from sluicegate.units import parse_duration

DEFAULT_HOME = ".sluicegate"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the configuration: its type, an example, and its effect."""

    name: str
    type: type
    example: str
    doc: str
    choices: tuple[str, ...] = ()
    is_path: bool = False
    is_duration: bool = False


GENERAL = (
    Key("home", str, f'"{DEFAULT_HOME}"', "directory that holds gated streams", is_path=True),
    Key("default_stream", str, '"clicks"', "stream for commands that name no target"),
    Key("read_only", bool, "false", "refuse every command that changes a target"),
    Key("require_reason", bool, "false", "require --reason for every change"),
    Key("audit_log", str, '"changes.jsonl"', "file that gets a line per change", is_path=True),
)
MAINTAIN = (
    Key(
        "keep",
        str,
        '"7d"',
        "keep snapshots, records and backups younger than this",
        is_duration=True,
    ),
    Key("keep_snapshots", int, "100", "always keep this many of a stream's newest snapshots"),
    Key("verify_seconds", int, "60", "how long one run may read contents, for all targets"),
    Key("idle", str, '"2d"', "warn if no job ran on a target for longer", is_duration=True),
)
TARGET = (
    Key(
        "checkpoint",
        str,
        '"/data/orders/checkpoint"',
        "a Spark checkpoint; this key or `offsets`",
        is_path=True,
    ),
    Key(
        "offsets",
        str,
        '"/data/orders/offsets"',
        "a lock-file offset store; this key or `checkpoint`",
        is_path=True,
    ),
    Key("sink", str, '"/data/orders/out"', "directory its file sink writes to", is_path=True),
    Key("app", str, '"jobs/orders.py"', "application that `submit` starts", is_path=True),
)
STREAM = (
    Key(
        "source",
        str,
        '"/data/clicks/log"',
        "required: embedded log, kafka://host:port/topic, or query:CHECKPOINT",
        is_path=True,
    ),
    Key(
        "stamp",
        list,
        '["producer", "partition", "seq"]',
        "columns of the stamp (event id); default: the position",
    ),
    Key(
        "columns",
        dict,
        '{ user = "string", price = "long" }',
        "columns of a record: string, long, double or boolean",
    ),
    Key("key", str, '"user"', "column that decides the shard"),
    Key("shards", int, "64", "number of shards, fixed for the life of the stream"),
    Key("aggregates", dict, '{ clicks = "count", spent = "sum(price)" }', "state kept per key"),
    Key("sink", str, '"/data/clicks/out"', "directory for the output", is_path=True),
    Key("on_reject", str, '"keep"', "records without stamp or key", choices=("keep", "fail")),
    Key(
        "on_overflow",
        str,
        '"fail"',
        "a double beyond 9e288 in a sum or average: stop, or make that one null for good",
        choices=("fail", "null"),
    ),
    Key("max_events", int, "1000000", "most events that one epoch reads; default 5000000"),
    Key("offsets", str, '"/data/offsets"', "store that also gets the positions", is_path=True),
    Key("app", str, '"jobs/clicks.py"', "your own application that runs it", is_path=True),
)


FILE_NAME = "sluicegate.toml"
_MAX_BYTES = 1024 * 1024
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


_PLACES = ("checkpoint", "offsets")
_TYPE_NAMES = {
    str: "text in quotes",
    bool: "true or false",
    int: "an integer",
    list: "a list of texts",
    dict: "a table of texts",
}


@dataclass(frozen=True, slots=True)
class NamedTarget:
    """A `[targets.NAME]` table: its name, the key that holds its place, and the other keys."""

    name: str
    role: str
    uri: str
    sink: str | None = None
    app: str | None = None


@dataclass(frozen=True, slots=True)
class NamedStream:
    """A `[streams.NAME]` table; `genesis` fixes its settings."""

    name: str
    source: str
    stamp: tuple[str, ...] = ()
    key: str | None = None
    shards: int = 64
    columns: Mapping[str, str] = field(default_factory=dict)
    aggregates: Mapping[str, str] = field(default_factory=dict)
    sink: str | None = None
    on_reject: str = "keep"
    on_overflow: str = "fail"
    max_events: int | None = None
    offsets: str | None = None
    app: str | None = None


@dataclass(frozen=True, slots=True)
class Maintain:
    """The `[maintain]` table: retention, and limits of a run; times are in seconds."""

    keep: float = 7 * 86400.0
    keep_snapshots: int = 100
    verify_seconds: int = 60
    idle: float = 2 * 86400.0


@dataclass(frozen=True, slots=True)
class Config:
    """A checked configuration; `path` is None if there is no file, so that all is default."""

    path: Path | None = None
    home: str | None = None
    default_stream: str | None = None
    read_only: bool = False
    require_reason: bool = False
    audit_log: str | None = None
    maintain: Maintain = Maintain()
    targets: Mapping[str, NamedTarget] = field(default_factory=dict)
    streams: Mapping[str, NamedStream] = field(default_factory=dict)


def load_config(path: Path | None) -> Config:
    """The configuration at `path`, which must exist; without one, `./sluicegate.toml` if any."""
    if path is None:
        path = Path(FILE_NAME)
        # A dangling symlink is a missing configuration, not an absent one: fail closed.
        if not os.path.lexists(path):
            return Config()
    try:
        # Resolved first: mounted configuration is often a symlink, and the operator named it.
        real = path.resolve()
        data = LocalStorage(real.parent).get(real.name, limit=_MAX_BYTES)
    except (RuntimeError, OSError) as e:
        raise ConfigInvalid(f"{path} cannot be found: {e}", place=str(path)) from e
    except Corrupt as e:
        raise ConfigInvalid(e.message, hint="check that it is the right file") from e
    except NotFound as e:
        raise NotFound(
            f"there is no configuration {path}",
            hint="create a commented one with: sluicegate init",
            place=str(path),
        ) from e
    return parse_config(data, path)


def parse_config(data: bytes, path: Path) -> Config:
    """A configuration from the bytes of a file; relative places are relative to the file."""
    import tomli

    try:
        raw = tomli.loads(data.decode())
    except UnicodeDecodeError as e:
        raise ConfigInvalid(f"{path}, byte {e.start}: not UTF-8", place=str(path)) from e
    except (ValueError, RecursionError) as e:
        raise ConfigInvalid(f"{path}: {e}", place=str(path)) from e
    return _Checker(path).config(raw)


def example() -> str:
    """A commented configuration that describes every key and sets none of them."""
    lines = [
        "# Sluicegate configuration. Relative paths are relative to this file.",
        "# Every key is optional; see sluicegate.toml(5).",
        "",
        *_commented(GENERAL),
        "",
        "# Retention and limits of `sluicegate maintain`.",
        "# [maintain]",
        *_commented(MAINTAIN),
        "",
        "# A Spark checkpoint or an offset store, under a name that commands accept.",
        "# [targets.orders]",
        *_commented(TARGET),
        "",
        "# A gated stream.",
        "# [streams.clicks]",
        *_commented(STREAM),
    ]
    return "\n".join(lines) + "\n"


def _commented(keys: tuple[Key, ...]) -> list[str]:
    width = max(len(f"{key.name} = {key.example}") for key in keys)
    return [f"# {f'{key.name} = {key.example}':<{width}}  # {key.doc}" for key in keys]


class _Checker:
    """Turns parsed TOML into a `Config`; errors name the invalid key."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def config(self, raw: dict[str, Any]) -> Config:
        named = {name: raw.pop(name, {}) for name in ("targets", "streams", "maintain")}
        general = self._keys(raw, GENERAL, "", also=tuple(named))
        maintain = self._maintain(named["maintain"])
        targets = {n: self._target(n, t) for n, t in self._tables(named, "targets")}
        streams = {n: self._stream(n, t) for n, t in self._tables(named, "streams")}
        if twice := sorted(targets.keys() & streams.keys()):
            raise self._fault(f"{twice[0]!r} is the name of both a target and a stream")
        wanted = general.get("default_stream")
        if wanted is not None and wanted not in streams:
            raise self._fault(
                f"default_stream = {wanted!r}, but there is no [streams.{wanted}]"
                + _nearest(wanted, streams)
            )
        return Config(self._path, **general, maintain=maintain, targets=targets, streams=streams)

    def _maintain(self, table: Any) -> Maintain:
        if not isinstance(table, dict):
            raise self._fault("maintain must be a table: [maintain]")
        keys = self._keys(table, MAINTAIN, "maintain.")
        for name, least in (("keep_snapshots", 1), ("verify_seconds", 0)):
            if keys.get(name, least) < least:
                raise self._fault(f"maintain.{name} must be at least {least}")
        return Maintain(**keys)

    def _tables(self, named: dict[str, Any], group: str) -> list[tuple[str, dict[str, Any]]]:
        tables = named[group]
        if not isinstance(tables, dict):
            raise self._fault(f"{group} must be tables like [{group}.NAME]")
        for name, table in tables.items():
            try:
                validate_name(name, f"in {group}, the name")
            except InvalidName as e:
                raise self._fault(e.message, hint=e.hint) from e
            if not isinstance(table, dict):
                raise self._fault(f"{group}.{name} must be a table: [{group}.{name}]")
        return list(tables.items())

    def _target(self, name: str, table: dict[str, Any]) -> NamedTarget:
        keys = self._keys(table, TARGET, f"targets.{name}.")
        roles = [role for role in _PLACES if role in keys]
        if len(roles) != 1:
            raise self._fault(f"targets.{name} needs exactly one of: {', '.join(_PLACES)}")
        return NamedTarget(name, roles[0], keys.pop(roles[0]), **keys)

    def _stream(self, name: str, table: dict[str, Any]) -> NamedStream:
        where = f"streams.{name}"
        keys = self._keys(table, STREAM, f"{where}.")
        if "source" not in keys:
            raise self._fault(f"{where} needs a source")
        for count in ("shards", "max_events"):
            if keys.get(count, 1) < 1:
                raise self._fault(f"{where}.{count} must be at least 1")
        stamp = tuple(keys.pop("stamp", ()))
        if len(stamp) not in (0, 3):
            raise self._fault(f"{where}.stamp needs three columns: producer, partition, sequence")
        return NamedStream(name, stamp=stamp, **keys)

    def _keys(
        self, table: dict[str, Any], known: tuple[Key, ...], where: str, also: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        by_name = {key.name: key for key in known}
        checked = {}
        for name, value in table.items():
            key = by_name.get(name)
            if key is None:
                raise self._fault(f"unknown key {where}{name}" + _nearest(name, [*by_name, *also]))
            checked[name] = self._value(key, value, where)
        return checked

    def _value(self, key: Key, value: Any, where: str) -> Any:
        if not _is(value, key.type):
            raise self._fault(f"{where}{key.name} must be {_TYPE_NAMES[key.type]}, not {value!r}")
        if key.choices and value not in key.choices:
            allowed = " or ".join(f'"{choice}"' for choice in key.choices)
            raise self._fault(f'{where}{key.name} must be {allowed}, not "{value}"')
        if key.is_duration:
            return self._duration(key, value, where)
        return self._place(key, value, where) if key.is_path else value

    def _duration(self, key: Key, value: str, where: str) -> float:
        try:
            return parse_duration(value)
        except UsageError as e:
            raise self._fault(f"{where}{key.name}: {e.message}", hint=e.hint) from e

    def _place(self, key: Key, value: str, where: str) -> str:
        if _URI.match(value):
            return value
        try:
            return str(self._path.absolute().parent / Path(value).expanduser())
        except RuntimeError as e:
            raise self._fault(f"{where}{key.name}: {e}") from e

    def _fault(self, what: str, hint: str | None = None) -> ConfigInvalid:
        return ConfigInvalid(f"{self._path}: {what}", hint=hint, place=str(self._path))


def _is(value: Any, wanted: type) -> bool:
    if wanted is list:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if wanted is dict:
        return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    # In Python, but not in TOML, true is also an integer.
    return isinstance(value, wanted) and isinstance(value, bool) is (wanted is bool)


def _nearest(word: str, known: Any) -> str:
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known) or 'none'}"
