"""Queries that Sluicegate has changed, and how they must come out when they run on.

Each scenario does something to a copy of a stopped query: a damage and its repair, a rollback, a
reset. `endings.play_out` then restarts the real query twice. The output must be that of a run that
nobody interrupted, or differ by exactly what the plan said.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.checkpoint.damage import DAMAGES, Damage, Made
from tests.lab.endings import CASES, Ending, Kept, Outcome

RIGHT = "as an uninterrupted run"
REREAD = "the re-read rows twice"
REFUSES = "Spark refuses to start"
CUT_AT_END = "relocate, cut at its end"

_NOT_COMPLETE = "sluicegate: this checkpoint is not complete; remove it and make it again: …\n"
_INTERRUPTED = "sluicegate: op-1 (rollback) was interrupted; see sluicegate history\n"
_ROLLBACK = re.compile(r"checkpoint rollback .*--to (?P<batch>\d+)")
_FOUND_PROBLEMS = 3
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


def sg(*words: str | Path) -> dict[str, Any]:
    """Run `sluicegate` as an operator would, and return its document."""
    command = [sys.executable, "-m", "sluicegate_cli", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, _FOUND_PROBLEMS):
        raise RuntimeError(f"{shlex.join(command)}: exit {done.returncode}\n{done.stderr}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def change(made: Made, *words: str | Path, sink: bool = True) -> dict[str, Any]:
    """Run a command that changes the checkpoint of a place, with the file sink if there is one."""
    has_log = sink and made.sink is not None and (made.sink / "_spark_metadata").is_dir()
    more = ["--sink", str(made.sink)] if has_log else []
    return sg(*words[:2], made.checkpoint, *words[2:], *more, "--yes", "--writer-gone")


def roll_back(made: Made, batches: int = 3) -> None:
    """Back by some batches; a sink that recognises batches forgets them, as the plan says."""
    to = made.log("offsets")[-1] - batches
    change(made, "checkpoint", "rollback", "--to", str(to))
    _let_forget(made, to)


def _let_forget(made: Made, newest: int) -> None:
    for path in made.sink.glob("batch=*.json") if made.sink else ():
        if int(path.stem.removeprefix("batch=")) > newest:
            path.unlink()


def roll_back_and_undo(made: Made) -> None:
    """Back, and forward again."""
    to = made.log("offsets")[-1] - 3
    change(made, "checkpoint", "rollback", "--to", str(to))
    sg("undo", made.checkpoint, "--yes", "--writer-gone")


def roll_back_twice(made: Made) -> None:
    """Back, and further back."""
    roll_back(made, 2)
    roll_back(made, 2)


def reset(made: Made) -> None:
    """Three entries of the source's log back."""
    change(made, "offsets", "reset", "--shift-by", "-3")
    if (made.checkpoint / "state").is_dir():
        _let_forget(made, made.log("offsets")[-1])


def reset_in_time(made: Made) -> None:
    """To where it was three batches ago, by the offset log's own time."""
    text = made.offsets(made.log("offsets")[-1] - 3).read_text()
    moment = int(json.loads(text.split("\n")[1])["batchTimestampMs"])
    when = datetime.fromtimestamp(moment / 1000, tz=UTC).isoformat(timespec="milliseconds")
    change(made, "offsets", "reset", "--to-datetime", when)


def move(made: Made) -> Ending:
    """The checkpoint to another place, with blanks and letters beyond ASCII in its path."""
    target = made.root.parent / "neuer Ort, ü" / "check point"
    kept = Kept.of(made.checkpoint)
    sg("checkpoint", "relocate", made.checkpoint, target, "--yes")
    return Ending("", made.root, target, untouched=kept)


def move_a_part(made: Made) -> Ending:
    """As if it was killed right before its end."""
    ending = move(made)
    assert ending.checkpoint
    barrier = ending.checkpoint / "offsets" / str(made.log("offsets")[-1] + 1)
    barrier.write_text(_NOT_COMPLETE)
    return ending


def move_nearly_nothing(made: Made) -> Ending:
    """As if it was killed right after its beginning: there is the barrier and nothing else."""
    ending = move_a_part(made)
    assert ending.checkpoint
    barrier = ending.checkpoint / "offsets" / str(made.log("offsets")[-1] + 1)
    for path in list(ending.checkpoint.rglob("*")):
        if path.is_file() and path != barrier:
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
    moves = f"{made.root / 'in'}={place / 'in'}"
    target = place / "checkpoint"
    sg("checkpoint", "relocate", made.checkpoint, target, "--map", moves, "--yes")
    return Ending("", place, untouched=kept)


def roll_back_into(made: Made) -> Ending:
    """A copy, three batches back."""
    to = made.log("offsets")[-1] - 3
    ending = _change_copy(made, "checkpoint", "rollback", "--to", str(to))
    _let_forget(made, to)
    return ending


def reset_into(made: Made) -> Ending:
    """A copy, three entries of the source's log back."""
    return _change_copy(made, "offsets", "reset", "--shift-by", "-3")


def _change_copy(made: Made, *words: str) -> Ending:
    target = made.root.parent / "a copy"
    kept = Kept.of(made.checkpoint)
    change(made, *words, "--into", target, sink=False)
    return Ending("", made.root, target, untouched=kept)


def seed_anew(made: Made) -> Ending:
    """A fresh checkpoint where the query stopped, and a new output."""
    place = made.root.parent / "seeded"
    kept = Kept.of(made.root)
    offset = made.offsets(made.log("offsets")[-1]).read_text().split("\n")[2]
    assert made.sink
    sg("checkpoint", "seed", place / "checkpoint", "--source-offset", offset, "--yes")
    written = [json.loads(path.read_text()) for path in sorted(made.sink.glob("batch=*.json"))]
    rows = tuple(row for rows in written for row in rows)
    return Ending("", place, before=rows, untouched=kept)


def interrupt(made: Made) -> None:
    """A rollback that was killed right before its end."""
    before = made.log("offsets")[-1]
    roll_back(made)
    (made.checkpoint / "offsets" / str(before + 1)).write_text(_INTERRUPTED)


def mend(damage: Damage) -> Callable[[Made], None]:
    """Damage, then everything that repair offers, then the rollback that it advises."""

    def do(made: Made) -> None:
        try:
            damage.change(made)
        except (FileNotFoundError, ValueError, IndexError) as e:
            raise Untried("this checkpoint does not have what is damaged") from e
        reading = ["--read-data"] if damage.read_data else []
        plan = change(made, "checkpoint", "repair", *reading)
        commands = [choice["command"] for choice in plan["choices"]]
        advised = [_ROLLBACK.search(command) for command in commands]
        batches = [int(found["batch"]) for found in advised if found]
        if batches:
            change(made, "checkpoint", "rollback", "--to", str(batches[0]))
        elif plan["choices"] or not plan["actions"]:
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
