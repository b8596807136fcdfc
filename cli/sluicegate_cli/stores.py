"""Offset stores as commands get at them."""

from __future__ import annotations

import re
import sys

from sluicegate.detection import TargetKind
from sluicegate.errors import NotFound, StorageFailed, UsageError
from sluicegate.offsets import LockFileOffsetStore, legacy
from sluicegate.offsets.journal import StoreJournal
from sluicegate.offsets.operations import StoreChange
from sluicegate.positions import Positions, PositionsForm, parse
from sluicegate.reset import Scope
from sluicegate.storage import local_root, open_storage
from sluicegate.target import Target
from sluicegate_cli.session import Session, expect_kind

_TOPIC = re.compile(r"(?P<topic>.+?)(?::(?P<partitions>[0-9]{1,10}(?:,[0-9]{1,10})*))?", re.ASCII)


def is_reference(target: Target) -> bool:
    """Whether a store is in the reference layout, which is only read."""
    return legacy.is_reference(open_storage(target.uri, read_only=True))


def read_reference(target: Target) -> Positions:
    """The positions of a store in the reference layout."""
    return legacy.read(open_storage(target.uri, read_only=True))


def open_store(session: Session, target: Target) -> LockFileOffsetStore:
    """The store that a target is; who only plans gets one that cannot write."""
    expect_kind(target, TargetKind.OFFSET_STORE)
    legacy.refuse_reference(open_storage(target.uri, read_only=True))
    return LockFileOffsetStore.open(target.uri, read_only=session.only_plans)


def change_store(
    session: Session, target: Target, store: LockFileOffsetStore, change: StoreChange
) -> None:
    """Plan a change of a store and take it to its end."""
    journal = StoreJournal(store, name=target.configured_name)
    session.carry_out(journal, journal.plan(change.to_work()))


def scope_of(topics: list[str] | None, all_topics: bool, known: list[str]) -> Scope:
    """What `--topic` and `--all-topics` mean; with several topics one of them is needed."""
    if topics and all_topics:
        raise UsageError("--topic and --all-topics exclude each other")
    if not topics and not all_topics and len(known) > 1:
        raise UsageError(
            f"there are several topics: {', '.join(known)}",
            hint="name some with --topic TOPIC[:0,1,2], or add --all-topics",
        )
    if not topics:
        return Scope()
    chosen: dict[str, frozenset[int] | None] = {}
    for word in topics:
        match = _TOPIC.fullmatch(word)
        if match is None:
            raise UsageError(f"--topic {word!r} is not TOPIC or TOPIC:0,1,2")
        text = match["partitions"]
        wanted = frozenset(map(int, text.split(","))) if text else None
        before = chosen.get(match["topic"], frozenset())
        chosen[match["topic"]] = None if wanted is None or before is None else wanted | before
    return Scope(chosen)


def read_positions(place: str, form: PositionsForm | None = None) -> Positions:
    """Positions from a file, or from standard input if the place is `-`."""
    text = read_text(place)
    try:
        found = parse(text, form)
    except UsageError as e:
        raise type(e)(f"{place}: {e.message}", hint=e.hint) from e
    if not len(found):
        raise UsageError(f"{place} has no positions", hint="see what file it is")
    if len(found) > _MAX_POSITIONS:
        raise UsageError(f"{place} has more than {_MAX_POSITIONS:,} positions")
    return found


def read_text(place: str) -> str:
    """The text of a file, or of standard input if the place is `-`."""
    data = _read(place)
    if len(data) > _MAX_BYTES:
        raise UsageError(f"{place} has more than {_MAX_BYTES} bytes", hint="see what file it is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise UsageError(f"{place}, byte {e.start}: not UTF-8", hint="see what file it is") from e


def _read(place: str) -> bytes:
    """What is there, up to the limit and one byte more; also from a pipe, as `<(…)` makes one."""
    if place == "-":
        return sys.stdin.buffer.read(_MAX_BYTES + 1)
    try:
        with local_root(place).open("rb") as stream:
            return stream.read(_MAX_BYTES + 1)
    except FileNotFoundError as e:
        raise NotFound(f"{place} does not exist", hint="check the path", place=place) from e
    except OSError as e:
        reason = (e.strerror or str(e)).lower()
        raise StorageFailed(f"{place}: {reason}", hint="name a file", place=place) from e


_MAX_BYTES = 64 * 1024 * 1024
_MAX_POSITIONS = 1_000_000
