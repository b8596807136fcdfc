"""Rules of Spark checkpoints: each in one file, complete, and with commands that can be pasted."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from sluicegate import units
from sluicegate.checkpoint.file_edits import Place
from sluicegate.checkpoint.operations.repair import Repair, diagnose
from sluicegate.checkpoint.rules import AREAS
from sluicegate.checkpoint.verify import verify
from sluicegate.findings import LogPattern, Rule, Severity, fixes, rules, rules_in
from sluicegate.spark.explain import explain
from sluicegate.storage import open_storage
from sluicegate_cli import table
from tests.checkpoint.file_query import Query
from tests.net import corpus

ROOT = Path(__file__).parents[2]
RULES = {area: rules_in(import_module(area)) for area in AREAS}
EVERY_RULE = [each for found in RULES.values() for each in found]
HOSTILE = 'it\'s a "new" $HOME;`id`'
# One of each kind of damage.
DAMAGES = list(
    {name.partition("!")[2]: name for name in corpus.damages() if "4.3.0" in name}.values()
)
# Others rewrite it now; it quotes by itself.


class TestAreas:
    def test_every_area_has_rules_and_a_rule_one_area(self) -> None:
        codes = [each.code for each in EVERY_RULE]
        assert all(RULES.values())
        assert len(codes) == len(set(codes))

    def test_every_module_with_rules_is_listed(self) -> None:
        folder = ROOT / "core/sluicegate/checkpoint/rules"
        texts = {path.stem: path.read_text() for path in folder.glob("*.py")}
        own = {name for name, text in texts.items() if " = rule(\n" in text}
        assert own == {area.rpartition(".")[2] for area in AREAS}

    def test_a_fix_stands_in_the_file_of_its_rule(self) -> None:
        for area, found in RULES.items():
            for each in found:
                assert each.fix is None or each.fix.__module__ == area, each.code

    def test_codes_of_other_rules_are_known(self) -> None:
        named = {c for r in EVERY_RULE for p in r.log_patterns for c in p.also}
        named |= {code for each in EVERY_RULE for code in each.follows}
        assert named <= {each.code for each in rules()}

    def test_all_are_known_when_rules_are_asked_for(self) -> None:
        """Without a check having been run: `--help` and the pages list them."""
        assert {each.code for each in EVERY_RULE} <= {each.code for each in rules()}


class TestRule:
    def test_a_rule_has_its_patterns_and_its_fix(self) -> None:
        pattern = LogPattern("Do this.", texts=("a text",))
        own = Rule("SG-TEST-FIXED", Severity.NOTE, "title", "Explanation.", (pattern,))
        assert own.log_patterns == (pattern,)
        assert own.fix is None

        @fixes(own)
        def fix(_case: object, _finding: object) -> str:
            return "fixed"

        assert own.fix is fix

    def test_a_rule_has_one_fix(self) -> None:
        own = Rule("SG-TEST-TWICE", Severity.NOTE, "title", "Explanation.")
        fixes(own)(lambda _case, _finding: None)
        with pytest.raises(ValueError, match="SG-TEST-TWICE already has a fix"):
            fixes(own)(lambda _case, _finding: None)


def commands_in(text: str) -> Iterator[list[str]]:
    """The words of every command of ours in a text, as a shell splits them."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";#")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set(";#"):
            if "sluicegate" in words:
                yield words[words.index("sluicegate") :]
            words = []
        else:
            words.append(word)


