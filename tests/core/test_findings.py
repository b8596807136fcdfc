from __future__ import annotations

import pytest

from sluicegate import resolve
from sluicegate.findings import Severity, has_errors, rule, rules, worst_first
from sluicegate.ops import doctor
from sluicegate.stream import home

REGISTERING = (doctor, home, resolve)


def test_every_rule_explains_itself() -> None:
    assert len(rules()) >= 12
    for each in rules():
        assert each.title
        assert each.explanation.endswith(".")
        assert not each.title.endswith(".")


@pytest.mark.parametrize("code", ["SG-HOME-MISSING", "nonsense", "SG-x-Y", "SG-ONE", ""])
def test_codes_are_unique_and_well_formed(code: str) -> None:
    with pytest.raises(ValueError, match="finding code"):
        rule(code, Severity.NOTE, "title", "Explanation.")


def test_rules_are_chosen_by_prefix() -> None:
    assert {r.code for r in rules("SG-HOME-")} == {
        "SG-HOME-DAMAGED",
        "SG-HOME-MISSING",
        "SG-HOME-UNMARKED",
        "SG-HOME-UNREADABLE",
    }


def test_worst_comes_first() -> None:
    note, error = home.MISSING.at("/b"), home.UNMARKED.at("/a")
    warning = resolve.MISMATCH.at("/c")
    assert worst_first([note, warning, error]) == [error, warning, note]
    assert has_errors([note, error])
    assert not has_errors([note, warning])


def test_a_finding_says_what_its_rule_says_unless_it_knows_better() -> None:
    assert home.MISSING.at("/x").detail == home.MISSING.title
    finding = home.MISSING.at("/x", "details", repair="do this")
    assert (finding.detail, finding.repair, finding.place) == ("details", "do this", "/x")
