"""`explain`: real logs of three Sparks, every message of the damage table in every wrapping."""

from __future__ import annotations

import json
import random
import re
import shlex
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import NotFound, SluicegateError
from sluicegate.spark.explain import Explanation, explain, reader
from sluicegate.spark.explain.reader import Cause
from sluicegate_cli import table
from tests.spark.explain_samples import (
    ABBREVIATED,
    DAMAGE,
    HEALTHY,
    LOGS,
    OTHERS,
    REAL_LOGS,
    WRAPPINGS,
    started,
    uuid_of,
)

ALL_SAMPLES = [*DAMAGE, *OTHERS]


def explained(text: str) -> list[Explanation]:
    return explain(text.splitlines(keepends=True))


def codes(text: str) -> list[str]:
    return [each.code for each in explained(text)]


def real(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


class TestRealLogs:
    def test_all_are_expected(self) -> None:
        assert {path.stem for path in LOGS.glob("*.log")} == set(REAL_LOGS)

    @pytest.mark.parametrize("name", REAL_LOGS)
    def test_cause(self, name: str) -> None:
        code, command = REAL_LOGS[name]
        (only,) = explained(real(name))
        assert (only.code, only.command) == (code, f"sluicegate {command}")
        assert only.first_line <= only.line <= only.last_line
        if "structured" not in name:
            assert only.evidence.strip("…")[:40] in real(name).splitlines()[only.line - 1]

    def test_facts_of_a_state_file(self) -> None:
        (only,) = explained(real("hdfs_delta_missing_foreach-4.3.0"))
        assert dict(only.facts) == {
            "checkpoint": "/data/orders/checkpoint",
            "path": "/data/orders/checkpoint/state/0/0/3.delta",
            "operator": "0",
            "partition": "0",
            "version": "3",
            "query": "a31d0bee-84ca-4b36-add3-414d8107f0fd",
            "batch": "5",
        }

    def test_own_error_of_the_job_is_shown(self) -> None:
        for name in ("user_error-3.5.9", "user_error-4.3.0"):
            assert explained(real(name))[0].facts["error"] == "ValueError: payment service is down"

    def test_machine_is_not_in_them(self) -> None:
        for path in LOGS.iterdir():
            assert not re.search(r"/work/|(?<!var)/tmp/|/home/|/root/", path.read_text()), path


class TestMessages:
    @pytest.mark.parametrize("wrapping", WRAPPINGS)
    @pytest.mark.parametrize(("message", "code"), ALL_SAMPLES)
    def test_wrapped_and_unwrapped(self, message: str, code: str, wrapping: str) -> None:
        found = explained(WRAPPINGS[wrapping](message))
        assert [each.code for each in found] == [code]

    def test_every_text_has_a_sample(self) -> None:
        everything = "\n".join([m for m, _ in ALL_SAMPLES] + [real(name) for name in REAL_LOGS])
        texts = [text for cause in reader.causes() for text in cause.pattern.texts]
        assert [text for text in texts if not re.search(text, everything, re.MULTILINE)] == []

    def test_no_text_is_passed_over(self) -> None:
        """Most lines are not looked at closely, so each match must hold one of the words."""
        texts = [text for cause in reader.causes() for text in cause.pattern.texts]
        lines = [line for m, _ in ALL_SAMPLES for line in m.split("\n")]
        parts = [found.group() for t in texts for line in lines if (found := re.search(t, line))]
        for part in parts:
            assert "_" in part or any(word in part for word in reader._WORDS), part

    @pytest.mark.parametrize("cause", reader.causes(), ids=lambda c: c.rule.code)
    def test_every_class_by_its_name_alone(self, cause: Cause) -> None:
        for name in cause.pattern.classes:
            for text in (f"[{name}]", f"[PARENT.{name}] words", f"errorClass={name}"):
                assert codes(text) == [cause.rule.code]
            for text in (f"[OF_{name}]", f"[{name}_AGAIN]"):
                with pytest.raises(NotFound):
                    explained(text)

    @pytest.mark.parametrize("cause", reader.causes(), ids=lambda c: c.rule.code)
    def test_every_command_exists(self, cause: Cause) -> None:
        assert re.split(r" [{-]", cause.pattern.command)[0] in table.COMMANDS

    def test_words_that_tell_too_little_say_so(self) -> None:
        (only,) = explained("com.fasterxml.jackson.core.io.JsonEOFException: Unexpected")
        assert not only.certain
        assert "SG-COMMIT-EMPTY" in [rule.code for rule in only.also]
        (only,) = explained(real("offsets_cutjson-4.3.0"))
        assert only.certain
        assert only.also == ()

    @pytest.mark.parametrize("text", ABBREVIATED)
    def test_the_same_words_elsewhere_are_no_cause(self, text: str) -> None:
        with pytest.raises(NotFound):
            explained(text)


class TestWholeLogs:
    def test_repeats_are_counted(self) -> None:
        one = real("offsets_gap-4.3.0")
        (only,) = explained(one * 1000)
        lines = one.count("\n")
        assert only.count == 3 * 1000
        assert (only.first_line, only.last_line) == (2, 999 * lines + 10)

    def test_two_checkpoints_are_two_explanations(self) -> None:
        other = real("offsets_empty-4.3.0").replace("/data/orders", "/data/clicks")
        found = explained(real("offsets_empty-4.3.0") + other)
        assert [each.facts["checkpoint"] for each in found] == [
            "/data/clicks/checkpoint",
            "/data/orders/checkpoint",
        ]

    def test_the_started_query_names_the_checkpoint(self) -> None:
        error = (
            f"26/11/16 05:00:01 ERROR Execution: Query [id = {uuid_of('b')}, runId = {uuid_of('0')}"
            "] terminated with error\njava.lang.IllegalStateException: batch 7 doesn't exist\n"
        )
        log = "".join(started(letter, f"file:/data/{letter}") for letter in "abc")
        (only,) = explained(log + error)
        assert only.command == "sluicegate checkpoint verify /data/b"
        assert only.facts["batch"] == "7"
        (only,) = explained(log + "java.lang.IllegalStateException: batch 7 doesn't exist\n")
        assert only.command == "sluicegate checkpoint verify CHECKPOINT"

    def test_what_has_to_be_mended_first_comes_first(self) -> None:
        log = real("nospace_plain-4.3.0") + real("offsets_empty-4.3.0") * 5
        assert codes(log) == ["SG-STORAGE-FULL", "SG-OFFSETS-EMPTY"]
        log = real("schema_key-4.3.0") + real("offsets_empty-4.3.0")
        assert codes(log) == ["SG-OFFSETS-EMPTY", "SG-QUERY-STATE-SCHEMA"], "the last run first"

    def test_the_innermost_cause_decides(self) -> None:
        outer = "org.apache.spark.SparkException: [CANNOT_READ_MISSING_SNAPSHOT_FILE] x"
        assert codes(f"{outer}\nCaused by: java.io.IOException: No space left on device") == [
            "SG-STORAGE-FULL"
        ]

    def test_countless_checkpoints(self) -> None:
        text = "".join(f"Failed to read log file /d/{n}/offsets/4. x\n" for n in range(3000))
        found = explained(text.replace("Failed", "ERROR Failed"))
        assert sum(each.count for each in found) == 3000
        assert len(found) <= 1001

    def test_a_cause_stands_before_its_wrappers(self) -> None:
        log = real("user_error-4.3.0") + real("hdfs_delta_flip-4.3.0")
        assert codes(log) == ["SG-STATE-CORRUPT"]

    @pytest.mark.parametrize("text", ["", "\n\n", HEALTHY])
    def test_a_healthy_log_holds_no_error(self, text: str) -> None:
        with pytest.raises(NotFound, match="holds no error"):
            explained(text)

    def test_an_unknown_error_is_shown(self) -> None:
        log = HEALTHY + "org.example.Outer: x\n\tat a.B.c(D.java:1)\nCaused by: a.b.Inner: why\n"
        with pytest.raises(NotFound, match=r"line 7: Caused by: a\.b\.Inner: why") as caught:
            explained(log + "pyspark.errors.StreamingQueryException: wrapped\n")
        assert "sluicegate checkpoint verify CHECKPOINT" in caught.value.hint

    def test_commands_can_be_pasted(self) -> None:
        hostile = "/data/$(reboot)`x`;'/checkpoint"
        (only,) = explained(f"ERROR: Error reading stream metadata from file:{hostile}/metadata")
        assert shlex.split(only.command) == ["sluicegate", "checkpoint", "verify", hostile]
        (only,) = explained(
            "Failed to read log file /data/my old/jobs/offsets/4. Incomplete log file"
        )
        assert only.command == "sluicegate checkpoint verify CHECKPOINT", "not half a path"

    def test_memory_does_not_grow(self) -> None:
        failure = real("hdfs_delta_missing_foreach-4.3.0").splitlines(keepends=True)
        chance = random.Random(3)

        def endless() -> Iterator[str]:
            for turn in range(20_000):
                yield f"26/11/16 05:00:01 INFO Task: {turn} {chance.random()} {'.' * 100}\n"
                if turn % 200 == 0:
                    yield from (line.replace("3.delta", f"{turn}.delta") for line in failure)
                if turn % 10_000 == 0:
                    yield from (
                        f"Caused by: a.B: EOFException {n}{'x' * 999}\n" for n in range(9999)
                    )

        tracemalloc.start()
        (only,) = explain(endless())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert only.count == 4 * 100
        assert peak < 3_000_000


class TestHostileInput:
    @given(st.text())
    def test_any_text(self, text: str) -> None:
        self._try(text)

    @given(st.lists(st.sampled_from([m for m, _ in ALL_SAMPLES]) | st.text(max_size=40)))
    def test_any_mixture(self, parts: list[str]) -> None:
        self._try("".join(parts))
        self._try("\n".join(parts))
        self._try(json.dumps({"msg": parts[:1], "exception": {"stacktrace": parts}, "log": parts}))

    @given(st.dictionaries(st.sampled_from(["msg", "log", "level", "context", "exception"]),
                           st.none() | st.integers() | st.text() | st.lists(st.text())
                           | st.dictionaries(st.text(), st.text())))  # fmt: skip
    def test_any_json(self, record: dict[str, object]) -> None:
        self._try(json.dumps(record))

    @staticmethod
    def _try(text: str) -> None:
        try:
            for each in explained(text):
                assert shlex.split(each.command)[0] == "sluicegate"
                assert 0 < len(each.evidence) <= 402
        except SluicegateError as e:
            assert e.exit_code == 10

    @pytest.mark.parametrize("turn", range(8))
    def test_long_lines_take_linear_time(self, turn: int) -> None:
        pieces = ["/", "a", " ", "a.", "[", "\t", "at ", "A_", "exception: ", "Caused by: a.",
                  "/state/0/1/", "file:/", "/offsets/", "No such file", "Copied a to ",
                  "Error reading delta file ", "Failed to read log file a/sources/",
                  "Use a", "Checkpoint root ", "\x1b[", '{"msg":', "Partition a-",
                  "SparkFileNotFoundException: File ", "Fetch position "]  # fmt: skip
        samples = [m.partition("\n")[0] for m, _ in ALL_SAMPLES]
        began = time.process_time()
        mine = (pieces + samples + [s[: len(s) // 2] for s in samples])[turn::8]
        for piece in mine:
            self._try((piece * (256 * 1024 // len(piece) + 1))[: 256 * 1024])
        assert time.process_time() - began < 0.3 * len(mine)
