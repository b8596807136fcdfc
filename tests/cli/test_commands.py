"""What each command prints, per mode, and what it does to the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.config import load_config
from sluicegate.stream.home import MARKER, check_home, open_home
from tests.cli.terminal import Terminal
from tests.conftest import Sg

TARGETS = """
[targets.orders]
checkpoint = "orders"
[targets.gone]
checkpoint = "gone"
"""


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    (tmp_path / "sluicegate.toml").write_text(TARGETS)
    (tmp_path / "orders" / "offsets").mkdir(parents=True)
    (tmp_path / "orders" / "metadata").write_text('{"id":"x"}')
    return tmp_path


class TestInit:
    def test_makes_a_home_and_a_configuration(self, sg: Sg, tmp_path: Path) -> None:
        result = sg("init", "--yes")
        assert result.returncode == 0
        assert result.stdout == (
            "action\tplace\tdetail\n"
            "create the home\t.sluicegate\ta new directory\n"
            "write\tsluicegate.toml\ta commented example; it sets nothing\n"
        )
        assert check_home(str(tmp_path / ".sluicegate")) == []
        assert load_config(tmp_path / "sluicegate.toml").home is None

    def test_again_does_nothing(self, sg: Sg, tmp_path: Path) -> None:
        sg("init", "--yes")
        before = open_home(str(tmp_path / ".sluicegate"))
        again = sg("init", "--json")
        assert again.returncode == 0, "nothing to do needs no confirmation"
        assert json.loads(again.stdout)["actions"] == []
        assert open_home(str(tmp_path / ".sluicegate")) == before

    def test_never_overwrites(self, sg: Sg, tmp_path: Path) -> None:
        (tmp_path / "sluicegate.toml").write_text("# mine")
        (tmp_path / ".sluicegate").mkdir()
        (tmp_path / ".sluicegate" / "something").write_text("mine too")
        assert "keeps its 1 entry" in sg("init", "--yes").stdout
        assert (tmp_path / "sluicegate.toml").read_text() == "# mine"
        assert (tmp_path / ".sluicegate" / "something").read_text() == "mine too"

    def test_dry_run_changes_nothing(self, sg: Sg, tmp_path: Path) -> None:
        for flag in ("--dry-run", "-n"):
            result = sg("init", flag)
            assert result.returncode == 0
            assert "create the home" in result.stdout
        assert list(tmp_path.iterdir()) == []

    def test_without_a_terminal_it_needs_a_word(self, sg: Sg, tmp_path: Path) -> None:
        result = sg("init")
        assert (result.returncode, result.stdout) == (4, "")
        assert "--dry-run" in result.stderr
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(("reply", "code"), [("y", 0), ("yes", 0), ("n", 4), ("", 4)])
    def test_on_a_terminal_it_shows_and_asks(self, tmp_path: Path, reply: str, code: int) -> None:
        terminal = Terminal("init", cwd=tmp_path)
        terminal.answer("Proceed? [y/N] ", reply)
        assert terminal.finish()[0] == code
        assert bool(list(tmp_path.iterdir())) is (code == 0)

    def test_the_end_of_input_is_a_no(self, tmp_path: Path) -> None:
        terminal = Terminal("init", cwd=tmp_path)
        terminal.process.expect_exact("Proceed? [y/N] ")
        terminal.process.sendeof()
        assert terminal.finish()[0] == 4
        assert list(tmp_path.iterdir()) == []

    def test_json_never_asks(self, tmp_path: Path) -> None:
        code, text = Terminal("init", "--json", cwd=tmp_path).finish()
        assert code == 4
        assert json.loads(text)["exit_code"] == 4

    def test_a_damaged_marker_is_refused(self, sg: Sg, tmp_path: Path) -> None:
        sg("init", "--yes")
        marker = tmp_path / ".sluicegate" / MARKER.name
        marker.write_bytes(marker.read_bytes()[:-1])
        assert sg("init", "--yes").returncode == 12

    def test_read_only_is_obeyed(self, sg: Sg, tmp_path: Path) -> None:
        (tmp_path / "sluicegate.toml").write_text("read_only = true")
        result = sg("init", "--yes")
        assert result.returncode == 4
        assert "read_only = true" in result.stderr
        assert not (tmp_path / ".sluicegate").exists()
        assert sg("init", "--dry-run").returncode == 0

    def test_require_reason_is_obeyed(self, sg: Sg, tmp_path: Path) -> None:
        (tmp_path / "sluicegate.toml").write_text("require_reason = true")
        refused = sg("init", "--yes")
        assert refused.returncode == 4
        assert "--reason" in refused.stderr
        assert sg("init", "--yes", "--reason", "first set-up").returncode == 0

    def test_a_file_in_the_way(self, sg: Sg, tmp_path: Path) -> None:
        (tmp_path / ".sluicegate").write_text("a file")
        result = sg("init", "--yes")
        assert result.returncode == 1
        assert "not a directory" in result.stderr


class TestStatus:
    def test_in_a_pipe(self, sg: Sg, installation: Path) -> None:
        result = sg("status")
        assert result.returncode == 3
        assert result.stdout == (
            "target\tstate\tkind\tbatch\tupdated\twhere\n"
            f"gone\terror\t-\t-\t-\t{installation}/gone\n"
            f"orders\tok\tspark-checkpoint\t-\t-\t{installation}/orders\n"
            "\n"
            "code\tseverity\tplace\tdetail\trepair\n"
            f"SG-TARGET-MISSING\terror\t{installation}/gone\t"
            f"{installation}/gone does not exist\t-\n"
        )

    def test_as_json(self, sg: Sg, installation: Path) -> None:
        document = json.loads(sg("status", "--json").stdout)
        assert (document["schema"], document["version"]) == ("sluicegate.status", 1)
        assert [t["target"] for t in document["targets"]] == ["gone", "orders"]
        assert document["findings"][0]["code"] == "SG-TARGET-MISSING"

    def test_on_a_terminal(self, installation: Path) -> None:
        code, text = Terminal("status", cwd=installation, columns=200).finish_plain()
        assert code == 3
        assert text.splitlines() == [
            "TARGET  STATE  KIND              BATCH  UPDATED  WHERE",
            f"gone    error  -                 -      -        {installation}/gone",
            f"orders  ok     spark-checkpoint  -      -        {installation}/orders",
            "",
            f"error SG-TARGET-MISSING {installation}/gone",
            f"  {installation}/gone does not exist",
        ]

    def test_watched(self, installation: Path) -> None:
        terminal = Terminal("status", "--watch", cwd=installation, columns=200)
        terminal.process.expect_exact("\x1b[?1049h\x1b[H")
        terminal.process.expect_exact("SG-TARGET-MISSING")
        (installation / "gone").mkdir()
        terminal.process.expect_exact("SG-TARGET-UNRECOGNISED")
        terminal.process.sendintr()
        code, text = terminal.finish()
        assert code == 0
        assert text.endswith("\x1b[?1049l"), "the screen is as it was"

    def test_only_a_terminal_is_watched(self, sg: Sg, installation: Path) -> None:
        result = sg("status", "--watch")
        assert (result.returncode, result.stdout) == (2, "")

    def test_nothing_is_cut_on_a_narrow_terminal(self, installation: Path) -> None:
        _, text = Terminal("status", cwd=installation, columns=64).finish_plain()
        header, *lines = text.split("\n\n")[0].splitlines()
        at = header.index("WHERE")
        folded = "".join(line[at:].strip() for line in lines)
        assert folded == f"{installation}/gone{installation}/orders"

    def test_many_findings_of_one_code_do_not_bury_the_others(self, tmp_path: Path) -> None:
        gone = "".join(f'[targets.t{n}]\ncheckpoint = "gone{n}"\n' for n in range(30))
        (tmp_path / "sluicegate.toml").write_text(gone)
        _, text = Terminal("status", cwd=tmp_path, columns=200).finish_plain()
        assert text.count("error SG-TARGET-MISSING") == 10
        assert "... and 20 more SG-TARGET-MISSING; see them all with --json" in text

    def test_one_target(self, sg: Sg, installation: Path) -> None:
        assert sg("status", "orders").stdout == (
            "target\torders\n"
            "state\tok\n"
            "kind\tspark-checkpoint\n"
            f"where\t{installation}/orders\n"
            "why\tit has metadata, offsets\n"
            "last_batch\t-\n"
            "updated_at\t-\n"
            "summary\tnothing has run yet\n"
        )
        assert sg("status", "gone").returncode == 10
        assert sg("status", str(installation)).returncode == 14

    def test_hostile_file_names_cannot_move_the_cursor(self, sg: Sg, tmp_path: Path) -> None:
        name = "topic\x1b[2J\t\u202e\udcff"
        os.mkdir(os.fsencode(tmp_path) + b"/" + os.fsencode(name))
        result = sg("status", os.fsdecode(os.fsencode(tmp_path / name)))
        assert result.returncode == 14
        assert "topic\\x1b[2J\\t\\u202e\\udcff" in result.stderr
        assert "\x1b" not in result.stderr

    def test_without_names_it_says_what_to_do(self, sg: Sg, tmp_path: Path) -> None:
        assert (sg("status").returncode, sg("status").stdout) == (0, "")
        _, text = Terminal("status", cwd=tmp_path).finish_plain()
        assert "No targets in sluicegate.toml. Add them there" in text


class TestDoctor:
    def test_looks_at_everything_and_leaves_nothing(self, sg: Sg, tmp_path: Path) -> None:
        result = sg("doctor", "--json")
        assert result.returncode == 0, result.stdout
        document = json.loads(result.stdout)
        assert [check["check"] for check in document["checks"]] == [
            "python", "java", "spark", "kafka connector", "delta connector", "iceberg connector",
            "home", "file system", "locks", "clock", "mount", "space", "sg on PATH",
        ]  # fmt: skip
        assert list(tmp_path.iterdir()) == []

    def test_another_sg_first_on_path_is_a_warning(self, sg: Sg, tmp_path: Path) -> None:
        other = tmp_path / "bin" / "sg"
        other.parent.mkdir()
        other.write_text("#!/bin/sh\necho another program\n")
        other.chmod(0o755)
        path = f"{other.parent}:{os.environ['PATH']}"
        findings = json.loads(sg("doctor", "--json", PATH=path).stdout)["findings"]
        assert [(f["code"], f["place"]) for f in findings if "PATH" in f["code"]] == [
            ("SG-ENV-PATH-COLLISION", str(other))
        ]

    def test_missing_java_is_a_warning_that_names_the_package(self, sg: Sg, tmp_path: Path) -> None:
        result = sg("doctor", "--json", PATH=str(tmp_path), JAVA_HOME="")
        assert result.returncode == 0
        (finding,) = [f for f in json.loads(result.stdout)["findings"] if "JAVA" in f["code"]]
        assert finding["severity"] == "warning"
        assert finding["repair"] == "apt-get install openjdk-17-jre-headless"

    def test_an_unmarked_home_is_an_error(self, sg: Sg, tmp_path: Path) -> None:
        (tmp_path / ".sluicegate").mkdir()
        result = sg("doctor", "--json")
        assert result.returncode == 3
        codes = [f["code"] for f in json.loads(result.stdout)["findings"]]
        assert codes[0] == "SG-HOME-UNMARKED"

    def test_read_only_means_no_probes(self, sg: Sg, tmp_path: Path) -> None:
        (tmp_path / "sluicegate.toml").write_text("read_only = true")
        assert "not tested: read_only is set" in sg("doctor").stdout


class TestLocksList:
    def test_held_and_free(self, sg: Sg, tmp_path: Path) -> None:
        code = (
            "import pathlib, sys\n"
            "from sluicegate.locks import FileLock\n"
            "with FileLock(pathlib.Path('held.lock')).hold():\n"
            "    print(flush=True); sys.stdin.read()\n"
        )
        (tmp_path / "free.lock").touch()
        with subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as holder:
            assert holder.stdout
            holder.stdout.readline()
            found = json.loads(sg("locks", "list", ".", "--json").stdout)["locks"]
            holder.kill()
        assert [(lock["lock"], lock["held"]) for lock in found] == [
            ("free.lock", False),
            ("held.lock", True),
        ]
        assert found[1]["holders"][0]["pid"] == holder.pid
        assert found[1]["holders"][0]["process"] == "that process is alive"
        assert sg("locks", "list", ".").stdout == (
            "lock\tstate\tholder\nfree.lock\tfree\t-\nheld.lock\tfree\t-\n"
        )

    def test_no_directory(self, sg: Sg) -> None:
        assert sg("locks", "list", "nowhere").returncode == 10


class TestDemo:
    def test_nothing_is_lost(self, sg: Sg) -> None:
        # What kills do is shown in tests/job; here they would take twice as long.
        result = sg("demo", "--kills", "0", "--events", "20000", "--json")
        assert result.returncode == 0, result.stderr
        outcome = json.loads(result.stdout)
        assert (outcome["produced"], outcome["kills"]) == (20_000, 0)
        assert outcome["applied"] == outcome["output_rows"] == 20_000
        assert outcome["duplicates"] == outcome["retries"] > 0
        assert (outcome["lost"], outcome["duplicated"], outcome["keys_wrong"]) == (0, 0, 0)
