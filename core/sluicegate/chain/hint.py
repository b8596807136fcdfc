"""Hints: the newest link that is known to be durable, by number and digest.

`HEAD` in the stream is where readers begin to probe. The home keeps a second hint beside the
stream (`heads/NAME.head`), which survives when the stream's directory is lost, not mounted, or
replaced by an old backup: a chain that is shorter than what a hint remembers is never taken for
the whole one.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate import codec
from sluicegate.chain.errors import HeadDamaged
from sluicegate.chain.link import Link
from sluicegate.errors import Corrupt, NotFound
from sluicegate.storage import Storage

HEAD = "HEAD"
FORMAT = codec.Format("head", 1, 4096)


@dataclass(frozen=True, slots=True)
class Hint:
    """The newest link somebody knew of."""

    stream_id: str
    number: int
    generation: int
    floor: int
    digest: str

    @classmethod
    def of(cls, link: Link) -> Hint:
        """The hint that names a link."""
        return cls(link.stream_id, link.number, link.generation, link.floor, link.digest)


def home_key(stream: str) -> str:
    """Where the home remembers a stream."""
    return f"heads/{stream}.head"


def read_hint(storage: Storage, key: str) -> Hint | None:
    """The hint at a key; None if there is none; `HeadDamaged` if it cannot be understood."""
    place = f"{storage.uri}/{key}"
    try:
        data = storage.get(key, limit=FORMAT.max_frame)
        fields = codec.decode(FORMAT, data, place)
    except NotFound:
        return None
    except Corrupt as e:
        raise HeadDamaged(e.message, place=place) from e
    match fields:
        case {
            "stream_id": str(stream_id),
            "number": int(number),
            "generation": int(generation),
            "floor": int(floor),
            "digest": str(digest),
        } if number >= floor >= 0 and generation >= 0:
            return Hint(stream_id, number, generation, floor, digest)
    raise HeadDamaged(f"{place}: its fields are not those of a hint", place=place)


def write_hint(storage: Storage, key: str, hint: Hint) -> None:
    """Put a hint durably in the place of the one before."""
    fields = {
        "stream_id": hint.stream_id,
        "number": hint.number,
        "generation": hint.generation,
        "floor": hint.floor,
        "digest": hint.digest,
    }
    storage.replace(key, codec.encode(FORMAT, fields))