class TestCommands:
    @pytest.fixture
    def hostile(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as scratch:
            above = f"{scratch}/{HOSTILE}"
            yield Path(above + "/" + "x" * (len(corpus.PLACE) - len(above) - 1))

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_words_come_back_from_a_shell(self, damage: str, hostile: Path) -> None:
        """Of a checkpoint and a sink in a directory with blanks and quotes in its name."""
        top = corpus.place(damage, hostile)
        checkpoint, sink = str(top / "checkpoint"), str(top / "out")
        storage = open_storage(checkpoint, read_only=True)
        roots = {Place.CHECKPOINT: storage}
        if Path(sink).is_dir():
            roots[Place.SINK] = open_storage(sink, read_only=True)
        found = verify(storage, roots.get(Place.SINK), read_data=True)
        texts = [finding.repair for finding in found]
        if "SG-CHECKPOINT-UNREADABLE" not in {finding.code for finding in found}:
            diagnosed = diagnose(roots, Repair(read_data=True))
            texts += [choice.command for each in diagnosed for choice in each.choices]
        for text in filter(None, texts):
            shown = list(commands_in(text))
            assert {" ".join(words[1:3]) for words in shown} <= table.COMMANDS.keys()
            places = {word for words in shown for word in words if "/" in word or HOSTILE in word}
            assert places
            assert places <= {checkpoint, sink}

    def test_a_barrier_names_its_checkpoint_to_explain(self) -> None:
        place = f"/data/{HOSTILE}/checkpoint"
        repair, undo = units.command("checkpoint", "repair", place), units.command("undo", place)
        barrier = f"op-1 (repair) was interrupted; finish it with: {repair}; or undo: {undo}"
        (only,) = explain([f"ERROR Log file was malformed: failed to read sluicegate: {barrier}"])
        assert only.code == "SG-CHANGE-INTERRUPTED"
        assert only.facts["checkpoint"] == place
        assert shlex.split(only.command) == ["sluicegate", "checkpoint", "repair", place]


class TestNothingIsLeftOut:
    """Where only some of many things are named, the others are counted."""

    @pytest.fixture
    def query(self, tmp_path: Path) -> Query:
        return Query(tmp_path)

    def details(self, query: Query, code: str) -> list[str]:
        sink = open_storage(str(query.sink), read_only=True)
        found = verify(open_storage(str(query.checkpoint), read_only=True), sink)
        return [finding.detail for finding in found if finding.code == code]

    @pytest.mark.parametrize(("lost", "named", "end"), [(6, 5, "; and 1 more file"), (5, 5, "")])
    def test_files_of_the_sink(self, query: Query, lost: int, named: int, end: str) -> None:
        for path in sorted(query.sink.glob("part-*"))[:lost]:
            path.unlink()
        found = self.details(query, "SG-SINK-MISSING-FILE")
        assert len(found) == named
        assert [each.partition("; and")[1:] for each in found[:-1]] == [("", "")] * (named - 1)
        assert found[-1].endswith(end or "is missing")

    def test_entries_of_the_sink(self, query: Query) -> None:
        """The newest is a stray name: hundreds of millions of entries seem to be missing."""
        (query.sink_log / "500000000").write_text("v1\n")
        found = self.details(query, "SG-SINK-LOG-GAP")
        assert len(found) == 5
        assert [each.partition("; ")[2] for each in found if "more" in each] == [
            "and 499,999,987 more entries"
        ]

    def test_entries_of_a_source(self, query: Query) -> None:
        for name in ("6", "7"):
            (query.source_log / name).unlink()
        newest = query.checkpoint / "offsets/7"
        newest.write_text(newest.read_text().replace('"logOffset":7', '"logOffset":12'))
        found = self.details(query, "SG-SOURCE-LOG-GAP")
        assert found[0] == (
            "entry 10 is missing; the offsets need entries up to 12; and 2 more entries"
        )
        assert len(found) == 5

    def test_operators(self, query: Query) -> None:
        (query.checkpoint / "state/40/0").mkdir(parents=True)
        found = self.details(query, "SG-STATE-MISSING")
        assert sum(each.startswith("the operator has no state") for each in found) == 5
        assert [each for each in found if "more" in each] == [
            "the operator has no state; and 35 more operators"
        ]


NEW_RULE = """

METADATA_ODD = rule(
    "SG-METADATA-ODD",
    Severity.WARNING,
    "the query id is odd",
    "Nothing is wrong with it.",
    LogPattern("Look at it.", texts=(r"the metadata is odd",)),
)
_check_layout = check


def check(case: Case) -> Iterator[Finding]:
    yield from _check_layout(case)
    yield METADATA_ODD.at(case.storage.uri)


@fixes(METADATA_ODD)
def make_even(case: Case, finding: Finding) -> Solution:
    return (Choice("", "make it even", command("undo", case.storage.uri), "nothing"),)
"""
USES = """
import sys
from sluicegate.checkpoint.file_edits import Place
from sluicegate.checkpoint.operations.repair import Repair, diagnose
from sluicegate.findings import rules
from sluicegate.spark.explain import explain
from sluicegate.storage import open_storage

print([rule.title for rule in rules("SG-METADATA-ODD")])
found = diagnose({Place.CHECKPOINT: open_storage(sys.argv[1])}, Repair())
print([(each.finding.code, each.choices[0].what) for each in found])
print([each.code for each in explain(["ERROR the metadata is odd"])])
"""


def test_a_new_finding_touches_one_file(tmp_path: Path) -> None:
    """Verify, repair, explain and the list of all rules know it."""
    shutil.copytree(ROOT / "core", tmp_path / "core", ignore=shutil.ignore_patterns("__pycache__"))
    area = tmp_path / "core/sluicegate/checkpoint/rules/layout.py"
    area.write_text(area.read_text() + NEW_RULE)
    query = Query(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", USES, str(query.checkpoint)],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "core")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "['the query id is odd']",
        "[('SG-METADATA-ODD', 'make it even')]",
        "['SG-METADATA-ODD']",
    ]
