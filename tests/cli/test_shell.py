"""The rules of the command line, tried on the real command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluicegate import __version__
from sluicegate.errors import exit_codes
from sluicegate_cli import table
from sluicegate_cli.shell import load_command, load_module
from tests.cli.terminal import Terminal
from tests.conftest import Sg

SCRIPT = Path(sys.executable).with_name("sluicegate")


def test_version(sg: Sg) -> None:
    for arguments in (["--version"], ["--json", "--version"]):
        assert sg(*arguments).stdout == f"sluicegate {__version__}\n"


@pytest.mark.parametrize("name", ["sluicegate", "sg"])
def test_both_names_are_installed(name: str) -> None:
    script = Path(sys.executable).with_name(name)
    result = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"sluicegate {__version__}\n"


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "sluicegate_cli", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("Usage: sluicegate ")


def test_help_lists_every_command_and_exit_code(sg: Sg) -> None:
    text = sg("--help").stdout
    unfolded = " ".join(text.split())
    for name, summary in table.below("").items():
        assert f"  {name} " in text
        assert summary in unfolded
    for code, meaning in exit_codes().items():
        assert f"  {code} " in text
        assert meaning in text


@pytest.mark.parametrize("command", table.COMMANDS)
def test_every_command_has_help_with_examples(command: str, sg: Sg) -> None:
    result = sg(*command.split(), "--help")
    assert result.returncode == 0
    assert f"Usage: sluicegate {command} [OPTIONS]" in result.stdout
    for option in ("--json", "--no-color", "--home", "--config"):
        assert option in result.stdout
    for example, what in load_module(command).EXAMPLES:
        assert f"  # {what}\n  sluicegate {example}\n" in result.stdout


@pytest.mark.parametrize("command", table.COMMANDS)
def test_mutating_commands_have_the_options_of_a_change(command: str) -> None:
    loaded = load_command(command)
    context = loaded.make_context(command, [], resilient_parsing=True)
    names = {name for param in loaded.get_params(context) for name in param.opts}
    changes = getattr(load_module(command), "CHANGES", False)
    assert ({"--dry-run", "-n", "--yes", "-y", "--reason"} <= names) is changes


def test_no_command_group_is_named_like_a_system_group() -> None:
    """`sg GROUP …` of Debian would run it."""
    usual = {"adm", "audio", "backup", "daemon", "disk", "docker", "games", "kvm", "list", "lp",
             "mail", "man", "news", "operator", "plugdev", "root", "shadow", "src", "staff", "sudo",
             "sys", "tape", "tty", "users", "utmp", "video", "wheel", "www-data"}  # fmt: skip
    assert not usual & set(table.below(""))


@pytest.mark.parametrize("arguments", [(), ("locks",)])
def test_without_a_command_help_is_shown_as_an_error(arguments: tuple[str], sg: Sg) -> None:
    result = sg(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert "Commands:" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "expected", "following"),
    [
        (("doctro",), "No such command 'doctro'. Did you mean 'doctor'?", "sluicegate --help"),
        (("locks", "lst"), "Did you mean 'list'?", "sluicegate locks --help"),
        (("status", "--jsno"), "No such option: --jsno", "sluicegate status --help"),
        (("status", "--as", "x"), "Invalid value for '--as'", "sluicegate status --help"),
        (("status", "a", "b"), "unexpected extra argument", "sluicegate status --help"),
        (("demo", "--kills", "-1"), "Invalid value for '--kills'", "sluicegate demo --help"),
        (("status", "--home"), "requires an argument", "sluicegate --help"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], expected: str, following: str, sg: Sg) -> None:
    result = sg(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("sluicegate: error: ")
    assert expected in result.stderr
    assert result.stderr.endswith(f"  next: {following}\n")
    as_json = json.loads(sg("--json", *arguments).stderr)
    assert (as_json["schema"], as_json["exit_code"]) == ("sluicegate.error", 2)


def test_an_error_in_each_mode(sg: Sg) -> None:
    text = sg("status", "nope")
    assert (text.returncode, text.stdout) == (10, "")
    assert text.stderr == (
        "sluicegate: error: there is no target or file 'nope'; "
        "sluicegate.toml names no targets\n"
        "  next: list the known targets with: sluicegate status\n"
    )
    document = sg("status", "nope", "--json")
    assert (document.returncode, document.stdout) == (10, "")
    assert json.loads(document.stderr) == {
        "schema": "sluicegate.error",
        "version": 1,
        "error": "NotFound",
        "exit_code": 10,
        "message": "there is no target or file 'nope'; sluicegate.toml names no targets",
        "hint": "list the known targets with: sluicegate status",
        "place": None,
    }


@pytest.mark.parametrize("line", [("--json", "status"), ("status", "--json")])
def test_common_options_count_wherever_they_stand(line: tuple[str, ...], sg: Sg) -> None:
    assert json.loads(sg(*line).stdout)["schema"] == "sluicegate.status"


def test_home_comes_from_option_environment_configuration_default(sg: Sg, tmp_path: Path) -> None:
    (tmp_path / "sluicegate.toml").write_text('home = "from-file"')

    def home(*arguments: str, **variables: str) -> str:
        plan = json.loads(sg("init", "--dry-run", "--json", *arguments, **variables).stdout)
        return str(Path(plan["actions"][0]["place"]).name)

    assert home("--home", "from-option", SG_HOME="from-variable") == "from-option"
    assert home(SG_HOME="from-variable") == "from-variable"
    assert home() == "from-file"
    (tmp_path / "sluicegate.toml").unlink()
    assert home() == ".sluicegate"


def test_the_configuration_can_be_named(sg: Sg, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('[targets.orders]\ncheckpoint = "x"')
    assert "orders" in sg("status", "--config", "other.toml").stdout
    assert "orders" in sg("status", SG_CONFIG="other.toml").stdout
    assert sg("status", "--config", "no.toml").returncode == 10


def test_a_broken_configuration_is_one_line(sg: Sg, tmp_path: Path) -> None:
    (tmp_path / "sluicegate.toml").write_text("hoem = 1")
    result = sg("status")
    assert result.returncode == 2
    assert "unknown key hoem; did you mean 'home'?" in result.stderr
    assert "Traceback" not in result.stderr


def test_no_traceback_unless_asked_for(sg: Sg, tmp_path: Path) -> None:
    assert "Traceback" not in sg("status", "nope").stderr
    assert "Traceback" in sg("status", "nope", SG_DEBUG="1").stderr


def test_an_unexpected_error_is_shown_in_one_line(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "import sluicegate_cli.commands.status as command\n"
        "def broken(*_): raise ZeroDivisionError('a bug')\n"
        "command.overview = broken\n"
        "from sluicegate_cli.shell import run\n"
        "sys.exit(run(['sg', 'status']))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "sg: error: unexpected ZeroDivisionError: a bug",
        "  next: set SG_DEBUG=1 and run the command again for the full traceback",
    ]


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    targets = "".join(f'[targets.t{n}]\ncheckpoint = "x{n}"\n' for n in range(3000))
    (tmp_path / "sluicegate.toml").write_text(targets)
    result = subprocess.run(
        ["bash", "-c", f"'{SCRIPT}' status | head -1; echo ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    # Its own exit code survives: the targets are missing, and that is what matters.
    assert result.stdout.split("\n")[1] == "3"
    assert result.stderr == ""


def test_a_full_disk_behind_the_output_is_an_error(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [SCRIPT, "status", "--json"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 1
    assert "cannot write the result" in json.loads(result.stderr)["message"]


@contextmanager
def endless_demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo that has begun to kill and will not end by itself."""
    process = subprocess.Popen(
        [SCRIPT, "demo", "--kills", "1000"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        # A test run in the background has SIGINT ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    try:
        assert process.stderr
        while "the producer was killed" not in process.stderr.readline():
            pass
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals(number: int, code: int, tmp_path: Path) -> None:
    with endless_demo(tmp_path) as process:
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert "error: " in errors


def test_an_interrupted_demo_leaves_no_process_behind(tmp_path: Path) -> None:
    with endless_demo(tmp_path) as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    deadline = time.monotonic() + 10
    while _demo_writers(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _demo_writers(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def _demo_writers(root: Path) -> list[str]:
    listing = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True)
    return [line for line in listing.stdout.splitlines() if str(root) in line]


class TestColour:
    def has_colour(self, tmp_path: Path, *arguments: str, **variables: str) -> bool:
        (tmp_path / "sluicegate.toml").write_text('[targets.a]\ncheckpoint = "x"')
        code, text = Terminal("status", *arguments, cwd=tmp_path, env=variables).finish()
        assert code == 3
        return "\x1b[" in text

    def test_on_a_terminal(self, tmp_path: Path) -> None:
        assert self.has_colour(tmp_path)

    def test_not_if_switched_off(self, tmp_path: Path) -> None:
        assert not self.has_colour(tmp_path, "--no-color")
        assert not self.has_colour(tmp_path, NO_COLOR="1")
        assert not self.has_colour(tmp_path, "--json")

    def test_not_in_errors_either(self, tmp_path: Path) -> None:
        _, text = Terminal("status", "nope", "--no-color", cwd=tmp_path).finish()
        assert "\x1b" not in text

    def test_not_in_a_pipe(self, sg: Sg) -> None:
        assert "\x1b" not in sg("doctor").stdout
