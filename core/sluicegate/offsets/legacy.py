"""Legacy offset files: a directory of `topic-<t>-consumer-<c>.offset` files.

Each holds one offset as decimal text. The topic's number becomes the topic's name, the consumer's
number the partition; the directory was named after the consumer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sluicegate.errors import Corrupt, NotFound, SluicegateError, UnsupportedFormat
from sluicegate.offsets.store import MARKER
from sluicegate.plan import Action, Plan
from sluicegate.positions import Position, Positions, PositionsInvalid
from sluicegate.storage import Storage, local_root, open_storage
from sluicegate.units import command

# The complete name: `topic-1-consumer-2-backup.offset` is a copy, not a position.
FILE_NAME = re.compile(r"topic-(0|[1-9][0-9]*)-consumer-(0|[1-9][0-9]*)\.offset", re.ASCII)
_TEXT = re.compile(rb"\s*([0-9]{1,20})\s*")
_MAX_TOPIC = 2**32 - 1
_MAX_BYTES = 4096


def is_legacy(storage: Storage) -> bool:
    """Whether a directory holds legacy offset files, and is not a store of our own."""
    names = [entry.name for entry in storage.list()]
    return MARKER.name not in names and any(FILE_NAME.fullmatch(name) for name in names)


def refuse_legacy(storage: Storage) -> None:
    """Refuse to change legacy offset files, or to list their history."""
    if is_legacy(storage):
        raise UnsupportedFormat(
            f"{storage.uri} holds legacy offset files, which Sluicegate does not change",
            hint="create a store with: sluicegate init --store STORE; then: "
            + command("offsets", "import", "STORE", storage.uri, "--consumer", "NAME"),
            place=storage.uri,
        )


def read(storage: Storage) -> Positions:
    """All positions of a directory; a file that cannot be read is an error, never skipped."""
    found = []
    for entry in storage.list():
        match = FILE_NAME.fullmatch(entry.name)
        if match:
            place = f"{storage.uri}/{entry.name}"
            offset = _offset(storage.get(entry.name, limit=_MAX_BYTES), place)
            found.append(_checked(Position(match[1], int(match[2]), offset), place))
    if not found:
        raise NotFound(
            f"{storage.uri} has no topic-<t>-consumer-<c>.offset files", place=storage.uri
        )
    return Positions.of(found)


def files(positions: Positions) -> dict[str, bytes]:
    """The legacy offset files of positions, by name."""
    made = {}
    for each in positions:
        number = each.topic
        if not re.fullmatch(r"0|[1-9][0-9]{0,9}", number, re.ASCII) or int(number) > _MAX_TOPIC:
            raise UnsupportedFormat(
                f"topic {each.topic!r} is not a number up to 2^32-1, as legacy offset files need",
                hint="export as spark, csv or rpk instead",
            )
        made[f"topic-{number}-consumer-{each.partition}.offset"] = f"{each.offset}\n".encode()
    return made


def plan_write(uri: str, positions: Positions) -> Plan:
    """The plan to write legacy offset files; a directory with other positions is refused."""
    root = local_root(uri)
    wanted = files(positions)
    actions = [
        Action("write", f"{root}/{name}", data.decode().strip()) for name, data in wanted.items()
    ]
    if root.exists():
        _refuse_others(open_storage(uri, read_only=True), wanted)
    return Plan(f"Write positions as files into {root}", tuple(actions))


def write(uri: str, positions: Positions) -> None:
    """Write legacy offset files into a directory, which is created if it is missing."""
    wanted = files(positions)
    storage = open_storage(uri, create=True)
    _refuse_others(storage, wanted)
    for name, data in wanted.items():
        storage.put_if_absent(name, data)


def _refuse_others(storage: Storage, wanted: Mapping[str, bytes]) -> None:
    """Refuse a directory with other positions: they must not be mixed with these."""
    for entry in storage.list():
        known = FILE_NAME.fullmatch(entry.name)
        if known and storage.get(entry.name, limit=_MAX_BYTES) != wanted.get(entry.name):
            place = f"{storage.uri}/{entry.name}"
            raise SluicegateError(
                f"{place} already exists with another offset; nothing was written",
                hint="write into a new directory",
                place=place,
            )


def _checked(position: Position, place: str) -> Position:
    try:
        Positions.of([position])
    except PositionsInvalid as e:
        raise UnsupportedFormat(
            f"{place}: {e.message}",
            hint="this position cannot be imported; move its file away and import the rest",
            place=place,
        ) from e
    return position


def _offset(data: bytes, place: str) -> int:
    match = _TEXT.fullmatch(data)
    if match is None:
        raise Corrupt(f"{place} does not hold one decimal number", place=place)
    return int(match[1])
