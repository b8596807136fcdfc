"""A job while it runs: output, log, progress, signals, and nothing left behind. No JVM needed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluicegate.errors import Fenced
from tests.cli.terminal import Terminal
from tests.conftest import Sg
from tests.spark.conftest import write_checkpoint

LOGS = Path(__file__).parent / "logs"
REPORT = """
import os, time
from sluicegate.spark.submit.progress import Progress, Reports
path = [c for c in os.environ["CONFS"].splitlines() if "progress=" in c][0].split("=", 1)[1]
reports = Reports(path)
for batch in range(3):
    reports.send(Progress("orders", "id", batch, 10, 5.0, 0.2, "now", (), "orders"))
"""
PATIENT = """
import signal, sys, time
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
print("up", flush=True)
while not stopped: time.sleep(0.05)
print("finished the batch", flush=True)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(60)
"""
ORPHANS = "import subprocess; subprocess.Popen(['sleep', '61.5']); print('up', flush=True)"


# A signal that comes while a process is forked: its handler runs inside of a hook.
IN_A_FORK = """
import os, signal, subprocess
from sluicegate.spark.submit import process
class Stop(BaseException): pass
def stop(*_): raise Stop
signal.signal(signal.SIGTERM, stop)
os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGTERM))
try:
    process.start(["true"])
except Stop:
    print("stopped")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
