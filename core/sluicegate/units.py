"""How durations, sizes and times are written for people, everywhere."""

from __future__ import annotations

import time

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


def utc(timestamp: float) -> str:
    """A moment as ISO 8601 in UTC, to the second; beyond the calendar, the bare number."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(timestamp))
    except (OverflowError, ValueError, OSError):
        return f"{timestamp:.0f} s since 1970"
