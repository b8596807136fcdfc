"""Queries that Sluicegate has changed, and how they must come out when they run on.

Each scenario does something to a copy of a stopped query: a damage and its repair, a rollback, a
reset. `endings.play_out` then restarts the real query twice. The output must be that of a run that
nobody interrupted, or differ by exactly what the plan said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sluicegate.journal import Approval
from sluicegate.reset import ResetSpec, Scenario
from sluicegate.spark.change import operation
from sluicegate.spark.change.edits import Place
from sluicegate.spark.change.journal import CheckpointJournal
from sluicegate.spark.change.reset import wanted_offsets
from sluicegate.spark.change.rollback import candidates
from sluicegate.spark.checkpoint import look_at
from sluicegate.spark.offset_log import read_offsets
from sluicegate.spark.verify.data import ChainReader
from sluicegate.storage import Storage, open_storage
from sluicegate.who import myself
from tests.lab.endings import CASES, Outcome
from tests.spark.damage import DAMAGES, Damage, Made

ME = Approval(myself(), "lab")
RIGHT = "as an uninterrupted run"
REREAD = "the re-read rows twice"
REFUSES = "Spark refuses to start"

# Damage that leaves nothing to mend or go back to; only a backup or the operator helps.
_HOPELESS = (
    "SG-OFFSETS-MISSING",
    "SG-METADATA-MISSING",
    "SG-METADATA-DAMAGED",
    "SG-SINK-MISSING-FILE",
    "SG-PARTITIONS-CHANGED",
    "SG-CHECKPOINT-UNREADABLE",
)


class Untried(Exception):
    """The scenario cannot be tried on this checkpoint."""


@dataclass(frozen=True, slots=True)
class Mended:
    """One scenario: the case it is tried on, what is done, and how it must come out."""

    name: str
    case: str
    do: Callable[[Made], None]
    comes_out: str = RIGHT

    def holds(self, outcome: Outcome) -> bool:
        """Whether the query came out as it must."""
        if self.comes_out == REFUSES:
            return len(outcome.errors) == 2 and all("sluicegate: op-1" in e for e in outcome.errors)
        if self.comes_out == REREAD:
            return not outcome.errors and not outcome.missing and bool(outcome.extra)
        return outcome.right


def opened(made: Made) -> tuple[Storage, CheckpointJournal]:
    """The checkpoint of a place, and its journal with the file sink if there is one."""
    storage = open_storage(str(made.checkpoint))
    has_log = made.sink is not None and (made.sink / "_spark_metadata").is_dir()
    sink = open_storage(str(made.sink)) if has_log else None
    return storage, CheckpointJournal(storage, sink=sink, writer_gone=True)


def roll_back(made: Made, batches: int = 3) -> None:
    """Back by some batches; a sink that recognises batches forgets them, as the plan says."""
    storage, journal = opened(made)
    last = look_at(storage).last_batch
    assert last is not None
    journal.apply(journal.plan({"operation": "rollback", "to": last - batches}), ME)
    _let_forget(made, last - batches)


def _let_forget(made: Made, newest: int) -> None:
    for path in made.sink.glob("batch=*.json") if made.sink else ():
        if int(path.stem.removeprefix("batch=")) > newest:
            path.unlink()


def roll_back_and_undo(made: Made) -> None:
    """Back, and forward again."""
    storage, journal = opened(made)
    last = look_at(storage).last_batch
    assert last is not None
    journal.apply(journal.plan({"operation": "rollback", "to": last - 3}), ME)
    journal.apply(journal.plan_undo(None), ME)


def roll_back_twice(made: Made) -> None:
    """Back, and further back."""
    roll_back(made, 2)
    roll_back(made, 2)


def reset(made: Made) -> None:
    """Three entries of the source's log back."""
    storage, journal = opened(made)
    spec = ResetSpec(Scenario.SHIFT, number=-3)
    work = {"operation": "reset", "to": wanted_offsets(storage, spec), "note": str(spec)}
    before = look_at(storage)
    journal.apply(journal.plan(work), ME)
    after = look_at(storage).last_batch
    if before.operators and after is not None:
        _let_forget(made, after)


def reset_in_time(made: Made) -> None:
    """To where it was three batches ago, by the offset log's own time."""
    storage, journal = opened(made)
    last = look_at(storage).last_batch
    assert last is not None
    moment = read_offsets(storage, last - 3).timestamp_ms
    spec = ResetSpec(Scenario.MOMENT, moment_ms=moment)
    work = {"operation": "reset", "to": wanted_offsets(storage, spec), "note": str(spec)}
    journal.apply(journal.plan(work), ME)


def interrupt(made: Made) -> None:
    """A rollback that was killed right before its end."""
    storage, journal = opened(made)
    before = look_at(storage).last_batch
    assert before is not None
    roll_back(made)
    barrier = made.checkpoint / "offsets" / str(before + 1)
    barrier.write_text("sluicegate: op-1 (rollback) was interrupted; see sluicegate history\n")
    roots = {Place.CHECKPOINT: storage}
    assert operation.interrupted(roots), journal


def mend(damage: Damage) -> Callable[[Made], None]:
    """Damage, then everything that repair offers, then the rollback that it advises."""

    def do(made: Made) -> None:
        try:
            damage.change(made)
        except (FileNotFoundError, ValueError, IndexError) as e:
            raise Untried("this checkpoint does not have what is damaged") from e
        storage, journal = opened(made)
        plan = journal.plan({"operation": "repair", "read_data": damage.read_data})
        if plan.actions:
            journal.apply(plan, ME)
        commands = [choice.command for choice in plan.choices]
        advised = [c for c in commands if "rollback" in c and "BATCH" not in c]
        if advised:
            look = look_at(storage)
            able = next(candidates(look, ChainReader(storage)), None)
            if able is None:
                raise Untried("there is no batch to go back to")
            journal.apply(journal.plan({"operation": "rollback", "to": able}), ME)
        elif plan.choices or not plan.actions:
            raise Untried("there is nothing that could be done")

    return do


def _scenarios() -> list[Mended]:
    names = [recipe.name for recipe in CASES]
    found = [Mended("rollback", case, roll_back) for case in names]
    found += [Mended("rollback, undone", case, roll_back_and_undo) for case in names]
    stateful = [recipe.name for recipe in CASES if recipe.query != "stateless"]
    found += [Mended("rollback, twice", case, roll_back_twice) for case in stateful]
    found += [Mended("reset", case, reset) for case in stateful]
    stateless = ("stateless-parquet", "stateless-compact3", "stateless-once")
    found += [Mended("reset", case, reset, REREAD) for case in stateless]
    found.append(Mended("reset to a time", "stateless-python", reset_in_time, REREAD))
    found += [
        Mended("interrupted", case, interrupt, REFUSES)
        for case in ("stateless-parquet", "agg-hdfs")
    ]
    for damage in DAMAGES:
        if damage.codes and not set(damage.codes) & set(_HOPELESS):
            found += [
                Mended(damage.name, case, mend(damage)) for case in damage.recipes if case in names
            ]
    return found


SCENARIOS = _scenarios()


def prepared(scenario: Mended, place: Path) -> None:
    """Do what the scenario does to a copy of its query."""
    scenario.do(Made(place))
