"""What maintenance remembers of a foreign checkpoint from one run to the next.

It only saves work and tells growth; a file that is missing or damaged is like none.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sluicegate import codec
from sluicegate.errors import SluicegateError
from sluicegate.storage import Storage

KEY = "_sluicegate/maintain"
_FORMAT = codec.Format("maintain", 1, 256 * 1024)
_KEPT = 256


@dataclass(frozen=True, slots=True)
class Memory:
    """Files that were in the logs, how far contents were read, and what was bad there."""

    offsets: int = 0
    commits: int = 0
    after: str = ""
    bad: tuple[str, ...] = ()
    complete: float | None = None


def load(storage: Storage) -> Memory:
    """What was remembered last."""
    try:
        fields = codec.decode(_FORMAT, storage.get(KEY, limit=_FORMAT.max_frame), KEY)
        bad = tuple(map(str, fields.pop("bad")))
        return Memory(**fields, bad=bad)
    except (SluicegateError, KeyError, TypeError):
        return Memory()


def save(storage: Storage, memory: Memory) -> None:
    """Remember it."""
    fields = asdict(memory) | {"bad": list(memory.bad[:_KEPT])}
    storage.replace(KEY, codec.encode(_FORMAT, fields))
