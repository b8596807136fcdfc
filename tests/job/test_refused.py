"""What the operating system refuses inside of Spark's tasks: our own error, with place and hint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluicegate.errors import StorageFailed
from tests.job.jobs import NAME, Place
from tests.job.test_epochs import event
from tests.job.truth import Table
from tests.job.works import classify, parsed, work_of
from tests.support.faults import files_up_to

# The tests may run as root, to whom no permission is refused.


def is_a_file(directory: Path) -> None:
    """Put a file where a directory was."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.write_bytes(b"")


class TestWriting:
    """A task that writes its file."""

    def refused(self, root: Path, damage: Callable[[Path], Any], count: int = 1) -> StorageFailed:
        work = work_of(root, Table(stamp=()), deduplicates=False)
        rows = parsed(work, [{"user": f"{n * 7919}", "price": n * n} for n in range(count)])
        damage(root / "attempts")
        with pytest.raises(StorageFailed) as error:
            classify(work, rows)
        return error.value

    def test_there_is_a_file(self, tmp_path: Path) -> None:
        error = self.refused(tmp_path, is_a_file)
        assert error.message.startswith(f"{tmp_path}/attempts/part-")
        assert error.message.endswith(".parquet: not a directory")
        assert (error.place, error.exit_code) == (error.message.split(": ")[0], 1)

    def test_there_is_nothing(self, tmp_path: Path) -> None:
        error = self.refused(tmp_path, shutil.rmtree)
        assert error.message.startswith(f"{tmp_path}/attempts does not exist on ")
        assert "sluicegate submit STREAM" in error.hint

    def test_there_is_no_room(self, tmp_path: Path) -> None:
        with files_up_to(2000):
            error = self.refused(tmp_path, lambda _: None, count=5000)
        assert error.message.endswith(".parquet: file too large")


class TestInSpark:
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        place = Place(tmp_path).begin()
        place.append(0, [event(n) for n in range(10)])
        return place

    def test_a_delta_that_cannot_be_stored(self, place: Place, spark: Any) -> None:
        def step(name: str) -> None:
            if name == "planned":
                is_a_file(place.home / NAME / "blobs")

        with pytest.raises(StorageFailed, match="not a directory") as error:
            place.job(spark).run(step=step)
        assert str(error.value.place).startswith(f"{place.home}/{NAME}/blobs")
        assert error.value.hint == StorageFailed.default_hint

    def test_output_that_cannot_be_written(self, place: Place, spark: Any) -> None:
        def process(_events: Any, _epoch: Any) -> Any:
            [attempt] = (place.sink / "_sluicegate" / "attempts").iterdir()
            shutil.rmtree(attempt)
            return spark.range(10)

        with pytest.raises(StorageFailed, match="does not exist on") as error:
            place.run(spark, process)
        assert str(error.value.place).startswith(f"{place.sink}/_sluicegate/attempts/")
        assert "sluicegate submit STREAM" in error.value.hint
        # Once it can be written, nothing is missing.
        place.commit_all(spark)
        place.check()

    def test_no_place_for_attempts(self, place: Place, spark: Any) -> None:
        def step(name: str) -> None:
            if name == "planned":
                is_a_file(place.sink / "_sluicegate" / "attempts")

        with pytest.raises(StorageFailed, match="attempts") as error:
            place.job(spark).run(step=step)
        assert error.value.exit_code == 1
