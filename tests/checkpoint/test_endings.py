"""Mended queries run on: real Spark, started again twice in new JVMs, with the right output.

A few of the scenarios; `make lab` tries all of them on every version of Spark. One test, because
each JVM takes many seconds and all queries can share it.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from tests.lab.endings import copy_place, made, play_out
from tests.lab.mended import SCENARIOS, Mended, prepared

TRIED = {
    ("rollback", "agg-rocksdb"),
    ("rollback, undone", "agg-hdfs"),
    ("rollback, twice", "dedup-changelog"),
    ("reset", "stateless-parquet"),
    ("interrupted", "agg-hdfs"),
    ("relocate, cut at its beginning", "agg-hdfs"),
    ("offsets cut", "agg-hdfs"),
    ("newest delta cut", "join-hdfs"),
    ("source entry missing", "agg-hdfs"),
    ("trap B, rollback by hand", "agg-rocksdb"),
    ("relocate", "join-v3"),
    ("relocate, with its input", "tws-rocksdb"),
    ("reset --into", "stateless-once"),
    ("seed", "stateless-python"),
}


def test_mended_queries_come_out_right(tmp_path: Path) -> None:
    version = metadata.version("pyspark")
    lab = made(version)
    tried: list[Mended] = [s for s in SCENARIOS if (s.name, s.case) in TRIED]
    assert len(tried) == len(TRIED)
    endings = []
    for number, scenario in enumerate(tried):
        place = copy_place(lab / scenario.case, tmp_path / str(number) / scenario.case)
        endings.append(prepared(scenario, place))
    outcomes = zip(tried, play_out(version, endings), strict=True)
    wrong = {
        f"{scenario.name}, {scenario.case}": (outcome.errors, outcome.missing, outcome.extra)
        for scenario, outcome in outcomes
        if not scenario.holds(outcome)
    }
    assert wrong == {}
