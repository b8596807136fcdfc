"""Is a job writing to a checkpoint? Files, locks, processes, and hidden processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sluicegate.checkpoint.writers import LOCK, WINDOW, refuse_living, settle, signs_of_life
from sluicegate.errors import Locked
from sluicegate.liveness import Evidence, Verdict
from sluicegate.liveness.proc import Proc
from sluicegate.locks import FileLock
from sluicegate.storage import LocalStorage, open_storage
from tests.spark.conftest import QUERY, FakeJvm, make_old

STREAMING = "stream execution thread for orders"


def look(root: Path, *, ahead: float = 0.0) -> Evidence:
    storage = open_storage(str(root), read_only=True)
    return signs_of_life(storage, now=time.time() + ahead, timeout=0.3)


def lines_about(evidence: Evidence, process: subprocess.Popen[bytes]) -> list[str]:
    """The lines about one process; others of this machine are not our business here."""
    return [line for line in evidence.lines if f"pid {process.pid} " in line]


class TestFiles:
    def test_left_alone_is_quiet(self, checkpoint: Path) -> None:
        evidence = look(checkpoint)
        assert evidence.verdict is Verdict.QUIET
        assert any("batch 3 is planned but not committed" in line for line in evidence.lines)
        refuse_living(open_storage(str(checkpoint)))

    @pytest.mark.parametrize(
        "name", ["offsets/4", "commits/.3.0d7a.tmp", "state/0/1/5.delta", "sources/0/4"]
    )
    def test_a_recent_write_may_be_a_job(self, checkpoint: Path, name: str) -> None:
        file = checkpoint / name
        file.parent.mkdir(parents=True, exist_ok=True)
        make_old(checkpoint)
        file.write_text("")
        evidence = look(checkpoint)
        assert evidence.verdict is Verdict.POSSIBLY_ALIVE
        assert any(f"newest write: {name}" in line for line in evidence.lines)
        assert look(checkpoint, ahead=WINDOW + 1).verdict is Verdict.QUIET

    def test_so_may_a_removal(self, checkpoint: Path) -> None:
        (checkpoint / "offsets" / "0").unlink()
        assert look(checkpoint).verdict is Verdict.POSSIBLY_ALIVE

    def test_a_clock_ahead_of_ours_is_recent(self, checkpoint: Path) -> None:
        make_old(checkpoint / "offsets", time.time() + 3600)
        assert look(checkpoint).verdict is Verdict.POSSIBLY_ALIVE

    def test_what_is_known_to_have_ended_does_not_count(self, checkpoint: Path) -> None:
        (checkpoint / "commits" / "3").write_text("v1")
        settle(LocalStorage(checkpoint))
        assert look(checkpoint).verdict is Verdict.QUIET
        time.sleep(0.05)
        (checkpoint / "offsets" / "4").write_text("v1")
        assert look(checkpoint).verdict is Verdict.POSSIBLY_ALIVE

    def test_the_refusal_says_until_when(self, checkpoint: Path) -> None:
        (checkpoint / "offsets" / "4").write_text("v1")
        storage = open_storage(str(checkpoint))
        with pytest.raises(
            Locked, match="a job may be writing to it: newest write: offsets/4"
        ) as e:
            refuse_living(storage, look=lambda s: signs_of_life(s, timeout=0))
        assert "writes alone count until 20" in e.value.hint
        refuse_living(storage, accept_possible=True)


class TestLock:
    def test_held_by_another_process(self, checkpoint: Path, tmp_path: Path) -> None:
        holding = (
            "import sys, time; from pathlib import Path; from sluicegate.locks import FileLock\n"
            "with FileLock(Path(sys.argv[1])).hold(): print(flush=True); time.sleep(60)"
        )
        (checkpoint / LOCK).parent.mkdir()
        make_old(checkpoint)
        command = [sys.executable, "-c", holding, str(checkpoint / LOCK)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            evidence = look(checkpoint)
            assert evidence.verdict is Verdict.ALIVE
            assert any(LOCK in line and f"pid {process.pid}" in line for line in evidence.lines)
            with pytest.raises(Locked):
                refuse_living(open_storage(str(checkpoint)), accept_possible=True)
            process.kill()
        assert look(checkpoint).verdict is Verdict.QUIET

    def test_held_by_ourselves(self, checkpoint: Path) -> None:
        (checkpoint / LOCK).parent.mkdir()
        make_old(checkpoint)
        with FileLock(checkpoint / LOCK).hold():
            assert look(checkpoint).verdict is Verdict.QUIET


class TestProcesses:
    def test_a_file_open_to_write(self, checkpoint: Path) -> None:
        file = checkpoint / "offsets" / ".4.tmp"
        with file.open("w") as stream:
            process = subprocess.Popen(["sleep", "60"], stdout=stream)
        make_old(checkpoint)
        try:
            evidence = look(checkpoint)
            assert evidence.verdict is Verdict.ALIVE
            [line] = lines_about(evidence, process)
            assert "(sleep), since 20" in line
            assert f"it has {file} open" in line
        finally:
            process.kill()
            process.wait()

    def test_a_reader_is_no_writer(self, checkpoint: Path) -> None:
        with (checkpoint / "offsets" / "3").open() as stream:
            process = subprocess.Popen(["sleep", "60"], stdin=stream)
        try:
            assert look(checkpoint).verdict is Verdict.QUIET
        finally:
            process.kill()
            process.wait()

    def test_a_jvm_that_names_it(self, checkpoint: Path, tmp_path: Path, jvm: FakeJvm) -> None:
        (tmp_path / "link").symlink_to(checkpoint)
        (tmp_path / "near").mkdir()
        ways = [
            jvm(str(checkpoint)),
            jvm("--conf", f"spark.sluicegate.checkpoint={checkpoint}"),
            jvm(f"file://{checkpoint}"),
            jvm(str(tmp_path / "link")),
            jvm("../checkpoint/offsets", cwd=tmp_path / "near"),
            jvm(CHECKPOINT=str(tmp_path / "link")),
        ]
        evidence = look(tmp_path / "link")
        for process in ways:
            [line] = lines_about(evidence, process)
            assert "its command line or environment names it" in line
        assert evidence.verdict is Verdict.ALIVE

    def test_a_jvm_that_names_another(self, checkpoint: Path, jvm: FakeJvm) -> None:
        process = jvm(f"{checkpoint}2", "checkpoint", str(checkpoint.parent), cwd=checkpoint)
        assert lines_about(look(checkpoint), process) == []

    def test_no_secret_of_it_is_shown(self, checkpoint: Path, jvm: FakeJvm) -> None:
        process = jvm(
            "org.apache.spark.deploy.SparkSubmit",
            *("--conf", "spark.password=geheim", "--jars", "a.jar", "/opt/job.py", "geheim"),
            str(checkpoint),
        )
        [line] = lines_about(look(checkpoint), process)
        assert "(java SparkSubmit job.py), since 20" in line
        assert f"started by pid {os.getpid()} (python" not in line, "that is ourselves"
        assert "geheim" not in line

    def test_some_streaming_query(self, checkpoint: Path, jvm: FakeJvm) -> None:
        process = jvm(thread=STREAMING, cwd=Path("/"))
        evidence = look(checkpoint)
        assert evidence.verdict is Verdict.QUIET
        [line] = lines_about(evidence, process)
        assert "an unidentified streaming query" in line
        assert line in evidence.doubts

    def test_some_streaming_query_nearby(self, checkpoint: Path, jvm: FakeJvm) -> None:
        process = jvm(str(checkpoint.parent), thread=STREAMING)
        evidence = look(checkpoint)
        assert evidence.verdict is Verdict.POSSIBLY_ALIVE
        assert "names the directory above" in lines_about(evidence, process)[0]

    def test_one_that_writes_while_it_is_watched(self, checkpoint: Path, jvm: FakeJvm) -> None:
        body = f"time.sleep(1)\nf = open({str(checkpoint / 'offsets/4')!r}, 'w')"
        process = jvm(thread=STREAMING, body=body, cwd=Path("/"))
        (checkpoint / "commits" / "3").write_text("v1")
        storage = open_storage(str(checkpoint), read_only=True)
        evidence = signs_of_life(storage, timeout=30)
        assert evidence.verdict is Verdict.ALIVE
        assert [line for line in lines_about(evidence, process) if "offsets/4 open" in line]
        assert evidence.doubts == [line for line in evidence.doubts if str(process.pid) not in line]


PAGE = """
<h4>Active Streaming Queries (1)</h4> <td>orders</td><td>{query}</td>
<a href="/StreamingQuery/statistics/?id=846de903-dd8d-4521-b292-7f7a2a77a9f1">x</a>
"""
SERVER = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write({page!r}.encode())
    def log_message(self, *_): pass
HTTPServer(("127.0.0.1", {port}), Page).serve_forever()
"""


