"""Hints: the newest link that is known to be durable, by number and digest.

`HEAD` in the stream is where readers begin to probe. The home keeps a second hint beside the
stream (`heads/NAME.head`), which survives when the stream's directory is lost, not mounted, or
replaced by an old backup: a chain that is shorter than what a hint remembers is never taken for
the whole one. A hint also holds what a repair has to know of a link that is lost: the numbers that
never go back, and how many events it included.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from sluicegate import codec
from sluicegate.chain.errors import HeadDamaged
from sluicegate.chain.link import Link
from sluicegate.errors import Corrupt, NotFound
from sluicegate.storage import Storage

HEAD = "HEAD"
HOME_DIRECTORY = "heads"
FORMAT = codec.Format("head", 1, 4096)
_DIGEST = re.compile(r"[0-9a-f]{64}")
# No chain gets so far, and the next number must still be one.
_COUNTS = range(2**63)


@dataclass(frozen=True, slots=True)
class Hint:
    """The newest link somebody knew of."""

    stream_id: str
    number: int
    generation: int
    version: int
    epoch: int
    sequence: int
    floor: int
    created_at: float
    digest: str

    @classmethod
    def of(cls, link: Link) -> Hint:
        """The hint that names a link."""
        return cls(**{each.name: getattr(link, each.name) for each in fields(cls)})


def home_key(stream: str) -> str:
    """Where the home remembers a stream."""
    return f"{HOME_DIRECTORY}/{stream}.head"


def read_hint(storage: Storage, key: str) -> Hint | None:
    """The hint at a key; None if there is none; `HeadDamaged` if it cannot be understood."""
    place = f"{storage.uri}/{key}"
    try:
        data = storage.get(key, limit=FORMAT.max_frame)
        return _hint(codec.decode(FORMAT, data, place))
    except NotFound:
        return None
    except Corrupt as e:
        raise HeadDamaged(e.message, place=place) from e
    except (TypeError, ValueError) as e:
        raise HeadDamaged(f"{place}: its fields are not those of a hint: {e}", place=place) from e


def write_hint(storage: Storage, key: str, hint: Hint, *, first: bool = False) -> None:
    """Put a hint durably in the place of the one before; with `first`, only if there is none."""
    data = codec.encode(FORMAT, asdict(hint))
    if first:
        storage.put_if_absent(key, data)
    else:
        storage.replace(key, data)


def _hint(found: Any) -> Hint:
    if not isinstance(found, dict):
        raise TypeError("not a map")
    hint = Hint(**found)
    counts = (hint.number, hint.generation, hint.version, hint.epoch, hint.sequence, hint.floor)
    if any(type(each) is not int or each not in _COUNTS for each in counts):
        raise ValueError("a count is out of range")
    if hint.floor > hint.number:
        raise ValueError("its floor is above its number")
    if type(hint.created_at) is not float or not math.isfinite(hint.created_at):
        raise ValueError("created_at")
    if not isinstance(hint.stream_id, str) or not _DIGEST.fullmatch(hint.digest):
        raise ValueError("not the identity of a link")
    return hint
