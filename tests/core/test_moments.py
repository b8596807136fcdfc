from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sluicegate.errors import UsageError
from sluicegate.units import parse_duration, parse_moment

NOON = 1794830400_000


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2026-11-16T12:00:00Z", NOON),
        ("2026-11-16T12:00Z", NOON),
        ("2026-11-16 12:00:00Z", NOON),
        ("20261116T120000Z", NOON),
        ("2026-11-16T13:00:00+01:00", NOON),
        ("2026-11-16T13:00:00+0100", NOON),
        ("2026-11-16T00:00:00-12:00", NOON),
        ("2026-11-16T12:00:00.5Z", NOON + 500),
        ("2026-11-16T12:00:00,25Z", NOON + 250),
        ("2026-11-16T12:00:00.000499Z", NOON),
        ("0001-01-01T00:00:00+23:59", -62135683140_000),
        ("9999-12-31T23:59:59-23:59", 253402387139_000),
    ],
)
def test_moments(text: str, moment: int) -> None:
    assert parse_moment(text) == moment


@pytest.mark.parametrize(
    "text",
    ["", " ", "now", "yesterday", "12:00Z", "1794830400", "2026-13-01T00:00:00Z",
     "2026-02-30T00:00:00Z", "2026-11-16T25:00:00Z", "2026-11-16T12:00:00+25:00",
     "2026-11-16T12:00:00Zulu", "2026-11-16T12:00:00Z\n", " 2026-11-16T12:00:00Z",
     "２０２６-11-16T12:00:00Z", "٢٠٢٦-11-16T12:00:00Z", "12026-11-16T12:00:00Z",
     "-2026-11-16T12:00:00Z", "2026-11-16T12:00:00+01:00[Europe/Berlin]", "\0", "\udcff",
     "2026-11-16T12:00:0\udcffZ", "9" * 10_000],
    ids=ascii,
)  # fmt: skip
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time") as caught:
        parse_moment(text)
    assert caught.value.exit_code == 2
    assert "2026-11-16T03:00:00Z" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    ["2026-11-16", "20261116", "2026-W47-1", "2026-11-16T12", "2026-11-16T12:00",
     "2026-11-16T12:00:00", "2026-11-16 12:00:00.5", "20261116T120000"],
)  # fmt: skip
def test_a_time_without_a_zone_is_refused_and_the_hint_can_be_typed(text: str) -> None:
    with pytest.raises(UsageError, match="has no time zone") as caught:
        parse_moment(text)
    utc, east = re.findall(r"[0-9][^,]*?(?=(?: for UTC| for an hour))", caught.value.hint)
    assert parse_moment(utc) - parse_moment(east) == 3600_000


zones = some.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(some.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones))  # noqa: DTZ001
def test_every_time_that_python_writes_is_read(moment: datetime) -> None:
    found = parse_moment(moment.isoformat())
    exact = moment - datetime(1970, 1, 1, tzinfo=UTC)
    # Half a millisecond, and what a float of seconds loses in 8,000 years.
    assert abs(timedelta(milliseconds=found) - exact) <= timedelta(microseconds=550)


@given(some.text(max_size=40) | some.text("0123456789-:TZ+.W ", max_size=30))
def test_any_text_is_a_moment_or_our_error(text: str) -> None:
    with suppress(UsageError):
        assert isinstance(parse_moment(text), int)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1H30M", 5400),
        ("P7D", 7 * 86400),
        ("P1W", 7 * 86400),
        ("P1DT12H", 129600),
        ("PT90M", 5400),
        ("PT5S", 5),
        ("PT0S", 0),
        ("P1W2DT3H4M5S", 604800 + 2 * 86400 + 3 * 3600 + 245),
        ("90min", 5400),
        ("24h", 86400),
        ("7d", 7 * 86400),
        ("2w", 14 * 86400),
        ("1d12h", 129600),
        ("1h30min", 5400),
        ("45s", 45),
        ("007s", 7),
        ("0.5s", 0.5),
        ("1min1.25s", 61.25),
        ("PT0.125S", 0.125),
        ("999999w", 999999 * 604800),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    found = parse_duration(text)
    assert found == seconds
    assert isinstance(found, float)


@pytest.mark.parametrize(
    "text",
    ["", " ", "P", "PT", "T", "PT1", "P1DT", "P1Y", "P1M", "P1Y2D", "PT1H30", "P1H", "PT1D",
     "P-1D", "-P1D", "+1h", "-1h", "1", "90", "1.5h", "PT1.5H", "1,5h", "1m", "1 h", "1h ", " 1h",
     "1h\n", "1H", "p7d", "30min1h", "1h1h", "PT1M1H", "h", "min", "١h", "P１D", "PT٣S", "1e3s",
     ".5s", "5.s", "1.2345s", "1..5s",
     "1_0s", "inf", "nan", "9999999w", "P9999999D", "PT9999999999S", "9" * 5000 + "s", "\0",
     "\udcff"],
    ids=lambda text: ascii(text[:20]),
)  # fmt: skip
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration") as caught:
        parse_duration(text)
    assert caught.value.exit_code == 2
    assert "90min" in caught.value.hint


counts = some.none() | some.integers(0, 999)


@given(counts, counts, counts, counts, counts)
def test_both_forms_say_the_same(
    weeks: int | None, days: int | None, hours: int | None, minutes: int | None, seconds: int | None
) -> None:
    def joined(parts: list[tuple[int | None, str]]) -> str:
        return "".join(f"{count}{unit}" for count, unit in parts if count is not None)

    clock = [(hours, "H"), (minutes, "M"), (seconds, "S")]
    iso = "P" + joined([(weeks, "W"), (days, "D")])
    iso += "T" + joined(clock) if joined(clock) else ""
    short = joined([(weeks, "w"), (days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")])
    if not short:
        for text in (iso, short):
            with pytest.raises(UsageError):
                parse_duration(text)
        return
    span = timedelta(
        weeks=weeks or 0,
        days=days or 0,
        hours=hours or 0,
        minutes=minutes or 0,
        seconds=seconds or 0,
    )
    assert parse_duration(iso) == parse_duration(short) == span.total_seconds()


@given(some.text(max_size=30) | some.text("PTWDHMS0123456789wdhmins.", max_size=15))
def test_any_text_is_a_duration_or_our_error(text: str) -> None:
    with suppress(UsageError):
        assert parse_duration(text) >= 0
