"""What fits together, and what `doctor` says of it; Sparks here are directories that pretend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sluicegate.spark.releases import (
    RELEASES,
    Spark,
    misfit_java,
    misfit_packages,
    misfit_python,
    oldest_java,
    spark_in,
)
from tests.conftest import Sg
from tests.lab.environments import JOB_VERSIONS, ROOT

SCALA = {"3.5.9": "2.12"}
SPARKS = {version: Spark(version, SCALA.get(version, "2.13")) for version in JOB_VERSIONS}


def home_of(root: Path, spark: Spark, settings: str = "") -> Path:
    """A directory that looks like a Spark."""
    home = root / f"spark-{spark.version}"
    for name in ("bin/spark-submit", "bin/spark-class"):
        script = home / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text("#!/bin/sh\n")
        script.chmod(0o755)
    (home / "jars").mkdir()
    (home / "jars" / f"spark-core_{spark.scala}-{spark.version}.jar").touch()
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text(settings)
    return home


def java_of(root: Path, major: int) -> Path:
    """A JAVA_HOME that says it is this Java."""
    script = root / f"java-{major}" / "bin" / "java"
    script.parent.mkdir(parents=True)
    version = f"1.{major}.0" if major < 9 else f"{major}.0.1"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    return script.parents[1]


def test_every_version_that_the_job_is_run_on_is_known() -> None:
    assert {each.minor for each in SPARKS.values()} == RELEASES.keys()
    for each in SPARKS.values():
        assert each.release
        assert each.release.scala == each.scala


@pytest.mark.parametrize(
    ("version", "fit", "unfit"),
    [
        ("3.5.9", [8, 11, 17], [21, 25]),
        ("4.0.5", [17, 21], [11, 25]),
        ("4.1.4", [17, 21], [11, 25]),
        ("4.2.1", [17, 21, 25], [11]),
        ("4.3.0", [17, 21, 25], [11]),
    ],
)
def test_java(version: str, fit: list[int], unfit: list[int]) -> None:
    assert [misfit_java(SPARKS[version], each) for each in fit] == [None] * len(fit)
    assert all(misfit_java(SPARKS[version], each) for each in unfit)
    assert oldest_java(SPARKS[version]) == fit[0]


def test_python() -> None:
    assert misfit_python(SPARKS["3.5.9"], (3, 11)) is None
    wrong = misfit_python(SPARKS["3.5.9"], (3, 12))
    assert wrong == "PySpark 3.5.9 runs on Python up to 3.11; this is Python 3.12"
    assert misfit_python(SPARKS["4.3.0"], (3, 12)) is None


def test_nothing_is_said_of_an_unknown_spark() -> None:
    unknown = Spark("6.0.0", "3.3")
    assert misfit_java(unknown, 8) is None
    assert misfit_python(unknown, (3, 99)) is None
    assert oldest_java(unknown) == oldest_java(None) == 17


@pytest.mark.parametrize(
    ("version", "package", "fits"),
    [
        ("3.5.9", "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.9", True),
        ("3.5.9", "org.apache.spark:spark-sql-kafka-0-10_2.13:3.5.9", False),
        ("4.3.0", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", True),
        ("4.3.0", "io.delta:delta-spark_4.2_2.13:4.4.0", False),
        ("4.2.1", "io.delta:delta-spark_4.2_2.13:4.4.0", True),
        ("4.2.1", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", False),
        ("4.1.4", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", True),
        ("4.1.4", "org.apache.kafka:kafka-clients:3.9.0", True),
        ("4.1.4", "not coordinates", True),
    ],
)
def test_packages(version: str, package: str, fits: bool) -> None:
    wrong = list(misfit_packages(SPARKS[version], [package]))
    assert bool(wrong) != fits


@pytest.mark.parametrize("version", JOB_VERSIONS)
def test_its_own_connectors_fit(version: str) -> None:
    spark = SPARKS[version]
    own = [each for each in spark.connectors.values() if each]
    assert not list(misfit_packages(spark, own))


def test_a_spark_is_known_by_its_jars(tmp_path: Path) -> None:
    spark = Spark("3.5.9-vendor-1", "2.12")
    assert spark_in(home_of(tmp_path, spark)) == spark
    assert spark.minor == (3, 5)
    assert spark_in(tmp_path) is None


def test_the_guide_says_the_same() -> None:
    guide = (ROOT / "docs" / "guide" / "gated-streams.md").read_text()
    for (major, minor), each in RELEASES.items():
        tables = [at.split(":", 1)[1] if at else None for at in (each.delta, each.iceberg)]
        cells = [
            f"{major}.{minor}",
            ", ".join(map(str, each.javas)),
            "up to {}.{}".format(*each.newest_python),
            each.scala,
            *(f"`{at}`" if at else "none" for at in tables),
        ]
        assert "| " + " | ".join(cells) + " |" in guide.splitlines()


class TestDoctor:
    def examined(self, sg: Sg, **variables: str) -> tuple[dict[str, str], list[Any]]:
        """What each check saw, and the findings about versions."""
        result = sg("doctor", "--json", **variables)
        assert result.returncode == 0
        document = json.loads(result.stdout)
        wrong = [each for each in document["findings"] if each["code"] == "SG-ENV-VERSIONS"]
        return {each["check"]: each["seen"] for each in document["checks"]}, wrong

    def test_names_what_belongs_together(self, sg: Sg, tmp_path: Path) -> None:
        home = home_of(tmp_path, SPARKS["3.5.9"])
        seen, wrong = self.examined(sg, SPARK_HOME=str(home), JAVA_HOME=str(java_of(tmp_path, 8)))
        assert seen["java"].startswith("8 at")
        assert seen["spark"] == "3.5.9 with Scala 2.12"
        assert seen["kafka connector"] == "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.9"
        assert seen["delta connector"] == "io.delta:delta-spark_2.12:3.3.3"
        assert "iceberg-spark-runtime-3.5_2.12" in seen["iceberg connector"]
        # The Python that runs this has another one.
        assert [each["place"] for each in wrong] == ["SPARK_HOME"]

    def test_a_java_that_is_too_new(self, sg: Sg, tmp_path: Path) -> None:
        home, java = home_of(tmp_path, SPARKS["4.0.5"]), java_of(tmp_path, 25)
        _, wrong = self.examined(sg, SPARK_HOME=str(home), JAVA_HOME=str(java))
        found = {each["place"]: each for each in wrong}
        assert found["java"]["detail"] == "Spark 4.0.5 runs on Java 17, 21; this is Java 25"
        assert found["java"]["severity"] == "warning"

    def test_packages_for_another_spark(self, sg: Sg, tmp_path: Path) -> None:
        delta, clients = "io.delta:delta-spark_4.2_2.13:4.4.0", "org.apache.kafka:kafka-clients:3.9"
        home = home_of(tmp_path, SPARKS["4.3.0"], f"spark.jars.packages  {delta}, {clients}\n")
        _, wrong = self.examined(sg, SPARK_HOME=str(home))
        found = [each["detail"] for each in wrong if each["place"] == "spark.jars.packages"]
        assert found == [f"{delta} does not fit Spark 4.3.0 with Scala 2.13"]

    def test_a_spark_that_streams_do_not_run_on(self, sg: Sg, tmp_path: Path) -> None:
        home = home_of(tmp_path, Spark("3.4.4", "2.12"))
        findings = json.loads(sg("doctor", "--json", SPARK_HOME=str(home)).stdout)["findings"]
        (found,) = [each for each in findings if each["code"] == "SG-ENV-SPARK"]
        assert found["detail"] == "3.4.4 is not one of 3.5 to 4.3"
        assert found["repair"] == "pip install 'pyspark>=3.5,<5'"

    def test_a_spark_home_without_spark_is_told(self, sg: Sg, tmp_path: Path) -> None:
        findings = json.loads(sg("doctor", "--json", SPARK_HOME=str(tmp_path)).stdout)["findings"]
        assert [each["place"] for each in findings if each["code"] == "SG-ENV-UNCHECKED"] == [
            "spark"
        ]
