"""Records of producers: JSON objects, and the columns of their stamps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from sluicegate.errors import UsageError
from sluicegate.log.segment import MAX_RECORD

STAMP = ("producer", "partition", "seq")
"""The columns of the stamp, as the example of a stream's table names them."""
Fields = Mapping[str, Any]
_NUMBERS = 64


class RecordInvalid(UsageError):
    """Something that cannot be a record of a log."""

    default_hint = "give a JSON object, without the columns of the stamp"


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_decode = json.JSONDecoder(parse_constant=_no_number).decode


class Columns:
    """The three columns of a stamp, and how they get into a record."""

    def __init__(self, names: Sequence[str], producer_id: str) -> None:
        if isinstance(names, str) or len(names) != 3 or len(set(names)) != 3 or not all(names):
            raise UsageError(
                f"{names!a:.80} are not the columns of a stamp",
                hint="name three: of the producer, the partition and the sequence",
            )
        self._names = frozenset(names)
        producer, self._partition, self._sequence = map(_encode, names)
        self._producer = f"{producer}:{_encode(producer_id)}"
        self._most = MAX_RECORD - 1 - len(self._head(0)) - _NUMBERS

    def payload(self, value: Fields | bytes | str) -> bytes:
        """The record without its stamp, on one line; `RecordInvalid` if it cannot be one."""
        try:
            fields, data = _from_text(value) if isinstance(value, bytes | str) else _plain(value)
        except (TypeError, ValueError, RecursionError) as e:
            raise RecordInvalid(f"a record cannot be JSON: {e!s:.200}") from e
        if not self._names.isdisjoint(fields):
            taken = ", ".join(sorted(self._names & fields.keys()))
            raise RecordInvalid(f"a record has columns of the stamp already: {taken!a:.200}")
        if len(data) > self._most:
            hint = f"a record has up to {self._most} bytes"
            raise RecordInvalid(f"a record has {len(data)} bytes", hint=hint)
        return data

    def stamped(self, partition: int, messages: Iterable[tuple[int, bytes]]) -> list[bytes]:
        """The records of one partition, given as sequence and payload, with their stamps."""
        head = self._head(partition)
        more = b"," + head
        return [
            payload[:-1] + (head if payload == b"{}" else more) + b"%d}" % sequence
            for sequence, payload in messages
        ]

    def _head(self, partition: int) -> bytes:
        return f"{self._producer},{self._partition}:{partition},{self._sequence}:".encode()


def _plain(value: Fields) -> tuple[Fields, bytes]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{type(value).__name__} is not an object")
    fields = value if isinstance(value, dict) else dict(value)
    return fields, _encode(fields).encode()


def _from_text(value: bytes | str) -> tuple[Fields, bytes]:
    text = value.decode() if isinstance(value, bytes) else value
    fields = _decode(text)
    if not isinstance(fields, dict):
        raise TypeError(f"{type(fields).__name__} is not an object")
    # A newline in valid JSON is space between its parts: inside a text it is written as \n.
    return fields, text.strip().replace("\n", " ").encode() if fields else b"{}"
