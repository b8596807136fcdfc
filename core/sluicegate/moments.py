"""Times as operators write them: ISO 8601 with a zone, always."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from sluicegate.errors import UsageError


def parse_moment(text: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 time; one without a zone is refused."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as e:
        raise UsageError(f"{text!r} is not a time", hint=_HINT) from e
    if moment.tzinfo is None:
        full = text if len(text) > len("2026-11-16") else f"{text}T00:00:00"
        raise UsageError(
            f"{text!r} has no time zone, so which moment is meant is not known",
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