blocked = process.start(["grep", "SigBlk", "/proc/self/status"], stdout=subprocess.PIPE)
print(blocked.communicate()[0].decode().split()[1].strip("0") or "none blocked")
"""


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@contextmanager
def started(launcher: Path, app: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """`sluicegate submit` once its application is up."""
    script = Path(sys.executable).with_name("sluicegate")
    command = [str(script), "submit", "--app", app, "--spark-submit", str(launcher)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
    )
    assert process.stdout
    assert process.stdout.readline() == "up\n"
    yield process
    process.kill()
    process.communicate()


def leader(text: str) -> int:
    found = re.search(r"running, pid (\d+)", text)
    assert found
    return int(found[1])


def members(session: int) -> list[str]:
    """The living processes of a session."""
    answer = subprocess.run(
        ["ps", "-o", "stat=,args=", "--sid", str(session)],
        capture_output=True,
        text=True,
        check=False,
    )
    return [line for line in answer.stdout.splitlines() if not line.startswith("Z")]


def wait_until_gone(session: int) -> None:
    deadline = time.monotonic() + 20
    while members(session):
        assert time.monotonic() < deadline, members(session)
        time.sleep(0.1)


class TestOutput:
    def test_is_passed_on_and_the_log_is_a_file(
        self, sg: Sg, launcher: Path, tmp_path: Path
    ) -> None:
        app = write(tmp_path / "a.py", "import sys; print('result', sys.argv[1:])")
        words = ("submit", "--app", app, "--spark-submit", str(launcher), "--", "-x", "--json")
        result = sg(*words)
        assert (result.returncode, result.stdout) == (0, "result ['-x', '--json']\n")
        [log] = tmp_path.glob("sluicegate-submit-*.log")
        assert log.read_text() == "log of the launcher\n"
        assert f"log {log.name}" in result.stderr
        assert "Done in" in result.stderr

    def test_as_json(self, sg: Sg, launcher: Path, tmp_path: Path) -> None:
        app = write(tmp_path / "a.py", REPORT + "print('printed')")
        words = ("submit", "--app", app, "--spark-submit", str(launcher), "--log-dir", "bin")
        result = sg(*words, "--json")
        document = json.loads(result.stdout)
        assert (document["schema"], document["exit_code"]) == ("sluicegate.submit", 0)
        assert (document["batches"], document["rows"]) == (3, 30)
        assert document["last"]["batch"] == 2
        assert "printed" in (tmp_path / document["log"]).read_text()
        lines = [json.loads(line) for line in result.stderr.splitlines() if line[0] == "{"]
        assert [line["batch"] for line in lines] == [0, 2]
        assert lines[0]["schema"] == "sluicegate.progress"

    def test_a_failure(self, sg: Sg, launcher: Path, tmp_path: Path) -> None:
        app = write(tmp_path / "a.py", "raise RuntimeError('with geheim')")
        words = ("submit", "--app", app, "--spark-submit", str(launcher))
        result = sg(*words, "--conf", "spark.password=geheim")
        assert result.returncode == 20
        assert "error: the job ended with exit code 1; its log: sluicegate-submit-" in result.stderr
        assert "  RuntimeError: with ***" in result.stderr
        document = json.loads(sg(*words, "--json").stdout)
        assert document["exit_code"] == 1

    def test_a_failure_that_is_recognised(self, sg: Sg, launcher: Path, tmp_path: Path) -> None:
        sample = LOGS / "offsets_empty-4.3.0.log"
        text = f"import sys; sys.stdout.write(open({str(sample)!r}).read()); sys.exit(1)"
        app = write(tmp_path / "a.py", text)
        result = sg("submit", "--app", app, "--spark-submit", str(launcher))
        assert result.returncode == 20
        assert "(SG-OFFSETS-EMPTY)" in result.stderr
        assert "next: sluicegate checkpoint " in result.stderr or "next: man " in result.stderr

    def test_our_own_error_that_escapes_an_application(
        self, sg: Sg, launcher: Path, tmp_path: Path
    ) -> None:
        raising = "import sys, atexit; from sluicegate.errors import Fenced\n"
        raising += "atexit.register(lambda: print('bye\\n' * 20, file=sys.stderr))\n"
        app = write(tmp_path / "a.py", raising + "raise Fenced('another job took over')")
        result = sg("submit", "--app", app, "--spark-submit", str(launcher))
        assert result.returncode == Fenced.exit_code
        assert "the job ended: another job took over; its log: " in result.stderr

    def test_on_a_terminal(self, launcher: Path, tmp_path: Path) -> None:
        write(tmp_path / "a.py", REPORT + "time.sleep(2.5)\nprint('printed')")
        words = ("submit", "--app", "a.py", "--spark-submit", str(launcher))
        code, text = Terminal(*words, cwd=tmp_path).finish_plain()
        assert code == 0
        assert "orders: batch 2, 5 rows/s, took 0.2 s, " in text
        assert "printed" in text
        assert "Done in" in text

    def test_a_consumer_without_commits(
        self, sg: Sg, launcher: Path, store: Path, tmp_path: Path
    ) -> None:
        app = write(tmp_path / "a.py", REPORT)
        words = ("submit", "--app", app, "--spark-submit", str(launcher))
        result = sg(*words, "--offsets-store", str(store), "--consumer", "billing")
        assert result.stderr.count("commits to consumer orders, but the job was started from") == 1


class TestSignals:
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
    def test_the_first_lets_the_application_end(
        self, launcher: Path, tmp_path: Path, number: signal.Signals, code: int
    ) -> None:
        app = write(tmp_path / "a.py", PATIENT)
        with started(launcher, app, tmp_path) as process:
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (code, "finished the batch\n")
        assert "asked to stop and ended with exit code 0" in err
        assert members(leader(err)) == []

    def test_the_second_kills(self, launcher: Path, tmp_path: Path) -> None:
        app = write(tmp_path / "a.py", STUBBORN)
        with started(launcher, app, tmp_path) as process:
            process.terminate()
            time.sleep(1)
            assert process.poll() is None
            process.terminate()
            err = process.communicate(timeout=30)[1]
        assert process.returncode == 143
        assert "killing the job" in err
        assert members(leader(err)) == []

    def test_killed_ourselves_the_job_does_not_stay(self, launcher: Path, tmp_path: Path) -> None:
        # As Spark's own script: the JVM takes its place, and keeps what the kernel was asked for.
        launcher.write_text("#!/bin/sh\necho up; exec sleep 62.5\n")
        app = write(tmp_path / "a.py", "")
        with started(launcher, app, tmp_path) as process:
            # It says which process it started right after that has come up.
            time.sleep(1)
            process.kill()
            err = process.communicate()[1]
        wait_until_gone(leader(err))

    def test_children_that_were_forgotten(self, sg: Sg, launcher: Path, tmp_path: Path) -> None:
        app = write(tmp_path / "a.py", ORPHANS)
        result = sg("submit", "--app", app, "--spark-submit", str(launcher))
        assert result.returncode == 0
        assert members(leader(result.stderr)) == []


class TestCheckpoint:
    def test_is_locked_meanwhile_and_settled_afterwards(
        self, sg: Sg, launcher: Path, tmp_path: Path
    ) -> None:
        root = write_checkpoint(tmp_path / "checkpoint", last_committed=True)
        inner = (
            "import subprocess, sys\n"
            f"words = ['submit', '--app', __file__, '--checkpoint', {str(root)!r}, '-n']\n"
            f"sg = {str(Path(sys.executable).with_name('sluicegate'))!r}\n"
            "again = subprocess.run([sg, *words], capture_output=True, text=True)\n"
            "print(again.returncode, 'checkpoint.lock is held by' in again.stderr)\n"
            f"open({str(root / 'commits' / '4')!r}, 'w').write('v1')\n"
        )
        app = write(tmp_path / "a.py", inner)
        words = ("submit", "--app", app, "--spark-submit", str(launcher), "--checkpoint", str(root))
        result = sg(*words)
        assert (result.returncode, result.stdout) == (0, "11 True\n")
        assert "clean: the start begins with batch 4" in result.stderr
        os.unlink(root / "commits" / "4")
        os.utime(root / "commits", (1_794_000_000, 1_794_000_000))
        assert sg(*words, "--dry-run").returncode == 0


def test_no_signal_is_lost_in_a_fork() -> None:
    result = subprocess.run(
        [sys.executable, "-c", IN_A_FORK], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines() == ["stopped", "none blocked"]
    assert result.stderr == ""
