"""Small patches that each make the product wrong; the suite must notice every one of them.

A patch is exact text, so that moved or rewritten code must carry its defect along:
`test_mutants.py` fails when one no longer applies. `tests` are those that must catch it, as pytest
takes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "cli")


@dataclass(frozen=True, slots=True)
class Defect:
    """A patch to the one file whose path ends with `file`, and the tests that must fail for it."""

    name: str
    why: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def places(self, root: Path = ROOT) -> list[Path]:
        """The files it could apply to, once for every time its old text is there."""
        return [
            path
            for path in _sources(root)
            if path.as_posix().endswith(f"/{self.file}")
            for _ in range(path.read_text().count(self.old))
        ]

    def patched(self, root: Path = ROOT) -> tuple[Path, str]:
        """The file it applies to, and what that file is to hold."""
        (path,) = self.places(root)
        return path, path.read_text().replace(self.old, self.new)


def _sources(root: Path) -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((root / package).rglob("*.py"))


DEFECTS = (
    Defect(
        "content-not-fsynced",
        "after a power loss a snapshot has a name and no content",
        "storage/local.py",
        """                    self._calls.write(fd, piece)
                self._calls.sync(fd)
""",
        """                    self._calls.write(fd, piece)
""",
        ("tests/stream/test_crash.py::test_a_genesis_is_before_or_after_at_every_cut",),
    ),
    Defect(
        "directory-not-fsynced",
        "after a power loss an acknowledged snapshot is gone",
        "storage/local.py",
        """            created = not _exists(directory, name) and self._link(directory, name, data)
            self._calls.sync(directory)
""",
        """            created = not _exists(directory, name) and self._link(directory, name, data)
""",
        ("tests/stream/test_crash.py::test_a_genesis_is_before_or_after_at_every_cut",),
    ),
    Defect(
        "nonce-not-compared",
        "a writer whose number was taken by another one believes that its own snapshot is there",
        "stream/chain.py",
        "        if not created and self.read(snapshot.number).nonce != snapshot.nonce:\n",
        "        if not created and self.read(snapshot.number).number != snapshot.number:\n",
        ("tests/stream/test_stream.py::TestGenesis", "tests/stream/test_stream.py::TestClaim"),
    ),
    Defect(
        "generation-not-compared",
        "a job commits on top of a rollback that it has not seen",
        "stream/append.py",
        "        if snapshot.generation != self.epoch.generation:\n",
        "        if snapshot.generation < self.epoch.generation:\n",
        ("tests/stream/test_stream.py::TestCommit::test_stale_generation",),
    ),
    Defect(
        "checksum-not-checked",
        "a flipped bit in a frame is read as if it were true",
        "sluicegate/codec.py",
        "    if _digest(data[:32], body) != header.digest:\n",
        "    if len(_digest(data[:32], body)) != len(header.digest):\n",
        ("tests/core/test_codec.py",),
    ),
    Defect(
        "barrier-after-the-edits",
        "a kill in the middle leaves a checkpoint that Spark starts from",
        "checkpoint/edit.py",
        """    _raise_barrier(storage, record)
    storage.put_if_absent(_key(record, "begun"), b"")
    last = None
    for file in record.files:
        if _is_barrier(record, file):
            last = file
        else:
            _put_in_place(roots, record, file)
""",
        """    last = None
    for file in record.files:
        if _is_barrier(record, file):
            last = file
        else:
            _put_in_place(roots, record, file)
    _raise_barrier(storage, record)
    storage.put_if_absent(_key(record, "begun"), b"")
""",
        ("tests/checkpoint/test_change.py::test_cut_at_every_call[reset]",),
    ),
    Defect(
        "barrier-down-too-early",
        "a kill while an edit is undone leaves a checkpoint that Spark starts from",
        "checkpoint/edit.py",
        """    storage.put_if_absent(_key(record, "undone"), b"")
    for file in reversed(record.files):
""",
        """    storage.put_if_absent(_key(record, "undone"), b"")
    storage.delete(record.barrier)
    for file in reversed(record.files):
""",
        ("tests/checkpoint/test_change.py::test_an_undo_cut_at_every_call",),
    ),
    Defect(
        "undo-forgets-checksums",
        "undo leaves files without the checksums that Hadoop had of them",
        "checkpoint/edit.py",
        "        old = Linked(_kept(record, file)) if file.had_old else None\n",
        """        had = file.had_old and not file.key.endswith(".crc")
        old = Linked(_kept(record, file)) if had else None
