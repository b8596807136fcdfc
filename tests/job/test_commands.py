"""What operators ask of a stream whose job has run: audit, state, lag, status."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from sluicegate.storage.blobs import BlobDamaged
from sluicegate.stream.output import open_sink
from sluicegate.stream.snapshot import key_of
from tests.conftest import Sg
from tests.job.jobs import NAME, Place
from tests.job.sinks import started
from tests.job.test_epochs import event, traffic
from tests.job.truth import records, truth
from tests.stream.streams import apply


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Path:
    """A stream of three epochs with duplicates and rejects; tests work on copies of it."""
    place = Place(tmp_path_factory.mktemp("commands"), max_events=150).begin()
    place.append(0, [*traffic(1, "p", 0, 0, 200), b"no record", {"price": 3}])
    place.append(1, traffic(2, "p", 1, 0, 150))
    place.commit_all(spark)
    return place.root


@pytest.fixture
def place(tmp_path: Path, original: Path) -> Place:
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    # A copy of a stream is still of its source by its path.
    os.rename(tmp_path / "log", tmp_path / "unused")
    moved = (tmp_path / "sluicegate.toml").read_text()
    (tmp_path / "sluicegate.toml").write_text(
        moved.replace('source = "log"', f'source = "{original}/log"')
    )
    copy = Place.__new__(Place)
    copy.root, copy.config = tmp_path, tmp_path / "sluicegate.toml"
    return copy


def audit(sg: Sg, *words: str) -> tuple[int, dict[str, Any]]:
    result = sg("audit", NAME, "--json", *words)
    return result.returncode, json.loads(result.stdout)


def codes(document: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in document["findings"]]


def files(place: Place, kind: str) -> list[Path]:
    return sorted((place.sink / kind).glob("snapshot=*/*.parquet"))


class TestAudit:
    def test_every_epoch_adds_up(self, place: Place, sg: Sg, original: Path) -> None:
        code, document = audit(sg, "--read-data")
        assert (code, codes(document)) == (0, [])
        counts = [epoch["counts"] for epoch in document["epochs"]]
        assert len(counts) > 2
        for each, epoch in zip(counts, document["epochs"], strict=True):
            assert each["read"] == each["applied"] + each["duplicates"] + each["rejected"]
            assert each["read"] == epoch["moved"]
            assert each["written"] == each["applied"] == epoch["events"]
        whole = Place(original)
        wanted = truth(_records(whole), whole.table)
        assert sum(each["read"] for each in counts) == wanted.read
        assert sum(each["rejected"] for each in counts) == len(wanted.rejects) > 1

    def test_since_a_time(self, place: Place, sg: Sg) -> None:
        assert audit(sg, "--since", "2199-01-01T00:00:00Z")[1]["epochs"] == []

    @pytest.mark.parametrize("kind", ["data", "rejects"])
    def test_a_file_that_is_gone(self, place: Place, sg: Sg, kind: str) -> None:
        files(place, kind)[0].unlink()
        code, document = audit(sg)
        assert (code, codes(document)) == (3, ["SG-AUDIT-OUTPUT"])
        assert "checkpoint rollback" in document["findings"][0]["repair"]

    def test_a_file_that_is_another(self, place: Place, sg: Sg) -> None:
        data = bytearray(files(place, "data")[0].read_bytes())
        data[50] ^= 1
        files(place, "data")[0].write_bytes(data)
        assert audit(sg)[0] == 0, "its size is the same"
        code, document = audit(sg, "--read-data")
        assert (code, codes(document)) == (3, ["SG-AUDIT-OUTPUT"])
        files(place, "data")[0].write_bytes(data[:-1])
        assert audit(sg)[0] == 3

    def test_what_is_not_published_yet(self, place: Place, sg: Sg) -> None:
        newest = max((place.sink / "data").iterdir())
        [claim] = (place.sink / "_sluicegate/staged").iterdir()
        newest.rename(claim / f"{newest.name.partition('-')[2]}.data")
        code, document = audit(sg)
        assert code == 0
        assert set(codes(document)) == {"SG-AUDIT-OUTPUT-PENDING"}

    def test_what_a_rollback_left_published(self, place: Place, sg: Sg) -> None:
        apply(place.stream, "rollback", to=2)
        code, document = audit(sg)
        assert code == 0
        assert set(codes(document)) == {"SG-AUDIT-OUTPUT-STRAY", "SG-AUDIT-MOVED"}
        stray = next(f for f in document["findings"] if f["code"].endswith("STRAY"))
        assert stray["repair"] == f"sluicegate submit {NAME}"

    def test_epochs_that_were_reverted_moved_nothing(self, place: Place, sg: Sg) -> None:
        """The rollback did, once; and undone, what it withdrew waits for the next start."""
        newest = place.head.number
        apply(place.stream, "rollback", to=2)
        assert codes(audit(sg)[1]).count("SG-AUDIT-MOVED") == 1
        with started(place.stream, open_sink(place.stream, str(place.sink))):
            """The next start withdraws what was discarded."""
        apply(place.stream, "rollback", to=newest)
        code, document = audit(sg, "--read-data")
        assert code == 0
        assert set(codes(document)) == {"SG-AUDIT-OUTPUT-PENDING", "SG-AUDIT-MOVED"}
        with started(place.stream, open_sink(place.stream, str(place.sink))):
            """And publishes it again."""
        assert "SG-AUDIT-OUTPUT-PENDING" not in codes(audit(sg)[1])

    def test_output_that_the_chain_does_not_know(self, place: Place, sg: Sg) -> None:
        """A number above the head, and a known number with another nonce."""
        for number in (2, place.head.number + 1):
            (place.sink / "data" / f"snapshot={number:020d}-{'a' * 32}").mkdir(parents=True)
        code, document = audit(sg)
        assert code == 3
        [found] = [each for each in document["findings"] if each["code"] == "SG-CHAIN-OLDER"]
        assert f"output of snapshots 2, {place.head.number + 1}" in found["detail"]

    @pytest.mark.parametrize("what", ["snapshot", "list of files"])
    def test_what_a_repair_gave_up(self, place: Place, sg: Sg, what: str) -> None:
        snapshot = place.stream.chain.read(place.head.number - 1)
        assert snapshot.output
        key = key_of(snapshot.number) if what == "snapshot" else snapshot.output.key
        path = place.stream.storage.local_path(key)
        assert path
        path.write_bytes(b"garbage")
        assert sg("audit", NAME).returncode == 12
        apply(place.stream, "repair")
        code, document = audit(sg)
        assert (code, codes(document)) == (0, ["SG-AUDIT-GAP"])

    def test_a_sink_that_is_not_there(self, place: Place, sg: Sg) -> None:
        place.sink.rename(place.root / "elsewhere")
        code, document = audit(sg)
        assert (code, codes(document)) == (3, ["SG-AUDIT-SINK-MISSING"])
        assert audit(sg, "--sink", "elsewhere")[0] == 0

    def test_in_a_pipe(self, place: Place, sg: Sg) -> None:
        lines = sg("audit", NAME).stdout.splitlines()
        assert lines[0].split("\t") == [
            "epoch", "snapshot", "committed", "read", "applied", "duplicates", "rejected", "written"
        ]  # fmt: skip


class TestState:
    def test_of_keys(self, place: Place, sg: Sg, original: Path) -> None:
        whole = Place(original)
        wanted = truth(_records(whole), whole.table).state
        key = min(wanted)
        found = json.loads(sg("state", "query", NAME, key, "nobody", "--json").stdout)["keys"]
        assert [each["key"] for each in found] == [key, "nobody"]
        assert found[0]["values"]["n"] == wanted[key]["n"]
        assert found[0]["values"]["spent"] == wanted[key]["spent"]
        assert found[0]["values"]["mean"] == pytest.approx(wanted[key]["mean"])
        assert found[1]["values"] is None

    def test_of_all(self, place: Place, sg: Sg, original: Path) -> None:
        whole = Place(original)
        wanted = truth(_records(whole), whole.table).state
        found = json.loads(sg("state", "query", NAME, "--limit", "0", "--json").stdout)["keys"]
        assert {each["key"]: each["values"]["n"] for each in found} == {
            key: values["n"] for key, values in wanted.items()
        }
        assert len(json.loads(sg("state", "query", NAME, "--json").stdout)["keys"]) <= 20

    def test_a_part_shows_that_there_is_more(self, place: Place, sg: Sg) -> None:
        document = json.loads(sg("state", "query", NAME, "--limit", "2", "--json").stdout)
        assert (len(document["keys"]), document["more"]) == (2, True)
        count = len(json.loads(sg("state", "query", NAME, "--limit", "0", "--json").stdout)["keys"])
        document = json.loads(sg("state", "query", NAME, "--limit", str(count), "--json").stdout)
        assert document["more"] is False

    def test_at_a_snapshot_that_is_not_there(self, place: Place, sg: Sg) -> None:
        result = sg("state", "query", NAME, "--snapshot", "99999")
        assert result.returncode == 2
        assert "there is no snapshot 99999 yet" in result.stderr

    def test_as_it_was(self, place: Place, sg: Sg) -> None:
        first = json.loads(sg("state", "query", NAME, "--snapshot", "0", "--json").stdout)
        assert (first["snapshot"], first["keys"]) == (0, [])

    def test_shards_weigh_by_their_events(self, place: Place, sg: Sg) -> None:
        found = json.loads(sg("shards", "weights", NAME, "--weights", "events", "--json").stdout)
        assert sum(found["weights"]["events"]) == place.head.sequence


def test_what_a_task_fails_with_is_reported_in_its_own_words(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path).begin()
    place.append(0, [event(n) for n in range(5)])
    place.run(spark)
    place.append(0, [event(n) for n in range(5, 9)])
    hidden = place.root / "hidden"

    def step(name: str) -> None:
        if name == "planned":
            (place.home / NAME / place.head.dedup.refs[0].key).rename(hidden)

    with pytest.raises(BlobDamaged, match="it is missing"):
        place.job(spark).run(step=step)


def _records(place: Place) -> Any:
    return records(Path(place.log.uri))
