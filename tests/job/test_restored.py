"""Backups of a stream, and of its log, restored under a real job: noticed, and nothing is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sluicegate.stream.output import OlderThanOutput
from sluicegate.stream.spec import RecordsLost, SourceChanged
from tests.conftest import Sg
from tests.job.jobs import NAME, Place
from tests.job.test_epochs import traffic
from tests.stream.streams import apply


@pytest.fixture
def place(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A stream that has read 300 records of each partition, and published them."""
    monkeypatch.chdir(tmp_path)
    place = Place(tmp_path, max_events=200).begin()
    for partition in range(2):
        place.append(partition, traffic(partition, f"p{partition}", partition, 0, 250))
    place.run(spark)
    return place


def codes(sg: Sg) -> set[str]:
    found = json.loads(sg("checkpoint", "verify", NAME, "--json").stdout)["findings"]
    return {each["code"] for each in found if each["severity"] == "error"}


@pytest.mark.parametrize("choice", ["adopt", "withdraw"])
def test_an_old_backup_of_the_home(place: Place, spark: Any, sg: Sg, choice: str) -> None:
    shutil.copytree(place.home, place.root / "backup")
    for partition in range(2):
        place.append(partition, traffic(7 + partition, f"p{partition}", partition, 250, 200))
    place.run(spark)
    place.check()
    shutil.rmtree(place.home)
    shutil.copytree(place.root / "backup", place.home)
    with pytest.raises(OlderThanOutput, match="that the chain does not have"):
        place.run(spark)
    assert codes(sg) == {"SG-CHAIN-OLDER"}
    shown = sg("checkpoint", "repair", NAME, "--dry-run")
    assert shown.returncode == 3
    assert "--adopt" in shown.stdout + shown.stderr
    assert sg("checkpoint", "repair", NAME, f"--{choice}", "--yes").returncode == 0
    assert codes(sg) == set()
    place.append(0, traffic(9, "p0", 0, 450, 50))
    place.run(spark)
    # What was read again is counted again, too: the backup had forgotten it.
    place.check()
    audit = sg("audit", NAME, "--json")
    assert audit.returncode == 0, audit.stdout


def restore(backup: Path, log: Path) -> None:
    """Put a copy in its place; the old files stay, so that their inodes are not used again."""
    log.rename(log.with_name(f"gone-{len(list(log.parent.glob('gone-*')))}"))
    shutil.copytree(backup, log)


class TestTheLog:
    def test_restored_and_written_to_again(self, place: Place, spark: Any, sg: Sg) -> None:
        log = Path(place.log.uri)
        shutil.copytree(log, place.root / "backup")
        more = traffic(5, "p0", 0, 250, 100)
        place.append(0, more)
        place.run(spark)
        shutil.copytree(log, place.root / "right")
        restore(place.root / "backup", log)
        with pytest.raises(SourceChanged, match=r"log\[0\] ends at"):
            place.run(spark)
        place.append(0, traffic(6, "other", 0, 0, 200))
        with pytest.raises(SourceChanged, match=r"log\[0\] has another record at"):
            place.run(spark)
        assert codes(sg) == {"SG-SOURCE-CHANGED"}
        restore(place.root / "right", log)
        place.run(spark)
        place.check()

    def test_of_which_the_new_records_are_right(self, place: Place, spark: Any, sg: Sg) -> None:
        """The operator moves the stream back to where they differ; the dedup log does the rest."""
        log = Path(place.log.uri)
        backup = place.log.latest()
        shutil.copytree(log, place.root / "backup")
        place.append(0, traffic(5, "p0", 0, 250, 100))
        place.run(spark)
        before = place.head.sequence
        restore(place.root / "backup", log)
        fresh = [row for row in traffic(6, "other", 0, 0, 200) if not isinstance(row, bytes)]
        place.append(0, fresh)
        at = backup.get("log", 0)
        words = ("offsets", "reset", NAME, "--topic", "log:0", "--to-offset", str(at))
        assert sg(*words, "--skip-seen", "--yes").returncode == 0
        place.run(spark)
        assert place.head.sequence == before + len({row["seq"] for row in fresh})
        assert codes(sg) == set()

    def test_trimmed_below_what_a_rollback_reads(self, place: Place, spark: Any, sg: Sg) -> None:
        first = place.stream.chain.read(2)
        moved = [f"{p.topic}[{p.partition}]" for p in place.head.positions]
        assert moved
        for partition in range(2):
            place.log.trim(partition, place.log.end(partition))
            segment = Path(place.log.uri) / f"partition-{partition}"
            [path] = segment.glob("*.jsonl")
            # As if its writer had begun a new segment, and the old one had been trimmed.
            path.rename(segment / f"{place.log.end(partition):020d}.jsonl").write_bytes(b"")
        with pytest.raises(RecordsLost, match="would be read again from"):
            apply(place.stream, "rollback", to=first.number)
        refused = sg("checkpoint", "rollback", NAME, "--to", str(first.number), "--yes")
        assert refused.returncode == 10
        assert "--unchecked" in refused.stderr
        words = ("checkpoint", "rollback", NAME, "--to", str(first.number), "--yes")
        assert sg(*words, "--unchecked").returncode == 0