""",
        ("tests/formats/test_checkpoints.py::TestWhole",),
    ),
    Defect(
        "interval-one-too-long",
        "the event after the newest one seen is dropped as a duplicate",
        "dedup/intervals.py",
        "        found: Column = (at >= 0) & (points < self._end[at])\n",
        "        found: Column = (at >= 0) & (points <= self._end[at])\n",
        ("tests/dedup/test_ledger.py",),
    ),
    Defect(
        "completeness-of-shards-left-out",
        "an epoch commits without the state of a shard whose task was lost",
        "state/backend.py",
        "    if missing := sorted(set(shards) - results.keys()):\n",
        "    if missing := sorted(set() - results.keys()):\n",
        ("tests/stream/test_state.py::TestMemory",),
    ),
    Defect(
        "completeness-of-records-left-out",
        "an epoch commits positions of records that no task has read",
        "job/epoch.py",
        """    if work.dense and counts["read"] != asked:\n""",
        """    if work.dense and counts["read"] > asked:\n""",
        ("tests/job/test_folding.py",),
    ),
    Defect(
        "rows-to-any-task",
        "rows of a shard reach a task that does not fold it",
        "job/epoch.py",
        "[coalesce({column}, 0)]",
        "[coalesce({column} + 1, 0) % {count}]",
        ("tests/job/test_routing.py",),
    ),
    Defect(
        "rows-of-others-folded",
        "a task folds rows of another task, and one of the two results is lost",
        "job/aggregate.py",
        "    if (rows[TARGET].to_numpy() != task).any():\n",
        "    if (rows[TARGET].to_numpy() > len(work.targets)).any():\n",
        ("tests/job/test_routing.py::test_a_task_that_gets_rows_of_another_ends_the_epoch",),
    ),
    Defect(
        "reverted-epoch-published",
        "readers see the output of an epoch that was rolled back",
        "stream/output.py",
        "        if kinds and self._stream.chain.head().includes(snapshot.number):\n",
        "        if kinds and self._stream.chain.head().number >= snapshot.number:\n",
        ("tests/job/test_sink.py::TestRollback",),
    ),
    Defect(
        "output-compared-by-number",
        "an old backup is restored, and its events are published twice",
        "stream/output.py",
        "            return self._stream.chain.read(name.number).nonce == name.nonce\n",
        "            return self._stream.chain.read(name.number).number == name.number\n",
        ("tests/stream/test_backups.py",),
    ),
    Defect(
        "sink-not-fenced",
        "a frozen writer wakes up and publishes what was rolled back",
        "sinks/files.py",
        "        for other in others:\n",
        "        for other in others[:0]:\n",
        ("tests/sinks", "tests/stream/test_backups.py"),
    ),
    Defect(
        "pruned-number-comes-back",
        "a frozen writer wakes up and forks the chain",
        "stream/chain.py",
        "            if hint and hint.floor > snapshot.number:\n",
        "            if hint and hint.floor > snapshot.number + 2**40:\n",
        ("tests/stream/test_races.py",),
    ),
    Defect(
        "slice-not-read",
        "an epoch commits positions of a slice that no task has read",
        "job/epoch.py",
        "    for topic, partition, start, end in planned - found:\n",
        "    for topic, partition, start, end in planned - planned:\n",
        ("tests/job/test_folding.py",),
    ),
    Defect(
        "living-writer-not-refused",
        "a checkpoint is edited under a running job",
        "checkpoint/writers.py",
        "    if verdict is Verdict.QUIET or (accept_possible and",
        "    if verdict is not None or (accept_possible and",
        (
            "tests/checkpoint/test_change_commands.py::test_young_files_are_refused_unless_the_operator_knows",
        ),
    ),
    Defect(
        "drift-not-checked",
        "an approved plan is applied to something else than what was approved",
        "sluicegate/journal.py",
        """    if moved:
        more = f", and""",
        """    if moved and len(moved) > len(found):
        more = f", and""",
        ("tests/offsets/test_plans.py::TestDrift",),
    ),
    Defect(
        "store-lock-not-taken",
        "of two consumers that commit at once one loses its commit",
        "offsets/store.py",
        """        with lock.hold(timeout=self._timeout):
            yield
""",
        """        yield
""",
        (
            "tests/offsets/test_processes.py::test_killed_writers_lose_nothing_and_readers_see_complete_commits",
        ),
    ),
    Defect(
        "newer-state-kept-by-rollback",
        "Spark loads state of batches that were rolled back",
        "checkpoint/operations/rollback.py",
        """                if file.version > entry.batch + 1:
                    yield from remove_with_sums""",
        """                if file.version > entry.batch + 2:
                    yield from remove_with_sums""",
        ("tests/checkpoint/test_change.py::TestRollback",),
    ),
    Defect(
        "empty-commit-not-found",
        "verify calls a checkpoint intact from which Spark does not start",
        "checkpoint/rules/commits.py",
        "            yield layout.unreadable(look, COMMIT_EMPTY, e)\n",
        "            del e\n            return\n",
        ("tests/checkpoint/test_lab.py::test_damage",),
    ),
    Defect(
        "secret-shown",
        "a password of the Spark configuration is on the screen, and in the log of the CI",
        "spark/submit/command.py",
        """HIDDEN if _NAME.search(key) and value else _masked(value)}""",
        """_masked(value)}""",
        ("tests/spark/test_parts.py",),
    ),
)
