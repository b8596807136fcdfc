"""Moving the positions of a checkpoint.

Without state, by appending: a batch that is already committed and ends at the new offsets. Batch
numbers are never reused, so no sink mistakes the next batch for one that it has. With state, only
by rolling back to a batch: its state belongs to its offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sluicegate.checkpoint.file_edits import (
    CheckpointOperation,
    Draft,
    Edit,
    Place,
    Roots,
    newest_preconditions,
    put,
    text_in,
)
from sluicegate.checkpoint.format.log import (
    SINK_DIRECTORY,
    OffsetEntry,
    OffsetKind,
    SourceOffset,
    list_log,
    read_commit,
    read_offsets,
    render,
)
from sluicegate.checkpoint.operations import rollback
from sluicegate.checkpoint.rules.state_data import ChainReader
from sluicegate.checkpoint.truncate import Log, empty_entry
from sluicegate.checkpoint.view import Look, look_at, timeline
from sluicegate.errors import Corrupt, NotFound
from sluicegate.plan import Action
from sluicegate.positions import Position, Positions, to_spark
from sluicegate.reset import Known, Range, ResetRefused, ResetSpec, Scenario, Timeline, plan_reset
from sluicegate.storage import Storage
from sluicegate.units import command, counted

_SEED = f"start a fresh checkpoint there, with empty state: {command('checkpoint', 'seed')}"


def wanted_offsets(storage: Storage, spec: ResetSpec) -> dict[str, str]:
    """The offsets that a scenario asks for, as the log writes them, of the sources that move."""
    look = look_at(storage)
    newest = _newest(look)
    if spec.scenario is Scenario.MOMENT:
        return _at_moment(look, newest, spec)
    positions = Positions.of(p for offset in newest.offsets for p in positions_of(offset))
    moves = plan_reset(positions, _known(look, newest), spec)
    new = {(move.topic, move.partition): move.new for move in moves if move.delta}
    return {
        offset.source: _text(offset, [_moved(each, new) for each in positions_of(offset)])
        for offset in newest.offsets
        if any((p.topic, p.partition) in new for p in positions_of(offset))
    }


def known_topics(storage: Storage) -> list[str]:
    """The topics of the newest batch, and the names used for sources without topics."""
    newest = _newest(look_at(storage))
    return sorted({p.topic for offset in newest.offsets for p in positions_of(offset)})


@dataclass(frozen=True, kw_only=True)
class Reset(CheckpointOperation):
    """Move sources to the offsets in `to`, as the log writes them; asked for at the time `at`."""

    name: ClassVar = "reset"
    to: Mapping[str, str]
    at: int | None = None
    note: str = ""
    sink: str | None = None

    @classmethod
    def from_work(cls, work: Mapping[str, Any]) -> Reset:
        to, at = work.get("to"), work.get("at")
        if not isinstance(to, dict) or not all(isinstance(text, str) for text in to.values()):
            raise Corrupt("the plan's work names no offsets to move to")
        return cls(
            to=to,
            at=at if isinstance(at, int) else None,
            note=str(work.get("note", "")),
            sink=text_in(work, "sink"),
        )

    def plan(self, roots: Roots) -> Draft:
        look = look_at(roots[Place.CHECKPOINT])
        newest = _newest(look)
        unknown = sorted(self.to.keys() - {offset.source for offset in newest.offsets})
        if unknown:
            raise Corrupt(f"the plan's work names an unknown source: {unknown[0]}")
        if look.operators:
            return _by_rollback(roots, look, newest, self.to, self.note)
        # Its own time: a lookup of a time before this change must not find it.
        if self.at is not None:
            newest = replace(newest, timestamp_ms=max(newest.timestamp_ms, self.at))
        appended = _by_appending(look, newest, self.to, self.note)
        return _with_sink(appended, roots.get(Place.SINK), newest)


def positions_of(offset: SourceOffset) -> list[Position]:
    """An offset as positions; of a file source the next entry of its log, a counter's number."""
    if offset.positions is not None:
        return list(offset.positions)
    if offset.number is not None and offset.kind in (OffsetKind.FILE, OffsetKind.NUMBER):
        # A file source's offset is the last entry that was read.
        ahead = 1 if offset.kind is OffsetKind.FILE else 0
        return [Position(f"source-{offset.source}", 0, offset.number + ahead)]
    return []


