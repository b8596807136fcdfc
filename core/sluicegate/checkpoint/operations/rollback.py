"""Rolling a checkpoint back to an older batch, completely.

Spark's checkpoint is several logs that must agree: offsets, commits, the state's versions, the
file source's own log, and the file sink's. A rollback cuts all of them: a source log left ahead
merges batches, a later restart loads state left ahead, and a sink left ahead skips batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sluicegate import units
from sluicegate.checkpoint.file_edits import (
    CheckpointOperation,
    Draft,
    Edit,
    Place,
    Roots,
    newest_preconditions,
    remove_with_sums,
    text_in,
)
from sluicegate.checkpoint.format.log import (
    SINK_DIRECTORY,
    OffsetEntry,
    OffsetKind,
    list_log,
    read_commit,
    read_offsets,
)
from sluicegate.checkpoint.format.operators import STATE
from sluicegate.checkpoint.inspect import events_between
from sluicegate.checkpoint.rules.state import STATE_AHEAD, check_state
from sluicegate.checkpoint.rules.state_data import ChainReader
from sluicegate.checkpoint.stores import StateStore, find_stores, load_chain
from sluicegate.checkpoint.truncate import Log, cut_back
from sluicegate.checkpoint.view import SOURCES, Look, look_at, timeline
from sluicegate.errors import Corrupt, NotFound, SluicegateError
from sluicegate.findings import Severity
from sluicegate.plan import Action
from sluicegate.reset import Timeline
from sluicegate.storage import Storage

_SHOWN = 3


class CannotRollBack(NotFound):
    """The checkpoint cannot be rolled back to that batch."""

    default_hint = f"list its batches with: {units.command('checkpoint', 'list', 'CHECKPOINT')}"


@dataclass(frozen=True, kw_only=True)
class Rollback(CheckpointOperation):
    """Roll back to the end of batch `to`."""

    name: ClassVar = "rollback"
    to: int
    sink: str | None = None

    @classmethod
    def from_work(cls, work: Mapping[str, Any]) -> Rollback:
        to = work.get("to")
        if not isinstance(to, int) or isinstance(to, bool):
            raise Corrupt("the plan's work names no batch to roll back to")
        return cls(to=to, sink=text_in(work, "sink"))

    def plan(self, roots: Roots) -> Draft:
        return draft(roots, self.to)


def draft(roots: Roots, to: int) -> Draft:
    """The rollback to the end of a batch."""
    look = look_at(roots[Place.CHECKPOINT])
    last = look.last_batch
    if last is None:
        raise CannotRollBack(f"{look.storage.uri} has no batches")
    reader = ChainReader(look.storage)
    if fault := obstacle(look, to, reader):
        raise _refusal(look, to, fault, reader)
    entry = read_offsets(look.storage, to)
    parts = list(_parts(roots, look, entry))
    edits = tuple(edit for _, _, found in parts for edit in found)
    return Draft(
        title=f"Roll back to the end of batch {to}",
        summary=f"from batch {last} to the end of batch {to}",
        actions=tuple(Action(v, place, units.counted(len(f), "file")) for v, place, f in parts),
        consequences=tuple(_consequences(roots, look, entry)) if edits else (),
        edits=edits,
        newest=to,
        preconditions=newest_preconditions(look),
    )


def batch_at(storage: Storage, moment_ms: int) -> int:
    """The last batch that was planned at or before a moment, by the offset log's own times."""
    return Timeline(timeline(look_at(storage)), storage.uri).at(moment_ms).value.batch


def obstacle(look: Look, to: int, reader: ChainReader) -> str | None:
    """Why the checkpoint cannot be rolled back to the end of a batch, if so."""
    if to not in look.offsets.batches:
        return f"the log has no batch {to}"
    if to > 0 and to - 1 not in look.offsets.batches:
        return f"the offsets of batch {to - 1} are missing, which Spark needs to start from {to}"
    if to not in look.commits.batches:
        return f"batch {to} is not committed"
    try:
        return _state_obstacle(look, to, reader)
    except SluicegateError as e:
        return e.message


def _state_obstacle(look: Look, to: int, reader: ChainReader) -> str | None:
    entry, commit = read_offsets(look.storage, to), read_commit(look.storage, to)
    for finding in check_state(_as_of(look, to)):
        # State of later batches is what a rollback removes.
        if finding.severity is Severity.ERROR and finding.code != STATE_AHEAD.code:
            return f"the state does not load: {finding.detail}"
    for store in find_stores(look):
        # After a repartition, stores of higher partitions were not there yet.
        if entry.partitions is not None and store.partition >= entry.partitions:
            continue
        chain = load_chain(look.storage, store, to + 1, commit)
        if not chain.loadable:
            lacking = ", ".join(str(each) for each in chain.missing[:_SHOWN])
            if (more := len(chain.missing) - _SHOWN) > 0:
                lacking += f" and {more:,} more"
            return f"the state of {store.directory} does not load: {lacking} is missing"
        if fault := reader.fault(store, chain):
            return f"the state does not load: {fault}"
    return None


