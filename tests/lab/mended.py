"""Queries that Sluicegate has changed, and how they must come out when they run on.

Each scenario does something to a copy of a stopped query: a damage and its repair, a rollback, a
reset. `endings.play_out` then restarts the real query twice. The output must be that of a run that
nobody interrupted, or differ by exactly what the plan said.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from sluicegate.journal import Approval
from sluicegate.reset import ResetSpec, Scenario
from sluicegate.spark.change import operation, unfinished
from sluicegate.spark.change.edits import Place
from sluicegate.spark.change.fresh import parse_offset, relocate, seed
from sluicegate.spark.change.journal import CheckpointJournal
from sluicegate.spark.change.reset import wanted_offsets
from sluicegate.spark.change.rollback import candidates
from sluicegate.spark.checkpoint import look_at
from sluicegate.spark.offset_log import read_offsets
from sluicegate.spark.verify.data import ChainReader
from sluicegate.storage import Storage, open_storage
from sluicegate.who import myself
from tests.lab.endings import CASES, Ending, Kept, Outcome
from tests.spark.damage import DAMAGES, Damage, Made

ME = Approval(myself(), "lab")
RIGHT = "as an uninterrupted run"
REREAD = "the re-read rows twice"
REFUSES = "Spark refuses to start"
CUT_AT_END = "relocate, cut at its end"

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
    """One scenario: the case it is tried on, what is done, and how it must come out.

    What is done may lead to another place than the one it began in. Where Spark is to refuse,
    `says` is what its error must say.
    """

    name: str
    case: str
    do: Callable[[Made], Ending | None]
    comes_out: str = RIGHT
    says: str = ""

    def holds(self, outcome: Outcome) -> bool:
        """Whether the query came out as it must."""
        if self.comes_out == REFUSES:
            told = [self.says in error for error in outcome.errors]
            return outcome.untouched and told == [True, True]
        if self.comes_out == REREAD:
            unharmed = outcome.untouched and not outcome.missing
            return not outcome.errors and unharmed and bool(outcome.extra)
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


def move(made: Made) -> Ending:
    """The checkpoint to another place, with blanks and letters beyond ASCII in its path."""
    target = made.root.parent / "neuer Ort, ü" / "check point"
    kept = Kept.of(made.checkpoint)
    relocate(open_storage(str(made.checkpoint), read_only=True), str(target), {})
    return Ending("", made.root, target, untouched=kept)


def move_a_part(made: Made) -> Ending:
    """As if it was killed right before its end."""
    ending = move(made)
    assert ending.checkpoint
    copy = open_storage(str(ending.checkpoint))
    last = look_at(copy).last_batch
    assert last is not None
    unfinished.raise_barrier(copy, unfinished.barrier_key(last), "the command")
    return ending


def move_nearly_nothing(made: Made) -> Ending:
    """As if it was killed right after its beginning: there is the barrier and nothing else."""
    ending = move_a_part(made)
    assert ending.checkpoint
    last = look_at(open_storage(str(ending.checkpoint))).last_batch
    for path in list(ending.checkpoint.rglob("*")):
        if path.is_file() and path != ending.checkpoint / "offsets" / str(last):
            path.unlink()
    for name in ("commits", "sources", "state"):
        shutil.rmtree(ending.checkpoint / name, ignore_errors=True)
    return ending


def move_with_input(made: Made) -> Ending:
    """The checkpoint and its input; what the sink has goes along by a mere copy."""
    place = made.root.parent / "100% elsewhere é"
    kept = Kept.of(made.root)
    for name in ("in", "out"):
        shutil.copytree(made.root / name, place / name)
    moves = {str(made.root / "in"): str(place / "in")}
    source = open_storage(str(made.checkpoint), read_only=True)
    relocate(source, str(place / "checkpoint"), moves)
    return Ending("", place, untouched=kept)


def roll_back_into(made: Made) -> Ending:
    """A copy, three batches back."""
    last = look_at(open_storage(str(made.checkpoint))).last_batch
    assert last is not None
    ending = _change_copy(made, {"operation": "rollback", "to": last - 3})
    _let_forget(made, last - 3)
    return ending


def reset_into(made: Made) -> Ending:
    """A copy, three entries of the source's log back."""
    spec = ResetSpec(Scenario.SHIFT, number=-3)
    storage = open_storage(str(made.checkpoint), read_only=True)
    return _change_copy(made, {"operation": "reset", "to": wanted_offsets(storage, spec)})


def _change_copy(made: Made, work: dict[str, object]) -> Ending:
    target = made.root.parent / "a copy"
    kept = Kept.of(made.checkpoint)
    storage = open_storage(str(made.checkpoint), read_only=True)
    journal = CheckpointJournal(storage, writer_gone=True)
    journal.apply_into(journal.plan_into(work, str(target)), ME)
    return Ending("", made.root, target, untouched=kept)


def seed_anew(made: Made) -> Ending:
    """A fresh checkpoint where the query stopped, and a new output."""
    place = made.root.parent / "seeded"
    kept = Kept.of(made.root)
    storage = open_storage(str(made.checkpoint), read_only=True)
    last = look_at(storage).last_batch
    assert last is not None
    text = read_offsets(storage, last).offsets[0].text
    assert text
    assert made.sink
    seed(str(place / "checkpoint"), parse_offset(text), "6333c2b4-3922-44db-8ea9-726a16064721")
    written = [json.loads(path.read_text()) for path in sorted(made.sink.glob("batch=*.json"))]
    rows = tuple(row for rows in written for row in rows)
    return Ending("", place, before=rows, untouched=kept)


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
    once = [recipe.name for recipe in CASES if recipe.sink == "foreachBatch"]
    with_files = [case for case in once if case != "stateless-python"]
    found += [Mended("relocate", case, move) for case in names]
    found += [Mended("relocate, with its input", case, move_with_input) for case in with_files]
    found += [Mended("rollback --into", case, roll_back_into) for case in once]
    found += [
        Mended("reset --into", "stateless-once", reset_into, REREAD),
        Mended("seed", "stateless-python", seed_anew),
    ]
    for case in ("stateless-parquet", "agg-hdfs"):
        found += [
            Mended("interrupted", case, interrupt, REFUSES, "sluicegate: op-1"),
            Mended(CUT_AT_END, case, move_a_part, REFUSES, "sluicegate: this checkpoint is not"),
            Mended("relocate, cut at its beginning", case, move_nearly_nothing, REFUSES),
        ]
    for damage in DAMAGES:
        if damage.codes and not set(damage.codes) & set(_HOPELESS):
            found += [
                Mended(damage.name, case, mend(damage)) for case in damage.recipes if case in names
            ]
    return found


SCENARIOS = _scenarios()


def prepared(scenario: Mended, place: Path) -> Ending:
    """Do what the scenario does to a copy of its query, and return where it goes on."""
    ending = scenario.do(Made(place)) or Ending("", place)
    return replace(ending, case=scenario.case)
