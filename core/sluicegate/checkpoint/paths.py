"""The absolute paths in a checkpoint, and how they change when it is moved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote as percent

from sluicegate.checkpoint.format.log import stream_lines
from sluicegate.checkpoint.format.operators import STATE
from sluicegate.checkpoint.view import SOURCES
from sluicegate.errors import UsageError
from sluicegate.storage import Storage

_PATH = "/!$&'()*+,;=:@-._~"


def as_uri(path: str) -> str:
    """A path as Hadoop writes it in a URI, which unlike others leaves letters beyond ASCII."""
    return "".join(each if ord(each) > 0x7F else percent(each, safe=_PATH) for each in path)


def has_paths(key: str) -> bool:
    """Whether a file of the checkpoint holds absolute paths."""
    parts = key.split("/")
    hidden = parts[-1].startswith(".")
    if hidden or len(parts) < 3:
        return False
    return parts[0] == SOURCES or (parts[0] == STATE and "_metadata" in parts and "v2" in parts)


def is_stale_sum(key: str) -> bool:
    """Whether it is Hadoop's checksum of a file whose paths are rewritten."""
    directory, _, name = key.rpartition("/")
    plain = name[1:-4] if name.startswith(".") and name.endswith(".crc") else None
    return plain is not None and has_paths(f"{directory}/{plain}")


def rewritten(storage: Storage, key: str, moves: Mapping[str, str]) -> Iterator[bytes]:
    """The content of a file, line by line, with the beginnings of paths replaced."""
    mover = Mover(moves)
    with storage.open(key) as stream:
        for number, line in enumerate(stream_lines(stream, key)):
            yield (b"\n" if number else b"") + mover.moved(line)


class Mover:
    """Replaces the beginnings of absolute paths, all in one pass.

    One pass, because a new path may begin like an old one that is to be replaced as well.
    """

    def __init__(self, moves: Mapping[str, str]) -> None:
        # Spark writes URIs with three slashes, and paths as they are with one or no scheme.
        self._uris = _Replacing("file://", {as_uri(old): as_uri(new) for old, new in moves.items()})
        self._plain = _Replacing("(?:file:)?", moves)

    def moved(self, line: bytes) -> bytes:
        """A line of JSON with its paths replaced."""
        return self._plain.moved(self._uris.moved(line))


class _Replacing:
    def __init__(self, scheme: str, moves: Mapping[str, str]) -> None:
        self._new = {old.encode(): new.encode() for old, new in moves.items()}
        longest_first = sorted(self._new, key=len, reverse=True)
        # A complete path: from its opening quote to the end of one of its parts.
        paths = b"|".join(re.escape(old) for old in longest_first)
        self._pattern = re.compile(rb'(?<=")(' + scheme.encode() + rb")(" + paths + rb')(?=[/"])')

    def moved(self, line: bytes) -> bytes:
        return self._pattern.sub(lambda found: found[1] + self._new[found[2]], line)


def parse_moves(words: Iterable[str]) -> dict[str, str]:
    """`OLD=NEW` words as a map of absolute paths."""
    moves: dict[str, str] = {}
    for word in words:
        old, equals, new = word.partition("=")
        if not equals or not old.startswith("/") or not new.startswith("/"):
            raise UsageError(f"--map {word!r} is not /OLD=/NEW")
        moves[old.rstrip("/")] = new.rstrip("/")
    return moves
