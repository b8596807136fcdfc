"""Times as operators write them: ISO 8601 with a zone, always."""

from __future__ import annotations

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


_HINT = "write it like 2026-11-16T03:00:00Z or 2026-11-16T03:00:00+01:00"