def _by_appending(look: Look, newest: OffsetEntry, to: Mapping[str, str], note: str) -> Draft:
    offsets = tuple(
        replace(offset, text=to.get(offset.source, offset.text)) for offset in newest.offsets
    )
    moved = any(a.text != b.text for a, b in zip(offsets, newest.offsets, strict=True))
    files = any(o.kind is OffsetKind.FILE and o.source in to for o in offsets)
    # A file source compares the newest two entries, so it needs the new offset twice.
    batches = range(newest.batch + 1, newest.batch + (3 if files else 2)) if moved else range(0)
    edits = tuple(edit for batch in batches for edit in _appended(look, newest, offsets, batch))
    return Draft(
        title="Move the positions",
        summary=note or "to other offsets",
        actions=tuple(_actions(newest, offsets)),
        consequences=tuple(_appending_means(look, newest, batches, note)) if moved else (),
        edits=edits,
        newest=max(batches, default=newest.batch),
        preconditions=newest_preconditions(look),
    )


def _with_sink(appended: Draft, sink: Storage | None, newest: OffsetEntry) -> Draft:
    """The file sink's log has an entry for every batch; readers fail where one is missing."""
    if not appended.edits:
        return appended
    if sink is None:
        note = (
            "If the query writes with Spark's file sink, name it with --sink: the sink's log also "
            "needs entries for these batches, or its readers fail."
        )
        return replace(appended, consequences=(*appended.consequences, note))
    log = Log(sink, Place.SINK, SINK_DIRECTORY, list_log(sink, SINK_DIRECTORY))
    # Also of a batch that was planned and not finished, which is not run again.
    first = newest.batch + 1 if log.listing.last is None else log.listing.last + 1
    edits = [empty_entry(log, batch) for batch in range(first, appended.newest + 1)]
    action = Action(
        "add to",
        f"sink: {SINK_DIRECTORY}/",
        f"{counted(len(edits), 'entry', 'entries')} without files",
    )
    return replace(
        appended,
        actions=(*appended.actions, action),
        edits=(*edits, *appended.edits),
    )


def _appended(
    look: Look, newest: OffsetEntry, offsets: tuple[SourceOffset, ...], batch: int
) -> Iterator[Edit]:
    watermark = newest.watermark_ms
    text = f'v1\n{{"nextBatchWatermarkMs":{watermark}}}'
    if look.last_commit is not None:
        commit = read_commit(look.storage, look.last_commit)
        watermark = commit.next_watermark_ms
        text = look.storage.get(f"commits/{look.last_commit}").decode()
    entry = replace(newest, batch=batch, watermark_ms=watermark, offsets=offsets)
    yield put(f"commits/{batch}", text)
    yield put(f"offsets/{batch}", render(entry))


def _by_rollback(
    roots: Roots, look: Look, newest: OffsetEntry, to: Mapping[str, str], note: str
) -> Draft:
    """Roll back to the newest batch that ends at or before the wanted offsets."""
    wanted = {o.source: replace(o, text=to.get(o.source, o.text)) for o in newest.offsets}
    if any(_is_ahead(wanted[offset.source], offset) for offset in newest.offsets):
        raise ResetRefused(
            "this query has state, and its state cannot be moved forward: it would miss the "
            "skipped events",
            hint=_SEED,
        )
    for batch in rollback.candidates(look, ChainReader(look.storage)):
        entry = read_offsets(look.storage, batch)
        if not any(_is_beyond(offset, wanted.get(offset.source)) for offset in entry.offsets):
            return _as_reset(rollback.draft(roots, batch), entry, wanted, note)
    raise ResetRefused(
        "this query has state, and no batch before these offsets has state that still loads",
        hint=_SEED,
    )


