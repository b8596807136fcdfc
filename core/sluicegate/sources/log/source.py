"""The source of a stream, as far as it can be read without a broker: the embedded log."""

from __future__ import annotations

from sluicegate.errors import UsageError
from sluicegate.positions import Positions
from sluicegate.sources.log.layout import LogReplaced, OutOfRange
from sluicegate.sources.log.log import Log

_BROKER = "kafka://"
_START = "start inside that range, or omit the offsets to start at its beginning"


class BrokerNeeded(UsageError):
    """The offsets are known only to a broker, which is not queried here."""

    default_hint = "query the broker, and pass its answer as a file"


def needs_broker(uri: str) -> bool:
    """Whether a source is Kafka's, where only the broker knows what it holds."""
    return uri.lower().startswith(_BROKER)


def open_source(uri: str, incarnation: str | None = None) -> Log:
    """The log that a stream reads; `LogReplaced` if it is not the incarnation it began with."""
    if needs_broker(uri):
        raise BrokerNeeded(
            f"only the broker knows the offsets of {uri}; Sluicegate does not query it"
        )
    log = Log.open(uri)
    if incarnation not in (None, log.incarnation):
        raise LogReplaced(
            f"{log.uri} was replaced since the stream began: it is now {log.incarnation}, "
            f"not {incarnation}",
            place=log.uri,
        )
    return log


def source_range(uri: str, incarnation: str | None = None) -> tuple[Positions, Positions]:
    """The oldest offsets that a source holds, and the next that it will write."""
    log = open_source(uri, incarnation)
    return log.earliest(), log.latest()


def incarnation_of(uri: str) -> str | None:
    """Which log a source is; None if it is Kafka's."""
    return None if needs_broker(uri) else Log.open(uri).incarnation


def refuse_outside(uri: str, positions: Positions, hint: str = _START) -> None:
    """Refuse positions that a log does not hold; those of Kafka are not checked.

    The end is allowed, too: it is the position of the next record.
    """
    if needs_broker(uri):
        return
    earliest, latest = source_range(uri)
    for each in positions:
        low = earliest.get(each.topic, each.partition)
        high = latest.get(each.topic, each.partition)
        where = f"{each.topic}[{each.partition}]"
        if low is None or high is None:
            held = ", ".join(f"{p.topic}[{p.partition}]" for p in earliest)
            raise OutOfRange(f"{uri} has no {where}", hint=f"it has {held:.300}", place=uri)
        if not low <= each.offset <= high:
            raise OutOfRange(
                f"{where} cannot start at {each.offset}: {uri} holds {low} to {high}",
                hint=hint,
                place=uri,
            )
