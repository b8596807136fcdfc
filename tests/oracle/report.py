"""Where `sg` and Spark disagree: classes of disagreement, and the page that lists them."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.lab.environments import ROOT
from tests.oracle.kinds import KINDS
from tests.oracle.trial import Repaired, Trial, Truth, Verdict

PAGE = ROOT / "docs" / "results" / "oracle.md"
KEPT = ROOT / "build" / "lab" / "oracle"

MISSED_FAILURE = "missed failure"
MISSED_OUTPUT = "missed wrong output"
FALSE_ALARM = "false alarm"
NO_VERDICT = "verify broke"
REPAIR_FAILS = "repair broke"
NO_START = "repaired, does not start"
UNANNOUNCED = "repaired, loss or duplication not announced"
CLASSES = (
    MISSED_FAILURE, MISSED_OUTPUT, FALSE_ALARM, NO_VERDICT, REPAIR_FAILS, NO_START, UNANNOUNCED,
)  # fmt: skip
# Refusals with a documented exit code are verdicts; anything else is a defect of the command.
_VERDICTS = (0, 3, 10, 11, 12, 14)
_COSTS = re.compile(r"would skip|twice|begins? anew|(?<!nothing )(are|is) lost")
HEAD = """# Oracle: `sg` against Spark

The lab damages healthy checkpoints of every kind, one way at a time. `sg checkpoint verify` gives
its verdict. Real Spark restarts the query twice on the damaged files, and then on the result of
each repair. The lab compares the output with that of a run without interruption. Spark is right by
definition. `make lab PART=oracle` makes this page.

- *missed failure*: Spark does not start, and `verify --read-data` finds no error
- *missed wrong output*: Spark starts and loses or duplicates rows, and no error was found
- *false alarm*: an error was found, and Spark starts with the right output
- *verify broke*, *repair broke*: the command itself failed or did not end
- *repaired, does not start*: `repair`, or a choice it offers, ends in a query that does not start
- *repaired, loss or duplication not announced*: rows are lost or duplicated, and the plan did not
  say so

