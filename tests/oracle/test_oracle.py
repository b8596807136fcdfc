"""A sample of the oracle: verdicts and repairs agree with real Spark, or are known not to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path

from tests.oracle import sample
from tests.oracle.damages import Damage, damages
from tests.oracle.report import differences
from tests.oracle.spark import Spark
from tests.oracle.trial import Examiner, Judge, command_line

_AT_ONCE = 3


def test_verdicts_and_repairs_agree_with_spark_or_are_known_not_to(tmp_path: Path) -> None:
    """One test, because each JVM takes many seconds and all queries can share it."""
    known = sample.read()
    with Spark(metadata.version("pyspark")) as spark, ExitStack() as stack:
        found = sample.bases()
        judge = Judge(spark, tmp_path / "truths.jsonl")
        everything = [damage for base in found.values() for damage in damages(base)]
        wanted = list({each.name: each for each in everything if each.name in known}.values())
        assert len(wanted) == len(known), "the sample is of other checkpoints"
        lines = [stack.enter_context(command_line()) for _ in range(_AT_ONCE)]

        def attempt(number: int) -> dict[str, set[str]]:
            own: list[Damage] = wanted[number::_AT_ONCE]
            testers = {name: Examiner(base, judge, lines[number]) for name, base in found.items()}
            return {each.name: set(differences(testers[each.kind].attempt(each))) for each in own}

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = {k: v for part in pool.map(attempt, range(_AT_ONCE)) for k, v in part.items()}
    changed = {
        name: f"was {sorted(known[name])}, is {sorted(classes)}"
        for name, classes in answers.items()
        if classes != known[name]
    }
    assert changed == {}, "record an intended one: python -m tests.oracle --record-sample"
