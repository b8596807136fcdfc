"""What the reader of each story finds, and what happens on the machine between two commands."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.checkpoint.damage import Made
from tests.docs.tour_world import ROOT, World, produce

Change = Callable[[World], object]


@dataclass(frozen=True, slots=True)
class Scene:
    """A story begins at `now` with `made`; `before` a command that begins so, something happens."""

    now: str
    made: Change
    before: Mapping[str, Change] = field(default_factory=dict)


def _crashed(world: World) -> None:
    """The machine lost power while batch 13 ran: what Spark had not synced is empty."""
    made = Made(world.orders("agg-hdfs", "2026-11-16T00:47:41Z").parent)
    made.offsets(13).write_bytes(b"")
    for path in (made.commit(13), made.commit(13).with_name(".13.crc")):
        path.unlink(missing_ok=True)
    world.age(made.root)
    shutil.copy(ROOT / "tests/spark/logs/offsets_empty-4.3.0.log", world.work / "driver.log")
    (world.work / "job.py").touch()


def _afternoon(world: World) -> None:
    """A checkpoint and a stream, both of whose jobs are stopped."""
    world.orders("agg-hdfs", "2026-11-16T12:21:07Z")
    world.clicks("2026-11-16T13:30:05Z").end()


def _stopped(world: World) -> None:
    world.orders("agg-hdfs", "2026-11-16T12:21:07Z")


def _moving(world: World) -> None:
    world.orders("agg-hdfs", "2026-11-16T12:21:07Z")
    world.billing("2026-11-16T13:40:00Z")


def _morning(world: World) -> None:
    """A clean-up job removed a file of the output."""
    checkpoint = world.orders("agg-hdfs", "2026-11-15T21:40:07Z", 2400)
    entry = (checkpoint.parent / "out/_spark_metadata/12").read_text()
    name = entry.partition("/out/")[2].partition('"')[0]
    (checkpoint.parent / "out" / name).unlink()


def _night(world: World) -> None:
    world.clicks("2026-11-15T21:30:05Z", 5400).end()


def _approval(world: World) -> None:
    world.billing("2026-11-16T13:40:00Z")


def _growing(world: World) -> None:
    """A stream with two nodes, whose job runs."""
    world.clicks("2026-11-16T13:30:05Z", nodes=("node-1", "node-2"))


def _not_begun(world: World) -> None:
    """A log, and a stream that is described and not begun."""
    world.empty_home()
    produce(world.place("/srv/clicks/log"), 8)


def _named(world: World) -> None:
    """Only what the section names."""
    world.orders("agg-hdfs", "2026-11-16T12:21:07Z")
    world.place("/srv/metrics").mkdir()
    text = (world.work / "sluicegate.toml").read_text()
    only = text.partition("[targets.billing]")[0].partition("[targets.orders]")
    (world.work / "sluicegate.toml").write_text("".join(only[1:]))


def _sent_again(world: World) -> None:
    world.clicks("2026-11-16T13:30:05Z").end()


def _held(world: World) -> None:
    """The consumer is in the middle of a commit."""
    _approval(world)
    world.hold("/data/billing/offsets/billing.lock")


def _commit(world: World) -> None:
    assert world.job
    world.job.commit()


_AFTERNOON = "2026-11-16T14:40:00Z"
SCENES = {
    ("README.md", "A checkpoint that will not start"): Scene("2026-11-16T03:14:00Z", _crashed),
    ("README.md", "Replay from 14:00"): Scene(_AFTERNOON, _afternoon),
    ("README.md", "Gated streams"): Scene(_AFTERNOON, _not_begun),
    ("README.md", "Day to day"): Scene(_AFTERNOON, _named),
    ("docs/guide/approvals.md", "A change that another person must approve"): Scene(
        _AFTERNOON, _approval
    ),
    ("docs/guide/checkpoints.md", "It will not start after a crash"): Scene(
        "2026-11-16T03:14:00Z", _crashed
    ),
    ("docs/guide/checkpoints.md", "Roll back to an earlier time"): Scene(_AFTERNOON, _stopped),
    ("docs/guide/checkpoints.md", "Move the checkpoint"): Scene(_AFTERNOON, _moving),
    ("docs/guide/checkpoints.md", "Did a job lose data?"): Scene("2026-11-16T07:10:00Z", _morning),
    ("docs/guide/gated-streams.md", "Process again from an earlier time"): Scene(
        _AFTERNOON, _sent_again
    ),
    ("docs/guide/gated-streams.md", "Did the stream lose data?"): Scene(
        "2026-11-16T07:10:00Z", _night
    ),
    ("docs/guide/gated-streams.md", "The dedup log"): Scene(_AFTERNOON, _sent_again),
    ("docs/guide/maintenance.md", "Name your targets"): Scene(_AFTERNOON, _named),
    ("docs/guide/offset-stores.md", "Read again from an earlier position"): Scene(
        _AFTERNOON, _approval
    ),
    ("docs/guide/offset-stores.md", "Who holds the lock?"): Scene(_AFTERNOON, _held),
    ("docs/guide/shards.md", "Scale out"): Scene(
        _AFTERNOON, _growing, {"sluicegate checkpoint list": _commit}
    ),
}
"""By page and heading."""
NOT_PLAYED = {
    "README.md": {"Sluicegate", "Install", "Two minutes with the demo"},
    "docs/guide/checkpoints.md": {"Spark checkpoints", "Start any Spark job"},
    "docs/guide/gated-streams.md": {"Describe, begin and run a stream"},
    "docs/guide/maintenance.md": {"Set up", "Output for people and programs", "Run it unattended"},
    "docs/guide/shards.md": {"Shards", "Assignments of other systems"},
}
"""Parts that only name commands, and do not say what they print."""
FOR_GOOD = {
    ("README.md", "Gated streams"),
    ("README.md", "Day to day"),
    ("docs/guide/checkpoints.md", "Move the checkpoint"),
    ("docs/guide/gated-streams.md", "The dedup log"),
}
"""Stories that begin something, or keep what cannot be undone."""
