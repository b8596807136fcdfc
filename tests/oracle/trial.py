"""One damage tried: what `sg` says of it, what Spark makes of it, and what each repair leads to."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests import drive
from tests import tree as trees
from tests.drive import Done, Driver
from tests.oracle.bases import RESTARTS, Base, scratch_root, with_id
from tests.oracle.damages import Damage
from tests.oracle.files import plain
from tests.oracle.spark import Spark, obey_permissions
from tests.tree import Entry, Tree

_METADATA = "checkpoint/metadata"
_SECONDS_OF_SG = 20
_SECONDS_OF_SPARK = 60
_SECONDS_AT_A_FIFO = 10
_TRIES_WHILE_ACTIVE = 20
_ACTIVE = "already active"
# A time limit was reached: that of the runner, of its caller, or Spark's for a Python worker.
_TOO_BUSY = ("the query did not end", "no answer within", "Python worker failed to connect")
_HEALTHY = (0, 3)
_IDENTITY = re.compile(rb'\{"id":"[0-9a-f-]{36}"\}')
# The id of a query, offsets or a directory, which the operator is to put in.
_PLACEHOLDER = re.compile(r"\b(UUID|FILE|NEW_DIR|ORIGINAL|BATCH)\b")


@dataclass(frozen=True, slots=True)
class Truth:
    """What Spark made of it: why it did not start, or how many rows are missing and too many."""

    error: str | None
    missing: int
    extra: int
    stage: int

    @property
    def is_right(self) -> bool:
        """Whether it started, and its output is that of a run that nobody interrupted."""
        return not (self.error or self.missing or self.extra)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a command says: its exit code, and the codes of errors and warnings."""

    exit: int
    errors: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Repaired:
    """One way out that `repair` offers: what it promises and costs, and what Spark made of it.

    `exit` is that of the last command; where it failed, or something had to be known that is not,
    there is no truth.
    """

    what: str
    command: str
    gives_up: str
    exit: int
    truth: Truth | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """Everything that was found out about one damage."""

    kind: str
    role: str
    damage: str
    detail: str
    truth: Truth
    verify: Verdict
    read_data: Verdict
    repairs: tuple[Repaired, ...] = ()
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """The damage's name."""
        return f"{self.kind} | {self.role} | {self.damage} | {self.detail}"


