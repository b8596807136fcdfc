from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sluicegate.errors import SluicegateError
from sluicegate.positions import (
    MAX_OFFSET,
    Position,
    Positions,
    PositionsForm,
    PositionsInvalid,
    parse,
    render,
)

topics = some.text(min_size=1, max_size=20).filter(lambda t: "\r" not in t and "\0" not in t)
plain_topics = some.text("abcXYZ019._-", min_size=1, max_size=20)


def positions(names: some.SearchStrategy[str]) -> some.SearchStrategy[Positions]:
    partitions = some.dictionaries(
        some.integers(0, 2**31 - 1), some.integers(0, MAX_OFFSET), min_size=1, max_size=4
    )
    return some.dictionaries(names, partitions, max_size=4).map(Positions)


@given(positions(topics))
def test_spark_json_round_trip(value: Positions) -> None:
    assert parse(render(value, PositionsForm.SPARK), PositionsForm.SPARK) == value


@given(positions(plain_topics), some.sampled_from(PositionsForm))
def test_every_form_round_trips(value: Positions, form: PositionsForm) -> None:
    assert parse(render(value, form), form) == value


@given(positions(plain_topics).filter(lambda p: p.by_topic), some.sampled_from(PositionsForm))
def test_the_form_shows(value: Positions, form: PositionsForm) -> None:
    assert parse(render(value, form)) == value


def test_the_forms_are_those_of_the_tools() -> None:
    value = Positions.of([Position("orders", 1, 5), Position("orders", 0, 123)])
    assert render(value, PositionsForm.SPARK) == '{"orders":{"0":123,"1":5}}\n'
    assert render(value, PositionsForm.CSV) == "orders,0,123\norders,1,5\n"
    assert render(value, PositionsForm.RPK) == "orders 0 123\norders 1 5\n"


@pytest.mark.parametrize(
    "text",
    [
        '{"t":{"0":-1}}', '{"t":{"0":-2}}', '{"t":{"0":9223372036854775808}}', '{"t":{"0":1.5}}',
        '{"t":{"0":true}}', '{"t":{"0":"1"}}', '{"t":{"x":1}}', '{"t":{"-1":1}}', '{"t":5}', "[]",
        '{"t":{"0":1,"0":2}}', '{"t":{}, "t":{}}', "{", '{"t":{"2147483648":1}}', "t,0", "t,0,1,2",
        "t,0,-1", "t,0,x", "t,0,1\nt,0,2", "t 0", "t 0 1_0", "t 0 ١", "t,0,99999999999999999999999",
        "{" * 100_000, "\r0,1,2", 't,0,"1',
    ],
)  # fmt: skip
def test_what_is_not_positions(text: str) -> None:
    with pytest.raises(PositionsInvalid) as caught:
        parse(text)
    assert caught.value.exit_code == 2


def test_the_line_is_named() -> None:
    with pytest.raises(PositionsInvalid, match="line 3: 'x' is not an integer"):
        parse("t,0,1\n\nt,1,x\n")


def test_rpk_cannot_have_blanks() -> None:
    with pytest.raises(PositionsInvalid, match="blanks"):
        render(Positions({"a b": {0: 1}}), PositionsForm.RPK)


def test_reading_is_by_topic_and_partition() -> None:
    value = parse("t 0 7\n")
    assert (value.get("t", 0), value.get("t", 1), value.get("u", 0)) == (7, None, None)


@given(some.text(max_size=200), some.none() | some.sampled_from(PositionsForm))
def test_any_text_gives_positions_or_our_error(text: str, form: PositionsForm | None) -> None:
    with suppress(SluicegateError):
        parse(text, form)