def _as_reset(
    back: Draft, entry: OffsetEntry, wanted: Mapping[str, SourceOffset], note: str
) -> Draft:
    exact = all(o.text == wanted[o.source].text for o in entry.offsets if o.source in wanted)
    more = "" if exact else ", the last one that ends before; it re-reads more than requested"
    how = (
        "The query has state, which belongs to its batches: it is rolled back to the end of batch "
        f"{entry.batch}{more}."
    )
    asked = (f"Asked for: {note}.",) if note else ()
    return replace(
        back,
        summary=f"{note}: {back.summary}" if note else back.summary,
        consequences=(*asked, how, *back.consequences),
    )


def _is_ahead(offset: SourceOffset, limit: SourceOffset) -> bool:
    """Whether an offset is past another one in some partition, and behind it in none."""
    return offset.text != limit.text and not _is_beyond(limit, offset)


def _is_beyond(offset: SourceOffset, limit: SourceOffset | None) -> bool:
    """Whether an offset is past another one anywhere; offsets without positions must be equal."""
    if limit is None or offset.text == limit.text:
        return False
    own, other = (
        positions_of(offset),
        {(p.topic, p.partition): p.offset for p in positions_of(limit)},
    )
    if not own or not other:
        return True
    return any(p.offset > other.get((p.topic, p.partition), -1) for p in own)


def _at_moment(look: Look, newest: OffsetEntry, spec: ResetSpec) -> dict[str, str]:
    """The offsets of the last batch planned by then: every kind of offset can move there."""
    entry = Timeline(timeline(look), look.storage.uri).at(spec.moment_ms, clamp=spec.clamp).value
    now = {offset.source: offset.text for offset in newest.offsets}
    return {o.source: o.text for o in entry.offsets if o.text and o.text != now.get(o.source)}


def _newest(look: Look) -> OffsetEntry:
    if look.last_batch is None:
        raise NotFound(f"{look.storage.uri} has no batches yet", place=look.storage.uri)
    return read_offsets(look.storage, look.last_batch)


def _known(look: Look, newest: OffsetEntry) -> Known:
    """A file source's own log is its range; for others only the broker knows it."""
    ranges = {}
    for offset in newest.offsets:
        listing = look.sources.get(offset.source)
        if offset.kind is OffsetKind.FILE and listing and listing.last is not None:
            ranges[f"source-{offset.source}", 0] = Range(0, listing.last + 1)
    return Known(ranges, ranges_from="the source (such as Kafka's broker)")


def _moved(position: Position, new: Mapping[tuple[str, int], int]) -> Position:
    offset = new.get((position.topic, position.partition), position.offset)
    return Position(position.topic, position.partition, offset)


def _text(offset: SourceOffset, positions: list[Position]) -> str:
    if offset.kind is OffsetKind.FILE:
        return json.dumps({"logOffset": positions[0].offset - 1}, separators=(",", ":"))
    if offset.kind is OffsetKind.NUMBER:
        return str(positions[0].offset)
    return json.dumps(to_spark(Positions.of(positions)), separators=(",", ":"))


def _actions(newest: OffsetEntry, offsets: tuple[SourceOffset, ...]) -> Iterator[Action]:
    for old, new in zip(newest.offsets, offsets, strict=True):
        if old.text == new.text:
            continue
        before = {(p.topic, p.partition): p.offset for p in positions_of(old)}
        after = positions_of(new)
        if not before or not after:
            yield Action("move", f"source {old.source}", f"{old.text} → {new.text}")
        for p in after:
            was = before.get((p.topic, p.partition))
            if was != p.offset:
                verb = "rewind" if was is not None and p.offset < was else "skip"
                yield Action(verb, f"{p.topic}[{p.partition}]", "", was, p.offset)


def _appending_means(look: Look, newest: OffsetEntry, batches: range, note: str) -> Iterator[str]:
    if note:
        yield f"Asked for: {note}."
    numbers = f"batch {batches[0]}"
    if len(batches) > 1:
        numbers = f"batches {batches[0]} and {batches[-1]}"
    yield (
        f"Adds {numbers}, committed and without rows. The next start resumes from the new offsets "
        f"with batch {batches[-1] + 1}, a number that no sink has seen."
    )
    if look.last_commit != newest.batch:
        yield (
            f"Batch {newest.batch} did not complete, and Spark does not run it again: its events "
            "from sources and partitions that are not moved are skipped. Let the job finish it "
            "first, or move them, too."
        )
    yield "Events that are read twice are also written twice."
