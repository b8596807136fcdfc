"""Undo of an operation, and finishing or reverting one that was interrupted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from sluicegate import units
from sluicegate.checkpoint import edit
from sluicegate.checkpoint.edit import Operation, Progress
from sluicegate.checkpoint.edit_log import undone_operations
from sluicegate.checkpoint.file_edits import (
    CheckpointOperation,
    Draft,
    Place,
    Roots,
    newest_after,
    newest_preconditions,
)
from sluicegate.checkpoint.view import look_at
from sluicegate.errors import Drifted
from sluicegate.journal import NothingToUndo
from sluicegate.plan import Action, Precondition
from sluicegate.units import command


def find(roots: Roots, name: str) -> Operation:
    """An operation of the checkpoint by its id."""
    for each in edit.list_operations(roots):
        if each.record.id == name:
            return each
    raise NothingToUndo(f"there is no operation {name!r} on {roots[Place.CHECKPOINT].uri}")


@dataclass(frozen=True, kw_only=True)
class _OnEdit(CheckpointOperation):
    """About an earlier operation, which `undoes` names."""

    undoes: str

    @classmethod
    def from_work(cls, work: Mapping[str, Any]) -> Self:
        return cls(undoes=str(work.get("undoes")))


class Undo(_OnEdit):
    """Restore every file that an operation changed, byte for byte."""

    name: ClassVar = "undo"

    def plan(self, roots: Roots) -> Draft:
        found = find(roots, self.undoes)
        record = found.record
        undone = undone_operations(edit.list_operations(roots))
        if found.progress is not Progress.DONE:
            raise NothingToUndo(f"{record.id} cannot be undone: {found.progress.value}")
        if record.id in undone:
            raise NothingToUndo(f"{record.id} was undone by {undone[record.id]}")
        if found.pruned:
            raise NothingToUndo(f"{record.id} cannot be undone: its backups were removed")
        look = look_at(roots[Place.CHECKPOINT])
        newest = -1 if look.last_batch is None else look.last_batch
        if newest != record.newest:
            back = command("checkpoint", "rollback", look.storage.uri, "--to", str(record.newest))
            raise Drifted(
                f"the job has run since {record.id}: the newest batch is {newest}, not "
                f"{record.newest}; undoing now would corrupt the checkpoint",
                hint=f"roll back first: {back}; then undo",
            )
        if changed := edit.differences(roots, record):
            raise Drifted(f"{changed[0]} was changed since {record.id}, so it cannot be undone")
        edits = tuple(edit.inverse(record))
        return Draft(
            title=f"Undo {record.id} ({record.kind})",
            summary=f"undo {record.id}: {record.summary}",
            actions=(
                Action("restore", "the files of the operation", units.counted(len(edits), "file")),
            ),
            consequences=("Every file that the operation changed is restored, byte for byte.",),
            edits=edits,
            newest=newest_after(look.offsets.batches, edits),
            preconditions=newest_preconditions(look),
            undoes=record.id,
        )


class _Rest(_OnEdit):
    """The rest of an interrupted operation; its edits are already on disk."""

    verb: ClassVar[str]
    consequence: ClassVar[str]

    def plan(self, roots: Roots) -> Draft:
        found = find(roots, self.undoes)
        record = found.record
        if not found.progress.is_interrupted:
            raise Drifted(f"{record.id} is no longer interrupted: {found.progress.value}")
        count = units.counted(len(record.files), "file")
        return Draft(
            title=f"{self.verb} the interrupted {record.id} ({record.kind})",
            summary=record.summary,
            actions=(Action(self.verb.lower(), "the rest", count),),
            consequences=(self.consequence,),
            edits=(),
            newest=record.newest,
            preconditions=(Precondition(f"{record.id} is", found.progress.value),),
        )


class Finish(_Rest):
    """Finish an interrupted operation."""

    name: ClassVar = "finish"
    verb: ClassVar = "Finish"
    consequence: ClassVar = "The operation is completed."


class Revert(_Rest):
    """Restore everything to its state before an interrupted operation."""

    name: ClassVar = "take-back"
    verb: ClassVar = "Revert"
    consequence: ClassVar = "Everything is restored to its state before the operation."
