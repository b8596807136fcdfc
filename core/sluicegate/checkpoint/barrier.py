"""The barrier of a checkpoint that is being made: Spark cannot start from it until it is whole.

The barrier is the first file in a new directory and the last to go: an offsets file with a number
above all others, whose text is no log entry. Whoever finds it knows that the directory holds a part
of a checkpoint, and is told what to do. Nothing can be finished there; nothing but the directory
itself is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote

from sluicegate.checkpoint.format.log import list_log
from sluicegate.checkpoint.format.offset_log import DIRECTORY
from sluicegate.errors import Drifted, SluicegateError
from sluicegate.storage import Storage
from sluicegate.units import command

SIGN = "sluicegate: "
"""What every barrier begins with: a file among the offsets that Spark cannot read."""
_SIGN = f"{SIGN}this checkpoint is not complete"


class NotComplete(Drifted):
    """The directory holds a part of a checkpoint, because making it was interrupted."""


def barrier_key(above: int) -> str:
    """The barrier of a checkpoint whose newest batch is `above`; -1 if it has none."""
    return f"{DIRECTORY}/{above + 1}"


def raise_barrier(storage: Storage, key: str, again: str) -> None:
    """Make a new directory one that Spark refuses; `again` is the command that makes it anew."""
    # Spark's error shows the first line of what it cannot read, so it says what to do.
    text = f"{_SIGN}; remove it and make it again: {_advice(storage.uri, again)}\n"
    storage.put_if_absent(key, text.encode())


def is_barrier(storage: Storage, key: str) -> bool:
    """Whether a file is such a barrier."""
    return _read(storage, key) is not None


def told_by(storage: Storage) -> str | None:
    """What is said of a checkpoint that is not whole; None: nobody was interrupted making it."""
    newest = list_log(storage, DIRECTORY).last
    return None if newest is None else _read(storage, f"{DIRECTORY}/{newest}")


def advice(told: str) -> str:
    """The commands in what a barrier says."""
    return told.partition("make it again: ")[2]


def refuse_unfinished(storage: Storage) -> None:
    """Raise `NotComplete` if the checkpoint is a part of one."""
    told = told_by(storage)
    if told is not None:
        raise NotComplete(
            f"{storage.uri} is not complete: making it was interrupted",
            hint=f"make it again with: {advice(told)}",
            place=storage.uri,
        )


def relocate_command(source: str, destination: str, moves: Mapping[str, str]) -> str:
    """The command that copies a checkpoint."""
    mapped = (word for old, new in moves.items() for word in ("--map", f"{old}={new}"))
    return command("checkpoint", "relocate", source, destination, *mapped)


def _advice(place: str, again: str) -> str:
    return f"rm -r {quote(place)}; {again}"


def _read(storage: Storage, key: str) -> str | None:
    try:
        text = storage.get(key).decode()
    except (SluicegateError, UnicodeDecodeError):
        return None
    return text.rstrip("\n") if text.startswith(_SIGN) else None
