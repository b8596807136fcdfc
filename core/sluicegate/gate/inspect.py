"""Where a stream stands: its head, who may seal, how much state there is, how far back it goes."""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.chain.link import Link
from sluicegate.gate.compact import Size, size_of
from sluicegate.gate.gate import Gate
from sluicegate.gate.reference import read_operators
from sluicegate.gate.stream import Stream


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything about a stream that one look at its head tells."""

    uri: str
    head: Link
    living: str | None
    state: Size
    operators: dict[str, int]

    @property
    def kept(self) -> int:
        """How many links there are to go back to."""
        return self.head.number - self.head.floor + 1


def inspect(stream: Stream, number: int | None = None) -> Summary:
    """The stream at its head, or at an older link."""
    head = stream.chain.head()
    stream.chain.check_home(head)
    link = head if number is None else stream.chain.read(number)
    operators = {n: len(state) for n, state in read_operators(stream, link.operators).items()}
    return Summary(
        stream.uri, link, Gate(stream).living_writer(head), size_of(stream, link), operators
    )


def recent(stream: Stream, last: int) -> list[Link | str]:
    """The newest links, oldest first; of a damaged one, what is wrong with it."""
    from sluicegate.errors import Corrupt

    head = stream.chain.head()
    found: list[Link | str] = []
    for number in range(max(head.floor, head.number - last + 1), head.number + 1):
        try:
            found.append(stream.chain.read(number))
        except Corrupt as e:
            found.append(f"{number}: {e.message}")
    return found
