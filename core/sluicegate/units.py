"""Times, durations, sizes, counts and commands as people write and read them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from shlex import quote

from sluicegate.errors import UsageError

_STEPS = ((86400, "d"), (3600, "h"), (60, "min"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def duration(seconds: float) -> str:
    """A span of time in its two largest units: `0.4 s`, `12 s`, `2 min 5 s`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    rest = int(seconds)
    parts: list[tuple[int, str]] = []
    for length, unit in (*_STEPS, (1, "s")):
        count, rest = divmod(rest, length)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count)


def ago(timestamp: float, now: float | None = None) -> str:
    """How long ago a moment was: `2 min 5 s ago`; `in the future` if the clocks disagree."""
    passed = (time.time() if now is None else now) - timestamp
    return f"{duration(passed)} ago" if passed >= 0 else "in the future"


def size(count: int) -> str:
    """A number of bytes with a binary prefix: `512 B`, `1.5 MiB`."""
    amount = float(count)
    for unit in _SIZES[:-1]:
        if amount < 1024:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_SIZES[-1]}"


def events(count: int) -> str:
    """A number of events: `1 event`, `1,200 events`."""
    return counted(count, "event")


def counted(count: int, one: str, many: str = "") -> str:
    """A number of things: `1 file`, `1,200 files`, `2 entries`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def command(*words: str | int) -> str:
    """A Sluicegate command, quoted so that it can be pasted into a shell.

    Every command that is shown is made here. Words in capital letters (`NEW_DIR`, `BATCH`) are
    placeholders that the operator must fill in.
    """
    return " ".join(("sluicegate", *(quote(str(word)) for word in words)))


def utc(timestamp: float) -> str:
    """A moment as ISO 8601 in UTC, to the second; beyond the calendar, the bare number."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(timestamp))
    except (OverflowError, ValueError, OSError):
        return f"{timestamp:.0f} s since 1970"


def parse_moment(text: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 time; one without a zone is refused."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as e:
        raise UsageError(f"{text!r} is not a time", hint=_HINT) from e
    if moment.tzinfo is None:
        full = text if len(text) > len("2026-11-16") else f"{text}T00:00:00"
        raise UsageError(
            f"{text!r} has no time zone",
            hint=f"write {full}Z for UTC, or {full}+01:00 for an hour east of it",
        )
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def parse_duration(text: str) -> float:
    """Seconds of an ISO 8601 duration (`PT1H30M`, `P7D`) or a short one (`90min`, `24h`, `7d`)."""
    match = _SHORT.fullmatch(text) or _ISO.fullmatch(text)
    parts = (
        {unit: float(count) for unit, count in match.groupdict().items() if count} if match else {}
    )
    if not parts:
        raise UsageError(f"{text!r} is not a duration", hint=_DURATION_HINT)
    return sum(count * _SECONDS[unit] for unit, count in parts.items())


_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "min": 60, "s": 1}
_ISO = re.compile(
    r"P(?:(?P<w>\d{1,6})W)?(?:(?P<d>\d{1,6})D)?"
    r"(?:T(?=\d)(?:(?P<h>\d{1,6})H)?(?:(?P<min>\d{1,9})M)?(?:(?P<s>\d{1,9}(?:\.\d{1,3})?)S)?)?",
    re.ASCII,
)
_SHORT = re.compile(
    r"(?:(?P<w>\d{1,6})w)?(?:(?P<d>\d{1,6})d)?(?:(?P<h>\d{1,6})h)?"
    r"(?:(?P<min>\d{1,9})min)?(?:(?P<s>\d{1,9}(?:\.\d{1,3})?)s)?",
    re.ASCII,
)
_DURATION_HINT = "write it like PT1H30M, P7D, 0.5s, 90min, 24h or 7d"
_HINT = "write it like 2026-11-16T03:00:00Z or 2026-11-16T03:00:00+01:00"
