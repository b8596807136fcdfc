"""Assignments as commands get at them: of a gated stream, or in a plain file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluicegate.detection import TargetKind
from sluicegate.errors import UsageError
from sluicegate.journal import Journal
from sluicegate.target import Target
from sluicegate_cli.session import Session, expect_kind
from sluicegate_cli.stores import read_text

if TYPE_CHECKING:
    from sluicegate.shards.assignment import Assignment
    from sluicegate.shards.files import AssignmentFile
    from sluicegate.shards.planner import RebalancePlan
    from sluicegate.shards.routing import Column
    from sluicegate.stream.snapshot import Link
    from sluicegate.stream.stream import Stream

ShardsArgument = Annotated[
    str | None,
    typer.Argument(metavar="TARGET", help="a stream or an assignment file; may be left out if one"),
]
OwnerArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="a stream or an assignment file")
]
NodesArgument = Annotated[list[str], typer.Argument(metavar="NODE...", help="names of nodes")]
WeightsOption = Annotated[
    str | None,
    typer.Option(metavar="events|keys|bytes|FILE", help="what shards weigh: by state, or a file"),
]
MaxMovesOption = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="move no more shards than this")
]
IdempotentOption = Annotated[
    bool, typer.Option("--idempotent", help="nothing to do, if it is so already")
]
OutputOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="write a new file; leave the target alone")
]


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards of a target: who owns them, what they are called, and how they are changed."""

    target: Target
    assignment: Assignment
    journal: Journal
    file: AssignmentFile | None = None
    stream: Stream | None = None
    head: Link | None = None

    def label(self, shard: int) -> str:
        """What a shard is called."""
        from sluicegate.shards.describe import shard_label

        return self.file.label(shard) if self.file else shard_label(shard)

    def weights(self, option: str | None) -> tuple[Column | None, str | None]:
        """What the shards weigh by an option, and what that measures."""
        from sluicegate.shards.describe import OWN
        from sluicegate.shards.weights import parse

        if option is None:
            return None, None
        if self.stream is not None and self.head is not None:
            from sluicegate.stream.operations.rebalance import MEASURES, weights_at

            if option in MEASURES:
                return weights_at(self.stream, self.head, option), option
        return parse(read_text(option), self.assignment.n_shards), OWN

    def change(
        self,
        session: Session,
        plan: RebalancePlan,
        how: str,
        note: str,
        *,
        output: str | None = None,
        **asked: Any,
    ) -> None:
        """Take a plan to its end; `asked` is what it was made for."""
        from sluicegate.shards.describe import Proposal

        sizes, _ = self.weights("bytes") if self.stream else (None, None)
        plan = self.file.refined(plan) if self.file and how != "install" else plan
        data = Proposal.of(plan, how, sizes=sizes, **asked).to_text()
        work = self._work(data, note, output)
        session.carry_out(self.journal, self.journal.plan(work))

    def _work(self, data: str, note: str, output: str | None) -> dict[str, Any]:
        if self.stream is None:
            from sluicegate.shards.journal import REBALANCE, work_of

            return work_of(REBALANCE, data, note=note, output=output)
        from sluicegate.stream.operations import changes

        if output is not None:
            raise UsageError("--output is for assignment files, which this target is not")
        return changes.StreamChange(changes.REBALANCE, data=data, note=note).to_work()


def open_shards(session: Session, word: str | None, kind: TargetKind | None) -> Shards:
    """The shards of the target that a word means."""
    target = session.target(word, kind)
    if target.kind is TargetKind.ASSIGNMENT_FILE:
        from sluicegate.shards.journal import FileJournal

        journal = session.journal(target)
        assert isinstance(journal, FileJournal)
        found = journal.read()
        return Shards(target, found.assignment, journal, found)
    expect_kind(target, TargetKind.STREAM)
    from sluicegate.stream.operations.rebalance import assignment_at
    from sluicegate.stream.stream import open_stream

    stream = open_stream(target.uri, read_only=True)
    head = stream.chain.head()
    assignment = assignment_at(stream, head)
    return Shards(target, assignment, session.journal(target), None, stream, head)


def parse_part(text: str | None, option: str) -> float | None:
    """A part of one, written `5%` or `0.05`."""
    if text is None:
        return None
    number = text.strip().removesuffix("%")
    try:
        part = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        part = -1.0
    if not 0 <= part < (100 if "%" in text else 1):
        raise UsageError(f"{option} {text!r} is not a part", hint=f"write {option} 5% or 0.05")
    return part


def parse_capacities(words: list[str] | None) -> dict[str, int]:
    """Capacities of nodes, written `NODE=N`."""
    found = {}
    for word in words or ():
        name, equals, size = word.rpartition("=")
        if not equals or not size.isdecimal() or name in found:
            raise UsageError(f"--capacity {word!r} is not NODE=N", hint="write --capacity node-1=2")
        found[name] = int(size)
    return found