@contextmanager
def command_line() -> Iterator[Driver]:
    """A process that runs `sg`, for which permissions count even if it is root's."""
    process = subprocess.Popen(
        [sys.executable, drive.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=obey_permissions,  # noqa: PLW1509  # the child only drops capabilities
    )
    try:
        yield Driver(process)
    finally:
        process.communicate(timeout=60)


class Judge:
    """Asks Spark, and remembers its answers: the same files have the same future.

    What Spark makes of files does not depend on the product, so the answers of an earlier run
    count as long as its bases do.
    """

    def __init__(self, spark: Spark, kept: Path) -> None:
        self._spark, self._kept = spark, kept
        self._lock = threading.Lock()
        self.asked = 0
        lines = kept.read_text().splitlines() if kept.is_file() else []
        self._known = {key: Truth(**truth) for key, truth in map(json.loads, lines)}

    def truth(self, base: Base, place: Path, checkpoint: Path | None = None) -> Truth:
        """Restart the query of a place, and return what comes of it."""
        key = self._key(base, place, checkpoint)
        with self._lock:
            if key in self._known:
                return self._known[key]
        found = self._ask(base, place, checkpoint)
        with self._lock, self._kept.open("a") as stream:
            self._known[key] = found
            self.asked += 1
            stream.write(json.dumps([key, asdict(found)]) + "\n")
        return found

    def _key(self, base: Base, place: Path, checkpoint: Path | None) -> str:
        """Return a digest of all that Spark can see, whatever id this trial has been given."""
        tree = {n: e for n, e in trees.load(place).items() if "sluicegate" not in n}
        metadata = tree.get(_METADATA)
        if metadata and metadata.shape == "file" and _IDENTITY.fullmatch(metadata.data):
            del tree[_METADATA]
            hidden = tree.get(trees.sum_name(_METADATA))
            if hidden and hidden.data == trees.hadoop_sum(metadata.data):
                del tree[trees.sum_name(_METADATA)]
            tree["id"] = Entry(shape="twin" if metadata == base.twin[_METADATA] else "own")
        where = checkpoint.name if checkpoint else ""
        return f"{base.kind.name}/{where}/{trees.digest(tree)}"

    def _ask(self, base: Base, place: Path, checkpoint: Path | None) -> Truth:
        before = trees.load(place)
        hangs = any(entry.shape == "fifo" for entry in before.values())
        seconds = _SECONDS_AT_A_FIFO if hangs else _SECONDS_OF_SPARK
        for attempt in range(_TRIES_WHILE_ACTIVE):
            run = self._spark.run(
                base.kind, place, RESTARTS, checkpoint=checkpoint, seconds=seconds
            )
            if run.error and _ACTIVE in run.error:
                # Another trial of the same id: only where `metadata` itself is damaged.
                time.sleep(0.5)
            elif (
                run.error
                and not attempt
                and not hangs
                and any(sign in run.error for sign in _TOO_BUSY)
            ):
                # It may be the machine that is slow: once more, from where it began.
                trees.remove(place)
                trees.write(before, place)
            else:
                break
        if run.error:
            return Truth(_shortened(run.error, place), 0, 0, run.stage)
        expected, found = Counter(base.expected), Counter(run.rows)
        missing, extra = (expected - found).total(), (found - expected).total()
        return Truth(None, missing, extra, run.stage)


@dataclass(slots=True)
class Examiner:
    """Tries damages of one base, in directories of its own."""

    base: Base
    judge: Judge
    sg: Driver
    _places: list[Path] = field(default_factory=list)

    def attempt(self, damage: Damage, *, repairs: bool = True) -> Trial:
        """Try a damage, and leave nothing behind."""
        began = time.monotonic()
        try:
            tree = self._identified(damage.tree())
            place = self._place(tree)
            verify = self._verify(place)
            read_data = self._verify(place, "--read-data")
            truth = self._truth(place)
            found = tuple(self._repairs(tree)) if repairs else ()
        finally:
            self._clean()
        return Trial(
            damage.kind,
            damage.role,
            damage.damage,
            damage.detail,
            truth,
            verify,
            read_data,
            found,
            round(time.monotonic() - began, 2),
        )

    def _identified(self, tree: Tree) -> Tree:
        healthy = self.base.now[_METADATA]
        return with_id(tree, uuid4()) if tree.get(_METADATA) == healthy else tree

    def _place(self, tree: Tree) -> Path:
        place = Path(tempfile.mkdtemp(prefix="oracle-", dir=scratch_root()))
        self._places.append(place)
        trees.write(tree, place)
        return place

    def _clean(self) -> None:
        for place in self._places:
            trees.remove(place)
        self._places.clear()

    def _sink(self, place: Path) -> list[str]:
        is_file_sink = self.base.kind.sink in ("parquet", "json")
        return ["--sink", str(place / "out")] if is_file_sink else []

    def _verify(self, place: Path, *more: str) -> Verdict:
        target = [str(place / "checkpoint"), *self._sink(place)]
        done = self._sg(place, "checkpoint", "verify", *target, *more, "--json")
        found = _document(done).get("findings", [])
        codes = {
            severity: tuple(sorted({f["code"] for f in found if f["severity"] == severity}))
            for severity in ("error", "warning")
        }
        return Verdict(done.code, codes["error"], codes["warning"])

    def _sg(self, place: Path, *words: str) -> Done:
        return self.sg(*words, cwd=place, seconds=_SECONDS_OF_SG)

    def _truth(self, place: Path, checkpoint: Path | None = None) -> Truth:
        return self.judge.truth(self.base, place, checkpoint)

    def _repairs(self, tree: Tree) -> Iterator[Repaired]:
        """Try what repair does by itself, or after that each of the choices it leaves."""
        place = self._place(tree)
        done, plan = self._repair(place)
        actions, choices = plan.get("actions", []), plan.get("choices", [])
        said = " ".join(plan.get("consequences", []))
        if done.code not in _HEALTHY:
            yield Repaired("repair", "", "", done.code, said=_said(done, place))
            return
        if actions and not choices:
            yield Repaired("repair", "", "", done.code, self._truth(place), said=said)
        seen = set()
        for number, choice in enumerate(choices):
            if not choice["command"] or choice["command"] in seen:
                continue
            seen.add(choice["command"])
            if number > 0:
                place = self._place(tree)
                plan = self._repair(place)[1]
                choice = plan["choices"][number]  # noqa: PLW2901  # the same one, of this copy
            yield self._choose(place, choice)

    def _repair(self, place: Path) -> tuple[Done, dict[str, Any]]:
        target = [str(place / "checkpoint"), *self._sink(place)]
        options = ["--read-data", "--yes", "--writer-gone", "--json"]
        done = self._sg(place, "checkpoint", "repair", *target, *options)
        return done, _document(done)

    def _choose(self, place: Path, choice: dict[str, Any]) -> Repaired:
        command = choice["command"].partition("  #")[0]
        words, checkpoint = self._filled(place, shlex.split(command)[1:])
        shown = plain(command.replace(str(place), "PLACE"))
        gives_up = choice["cost"]
        if words is None:
            return Repaired(choice["what"], shown, gives_up, 0, said="not tried: must be known")
        gone = [] if "seed" in words else ["--writer-gone"]
        done = self._sg(place, *words, "--yes", *gone, "--json")
        if done.code not in _HEALTHY:
            said = _said(done, place)
            return Repaired(choice["what"], shown, gives_up, done.code, said=said)
        truth = self._truth(place, checkpoint)
        return Repaired(choice["what"], shown, gives_up, done.code, truth)

    def _filled(self, place: Path, words: list[str]) -> tuple[list[str] | None, Path | None]:
        """Return a choice's words with what an operator who knows the truth would put in."""
        filled, checkpoint = [], None
        for word in words:
            if word == "UUID":
                filled.append(self.base.query_id)
            elif word == "NEW_DIR":
                checkpoint = place / "fresh"
                filled.append(str(checkpoint))
            elif word == "FILE":
                known = place / "offsets.json"
                exported = self._sg(place, "offsets", "export", str(place / "checkpoint"))
                positions = exported.stdout if "seed" in words else self._true_offsets()
                if not positions:
                    return None, None
                known.write_text(positions)
                filled.append(str(known))
            elif _PLACEHOLDER.fullmatch(word):
                return None, None
            else:
                filled.append(word)
        return filled, checkpoint

    def _true_offsets(self) -> str | None:
        """Return where the base stopped, if its offsets are those of topics."""
        newest = max(
            (name for name in self.base.now if re.fullmatch(r"checkpoint/offsets/\d+", name)),
            key=lambda name: int(name.rpartition("/")[2]),
        )
        last = self.base.now[newest].data.decode().split("\n")[-1]
        return last if self.base.kind.source == "kafka" else None


def _document(done: Done) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {}
    return found


def _said(done: Done, place: Path) -> str:
    """Return the error of a command, without the notes that come before it."""
    text = done.stderr or done.stdout
    return _shortened(text[max(0, text.find("{")) :], place)


def _shortened(text: str, place: Path) -> str:
    """Return the beginning of an error, without the place's own path and ids."""
    line = " ".join(text.split())
    return plain(line.replace(str(place), "PLACE"))[:300]
