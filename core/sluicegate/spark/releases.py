"""What fits together: Spark, Java, Python, Scala, and the connectors of sources and tables.

Java and Python are those that Spark names for itself, plus Java 25 where it was run: before 4.2
Spark does not start on it. A connector of tables is named only where it was run with that Spark;
that of Kafka has the version of Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_KAFKA = "org.apache.spark:spark-sql-kafka-0-10"
_DELTA = "io.delta:delta-spark"
_ICEBERG = "org.apache.iceberg:iceberg-spark-runtime"
_JAR = re.compile(r"spark-core_(\d+\.\d+)-(.+)\.jar")
# iceberg-spark-runtime-4.1_2.13, delta-spark_4.1_2.13, spark-sql-kafka-0-10_2.13
_BUILT_FOR = re.compile(r"(?:spark[a-z-]*[_-](\d+\.\d+))?_(2\.\d+)$")


@dataclass(frozen=True, slots=True)
class Release:
    """What belongs to a minor version of Spark."""

    javas: tuple[int, ...]
    newest_python: tuple[int, int]
    scala: str
    delta: str | None = None
    iceberg: str | None = None


RELEASES = {
    (3, 5): Release(
        (8, 11, 17), (3, 11), "2.12", f"{_DELTA}_2.12:3.3.3", f"{_ICEBERG}-3.5_2.12:1.12.0"
    ),
    (4, 0): Release(
        (17, 21), (3, 13), "2.13", f"{_DELTA}_4.0_2.13:4.4.0", f"{_ICEBERG}-4.0_2.13:1.11.0"
    ),
    (4, 1): Release(
        (17, 21), (3, 14), "2.13", f"{_DELTA}_4.1_2.13:4.4.0", f"{_ICEBERG}-4.1_2.13:1.12.0"
    ),
    (4, 2): Release((17, 21, 25), (3, 14), "2.13", f"{_DELTA}_4.2_2.13:4.4.0"),
    (4, 3): Release((17, 21, 25), (3, 14), "2.13"),
}
OLDEST, NEWEST = (".".join(map(str, each)) for each in (min(RELEASES), max(RELEASES)))
"""The minor versions of Spark that gated streams run on: from, to."""


@dataclass(frozen=True, slots=True)
class Spark:
    """A Spark: its version, and that of the Scala it was built with."""

    version: str
    scala: str

    @property
    def minor(self) -> tuple[int, int]:
        """The first two numbers of its version."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    @property
    def release(self) -> Release | None:
        """What belongs to it; None if it is older or newer than all that are known."""
        return RELEASES.get(self.minor)

    @property
    def connectors(self) -> dict[str, str | None]:
        """The coordinates to give to `--packages`; None where there is no connector yet."""
        known = self.release
        return {
            "kafka": f"{_KAFKA}_{self.scala}:{self.version}",
            "delta": known.delta if known else None,
            "iceberg": known.iceberg if known else None,
        }


def spark_in(home: Path) -> Spark | None:
    """The Spark in a directory, by the names of its jars."""
    found = (_JAR.fullmatch(path.name) for path in home.glob("jars/spark-core_*.jar"))
    return next((Spark(match[2], match[1]) for match in found if match), None)


def oldest_java(spark: Spark | None) -> int:
    """The oldest Java that a Spark runs on; of an unknown one, that of the newest."""
    known = spark.release if spark else None
    return (known or RELEASES[max(RELEASES)]).javas[0]


def misfit_java(spark: Spark, java: int) -> str | None:
    """Why a Java does not fit to a Spark; None if it does, or if nothing is known of that Spark."""
    known = spark.release
    if known is None or java in known.javas:
        return None
    named = ", ".join(map(str, known.javas))
    return f"Spark {spark.version} runs on Java {named}; this is Java {java}"


def misfit_python(spark: Spark, python: tuple[int, int]) -> str | None:
    """Why a Python does not fit to a Spark; None as for Java."""
    known = spark.release
    if known is None or python <= known.newest_python:
        return None
    newest, this = (".".join(map(str, each)) for each in (known.newest_python, python))
    return f"PySpark {spark.version} runs on Python up to {newest}; this is Python {this}"


def misfit_packages(spark: Spark, coordinates: list[str]) -> Iterator[str]:
    """Packages that were built for another Scala or another Spark, as their names tell."""
    minor = ".".join(map(str, spark.minor))
    for each in coordinates:
        artifact = each.split(":")[1] if each.count(":") >= 2 else ""
        built = _BUILT_FOR.search(artifact)
        if built and (built[2] != spark.scala or built[1] not in (None, minor)):
            yield f"{each} does not fit Spark {spark.version} with Scala {spark.scala}"