class TestWebInterface:
    """With the parts of a driver's page (seen on Spark 4.3) that are looked at."""

    def serve(self, jvm: FakeJvm, query: str) -> subprocess.Popen[bytes]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        body = SERVER.format(page=PAGE.format(query=query), port=port)
        process = jvm(f"spark.ui.port={port}", thread=STREAMING, body=body, cwd=Path("/"))
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return process
            time.sleep(0.05)
        raise AssertionError("the server does not come up")

    def test_lists_the_query(self, checkpoint: Path, jvm: FakeJvm) -> None:
        process = self.serve(jvm, QUERY)
        evidence = look(checkpoint)
        assert evidence.verdict is Verdict.ALIVE
        assert "lists the query" in lines_about(evidence, process)[0]

    def test_lists_another(self, checkpoint: Path, jvm: FakeJvm) -> None:
        process = self.serve(jvm, "bba75124-8695-40a8-b0e3-d8856de66ac1")
        assert lines_about(look(checkpoint), process) == []


class TestUnseen:
    @pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
    def test_processes_of_others(self, checkpoint: Path, jvm: FakeJvm) -> None:
        process = jvm(thread=STREAMING, cwd=Path("/"))
        proc = Proc()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setuid(65534)
                opened = proc.open_files(process.pid)
                threads = proc.threads(process.pid)
                os.write(write, f"{opened} {sorted(threads)}".encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 1000).decode() == "None ['stream executio']"

    def test_is_reported(
        self, checkpoint: Path, jvm: FakeJvm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        process = jvm(thread=STREAMING, cwd=Path("/"))
        monkeypatch.setattr(Proc, "open_files", lambda _self, _pid: None)
        evidence = look(checkpoint)
        assert evidence.verdict is Verdict.QUIET
        assert any("cannot be read" in line and "JVM" in line for line in evidence.unseen)
        assert lines_about(evidence, process)

    def test_no_proc(self, checkpoint: Path, tmp_path: Path) -> None:
        storage = open_storage(str(checkpoint))
        evidence = signs_of_life(storage, proc=Proc(tmp_path / "none"))
        assert evidence.verdict is Verdict.QUIET
        assert evidence.unseen == ("this system has no /proc, so its processes were not checked",)
