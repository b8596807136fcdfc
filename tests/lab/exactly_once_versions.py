"""The gated job on every version of PySpark: `python -m tests.lab.exactly_once_versions`.

For each version the job is killed at every step of an epoch and at random moments. Stops after
`--minutes`; results are kept, and the next run goes on from there. A change of what the job runs
makes them void, and so does `--forget`. Writes docs/results/versions.md; fails if anything was
lost, duplicated or wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from sluicegate.spark.submit.launcher import find_spark_submit, require_java
from tests.lab.environments import JOB_VERSIONS, ROOT, job_environment
from tests.lab.exactly_once_scenarios import Scenario, at_every_step, at_random

PAGE = ROOT / "docs" / "results" / "versions.md"
KEPT = ROOT / "build" / "lab" / "versions-results.json"
RANDOM_KILLS = 12
SCENARIOS: dict[str, Callable[[Path], Scenario]] = {
    "steps": at_every_step,
    "random": partial(at_random, kills=RANDOM_KILLS),
}
_RUN_BY_JOBS = ("job", "stream", "dedup", "state", "sources", "sinks", "storage", "spark/submit")
_PACKAGES = ("pandas", "pyarrow", "numpy")
_LEFT = 2
HEAD = """# The gated job on every version of PySpark

The same job, started with `sluicegate submit`, on every version of PySpark: killed with SIGKILL at
each named step of an epoch, and at random moments while it starts, works or waits. Producers in
processes of their own write meanwhile, send records twice and out of order, and are killed, too.
[Exactly once under kills](exactly-once.md) describes them and the comparison. `lost` and
`duplicated` are counted in the published files by `tests/job/truth.py`, without any code of
Sluicegate. `make lab PART=versions` makes this page, in an hour at the most.

"""


class Trial(NamedTuple):
    """A scenario on a version."""

    version: str
    scenario: str

    @property
    def key(self) -> str:
        return f"{self.version} {self.scenario}"


def main(arguments: list[str]) -> int:
    """Try what there is time for, and write the page; 2 while something is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", choices=JOB_VERSIONS, metavar="VERSION")
    parser.add_argument("--minutes", type=float, default=55)
    parser.add_argument("--forget", action="store_true", help="drop the results of earlier runs")
    parser.add_argument("--trial", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.trial:
        return _trial(asked.trial[0], Path(asked.trial[1]))
    until = time.monotonic() + asked.minutes * 60
    results = {} if asked.forget else _kept()
    versions = [asked.spark] if asked.spark else JOB_VERSIONS
    wanted = [Trial(version, name) for version in versions for name in SCENARIOS]
    wrong = _try([each for each in wanted if each.key not in results], results, until)
    PAGE.write_text(HEAD + _table(results))
    left = [each.key for each in wanted if each.key not in results]
    print("\n".join([_table(results), *(f"left: {key}" for key in left)]))
    return 1 if wrong else _LEFT * bool(left)


def _try(todo: list[Trial], results: dict[str, Any], until: float) -> int:
    """Try scenarios on versions until the time is over; return how many went wrong."""
    wrong = 0
    for trial in todo:
        if time.monotonic() > until:
            break
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "result.json"
            words = ["-m", "tests.lab.exactly_once_versions", "--trial", trial.scenario, str(file)]
            done = subprocess.run([job_environment(trial.version), *words], cwd=ROOT, check=False)
            if done.returncode:
                print(f"{trial.key} is wrong", flush=True)
                wrong += 1
                continue
            results[trial.key] = json.loads(file.read_text())
        print(trial.key, results[trial.key], flush=True)
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text(json.dumps({"product": _product(), "results": results}, indent=1))
    return wrong


def _trial(name: str, file: Path) -> int:
    """Run one scenario with the running Python; what went wrong is a traceback."""
    with tempfile.TemporaryDirectory(prefix=f"versions-{name}-") as scratch:
        found = SCENARIOS[name](Path(scratch) / "lab")
    versions = {package: metadata.version(package) for package in ("pyspark", *_PACKAGES)}
    versions |= {
        "java": str(require_java(find_spark_submit(None).spark).major),
        "python": sys.version.split()[0],
    }
    file.write_text(json.dumps(asdict(found) | versions))
    return 0


def _kept() -> dict[str, Any]:
    """The results of earlier runs of the same product."""
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    results: dict[str, Any] = known["results"] if known.get("product") == _product() else {}
    return results


def _product() -> str:
    """A hash of the code that jobs run."""
    hashed = hashlib.sha256()
    for package in _RUN_BY_JOBS:
        for file in sorted((ROOT / "core" / "sluicegate" / package).rglob("*.py")):
            hashed.update(file.read_bytes())
    return hashed.hexdigest()


def _table(results: dict[str, Any]) -> str:
    names = {"kills": "kills of the job", "producer_kills": "of producers"}
    counts = ["kills", "producer_kills", "epochs", "records", "duplicates", "rejects", "events"]
    counts += ["lost", "duplicated"]
    cells = ["PySpark", "with", "what was done", *(names.get(each, each) for each in counts)]
    lines = ["| " + " | ".join(cells) + " |", "|---|---|---" + "|--:" * len(counts) + "|"]
    for version in JOB_VERSIONS:
        for scenario in SCENARIOS:
            if found := results.get(Trial(version, scenario).key):
                cells = [version, _with(found), found["name"]]
                cells += [f"{found[each]:,}" for each in counts]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _with(found: dict[str, Any]) -> str:
    packages = ", ".join(f"{each} {found[each]}" for each in _PACKAGES)
    return f"Java {found['java']}, Python {found['python']}, {packages}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
