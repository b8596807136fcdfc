"""`sluicegate explain`: what it reads, what it prints, per mode."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import Corrupt, SluicegateError, UnsupportedFormat
from sluicegate.spark.explain import explain, read_lines, text
from tests.cli.terminal import Terminal
from tests.conftest import Sg
from tests.spark.explain_samples import LOGS, started, uuid_of

GAP = "java.lang.IllegalStateException: batch 7 doesn't exist\n"
LOG = started("a", "file:/data/orders/checkpoint") + (
    f"26/11/16 05:00:01 ERROR MicroBatchExecution: Query q [id = {uuid_of('a')}, runId = "
    f"{uuid_of('0')}] terminated with error\n{GAP}"
    "\tat org.apache.spark.sql.execution.streaming.MicroBatchExecution.populateStartOffsets(M:1)\n"
)


def lines_of(data: bytes) -> list[str]:
    return list(read_lines(io.BufferedReader(io.BytesIO(data)), "a.log"))


class TestReading:
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
    def test_any_encoding(self, encoding: str) -> None:
        data = f"Größe\r\n{GAP}".encode(encoding)
        assert explain(lines_of(data))[0].code == "SG-OFFSETS-GAP"
        assert explain(lines_of(gzip.compress(data)))[0].line == 2

    def test_undecodable_bytes_stay_visible(self) -> None:
        assert lines_of(b"caf\xe9 \xff\n") == ["caf\\xe9 \\xff\n"]

    def test_a_long_line_is_cut_and_counts_once(self) -> None:
        first, second = lines_of(b"x" * 1_000_000 + b"\n" + GAP.encode())
        assert len(first) == text.MAX_LINE
        assert second == GAP

    def test_reading_goes_line_by_line(self) -> None:
        class Endless(io.RawIOBase):
            taken = 0

            def readable(self) -> bool:
                return True

            def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
                self.taken += len(buffer)
                buffer[:] = b"x" * (len(buffer) - 1) + b"\n"
                return len(buffer)

        source = Endless()
        lines = read_lines(io.BufferedReader(source), "a.log")
        for _ in range(100):
            next(lines)
        assert source.taken < 3_000_000

    @pytest.mark.parametrize(
        "data", [b"\x7fELF\x02\0\0\0", b"PK\x03\x04\0\0", gzip.compress(b"\0", mtime=0)]
    )
    def test_binary_is_refused(self, data: bytes) -> None:
        with pytest.raises(UnsupportedFormat, match=r"a\.log is a binary file"):
            lines_of(data)

    @pytest.mark.parametrize("cut", [3, 12, -5])
    def test_damaged_gzip(self, cut: int) -> None:
        with pytest.raises(Corrupt, match="cannot be unpacked"):
            lines_of(gzip.compress(os.urandom(50_000).hex().encode())[:cut])

    @given(
        st.binary() | st.binary().map(gzip.compress) | st.text().map(lambda t: t.encode("utf-16"))
    )
    def test_any_bytes(self, data: bytes) -> None:
        try:
            assert explain(lines_of(data))
        except SluicegateError as e:
            assert e.exit_code in (10, 12, 14)

    @given(st.sampled_from(sorted(LOGS.glob("*.log"))), st.data())
    def test_damaged_logs(self, path: Path, data: st.DataObject) -> None:
        log = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 5))):
            at = data.draw(st.integers(0, len(log)))
            log[at : at + data.draw(st.integers(0, 200))] = data.draw(st.binary(max_size=20))
        self.test_any_bytes.hypothesis.inner_test(self, bytes(log))  # type: ignore[attr-defined]

    def test_progress_is_reported(self, tmp_path: Path) -> None:
        (tmp_path / "a.log").write_text("x\n" * 30_000)
        reports: list[tuple[int, int]] = []
        with text.opened(str(tmp_path / "a.log")) as stream:
            list(read_lines(stream, "a.log", lambda done, of: reports.append((done, of))))
        assert reports == [(done, 60_000) for done, _ in sorted(reports)]
        assert len(reports) == 3


class TestCommand:
    def test_in_a_pipe(self, sg: Sg, tmp_path: Path) -> None:
        (tmp_path / "driver.log").write_text(LOG)
        result = sg("explain", "driver.log")
        assert (result.returncode, result.stderr) == (0, "")
        rows = dict(line.split("\t") for line in result.stdout.splitlines())
        assert rows["cause"] == "the offsets file before the newest is missing"
        assert rows["code"] == "SG-OFFSETS-GAP"
        assert rows["seen"] == "line 3"
        assert rows["text"] == GAP.strip()
        assert rows["batch"] == "7"
        assert rows["query"] == uuid_of("a")
        assert rows["next"] == "sluicegate checkpoint verify /data/orders/checkpoint"

    def test_as_json_from_standard_input(self, sg: Sg) -> None:
        result = sg("explain", "-", "--json", input=LOG * 2)
        document = json.loads(result.stdout)
        assert (document["schema"], document["version"]) == ("sluicegate.explain", 1)
        assert document["log"] == "standard input"
        (only,) = document["explanations"]
        assert (only["code"], only["severity"], only["certain"]) == (
            "SG-OFFSETS-GAP",
            "error",
            True,
        )
        assert [only[key] for key in ("line", "first_line", "last_line", "count")] == [3, 3, 7, 2]
        assert only["facts"]["checkpoint"] == "/data/orders/checkpoint"

    def test_on_a_terminal_the_command_can_be_copied(self, tmp_path: Path) -> None:
        deep = "/data/" + "deep/" * 30 + "checkpoint"
        (tmp_path / "a.log").write_text(LOG.replace("/data/orders/checkpoint", deep))
        code, text = Terminal("explain", "a.log", cwd=tmp_path, columns=80).finish_plain()
        assert code == 0
        assert f"next: sluicegate checkpoint verify {deep}" in text.splitlines()
        assert "cause 1 of" not in text

    def test_pasting_at_a_terminal(self, tmp_path: Path) -> None:
        terminal = Terminal("explain", "-", cwd=tmp_path)
        terminal.process.expect_exact("press Ctrl-D")
        terminal.process.send(GAP)
        terminal.process.sendeof()
        code, text = terminal.finish_plain()
        assert code == 0
        assert "SG-OFFSETS-GAP" in text

    def test_several_causes_are_numbered(self, tmp_path: Path) -> None:
        full = "26/11/16 05:00:02 ERROR Task: java.io.IOException: No space left on device\n"
        (tmp_path / "a.log").write_text(full + LOG)
        _, text = Terminal("explain", "a.log", cwd=tmp_path).finish_plain()
        assert text.index("cause 1 of 2") < text.index("SG-STORAGE-FULL")
        assert text.index("SG-STORAGE-FULL") < text.index("cause 2 of 2")

    @pytest.mark.parametrize(
        ("data", "code", "says"),
        [
            (b"", 10, "holds no error"),
            (b"a.b.C: what is this?\n", 10, "what is this?"),
            (b"\x7fELF\0\0", 14, "binary"),
            (gzip.compress(GAP.encode() * 100, mtime=0)[:-9], 12, "unpacked"),
        ],
    )
    def test_what_it_cannot_explain(
        self, tmp_path: Path, data: bytes, code: int, says: str
    ) -> None:
        (tmp_path / "a.log").write_bytes(data)
        script = Path(sys.executable).with_name("sluicegate")
        for arguments, given_input in ((["a.log"], None), (["-"], data)):
            result = subprocess.run(
                [script, "explain", *arguments],
                cwd=tmp_path,
                input=given_input,
                capture_output=True,
                check=False,
            )
            assert (result.returncode, result.stdout) == (code, b"")
            assert says in result.stderr.decode()
            assert "next: " in result.stderr.decode()

    def test_no_such_log(self, sg: Sg, tmp_path: Path) -> None:
        assert sg("explain", "gone.log").returncode == 10
        result = sg("explain", str(tmp_path))
        assert result.returncode == 2
        assert f"sluicegate checkpoint verify {tmp_path}" in result.stderr

    def test_hostile_text_cannot_move_the_cursor(self, sg: Sg) -> None:
        result = sg("explain", "-", input=f"\x07\x9b2J\u202e{GAP}")
        assert result.returncode == 0
        assert not set("\x07\x9b\u202e") & set(result.stdout)
