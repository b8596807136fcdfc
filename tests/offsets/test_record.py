"""Records on disk: what was written comes back, and nothing else is ever taken for a record."""

from __future__ import annotations

import copy
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from sluicegate import codec
from sluicegate.errors import Corrupt, UnsupportedFormat
from sluicegate.offsets.record import FORMAT, Change, Fence, Record, decode, encode
from sluicegate.positions import MAX_OFFSET, Position, Positions
from sluicegate.process import Who

texts = some.text(some.characters(exclude_categories=["Cs"]), max_size=12)
numbers = some.integers(0, 2**64 - 1)
offsets = some.integers(0, MAX_OFFSET)
partitions = some.integers(0, 2**31 - 1)
# Not -0.0, which equals 0.0 and has other bytes; no clock gives it.
times = some.floats(0, 1e12).map(abs)
topics = texts.filter(bool)
people = some.builds(Who, texts, texts, some.integers(1, 2**31 - 1), texts, texts)
befores = some.tuples(topics, partitions, some.none() | offsets)
optional = some.none() | texts
changes = some.builds(
    Change,
    texts,
    some.none() | some.lists(befores, max_size=3).map(tuple),
    optional,
    optional,
    optional,
    optional,
)


@some.composite
def records(draw: some.DrawFn) -> Record:
    held = draw(
        some.dictionaries(
            topics,
            some.dictionaries(partitions, some.tuples(offsets, times), min_size=1, max_size=3),
            max_size=3,
        )
    )
    return Record(
        consumer=draw(texts),
        sequence=draw(numbers),
        at=draw(times),
        kind=draw(texts),
        by=draw(people),
        positions=Positions({t: {p: o for p, (o, _) in each.items()} for t, each in held.items()}),
        times={t: {p: at for p, (_, at) in each.items()} for t, each in held.items()},
        fences=tuple(draw(some.lists(some.builds(Fence, topics, offsets), max_size=3))),
        change=draw(some.none() | changes),
    )


EXAMPLE = Record(
    consumer="billing",
    sequence=42,
    at=1794800000.5,
    kind="reset",
    by=Who("ann", "host", 7, "boot/1", "sluicegate"),
    positions=Positions({"orders": {0: 5, 1: 6, 10: 7}, "payments": {0: MAX_OFFSET}}),
    times={"orders": {0: 1.5, 1: 2.5, 10: 3.5}, "payments": {0: 0.0}},
    fences=(Fence("job", 9), Fence("another job", 0)),
    change=Change("to-offset 5", (("orders", 0, 4), ("orders", 1, None)), "INC-7", None, "d", "p"),
)
DATA = encode(EXAMPLE)


def body() -> dict[str, Any]:
    """The plain values of the example, to be spoilt."""
    found: dict[str, Any] = codec.decode(FORMAT, DATA, "x")
    return copy.deepcopy(found)


@given(records())
def test_round_trip(record: Record) -> None:
    data = encode(record)
    found = decode(data, "x", record.consumer)
    assert found == record
    assert encode(found) == data


def test_equal_records_give_equal_bytes_whatever_the_order() -> None:
    shuffled = replace(
        EXAMPLE,
        positions=Positions({"payments": {0: MAX_OFFSET}, "orders": {10: 7, 1: 6, 0: 5}}),
        times={"payments": {0: 0.0}, "orders": {1: 2.5, 10: 3.5, 0: 1.5}},
    )
    assert shuffled == EXAMPLE
    assert encode(shuffled) == DATA


@given(records(), records())
def test_other_records_give_other_bytes(one: Record, other: Record) -> None:
    assert (one == other) == (encode(one) == encode(other))


def test_when_a_position_was_committed() -> None:
    assert EXAMPLE.committed_at(Position("orders", 10, 7)) == 3.5
    assert EXAMPLE.id == "billing@42"


def test_every_truncation_is_corrupt() -> None:
    for length in range(len(DATA)):
        with pytest.raises(Corrupt, match="some/file") as caught:
            decode(DATA[:length], "some/file", "billing")
        assert caught.value.place == "some/file"


def test_every_flipped_bit_is_noticed() -> None:
    for bit in range(len(DATA) * 8):
        data = bytearray(DATA)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Corrupt, UnsupportedFormat)):
            decode(bytes(data), "some/file", "billing")


@given(some.binary(max_size=300))
def test_any_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode(data, "f", "billing")
    with pytest.raises(Corrupt):
        decode(DATA + data + b"\0", "f", "billing")


def test_a_newer_version_is_unsupported_not_corrupt() -> None:
    newer = codec.Format("offsets", FORMAT.version + 1, 1000)
    with pytest.raises(UnsupportedFormat, match=f"format version {FORMAT.version + 1}"):
        decode(codec.encode(newer, body()), "f", "billing")