def _as_of(look: Look, to: int) -> Look:
    """The checkpoint as it was at the end of a batch, by its logs."""
    offsets, commits = (
        replace(listing, batches=tuple(b for b in listing.batches if b <= to))
        for listing in (look.offsets, look.commits)
    )
    return replace(look, offsets=offsets, commits=commits)


def candidates(look: Look, reader: ChainReader) -> Iterator[int]:
    """The batches that a rollback can go to, newest first; each is checked only when asked for."""
    for batch in reversed(look.offsets.batches):
        if obstacle(look, batch, reader) is None:
            yield batch


def _refusal(look: Look, to: int, fault: str, reader: ChainReader) -> CannotRollBack:
    able = list(candidates(look, reader))
    seed = units.command("checkpoint", "seed", "--help")
    hint = f"no batch can be rolled back to; see: {seed}"
    if able:
        hint = f"the oldest possible batch is {able[-1]}, the newest {able[0]}"
    message = f"{look.storage.uri} cannot be rolled back to batch {to}: {fault}"
    return CannotRollBack(message, hint=hint, place=look.storage.uri)


def _parts(roots: Roots, look: Look, entry: OffsetEntry) -> Iterator[tuple[str, str, list[Edit]]]:
    """Verb, place and edits of everything to remove, directory by directory."""
    for name, listing in (("offsets", look.offsets), ("commits", look.commits)):
        above = {b for b in (*listing.batches, *listing.deleted) if b > entry.batch}
        keys = [f"{name}/{batch}" for batch in sorted(above)]
        edits = [edit for key in keys for edit in remove_with_sums(look.storage, key)]
        if edits:
            yield "remove", f"{name}/ above {entry.batch}", edits
    for operator in look.operators:
        edits = [*_state_edits(look, operator, entry), *_metadata_edits(look, operator, entry)]
        if edits:
            yield "remove", f"{STATE}/{operator}/ above version {entry.batch + 1}", edits
    for source in entry.offsets:
        files = look.sources.get(source.source)
        if source.kind is OffsetKind.FILE and files and source.number is not None:
            directory = f"{SOURCES}/{source.source}"
            log = Log(look.storage, Place.CHECKPOINT, directory, files)
            if edits := cut_back(log, source.number, numbered=True):
                yield "cut back", f"{directory}/ to {source.number}", edits
    sink = roots.get(Place.SINK)
    if sink is not None:
        log = Log(sink, Place.SINK, SINK_DIRECTORY, list_log(sink, SINK_DIRECTORY))
        if edits := cut_back(log, entry.batch, numbered=False):
            yield "cut back", f"sink: {SINK_DIRECTORY}/ to {entry.batch}", edits


def _state_edits(look: Look, operator: int, entry: OffsetEntry) -> Iterator[Edit]:
    for store in find_stores(look):
        if store.operator == operator:
            for file in store.listing.files:
                if file.version > entry.batch + 1:
                    yield from remove_with_sums(look.storage, f"{store.directory}/{file.name}")
            yield from _orphan_sums(look, store, entry)


def _orphan_sums(look: Look, store: StateStore, entry: OffsetEntry) -> Iterator[Edit]:
    """Visible checksums without their file, of versions that will be written again."""
    for name in store.listing.orphan_sums:
        version = name.partition("_")[0].partition(".")[0]
        if version.isdigit() and int(version) > entry.batch + 1:
            yield from remove_with_sums(look.storage, f"{store.directory}/{name}")


def _metadata_edits(look: Look, operator: int, entry: OffsetEntry) -> Iterator[Edit]:
    """Descriptions of the operator that were written after this batch."""
    directory = f"{STATE}/{operator}/_metadata/v2"
    for batch in list_log(look.storage, directory).batches:
        if batch > entry.batch:
            yield from remove_with_sums(look.storage, f"{directory}/{batch}")


def _consequences(roots: Roots, look: Look, entry: OffsetEntry) -> Iterator[str]:
    last = look.last_batch
    first = entry.batch + 1
    single = last == first
    span = f"batch {first}" if single else f"batches {first} to {last}"
    runs, ids = ("runs", "id") if single else ("run", "ids")
    planned = units.utc(entry.timestamp_ms / 1000)
    resumes = f"The query resumes after batch {entry.batch}, which was planned at {planned}."
    if last is None or last < first:
        # Only files of batches that were never planned are removed.
        yield resumes
        return
    yield f"{resumes} {span.capitalize()} {runs} again with the same batch {ids}."
    try:
        newest = read_offsets(look.storage, last) if last is not None else None
    except SluicegateError:
        newest = None
    events = events_between(entry, newest)
    if events is not None:
        yield f"Re-reads {units.events(events)}, if the broker still holds them."
    sink = roots.get(Place.SINK)
    if sink is not None:
        yield (
            f"Removes {span} from the sink's log: the output files stay in place, but Spark's "
            "readers no longer see them. Consumers that already read these files keep what they "
            "read."
        )
    else:
        yield (
            f"Remove {span} first from a sink that recognises batch ids (Delta, a table of batch "
            "ids), or it skips them when they run again: rows are lost, and a query with state "
            "fails, because skipped batches are not computed. For Spark's file sink, name the "
            "directory with --sink."
        )