"""


def parse(line: str) -> Trial:
    """Return a trial from its line in a file."""
    fields = json.loads(line)
    repairs = tuple(
        Repaired(**{**each, "truth": Truth(**each["truth"]) if each["truth"] else None})
        for each in fields.pop("repairs")
    )
    for name in ("verify", "read_data"):
        found = fields[name]
        fields[name] = Verdict(found["exit"], tuple(found["errors"]), tuple(found["warnings"]))
    return Trial(**{**fields, "truth": Truth(**fields["truth"])}, repairs=repairs)


def differences(trial: Trial) -> list[str]:
    """Return in which ways `sg` and Spark disagree about a damage."""
    found = []
    alarmed = bool(trial.read_data.errors) or trial.read_data.exit not in (0, 3)
    if any(verdict.exit not in _VERDICTS for verdict in (trial.verify, trial.read_data)):
        found.append(NO_VERDICT)
    elif trial.truth.error and not alarmed:
        found.append(MISSED_FAILURE)
    elif not trial.truth.is_right and not alarmed:
        found.append(MISSED_OUTPUT)
    elif trial.truth.is_right and alarmed:
        found.append(FALSE_ALARM)
    return found + sorted({each for repair in trial.repairs for each in _of_repair(trial, repair)})


def _of_repair(trial: Trial, repair: Repaired) -> Iterator[str]:
    if repair.exit not in _VERDICTS:
        yield REPAIR_FAILS
    elif repair.truth and repair.truth.error:
        yield NO_START
    elif repair.truth and not repair.truth.is_right and not announced(trial.kind, repair):
        yield UNANNOUNCED


def announced(kind: str, repair: Repaired) -> bool:
    """Whether a repair says that rows may be lost or duplicated in the sink of this kind.

    Spark's file sink is told apart because its own log keeps it from both.
    """
    cost = repair.gives_up or repair.said
    if cost.startswith("nothing in Spark's own file sink"):
        return _sink(kind) == "foreachBatch"
    if repair.gives_up:
        return not cost.startswith("nothing")
    return bool(_COSTS.search(cost))


def _sink(kind: str) -> str:
    return next(each.sink for each in KINDS if each.name == kind)


def write(page: Path) -> None:
    """Write the page about all versions that have been tried."""
    studies = {
        path.stem.removeprefix("trials-"): [parse(line) for line in path.read_text().splitlines()]
        for path in sorted(KEPT.glob("trials-*.jsonl"), reverse=True)
    }
    page.parent.mkdir(parents=True, exist_ok=True)
    parts = [HEAD, *_summary(studies)]
    for version, trials in studies.items():
        parts += [f"\n## Spark {version}\n\n", *_by_kind(trials), "\n", *_classes(trials)]
    page.write_text("".join(parts))


def _summary(studies: dict[str, list[Trial]]) -> Iterator[str]:
    yield "| | " + " | ".join(f"Spark {version}" for version in studies) + " |\n"
    yield "|---" * (len(studies) + 1) + "|\n"
    rows: dict[str, list[int] | list[str]] = {
        "cases": [len(trials) for trials in studies.values()],
        "cells (kind × file × damage) visited": [
            _visited(version, trials) for version, trials in studies.items()
        ],
        "pairs of file and damage visited": [
            len({(t.role, t.damage) for t in trials}) for trials in studies.values()
        ],
        "Spark does not start": [
            sum(t.truth.error is not None for t in trials) for trials in studies.values()
        ],
        "Spark starts, output wrong": [
            sum(not t.truth.error and not t.truth.is_right for t in trials)
            for trials in studies.values()
        ],
        "repairs restarted": [
            sum(r.truth is not None for t in trials for r in t.repairs)
            for trials in studies.values()
        ],
    }
    for name in CLASSES:
        rows[f"**{name}**"] = [
            sum(name in differences(trial) for trial in trials) for trials in studies.values()
        ]
    rows["warning on a healthy restart"] = [
        sum(t.truth.is_right and bool(t.read_data.warnings) for t in trials)
        for trials in studies.values()
    ]
    for name, counts in rows.items():
        yield f"| {name} | " + " | ".join(str(count) for count in counts) + " |\n"


def _visited(version: str, trials: list[Trial]) -> str:
    visited = len({(trial.kind, trial.role, trial.damage) for trial in trials})
    total = KEPT / f"cells-{version}"
    return f"{visited} of {total.read_text()}" if total.is_file() else str(visited)


def _by_kind(trials: list[Trial]) -> Iterator[str]:
    yield "| kind | cases | " + " | ".join(CLASSES) + " |\n"
    yield "|---" * (len(CLASSES) + 2) + "|\n"
    kinds = dict.fromkeys(trial.kind for trial in trials)
    for kind in sorted(kinds):
        own = [trial for trial in trials if trial.kind == kind]
        counts = Counter(name for trial in own for name in differences(trial))
        cells = " | ".join(str(counts[name] or "") for name in CLASSES)
        yield f"| {kind} | {len(own)} | {cells} |\n"


def _classes(trials: list[Trial]) -> Iterator[str]:
    """Yield each class of disagreement by file and damage, with the kinds and an example."""
    for name in CLASSES:
        groups: dict[tuple[str, str], list[Trial]] = defaultdict(list)
        for trial in trials:
            if name in differences(trial):
                groups[trial.role, trial.damage].append(trial)
        if not groups:
            continue
        yield f"\n### {name}: {sum(map(len, groups.values()))}\n\n"
        yield "| file | damage | kinds | example |\n|---|---|---|---|\n"
        for (role, damage), found in sorted(groups.items()):
            kinds = ", ".join(dict.fromkeys(trial.kind for trial in found))
            yield f"| {role} | {damage} | {kinds} | {_example(name, found[0])} |\n"


def _example(name: str, trial: Trial) -> str:
    """Return what was seen of one disagreement, as a cell of a table."""
    truth, said = trial.truth, ""
    if name in (FALSE_ALARM, NO_VERDICT):
        said = f"exit {trial.read_data.exit} {', '.join(trial.read_data.errors)}"
    elif name in (REPAIR_FAILS, NO_START, UNANNOUNCED):
        repair = next(r for r in trial.repairs if name in _of_repair(trial, r))
        truth = repair.truth or truth
        said = repair.command or "repair"
        if name == REPAIR_FAILS:
            return _cell(f"{trial.detail}: {said}: exit {repair.exit}, {repair.said}")
    lost = f"{truth.missing} rows missing, {truth.extra} too many" if not truth.error else ""
    seen = "" if truth.is_right else truth.error or lost
    return _cell(": ".join(part for part in (trial.detail, said, seen) if part))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:220]


def known(trials: Iterable[Trial]) -> dict[str, list[str]]:
    """Return the disagreements by the name of their damage."""
    found = {trial.name: differences(trial) for trial in trials}
    return {name: classes for name, classes in found.items() if classes}
