"""Shared by checks and fixes: the case, a fix, and entries of file logs.

Logs are streamed, never loaded: a compact file repeats every entry there ever was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from sluicegate.checkpoint.file_edits import Edit, Place, Roots, drop_sums
from sluicegate.checkpoint.format.log import OffsetEntry, needed_files, read_offsets, stream_lines
from sluicegate.checkpoint.truncate import Log, repeated
from sluicegate.checkpoint.view import Look
from sluicegate.errors import NotFound, SluicegateError
from sluicegate.findings import Finding
from sluicegate.plan import Choice
from sluicegate.positions import Positions
from sluicegate.storage import Storage
from sluicegate.units import command, counted


@dataclass(frozen=True, slots=True)
class Fix:
    """A lossless fix of a finding: summary, consequence, edits."""

    summary: str
    consequence: str
    edits: tuple[Edit, ...]


Solution = Fix | tuple[Choice, ...]
"""A lossless fix, or choices that each have a cost, or nothing."""


@dataclass(frozen=True, slots=True)
class Case:
    """A checkpoint to be checked or repaired, with its file sink if that is known.

    The operator supplies `positions` and `query_id`; `rollbacks` yields the batches that a rollback
    can go to, newest first.
    """

    roots: Roots
    look: Look
    read_data: bool = False
    positions: Positions | None = None
    query_id: str | None = None
    rollbacks: Callable[[], Iterator[int]] = lambda: iter(())

    @property
    def storage(self) -> Storage:
        """The checkpoint."""
        return self.look.storage

    @property
    def sink(self) -> Storage | None:
        """The file sink, if it is known."""
        return self.roots.get(Place.SINK)

    @property
    def sink_words(self) -> tuple[str, ...]:
        """The arguments of a command that name the sink, if it is known."""
        return () if self.sink is None else ("--sink", self.sink.uri)

    def key_of(self, finding: Finding) -> str:
        """The key of the file that a finding is about."""
        for storage in self.roots.values():
            if finding.place.startswith(f"{storage.uri}/"):
                return finding.place.removeprefix(f"{storage.uri}/")
        return finding.place

    def batch_of(self, finding: Finding) -> int:
        """The batch whose file a finding is about."""
        name = self.key_of(finding).rpartition("/")[2]
        if not name.isdigit():
            raise NotFound(f"{finding.place} is not a batch")
        return int(name)

    def offsets_of(self, batch: int | None) -> OffsetEntry | None:
        """The offsets of a batch; None if they are not there or cannot be read."""
        if batch is None or batch < 0:
            return None
        try:
            return read_offsets(self.storage, batch)
        except SluicegateError:
            return None


def repair_command(look: Look) -> str:
    """The command that repairs a checkpoint."""
    return command("checkpoint", "repair", look.storage.uri)


def rollback_command(look: Look) -> str:
    """The command that rolls a checkpoint back, once the operator has chosen a batch."""
    return command("checkpoint", "rollback", look.storage.uri, "--to", "BATCH")


def first_of(ranges: Iterable[range], most: int) -> tuple[list[int], int]:
    """The first numbers of some ranges, and how many more there are."""
    known = list(ranges)
    first = list(islice(chain.from_iterable(known), most))
    return first, sum(each.stop - each.start for each in known) - len(first)


def and_more(found: list[Finding], more: int, one: str, many: str) -> Iterator[Finding]:
    """Findings, the last with the number of those that are not named."""
    yield from found[:-1]
    for last in found[-1:]:
        rest = counted(more, f"more {one}", f"more {many}")
        yield replace(last, detail=f"{last.detail}; and {rest}") if more else last


def merged(found: Iterable[Fix]) -> list[Edit]:
    """The edits of several fixes, each file once."""
    edits: dict[tuple[Place, str], Edit] = {}
    for fix in found:
        for edit in fix.edits:
            edits.setdefault((edit.place, edit.key), edit)
    return list(edits.values())


def offer_rollback(case: Case) -> tuple[Choice, ...]:
    """The options for state that does not load: only older state helps."""
    able = next(case.rollbacks(), None)
    uri = case.storage.uri
    if able is None:
        seed = command("checkpoint", "seed", "NEW_DIR", "--offsets", "FILE")
        return (
            Choice(
                "",
                "start a fresh checkpoint from the last offsets, with empty state",
                f"{seed}  # from: {command('offsets', 'export', uri)}",
                "all state: counts, windows and seen keys start empty",
            ),
        )
    return (
        Choice(
            "",
            f"roll back to batch {able}, the newest whose state loads",
            command("checkpoint", "rollback", uri, "--to", able, *case.sink_words),
            "nothing in Spark's own file sink, if the source still holds the events since then; "
            "other sinks get those rows twice, or skip them",
        ),
    )


_SHOWN = 3


def write_entry(log: Log, name: str, lines: list[bytes], consequence: str) -> Fix:
    """Rewrite a file of the log with these lines."""
    key = log.key(name)
    data = b"\n".join([b"v1", *lines])
    edits = (Edit(log.place, key, data), *drop_sums(log.storage, key, log.place))
    return Fix(f"rewrite {key}", consequence, edits)


def rebuild_compact(
    case: Case, log: Log, number: int, before: list[str] | None, own: list[bytes] | None
) -> Solution:
    """A compact file, from the files with the entries before it and its own entries."""
    if before is None or own is None:
        return no_files(case, log.key(f"{number}.compact"))
    key = log.key(f"{number}.compact")
    edits = (
        Edit(log.place, key, repeated(log, before, own)),
        *drop_sums(log.storage, key, log.place),
    )
    consequence = f"It repeats the entries of {_listed(before)} and names {shown(own)}."
    return Fix(f"rewrite {key}", consequence, edits)


def files_before(log: Log, number: int) -> list[str] | None:
    """The files that together hold all entries below a number; None if some of them are gone."""
    compacts = (n for n in reversed(log.listing.compacts) if n < number)
    base = next((n for n in compacts if is_readable(log, f"{n}.compact")), -1)
    names = [f"{base}.compact"] if base >= 0 else []
    # One by one, because a stray name can be a huge number.
    for each in range(base + 1, number):
        if not is_readable(log, str(each)):
            return None
        names.append(str(each))
    return names


def other_files(log: Log, number: int, besides: Iterable[str]) -> list[str]:
    """The files that hold all entries but the lost one, whose remains are not used."""
    lost = (str(number), f"{number}.compact")
    names = dict.fromkeys([*needed_files(log.listing), *besides])
    return [name for name in names if name not in lost]


def rendered(entry: Mapping[str, object]) -> bytes:
    """A line of a log, as Spark writes it."""
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode()


def read_entries(log: Log, name: str) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The lines of a log file with their parsed entries; `ValueError` where one does not parse."""
    key = log.key(name)
    with log.storage.open(key) as stream:
        lines = stream_lines(stream, key)
        if next(lines) != b"v1":
            raise ValueError("not a log file of version 1")
        for line in lines:
            if line:
                entry = json.loads(line)
                if not isinstance(entry, dict):
                    raise ValueError("not an entry")
                yield line, entry


def is_readable(log: Log, name: str) -> bool:
    """Whether a log file is there and every line of it parses."""
    try:
        for _ in read_entries(log, name):
            pass
    except (NotFound, ValueError, SluicegateError):
        return False
    return True


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}" if names else "none"


def shown(lines: list[bytes]) -> str:
    """The files that lines name, as text."""
    names = [json.loads(line)["path"].rpartition("/")[2] for line in lines[:_SHOWN]]
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return ", ".join(names) + more


def no_files(case: Case, key: str) -> tuple[Choice, ...]:
    """The options for an entry whose files cannot be determined."""
    return (
        Choice(
            "",
            f"restore {key} from a backup",
            "",
            "nothing",
        ),
        Choice(
            "",
            "roll back to a batch before it",
            command("checkpoint", "rollback", case.storage.uri, "--to", "BATCH", *case.sink_words),
            "all later events are read and written again",
        ),
    )
