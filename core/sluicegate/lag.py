"""How far positions are behind the end of their source. Pure; it knows no target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from shlex import quote

from sluicegate import units
from sluicegate.errors import UsageError
from sluicegate.findings import Finding, Severity, rule
from sluicegate.positions import Positions

TRIMMED = rule(
    "SG-LAG-TRIMMED",
    Severity.ERROR,
    "events were removed before they were read",
    "The position is before the oldest event that the source still holds. The events between them "
    "were trimmed unread; the job refuses to start rather than skip them silently.",
)
AHEAD = rule(
    "SG-LAG-AHEAD",
    Severity.ERROR,
    "a position is beyond the end of the source",
    "The source ends before the position, so it lost events, was created again, or is another one. "
    "Events that are written next would be taken as read.",
)


class EndsUnknown(UsageError):
    """The end of the source is not known here."""

    default_hint = (
        "ask the broker: kafka-get-offsets.sh --bootstrap-server HOST:PORT --topic TOPIC | tr : , "
        "> ends.csv; then add --end-offsets ends.csv"
    )


def ends_unknown(positions: Positions, uri: str) -> EndsUnknown:
    """The error of a target whose topics only a broker knows."""
    what = f"{', '.join(sorted(positions.by_topic))} of {uri}"
    return EndsUnknown(f"the end of {what} is known to the broker only; Sluicegate does not ask it")


@dataclass(frozen=True, slots=True)
class Lag:
    """One partition: the position, and the range of the source; None is unknown."""

    topic: str
    partition: int
    position: int | None
    earliest: int | None
    latest: int | None

    @property
    def behind(self) -> int | None:
        """How many events are still to be read; without a position, all of them are."""
        start = self.position if self.position is not None else self.earliest or 0
        return None if self.latest is None else max(0, self.latest - start)

    @property
    def place(self) -> str:
        """The partition as text."""
        return f"{self.topic}[{self.partition}]"


def lags(positions: Positions, latest: Positions, earliest: Positions | None = None) -> list[Lag]:
    """Every partition that has a position or an end."""
    places = {(each.topic, each.partition) for each in (*positions, *latest)}
    return [
        Lag(
            topic,
            partition,
            positions.get(topic, partition),
            earliest.get(topic, partition) if earliest else None,
            latest.get(topic, partition),
        )
        for topic, partition in sorted(places)
    ]


def total(found: Iterable[Lag]) -> int:
    """How many events are still to be read, as far as that is known."""
    return sum(each.behind or 0 for each in found)


def _scope(lag: Lag) -> str:
    """Only this partition: for others, the dedup log may no longer know events read again."""
    return f"--topic {quote(f'{lag.topic}:{lag.partition}')}"


def problems(found: Iterable[Lag], rewind: str) -> list[Finding]:
    """Findings of positions that the source does not hold; `rewind` is the command to repair."""
    wrong = []
    for each in found:
        if each.position is None:
            continue
        if each.earliest is not None and each.position < each.earliest:
            gone = units.events(each.earliest - each.position)
            detail = f"at {each.position}; the oldest is {each.earliest}: {gone} lost"
            wrong.append(TRIMMED.at(each.place, detail, repair=f"{rewind} {_scope(each)}"))
        if each.latest is not None and each.position > each.latest:
            detail = f"at {each.position}, but the source ends at {each.latest}"
            wrong.append(AHEAD.at(each.place, detail))
    return wrong
