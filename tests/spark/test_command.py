"""`sluicegate submit`: what it shows, and every reason not to start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sluicegate.offsets import Fence, LockFileOffsetStore
from sluicegate.positions import Position
from tests.conftest import Sg
from tests.spark.conftest import QUERY, FakeJvm


@pytest.fixture
def app(tmp_path: Path) -> str:
    (tmp_path / "job.py").write_text("")
    return "job.py"


class TestDryRun:
    def test_from_a_checkpoint(
        self, sg: Sg, app: str, checkpoint: Path, launcher: Path, tmp_path: Path
    ) -> None:
        result = sg(
            *("submit", "--app", app, "--dry-run", "--spark-submit", "bin/spark-submit"),
            *("--checkpoint", "checkpoint", "--master", "local[2]", "--conf", "spark.a=b c"),
            *("--conf", "spark.hadoop.secret=geheim", "--", "--token", "geheim", "x"),
        )
        assert result.returncode == 0
        lines = dict(line.split("\t", 1) for line in result.stdout.splitlines() if "\t" in line)
        assert lines.pop("Java").startswith("/")
        assert lines == {
            "application": "job.py",
            "spark-submit": f"{launcher} (--spark-submit)",
            "checkpoint": str(checkpoint),
            "status": "batch 3 was planned but not committed: it runs again, 110 events",
            "in a private file": "spark.hadoop.secret=***",
            "command": f"{launcher} --properties-file PRIVATE-FILE --master 'local[2]' "
            f"--conf 'spark.a=b c' --conf spark.sluicegate.checkpoint={checkpoint} "
            "job.py --token '***' x",
            "source": "offset\tcomes from",
            "0": "orders[0] 300, orders[1] 30\toffsets/3",
        }
        assert "geheim" not in result.stdout + result.stderr
        assert "looks like a secret" in result.stderr
        assert not list(tmp_path.glob("*.log"))

    def test_from_a_store(self, sg: Sg, app: str, store: Path, launcher: Path) -> None:
        words = ("submit", "--app", app, "-n", "--spark-submit", str(launcher), "--json")
        document = json.loads(sg(*words, "--offsets-store", "store").stdout)
        starting = document["starting"]
        assert (starting["consumer"], starting["commit"]) == ("billing", "billing@2")
        assert starting["positions"] == {"orders": {"0": 41, "1": 7}}
        assert 'spark.sluicegate.startingOffsets={"orders":{"0":41,"1":7}}' in document["command"]
        assert f"spark.sluicegate.offsetsStore={store}" in document["command"]
        assert "spark.sluicegate.consumer=billing" in document["command"]
        text = sg(*words[:-1], "--offsets-store", "store").stdout
        assert "orders[1]\t7\tcommit billing@2, 20" in text

    def test_from_neither(self, sg: Sg, app: str, launcher: Path) -> None:
        result = sg("submit", "--app", app, "-n", "--spark-submit", str(launcher))
        assert "every source\t-\tthe application itself" in result.stdout

    @pytest.mark.usefixtures("store", "app")
    def test_of_a_named_target(
        self, sg: Sg, checkpoint: Path, launcher: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "sluicegate.toml").write_text(
            '[targets.orders]\ncheckpoint = "checkpoint"\napp = "job.py"\n'
            '[targets.bills]\noffsets = "store"\napp = "job.py"\n'
            '[targets.bare]\ncheckpoint = "checkpoint"\n'
        )
        words = ("-n", "--json", "--spark-submit", str(launcher))
        document = json.loads(sg("submit", "orders", *words, "--", "a", "-b").stdout)
        assert document["checkpoint"]["path"] == str(checkpoint)
        assert document["command"][-3:] == [str(tmp_path / "job.py"), "a", "-b"]
        document = json.loads(sg("submit", "bills", *words).stdout)
        assert document["starting"]["consumer"] == "billing"
        document = json.loads(
            sg("submit", "--app", "job.py", "--checkpoint", "orders", *words).stdout
        )
        assert document["checkpoint"]["next_batch"] == 3
        assert sg("submit", "bare", *words).returncode == 2
        assert sg("submit", "nobody", *words).returncode == 10
        assert sg("submit", *words).returncode == 2


class TestRefusals:
    @pytest.fixture
    def words(self, app: str, launcher: Path) -> tuple[str, ...]:
        return ("submit", "--app", app, "--spark-submit", str(launcher))

    def test_no_application(self, sg: Sg, launcher: Path) -> None:
        result = sg("submit", "--app", "none.py", "--spark-submit", str(launcher))
        assert result.returncode == 10
        assert "the application none.py does not exist" in result.stderr

    def test_no_java(self, sg: Sg, words: tuple[str, ...]) -> None:
        result = sg(*words, JAVA_HOME="/nowhere")
        assert result.returncode == 20
        assert "install Java" in result.stderr

    def test_damage(self, sg: Sg, words: tuple[str, ...], checkpoint: Path) -> None:
        (checkpoint / "offsets" / "3").write_text("")
        words = (*words, "--checkpoint", "checkpoint", "--writer-gone", "-n")
        result = sg(*words)
        assert result.returncode == 3
        assert "SG-OFFSETS-" in result.stderr
        assert "--skip-verify" in result.stderr
        assert sg(*words, "--skip-verify").returncode == 0

    def test_a_living_writer(
        self, sg: Sg, words: tuple[str, ...], checkpoint: Path, jvm: FakeJvm
    ) -> None:
        process = jvm(str(checkpoint))
        result = sg(*words, "--checkpoint", "checkpoint", "--writer-gone")
        assert result.returncode == 11
        assert f"pid {process.pid} (java)" in result.stderr
        assert "wait until its JVM has exited" in result.stderr

    def test_a_recent_write(self, sg: Sg, words: tuple[str, ...], checkpoint: Path) -> None:
        (checkpoint / "commits" / "3").write_text('v1\n{"nextBatchWatermarkMs":0}')
        words = (*words, "--checkpoint", "checkpoint", "-n")
        result = sg(*words)
        assert result.returncode == 11
        assert "if you know that it has ended, add --writer-gone" in result.stderr
        assert sg(*words, "--writer-gone").returncode == 0

    def test_not_a_checkpoint(self, sg: Sg, words: tuple[str, ...], tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "part-0.json").touch()
        assert sg(*words, "--checkpoint", "out").returncode == 14

    def test_a_checkpoint_that_overrides_the_store(
        self, sg: Sg, words: tuple[str, ...], checkpoint: Path, store: Path
    ) -> None:
        words = (*words, "--checkpoint", "checkpoint", "--offsets-store", "store", "-n")
        result = sg(*words)
        assert result.returncode == 2
        assert "would be ignored" in result.stderr
        assert "sluicegate checkpoint seed NEW --offsets positions.json" in result.stderr
        # A store that follows this very query contradicts nothing.
        LockFileOffsetStore.open(str(store)).save(
            "billing", Position("orders", 0, 300), fence=Fence(QUERY, 3)
        )
        result = sg(*words)
        assert result.returncode == 0
        assert "orders[0] 300, orders[1] 30\toffsets/3" in result.stdout

    def test_a_fresh_checkpoint_starts_from_the_store(
        self, sg: Sg, words: tuple[str, ...], store: Path
    ) -> None:
        result = sg(*words, "--checkpoint", "new", "--offsets-store", "store", "-n")
        assert result.returncode == 0
        assert "nothing has run yet" in result.stdout
        assert "orders[0]\t41\tcommit billing@2" in result.stdout

    def test_a_consumer_without_positions(
        self, sg: Sg, words: tuple[str, ...], store: Path
    ) -> None:
        words = (*words, "--offsets-store", "store", "--consumer", "fresh", "-n")
        result = sg(*words)
        assert result.returncode == 10
        assert "consumers that have: billing" in result.stderr
        assert "sluicegate offsets import" in result.stderr
        assert sg(*words, "--allow-new-consumer").returncode == 0

    def test_read_only(self, sg: Sg, words: tuple[str, ...], tmp_path: Path) -> None:
        (tmp_path / "sluicegate.toml").write_text("read_only = true\n")
        assert sg(*words).returncode == 4
        assert sg(*words, "-n").returncode == 0