def test_another_kind_of_frame_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="holds a 'store' where a 'offsets' belongs"):
        decode(codec.encode(codec.Format("store", 1, 1000), body()), "f", "billing")


def test_another_consumers_record_is_corrupt_and_named() -> None:
    with pytest.raises(Corrupt, match="f holds the positions of another consumer, 'billing'"):
        decode(DATA, "f", "audit")


Spoil = Callable[[dict[str, Any]], object]


def put(*path: str | int, value: Any) -> Spoil:
    """Something that sets one value of a body."""

    def spoil(fields: Any) -> None:
        *above, last = path
        for step in above:
            fields = fields[step]
        fields[last] = value

    return spoil


ORDERS = ("positions", "orders")
HOSTILE: dict[str, Spoil] = {
    "positions a list": put("positions", value=[]),
    "positions nothing": put("positions", value=None),
    "positions a text": put("positions", value="orders"),
    "positions a number": put("positions", value=1),
    "topic empty": put("positions", "", value=[[0], [1], [1.0]]),
    "topic far too long": put("positions", "x" * 2000, value=[[0], [1], [1.0]]),
    "columns nothing": put(*ORDERS, value=None),
    "columns two": put(*ORDERS, value=[[0], [1]]),
    "columns four": put(*ORDERS, value=[[0], [1], [1.0], [1]]),
    "columns a map": put(*ORDERS, value={"a": 0, "b": 1, "c": 2}),
    "columns a text": put(*ORDERS, value="abc"),
    "columns empty": put(*ORDERS, value=[[], [], []]),
    "partitions unsorted": put(*ORDERS, 0, value=[1, 0, 10]),
    "partition twice": put(*ORDERS, 0, value=[0, 0, 10]),
    "partition negative": put(*ORDERS, 0, value=[-1, 0, 10]),
    "partition a text": put(*ORDERS, 0, value=["0", "1", "10"]),
    "partition true": put(*ORDERS, 0, value=[0, True, 10]),
    "partition fractional": put(*ORDERS, 0, value=[0, 1.5, 10]),
    "partition out of range": put(*ORDERS, 0, value=[0, 1, 2**31]),
    "partition a list": put(*ORDERS, 0, value=[0, [1], 10]),
    "partitions bytes": put(*ORDERS, 0, value=b"\0\1\2"),
    "partitions too few": put(*ORDERS, 0, value=[0, 1]),
    "offsets too few": put(*ORDERS, 1, value=[5, 6]),
    "offsets too many": put(*ORDERS, 1, value=[5, 6, 7, 8]),
    "offsets bytes": put(*ORDERS, 1, value=b"\1\2\3"),
    "offsets a number": put(*ORDERS, 1, value=5),
    "offset negative": put(*ORDERS, 1, 0, value=-1),
    "offset the end sentinel": put(*ORDERS, 1, 0, value=2**64 - 1),
    "offset above 2^63-1": put(*ORDERS, 1, 0, value=2**63),
    "offset a text": put(*ORDERS, 1, 0, value="5"),
    "offset true": put(*ORDERS, 1, 0, value=True),
    "offset fractional": put(*ORDERS, 1, 0, value=5.0),
    "offset nothing": put(*ORDERS, 1, 0, value=None),
    "times too few": put(*ORDERS, 2, value=[1.0]),
    "times nothing": put(*ORDERS, 2, value=None),
    "time whole": put(*ORDERS, 2, 0, value=1),
    "time infinite": put(*ORDERS, 2, 0, value=float("inf")),
    "time negative": put(*ORDERS, 2, 0, value=-1.0),
    "time a text": put(*ORDERS, 2, 0, value="now"),
    "at infinite": put("at", value=float("inf")),
    "at negative": put("at", value=-0.5),
    "at a text": put("at", value="2026-11-16"),
    "at nothing": put("at", value=None),
    "sequence negative": put("sequence", value=-1),
    "sequence a text": put("sequence", value="1"),
    "sequence true": put("sequence", value=True),
    "sequence fractional": put("sequence", value=1.0),
    "consumer a number": put("consumer", value=5),
    "consumer bytes": put("consumer", value=b"billing"),
    "consumer nothing": put("consumer", value=None),
    "consumer another": put("consumer", value="audit"),
    "kind a number": put("kind", value=5),
    "kind nothing": put("kind", value=None),
    "by nothing": put("by", value=None),
    "by a text": put("by", value="ann"),
    "by without a pid": lambda fields: fields["by"].pop("pid"),
    "pid 0": put("by", "pid", value=0),
    "pid huge": put("by", "pid", value=2**63),
    "pid a text": put("by", "pid", value="7"),
    "user a number": put("by", "user", value=0),
    "fences nothing": put("fences", value=None),
    "fences a text": put("fences", value="job"),
    "fences a map": put("fences", value={"job": 9}),
    "fences a number": put("fences", value=9),
    "fences false": put("fences", value=False),
    "fence empty": put("fences", 0, value=[]),
    "fence without a number": put("fences", 0, value=["job"]),
    "fence with more": put("fences", 0, value=["job", 9, 9]),
    "fence a text": put("fences", 0, value="j9"),
    "fence nothing": put("fences", 0, value=None),
    "fence negative": put("fences", 0, value=["job", -1]),
    "fence above 2^63-1": put("fences", 0, value=["job", 2**63]),
    "fence true": put("fences", 0, value=["job", True]),
    "fence's source a number": put("fences", 0, value=[1, 1]),
    "fence's source empty": put("fences", 0, value=["", 1]),
    "change a list": put("change", value=[]),
    "change a text": put("change", value="reset"),
    "change empty": put("change", value={}),
    "change false": put("change", value=False),
    "summary nothing": put("change", "summary", value=None),
    "reason a number": put("change", "reason", value=5),
    "undoes a list": put("change", "undoes", value=[]),
    "before a number": put("change", "before", value=5),
    "before a text": put("change", "before", value="abc"),
    "before a list of numbers": put("change", "before", value=[1]),
    "before too short": put("change", "before", value=[["orders", 0]]),
    "before too long": put("change", "before", value=[["orders", 0, 1, 2]]),
    "before negative": put("change", "before", value=[["orders", 0, -1]]),
    "before without a topic": put("change", "before", value=[[None, 0, 1]]),
}


