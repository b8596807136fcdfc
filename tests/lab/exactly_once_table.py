"""Everything that kills a gated job: `python -m tests.lab.exactly_once_table [NAME …]`.

Writes docs/results/exactly-once.md; fails if anything was lost, duplicated or wrong. With names,
only those scenarios are tried, and the page keeps the results of the others.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from dataclasses import asdict
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

from sluicegate.errors import SluicegateError
from tests.lab.environments import ROOT
from tests.lab.exactly_once import JobFailed
from tests.lab.exactly_once_scenarios import SCENARIOS

PAGE = ROOT / "docs" / "results" / "exactly-once.md"
KEPT = ROOT / "build" / "lab" / "exactly-once-results.json"
HEAD = """# Exactly once under kills

Producers write to an embedded log, each in its own process. They send some records twice, send
records out of order, leave gaps, write invalid lines, send the same record to two partitions, and
are killed every few seconds. After a restart they send what is still in their outbox. The job of a
gated stream reads that log. `sluicegate submit` starts it, SIGKILL ends it together with its JVM,
and `submit` starts it again. After every kill the lab compares the state with what was produced up
to the positions of the head. At the end the job reads the rest. Then

- the state of every key,
- every published row, and that it is published once,
- every rejected record, with its bytes,

must equal what a few lines of Python compute from the files of the log with a set and dictionaries
(`tests/job/truth.py`), without any code of Sluicegate. `audit --read-data` and `checkpoint verify`
must agree. `make lab PART=exactly-once` makes this page; three kills are part of `make test`.

"""
_STEPS = """
The steps at which it was killed: {steps}. Up to `ready`
nothing of the epoch remains; from `committed` on all of it does, and the next start publishes what
is not published yet.
"""


def main(names: list[str]) -> int:
    """Try everything, write the page, and give 1 if anything was not as it must be."""
    known: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    wrong = 0
    for name in names or SCENARIOS:
        with tempfile.TemporaryDirectory(prefix=f"exactly-once-{name}-") as scratch:
            try:
                found = SCENARIOS[name](Path(scratch) / "lab")
            except (AssertionError, JobFailed, OSError, SluicegateError, SubprocessError):
                traceback.print_exc()
                known.pop(name, None)
                wrong += 1
                continue
        print(found, flush=True)
        known[name] = asdict(found)
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text(json.dumps(known, indent=1))
    PAGE.write_text(HEAD + _table(known) + _more(known))
    return 1 if wrong else 0


def _table(known: dict[str, Any]) -> str:
    columns = {
        "what was done": "name",
        "kills of the job": "kills",
        "of producers": "producer_kills",
        "epochs": "epochs",
        "records": "records",
        "duplicates": "duplicates",
        "rejects": "rejects",
        "events": "events",
        "lost": "lost",
        "duplicated": "duplicated",
    }
    lines = ["| " + " | ".join(columns) + " |"]
    lines.append("|---" + "|--:" * (len(columns) - 1) + "|")
    for name in SCENARIOS:
        if name in known:
            cells = [known[name].get(field, 0) for field in columns.values()]
            told = [f"{cell:,}" if isinstance(cell, int) else cell for cell in cells]
            lines.append("| " + " | ".join(told) + " |")
    return "\n".join(lines) + "\n"


def _more(known: dict[str, Any]) -> str:
    text = ""
    if "steps" in known:
        text += _STEPS.format(steps=", ".join(f"`{step}`" for step in known["steps"]["done"]))
    for name in ("operators", "two", "cluster"):
        if name in known:
            done = [f"`{each}`" if name == "operators" else each for each in known[name]["done"]]
            title = f"{known[name]['name'].capitalize()}:"
            text += "\n".join(["", title, "", *(f"- {each}" for each in done), ""])
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *SCENARIOS])
    sys.exit(main(parser.parse_args().names))
