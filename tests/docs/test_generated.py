"""The generated files: up to date, complete, and understood by real shells and a real groff."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from generate import man
from generate.completions.bash import bash
from generate.completions.fish import fish
from generate.completions.zsh import zsh
from generate.tree import Argument, Command, Example, Option, read_tree

from sluicegate.config import parse_config
from sluicegate.findings import Rule, Severity, rules
from sluicegate_cli import table
from sluicegate_cli.shell import load_command
from tests.docs.shells import FILES, SHELLS, need, press_tab

ROOT = Path(__file__).resolve().parents[2]
NASTY = """it's "a" $HOME [b]: c\\d `e` %f (g) {h} -i ~ ^ …"""
_COMMON = (Option(("--home",), NASTY, "DIR"), Option(("-h", "--help"), NASTY))
_KIND = Option(("-k", "--kind"), NASTY, "KIND", ("spark", "state:x", "stream"))
_REASON = Option(("--reason",), NASTY, "TEXT", repeats=True)
_RULE = Rule("SG-TEST-NASTY", Severity.ERROR, NASTY, f".so {NASTY}")
SAMPLE = Command(
    path=(),
    summary="sample",
    help="Sample.",
    options=(Option(("--version",), NASTY), *_COMMON),
    below=(
        Command(
            path=("show",),
            summary=NASTY,
            help=f"'tis\n\n.{NASTY}",
            options=(_KIND, _REASON, *_COMMON),
            arguments=(
                Argument("FILE", NASTY),
                Argument("HOW", NASTY, ("fast", "slow"), required=False),
                Argument("NEW_DIR", NASTY, required=False, repeats=True),
            ),
            examples=(Example("show .", NASTY),),
            rules=(_RULE,),
        ),
        Command(
            path=("shards",),
            summary=NASTY,
            help=NASTY,
            options=_COMMON,
            below=(
                Command(("shards", "list"), NASTY, NASTY, _COMMON),
                Command(("shards", "re-balance"), NASTY, NASTY, (_REASON, *_COMMON)),
            ),
        ),
    ),
)
# What is typed, and what it becomes with one TAB; the directory has `data/` and `date.txt`.
LINES = [
    ("sluicegate sha", "sluicegate shards "),
    ("sg sha", "sg shards "),
    ("sluicegate shards re", "sluicegate shards re-balance "),
    ("sluicegate shards -- re", "sluicegate shards -- re-balance "),
    ("sluicegate --home /x sha", "sluicegate --home /x shards "),
    ("sluicegate --home=/x sha", "sluicegate --home=/x shards "),
    ("sluicegate shards --home sha", "sluicegate shards --home sha"),
    ("sluicegate --vers", "sluicegate --version "),
    ("sluicegate shards --vers", "sluicegate shards --vers"),
    ("sluicegate shards list --vers", "sluicegate shards list --vers"),
    ("sluicegate shards list --hel", "sluicegate shards list --help "),
    ("sluicegate shards list --reas", "sluicegate shards list --reas"),
    ("sluicegate show --kind sp", "sluicegate show --kind spark "),
    ("sluicegate show --kind=sp", "sluicegate show --kind=spark "),
    ("sluicegate show --kind=sta", "sluicegate show --kind=state:x "),
    ("sluicegate show --kind state:", "sluicegate show --kind state:x "),
    ("sluicegate show -k sp", "sluicegate show -k spark "),
    ("sluicegate show --reason sh", "sluicegate show --reason sh"),
    ("sluicegate show date", "sluicegate show date.txt "),
    ("sluicegate show --home dat", "sluicegate show --home data/"),
    ("sluicegate show --home=dat", "sluicegate show --home=data/"),
    ("sluicegate show a fa", "sluicegate show a fast "),
    ("sluicegate show --reason a -k spark a fa", "sluicegate show --reason a -k spark a fast "),
    ("sluicegate show --home /x a fa", "sluicegate show --home /x a fast "),
    ("sluicegate --home /x show --home /x a fa", "sluicegate --home /x show --home /x a fast "),
    ("sluicegate show a fast dat", "sluicegate show a fast data/"),
    ("sluicegate show a fast b dat", "sluicegate show a fast b data/"),
    ("sluicegate nonsense sha", "sluicegate nonsense sha"),
]
# What is typed, what one TAB lists, and what it must not list.
LISTS: list[tuple[str, set[str], set[str]]] = [
    ("sluicegate ", {"show", "shards"}, {"list", "--home"}),
    ("sluicegate sh", {"show", "shards"}, {"list"}),
    ("sluicegate shards ", {"list", "re-balance"}, {"show", "--home"}),
    ("sluicegate --h", {"--home", "--help"}, {"show", "--kind"}),
    ("sluicegate show -", {"--kind", "-k", "--reason", "--home", "--help", "-h"}, {"shards"}),
    ("sluicegate show --kind s", {"spark", "state:x", "stream"}, {"shards", "--kind"}),
    ("sluicegate show --kind ", {"spark", "state:x", "stream"}, {"date.txt", "--home"}),
    ("sluicegate show --kind=s", {"spark", "state:x", "stream"}, {"shards"}),
    ("sluicegate show dat", {"data/", "date.txt"}, {"shards"}),
]
REAL = [(f"sluicegate {path[:-1]}", f"sluicegate {path} ") for path in table.COMMANDS]


