"""Records of a log as columns: every line becomes exactly one row, or one reject, at its offset."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluicegate.job.records import OFFSET, PARTITION, REASON, VALUE, Shape, parse
from tests.job.truth import Table, event

TABLE = Table(
    columns={"price": "long", "note": "string", "rate": "double", "paid": "boolean"}, key="user"
)
SHAPE = Shape(TABLE.types, tuple(TABLE.stamp), TABLE.key)
GOOD = {"producer": "p", "partition": 0, "seq": 1, "user": "u"}
LINE = json.dumps(GOOD).encode()

names = st.sampled_from([*TABLE.types, "other", "Price", ""])
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(2**63 - 1, 2**63 + 1),
    st.integers(2**31 - 1, 2**31),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["\ud800", "a\u2028b", "\0"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(names, st.integers(), max_size=2),
)
objects = st.builds(lambda more: {**GOOD, **more}, st.dictionaries(names, values, max_size=3))
good = st.builds(lambda fields: json.dumps(fields).encode(), objects)
text = st.builds(
    lambda fields: json.dumps(fields, ensure_ascii=False).encode(errors="surrogatepass"), objects
)
cut = st.builds(lambda line, at: line[:at], good, st.integers(0, 60))
tail = st.builds(lambda line, at: line[at:], good, st.integers(0, 60))
twice = st.builds(
    lambda one, space, two: one + space + two, good, st.sampled_from([b"", b" "]), good
)
spaced = st.builds(
    lambda a, line, b: a + line + b,
    *(st.sampled_from([b"", b" ", b"\t", b"\r"]), good, st.sampled_from([b"", b" ", b"\r", b"\v"])),
)
doubled = st.builds(lambda line, name: line[:-1] + b',"%s":1}' % name.encode(), good, names)
raw = st.binary(max_size=20).map(lambda data: data.replace(b"\n", b""))
odd = st.sampled_from(
    [
        b"",
        b" ",
        b"{}",
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b"}",
        b'{"a":',
        b'{"a":{}}',
        b"{}{}",
        b'{"a":[',
    ]
)
lines = st.lists(
    st.one_of(good, good, good, text, cut, tail, twice, spaced, doubled, raw, odd), min_size=1
)


@settings(max_examples=400)
@given(lines, st.integers(0, 2**40))
@example([b'{"other":', b'{"a":1}}', LINE + LINE], 7)
@example([b'{"other":[', b"{}]}", b"{}{}"], 0)
@example([LINE, b'{"note":"\xff"}', LINE], 0)
@example([LINE + b"\r", b"\r", b"", LINE + b"\r"], 0)
def test_every_line_is_one_row_or_one_reject(lines: list[bytes], first: int) -> None:
    found = parse(b"".join(line + b"\n" for line in lines), 3, first, SHAPE)
    wanted = [event(line, TABLE) for line in lines]
    rows = found.rows.sort_by(OFFSET).to_pylist()
    assert rows == [
        {**row, PARTITION: 3, OFFSET: first + at} for at, row in enumerate(wanted) if row
    ]
    rejects = found.rejects.to_pylist()
    assert [(r[PARTITION], r[OFFSET], r[VALUE]) for r in rejects] == [
        (3, first + at, line)
        for at, (line, row) in enumerate(zip(lines, wanted, strict=True))
        if row is None
    ]
    assert all(0 < len(r[REASON]) <= 200 for r in rejects)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "it is not a JSON object"),
        (b"[1]", "it is not a JSON object"),
        (b"{}", "it has no key"),
        (b'{"user":null,"producer":"p","partition":0,"seq":1}', "it has no key"),
        (b'{"user":"u","producer":"p","partition":0}', "it has no stamp"),
        (b'{"user":"u","producer":"p","partition":0,"seq":-1}', "its stamp is out of range"),
        (b'{"user":"u","producer":"p","partition":2147483648,"seq":1}', "its stamp is out"),
        (b'{"user":"u","producer":"%s","partition":0,"seq":1}' % (b"p" * 65537), "its stamp is"),
        (LINE[:-1] + b',"rate":NaN}', "it has a number that is not finite"),
        (LINE[:-1] + b',"rate":-Infinity}', "it has a number that is not finite"),
        (LINE + LINE, "it is more than one JSON object"),
        (LINE[:-1] + b',"note":"\xfe"}', "Invalid UTF8"),
        (LINE[:-1] + b',"price":"1"}', "JSON parse error: Column(/price)"),
    ],
)
def test_reasons(line: bytes, reason: str) -> None:
    [reject] = parse(LINE + b"\n" + line + b"\n", 0, 10, SHAPE).rejects.to_pylist()
    assert reject[REASON].startswith(reason)
    assert (reject[OFFSET], reject[VALUE]) == (11, line)


def test_a_line_of_megabytes_among_others() -> None:
    long = json.dumps({**GOOD, "note": "x" * 5_000_000}).encode()
    found = parse(b"\n".join([LINE, long, b"x" * 3_000_000, LINE, b""]), 0, 0, SHAPE)
    assert found.rows[OFFSET].to_pylist() == [0, 1, 3]
    assert len(found.rows["note"][1].as_py()) == 5_000_000
    assert found.rejects[OFFSET].to_pylist() == [2]


def test_without_any_column_records_are_only_counted() -> None:
    found = parse(b'{}\n{"a":1}\nx\n', 0, 5, Shape({}, (), None))
    assert found.rows[OFFSET].to_pylist() == [5, 6]
    assert found.rejects[OFFSET].to_pylist() == [7]


def test_bad_lines_among_many_cost_no_good_ones() -> None:
    lines: list[Any] = [LINE] * 20_000
    bad = {0, 1, 777, 10_000, 19_999}
    for at in bad:
        lines[at] = LINE[:-1]
    found = parse(b"".join(line + b"\n" for line in lines), 0, 0, SHAPE)
    assert set(found.rejects[OFFSET].to_pylist()) == bad
    assert found.rows.num_rows == 20_000 - len(bad)
