"""What mends which finding: the lossless mend where there is one, else the choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sluicegate.findings import Finding
from sluicegate.plan import Choice
from sluicegate.positions import Positions
from sluicegate.spark.change.edits import Edit, Place, Roots
from sluicegate.spark.checkpoint import Look
from sluicegate.storage import Storage


@dataclass(frozen=True, slots=True)
class Mend:
    """What is done about a finding: in a few words, with what it means, as edits."""

    what: str
    meaning: str
    edits: tuple[Edit, ...]


Remedy = Mend | tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """What a mend is worked out from; `positions` and `query_id` are what the operator knows."""

    roots: Roots
    look: Look
    positions: Positions | None = None
    query_id: str | None = None

    @property
    def storage(self) -> Storage:
        """The checkpoint."""
        return self.look.storage

    @property
    def sink(self) -> Storage | None:
        """The file sink, if it is known."""
        return self.roots.get(Place.SINK)

    def key_of(self, finding: Finding) -> str:
        """The key of the file that a finding is about."""
        for storage in self.roots.values():
            if finding.place.startswith(f"{storage.uri}/"):
                return finding.place.removeprefix(f"{storage.uri}/")
        return finding.place


Healer = Callable[[Case, Finding], Remedy]


def merged(mends: Iterable[Mend]) -> list[Edit]:
    """The edits of several mends, each file once."""
    edits: dict[tuple[Place, str], Edit] = {}
    for mend in mends:
        for edit in mend.edits:
            edits.setdefault((edit.place, edit.key), edit)
    return list(edits.values())