def run(*words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, env={**os.environ, **env}, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def tree() -> Command:
    return read_tree()


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A directory with the completions of the sample tree and something to complete."""
    for name, make in (("bash", bash), ("zsh", zsh), ("fish", fish)):
        (tmp_path / FILES[name]).write_text(make(SAMPLE))
    work = tmp_path / "work"
    (work / "data").mkdir(parents=True)
    (work / "date.txt").touch()
    return tmp_path


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_nothing_is_stale(seed: str) -> None:
    done = run(sys.executable, ROOT / "docs/generate", "--check", PYTHONHASHSEED=seed)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_generator_notices_and_mends(tmp_path: Path) -> None:
    generator = shutil.copytree(ROOT / "docs/generate", tmp_path / "docs/generate")
    assert run(sys.executable, generator).returncode == 0
    assert run(sys.executable, generator, "--check").returncode == 0

    (tmp_path / "completions/_sluicegate").write_text("changed")
    (tmp_path / "docs/reference/findings.md").unlink()
    (tmp_path / "docs/reference/gone.md").touch()
    (tmp_path / "man/man1/sluicegate-gone.1").touch()
    for _ in range(2):
        done = run(sys.executable, generator, "--check")
        assert done.returncode == 1
        assert done.stdout.splitlines() == [
            "stale: completions/_sluicegate",
            "stale: docs/reference/findings.md",
            "stale: docs/reference/gone.md",
            "stale: man/man1/sluicegate-gone.1",
        ]
    assert run(sys.executable, generator).returncode == 0
    assert run(sys.executable, generator, "--check").returncode == 0


@pytest.mark.parametrize("path", table.COMMANDS)
def test_command_is_documented(tree: Command, path: str) -> None:
    command = next(c for c in tree.leaves() if " ".join(c.path) == path)
    page = (ROOT / f"man/man1/{man.page_name(command)}.1").read_text()
    assert page.startswith('.TH "SLUICEGATE')
    assert command.examples
    for example in command.examples:
        words = shlex.split(example.line)
        assert tuple(words[: len(command.path)]) == command.path
        load_command(path).make_context("sluicegate", words[len(command.path) :])


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_completes(shell: str, tmp_path: Path) -> None:
    answers = press_tab(shell, ROOT / "completions", [line for line, _ in REAL], tmp_path)
    assert {line: answer.line for line, answer in answers.items()} == dict(REAL)


@pytest.mark.parametrize("shell", SHELLS)
def test_only_candidate_is_filled_in(shell: str, sample: Path) -> None:
    answers = press_tab(shell, sample, [line for line, _ in LINES], sample / "work")
    assert {line: answer.line for line, answer in answers.items()} == dict(LINES)


@pytest.mark.parametrize("shell", SHELLS)
def test_candidates_are_listed(shell: str, sample: Path) -> None:
    answers = press_tab(shell, sample, [line for line, _, _ in LISTS], sample / "work")
    for line, wanted, unwanted in LISTS:
        # In fish a candidate begins with the option that it is joined to.
        words = {word.removeprefix("--kind=") for word in answers[line].listed.split()}
        assert wanted <= words, line
        assert not unwanted & words, line


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_descriptions_survive_quoting(shell: str, sample: Path) -> None:
    lines = ["sluicegate sh", "sluicegate show --h"]
    answers = press_tab(shell, sample, lines, sample / "work")
    for answer in answers.values():
        assert NASTY in answer.listed


def test_groff_warns_about_no_page() -> None:
    groff = need("groff")
    for page in (path for path in (ROOT / "man").rglob("*") if path.is_file()):
        done = run(groff, "-man", "-Tutf8", "-ww", "-z", page)
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0), page


def shown_by_groff(text: str, page: Path) -> str:
    page.write_text(text)
    done = run(need("groff"), "-man", "-Tutf8", "-ww", "-P-cbou", page)
    assert done.stderr == ""
    return " ".join(done.stdout.replace("−", "-").split())


def test_man_page_shows_every_character(tmp_path: Path) -> None:
    shown = shown_by_groff(man.pages(SAMPLE)["man1/sluicegate-show.1"], tmp_path / "page.1")
    # In running text, what stands between backticks is shown in bold instead.
    expected = NASTY.replace("`e`", "e")
    # Three arguments, four options and the description.
    assert shown.count(expected) == 8
    assert f".{expected}" in shown
    assert "'tis" in shown
    assert "SG-TEST-NASTY. sluicegate-findings(7) explains every code." in shown
    findings = shown_by_groff(man.findings_page([_RULE]), tmp_path / "page.7")
    assert findings.count(expected) == 2
    assert f".so {expected}" in findings


def test_findings_are_explained_on_one_page(tree: Command) -> None:
    """The pages of commands only name the codes."""
    entry = re.compile(r"^\.TP\n\\fB(SG\\-\S+)\\fR$", re.MULTILINE)
    found = {path.name: entry.findall(path.read_text()) for path in (ROOT / "man").rglob("*.?")}
    known = [rule.code.replace("-", r"\-") for rule in rules()]
    assert found.pop("sluicegate-findings.7") == known
    assert not any(found.values())


def test_every_key_is_on_the_page_of_the_configuration() -> None:
    page = (ROOT / "docs/reference/config.md").read_text()
    for _, _, _, keys in man.TABLES:
        assert all(f"| `{key.name}` |" in page for key in keys)


def test_example_configuration_is_valid() -> None:
    config = parse_config(man.example_file().encode(), Path("sluicegate.toml"))
    assert config.targets
    assert config.streams
