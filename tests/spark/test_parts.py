"""The parts of a submission: secrets, properties, settings, finding spark-submit, progress."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import Fenced, NotFound, UsageError
from sluicegate.spark.submit.command import (
    Request,
    Secrets,
    build,
    is_private,
    parse_conf,
    parse_list,
    private_file,
    render,
    settings_in,
    shown_arguments,
    shown_setting,
)
from sluicegate.spark.submit.launcher import find_spark_submit
from sluicegate.spark.submit.process import Ended
from sluicegate.spark.submit.progress import Progress, ProgressPipe, decode, encode
from sluicegate.spark.submit.run import OWN_ERROR, OWN_HINT, Outcome, Tally, read_failure
from sluicegate.spark.submit.stream import is_elsewhere

JAAS = 'org.apache.kafka.PlainLoginModule required username="me" password="geheim";'


class TestSecrets:
    @pytest.mark.parametrize(
        ("setting", "shown"),
        [
            (("spark.hadoop.fs.s3a.secret.key", "geheim"), "spark.hadoop.fs.s3a.secret.key=***"),
            (("spark.my.accessKey", "geheim"), "spark.my.accessKey=***"),
            (("spark.db.PASSWORD", "geheim"), "spark.db.PASSWORD=***"),
            (("spark.x", "-Dtoken=geheim -Da=b"), "spark.x=-Dtoken=*** -Da=b"),
            (("spark.kafka.jaas", JAAS), "spark.kafka.jaas=" + JAAS.replace('"geheim"', "***")),
            (("spark.db.url", "jdbc://me:geheim@db/x"), "spark.db.url=jdbc://me:***@db/x"),
        ],
    )
    def test_settings_with_secrets(self, setting: tuple[str, str], shown: str) -> None:
        assert is_private(setting)
        assert shown_setting(setting) == shown
        assert "geheim" not in Secrets.of([setting], []).hide("so geheim it is")

    def test_settings_without(self) -> None:
        setting = ("spark.executor.memory", "4g")
        assert not is_private(setting)
        assert shown_setting(setting) == "spark.executor.memory=4g"

    def test_arguments(self) -> None:
        words = ["--password", "geheim", "--token=geheim", "a", "--secret-name", "--b", "c"]
        assert shown_arguments(words) == [
            *("--password", "***", "--token=***", "a", "--secret-name", "--b", "c")
        ]
        assert Secrets.of([], words).values == ("geheim",)

    def test_short_ones_do_not_blank_out_everything(self) -> None:
        assert Secrets.of([("password", "a")], []).hide("a banana") == "a banana"


class TestProperties:
    def test_merges_the_defaults(self, tmp_path: Path) -> None:
        defaults = tmp_path / "spark-defaults.conf"
        defaults.write_text("spark.a 1")
        with private_file([("spark.secret", "geheim")], defaults) as file:
            assert file
            assert Path(file.path).read_text() == "spark.a 1\nspark.secret=geheim\n"
            # A process may open it more than once.
            assert Path(file.path).read_text().endswith("geheim\n")
        with private_file([], defaults) as file:
            assert file is None

    def test_without_memory_files_only_the_owner_reads_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(os, "memfd_create")
        with private_file([("spark.secret", "geheim")], None) as file:
            assert file
            path = Path(file.path)
            assert path.stat().st_mode & 0o777 == 0o600
        assert not path.exists()

    def test_escapes(self) -> None:
        assert render([("a b:c", " x\\y\n=ü😀")]) == (
            "a\\ b\\:c=\\ x\\\\y\\n\\=\\u00fc\\ud83d\\ude00\n"
        )

    @given(st.text())
    def test_is_ascii_and_one_line(self, value: str) -> None:
        text = render([("spark.secret", value)])
        assert text.isascii()
        assert text.count("\n") == 1


class TestRequest:
    def test_settings(self) -> None:
        assert parse_conf(["a=b=c", "d=", "a=x"]) == (("a", "x"), ("d", ""))
        assert parse_list(["a,b", "c"]) == ("a", "b", "c")

    def test_one_that_is_none_is_not_shown(self) -> None:
        with pytest.raises(UsageError, match="--conf number 2 is not KEY=VALUE") as e:
            parse_conf(["a=b", "geheim"])
        assert "geheim" not in e.value.message

    def test_ours_are_not_for_everybody(self) -> None:
        with pytest.raises(UsageError, match="set by submit itself"):
            parse_conf(["spark.sluicegate.startingOffsets={}"])

    @pytest.mark.parametrize(
        "wrong",
        [
            Request("job.sh"),
            Request("job.py", consumer="a"),
            Request("job.py", allow_new_consumer=True),
            Request("job.py", py_files=("x.whl",)),
        ],
    )
    def test_contradictions(self, wrong: Request) -> None:
        with pytest.raises(UsageError):
            wrong.checked()


class TestLauncher:
    def test_by_name_then_home_then_pip(
        self, launcher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SPARK_HOME", raising=False)
        beside = Path(sys.executable).with_name("spark-submit")
        assert find_spark_submit(None).path == beside
        monkeypatch.setenv("SPARK_HOME", str(tmp_path))
        assert find_spark_submit(None).path == launcher
        assert find_spark_submit(str(beside)).why == "--spark-submit"
        with pytest.raises(NotFound):
            find_spark_submit("nowhere/spark-submit")

    def test_the_environment_of_pip(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPARK_HOME", "/opt/another")
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        found = find_spark_submit(str(Path(sys.executable).with_name("spark-submit")))
        added = found.environment({})
        assert added["PYSPARK_PYTHON"] == str(Path(sys.executable).with_name("python"))
        assert added["SPARK_HOME"].endswith("/pyspark")
        assert "PYSPARK_PYTHON" not in found.environment({"spark.pyspark.python": "python3"})
        monkeypatch.setenv("PYSPARK_PYTHON", "python3")
        assert "PYSPARK_PYTHON" not in found.environment({})

    def test_a_home_of_its_own_wins(self, launcher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        launcher.with_name("spark-class").touch()
        monkeypatch.setenv("SPARK_HOME", "/opt/another")
        assert find_spark_submit(str(launcher)).environment({}) == {
            "SPARK_HOME": str(launcher.parent.parent)
        }


class TestCommand:
    def test_what_is_run_and_what_is_shown(self, launcher: Path) -> None:
        request = Request(
            "job.py",
            arguments=("--password", "geheim", "a b"),
            master="local[2]",
            conf=(("spark.a", "1"), ("spark.secret", "geheim")),
            packages=("g:a:1", "g:b:1"),
        )
        command = build(request, find_spark_submit(str(launcher)), (("spark.sluicegate.x", "y"),))
        assert command.words("/proc/self/fd/9", (("spark.extra", "z"),))[1:] == [
            *("--properties-file", "/proc/self/fd/9", "--master", "local[2]"),
            *("--packages", "g:a:1,g:b:1", "--conf", "spark.a=1"),
            *("--conf", "spark.sluicegate.x=y", "--conf", "spark.extra=z"),
            *("job.py", "--password", "geheim", "a b"),
        ]
        assert "geheim" not in command.shown_line()
        assert command.shown_line().endswith("job.py --password '***' 'a b'")

    def test_what_is_too_long_for_a_command_line(self, launcher: Path) -> None:
        long = ("spark.sluicegate.startingOffsets", "x" * 200_000)
        command = build(Request("job.py"), find_spark_submit(str(launcher)), (long,))
        assert command.private == (long,)


class TestProgress:
    DONE = Progress("q", "id", 3, 7, 1.5, 0.25, "now", ({"t": {"0": 1}},), "q", {"addBatch": 2})

    def test_round_trip(self) -> None:
        assert decode(encode(self.DONE).rstrip(b"\n")) == self.DONE

    @given(st.binary())
    def test_anything_else_is_nothing(self, line: bytes) -> None:
        assert decode(line) is None

    def test_the_pipe(self) -> None:
        with ProgressPipe() as pipe:
            assert pipe.read(0) == []
            line = encode(self.DONE)
            pipe.path.write_bytes(b"half\n" + line + line[:10])
            assert pipe.read(1) == [self.DONE]
            pipe.path.write_bytes(line[10:])
            assert pipe.read(1) == [self.DONE]
        assert not pipe.path.parent.exists()


def test_what_spark_defaults_say_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tasks run on other machines, those need this package; a Python that is named stays."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert not is_elsewhere(Request("a.py"))
    text = (
        "# spark.master local\n\n spark.master   yarn\nspark.pyspark.python=/opt/p y\na:b\nlone\n"
    )
    (tmp_path / "spark-defaults.conf").write_text(text)
    found = settings_in(tmp_path / "spark-defaults.conf")
    assert found == {"spark.master": "yarn", "spark.pyspark.python": "/opt/p y", "a": "b"}
    assert is_elsewhere(Request("a.py"))
    assert not is_elsewhere(Request("a.py", master="local[2]"))
    assert not is_elsewhere(Request("a.py", conf=(("spark.master", "local"),)))


class TestWhatALogTells:
    def tail(self, tmp_path: Path, *lines: str) -> tuple[str, ...]:
        log = tmp_path / "log"
        log.write_text("\n".join(lines))
        return read_failure(log, Secrets.of((), ()))[0]

    def test_what_the_jvm_died_of_is_shown_even_if_it_says_more_afterwards(
        self, tmp_path: Path
    ) -> None:
        thrown = ('Exception in thread "main" java.lang.IllegalStateException: no', "\tat Job.main")
        after = [f"26/11/16 11:06:20 INFO SparkContext: {number}" for number in range(20)]
        shown = self.tail(tmp_path, "begins", *thrown, "\tat x", *after)
        assert shown[:3] == (*thrown, "…")
        assert len(shown) == 10
        assert shown[-1] == after[-1]

    def test_what_a_job_of_ours_ended_with(self, tmp_path: Path) -> None:
        """With its exit code and its next command, whatever Spark says on its way out."""
        after = [f"26/11/16 11:06:20 INFO SparkContext: {number}" for number in range(20)]
        own = (f"{OWN_ERROR}another run took over", f"{OWN_HINT}sluicegate status")
        shown = self.tail(tmp_path, *own, *after, "java.io.IOException: closed", *after)
        assert shown[:2] == own
        ended = Ended(Fenced.exit_code, 1.0, None)
        error = Outcome(ended, tmp_path / "log", Tally(), shown).error()
        assert isinstance(error, Fenced)
        assert "the job ended: another run took over" in error.message
        assert error.hint == "sluicegate status"

    def test_otherwise_the_last_lines(self, tmp_path: Path) -> None:
        lines = [f"line {number}" for number in range(20)]
        assert self.tail(tmp_path, *lines) == tuple(lines[-10:])
        lines[15] = "ValueError: x"
        assert self.tail(tmp_path, *lines) == tuple(lines[-10:])
