"""Every key of `sluicegate.toml`, described once.

Checking, the commented example that `sluicegate init` writes, and sluicegate.toml(5) are all made
from these tables.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_HOME = ".sluicegate"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the configuration: its type, an example, and what it does."""

    name: str
    type: type
    example: str
    doc: str
    choices: tuple[str, ...] = ()
    is_path: bool = False
    is_duration: bool = False


GENERAL = (
    Key("home", str, f'"{DEFAULT_HOME}"', "directory that holds gated streams", is_path=True),
    Key("default_stream", str, '"clicks"', "stream that commands work on when none is named"),
    Key("read_only", bool, "false", "refuse every command that would change something"),
    Key("require_reason", bool, "false", "demand --reason for every change"),
    Key("audit_log", str, '"changes.jsonl"', "file that gets a line per change", is_path=True),
)
MAINTAIN = (
    Key("keep", str, '"7d"', "what is younger is kept: links, records, backups", is_duration=True),
    Key("keep_links", int, "100", "so many of a stream's newest links are kept in any case"),
    Key("verify_seconds", int, "60", "how long one run may read contents, all targets together"),
    Key("idle", str, '"2d"', "warn of a target at which nothing ran for longer", is_duration=True),
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
        "required: embedded log, or kafka://host:port/topic",
        is_path=True,
    ),
    Key("stamp", list, '["producer", "partition", "seq"]', "columns of the stamp; none: position"),
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
    Key("max_events", int, "1000000", "most events that one epoch reads; 5000000"),
    Key("offsets", str, '"/data/offsets"', "store that gets the positions too", is_path=True),
    Key("app", str, '"jobs/clicks.py"', "application of your own that runs it", is_path=True),
)