@pytest.mark.parametrize("spoil", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_body_with_right_checksums_is_corrupt(spoil: Spoil) -> None:
    fields = body()
    spoil(fields)
    with pytest.raises(Corrupt, match=r"^some/file") as caught:
        decode(codec.encode(FORMAT, fields), "some/file", "billing")
    assert caught.value.place == "some/file"


@pytest.mark.parametrize("key", body())
def test_a_missing_field_is_corrupt(key: str) -> None:
    fields = body()
    del fields[key]
    with pytest.raises(Corrupt):
        decode(codec.encode(FORMAT, fields), "f", "billing")


@pytest.mark.parametrize("key", body()["change"])
def test_a_missing_field_of_a_change_is_corrupt(key: str) -> None:
    fields = body()
    del fields["change"][key]
    with pytest.raises(Corrupt):
        decode(codec.encode(FORMAT, fields), "f", "billing")


@pytest.mark.parametrize("value", [None, [], {}, "", 0, 1.5, True, b"x", [{}], ["by"]], ids=repr)
def test_a_body_that_is_no_map_of_fields_is_corrupt(value: Any) -> None:
    with pytest.raises(Corrupt):
        decode(codec.encode(FORMAT, value), "f", "billing")


def test_a_time_that_is_not_a_number_is_corrupt() -> None:
    """`codec.encode` refuses it, so the frame is made by hand."""
    plain = DATA[codec.HEADER_BYTES :]
    at = struct.pack(">d", EXAMPLE.at)
    assert plain.count(at) == 1
    spoilt = plain.replace(at, struct.pack(">d", float("nan")))
    prefix = struct.pack("<8s8sIQ", codec.MAGIC, b"offsets", FORMAT.version, len(spoilt))
    prefix += struct.pack("<I", zlib.crc32(prefix))
    data = prefix + blake2b(prefix + spoilt, digest_size=32).digest() + spoilt
    with pytest.raises(Corrupt, match="NaN"):
        decode(data, "f", "billing")


values = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(2**63), 2**64 - 1)
    | some.floats(allow_nan=False)
    | some.text(some.characters(exclude_categories=["Cs"]), max_size=5)
    | some.binary(max_size=5),
    lambda deeper: (
        some.lists(deeper, max_size=4)
        | some.dictionaries(some.text("abc", max_size=2), deeper, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any, above: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths to everything inside a body."""
    if isinstance(value, dict):
        inside: list[tuple[str | int, Any]] = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value))
    else:
        inside = []
    found = []
    for key, each in inside:
        here = (*above, key)
        found += [here, *places(each, here)]
    return found


@example(("fences",), {})
@example(("change", "before"), "")
@given(some.sampled_from(places(body())), values)
def test_whatever_replaces_a_part_is_corrupt_or_means_what_it_says(
    path: tuple[str | int, ...], value: Any
) -> None:
    """What is taken for a record must be one: it has the very bytes it was read from."""
    fields = body()
    put(*path, value=value)(fields)
    data = codec.encode(FORMAT, fields)
    try:
        record = decode(data, "f", "billing")
    except Corrupt:
        return
    assert encode(record) == data
