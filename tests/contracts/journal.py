"""The contract of the journal of every kind of target; each kind has a subclass that tests it.

class TestMine(JournalContract):
    @pytest.fixture
    def subject(self) -> Subject:
        return Subject(…)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sluicegate import saved_plan
from sluicegate.errors import Corrupt, Drifted
from sluicegate.journal import Approval, Entry, Journal, NothingToUndo, Operation, review
from sluicegate.plan import Plan
from sluicegate.process import myself

APPROVAL = Approval(myself(), "a test")


@dataclass(frozen=True, slots=True)
class Subject:
    """A target that was never changed by an operator.

    `journal` opens it as another process would; the two operations exclude each other: whichever is
    applied first changes what the other depends on. `state` is what the target holds.
    """

    journal: Callable[[], Journal[Any]]
    first: Callable[[], Operation]
    second: Callable[[], Operation]
    state: Callable[[], object]


class JournalContract:
    """Of a target that is given by the fixture `subject`."""

    @pytest.fixture
    def subject(self) -> Subject:
        raise NotImplementedError

    def test_an_operation_survives_as_the_work_of_a_plan(self, subject: Subject) -> None:
        for operation in (subject.first(), subject.second()):
            work = json.loads(json.dumps(operation.to_work()))
            again = subject.journal().operation(work)
            assert again == operation
            assert again.to_work() == work
            assert subject.journal().plan(work) == subject.journal().propose(operation)

    @pytest.mark.parametrize("work", [{}, {"operation": "nonsense"}, {"operation": None}])
    def test_work_that_is_none_is_refused(self, subject: Subject, work: dict[str, Any]) -> None:
        with pytest.raises(Corrupt):
            subject.journal().plan(work)

    def test_planning_changes_nothing(self, subject: Subject) -> None:
        before = subject.state()
        assert subject.journal().propose(subject.first()).actions
        assert subject.state() == before

    def test_a_change_is_the_newest_of_the_history(self, subject: Subject) -> None:
        known = {entry.id for entry in subject.journal().history()}
        made = self._change(subject)
        newest = subject.journal().history()[0]
        assert (newest.id, newest.kind, newest.undo) == (made.id, made.kind, "yes")
        assert newest.id not in known
        assert (newest.reason, newest.by) == (APPROVAL.reason, str(APPROVAL.by))

    def test_undo_takes_the_newest_change_back(self, subject: Subject) -> None:
        before = subject.state()
        made = self._change(subject)
        assert subject.state() != before
        journal = subject.journal()
        undone = journal.apply(journal.plan_undo(None), APPROVAL)
        assert subject.state() == before
        assert undone.undoes == made.id

    def test_a_change_is_undone_once(self, subject: Subject) -> None:
        made = self._change(subject)
        journal = subject.journal()
        journal.apply(journal.plan_undo(made.id), APPROVAL)
        with pytest.raises(NothingToUndo):
            subject.journal().plan_undo(made.id)

    def test_nothing_is_undone_that_was_never_done(self, subject: Subject) -> None:
        for operation in (None, "op-99", "nobody@99"):
            with pytest.raises(NothingToUndo):
                subject.journal().plan_undo(operation)

    def test_a_plan_that_no_longer_holds_changes_nothing(self, subject: Subject) -> None:
        late = subject.journal().propose(subject.first())
        journal = subject.journal()
        journal.apply(journal.propose(subject.second()), APPROVAL)
        before = subject.state()
        with pytest.raises(Drifted):
            subject.journal().apply(late, APPROVAL)
        assert subject.state() == before

    def test_a_saved_plan_is_applied_once(self, subject: Subject, tmp_path: Path) -> None:
        place = str(tmp_path / "plan.json")
        saved_plan.save(subject.journal().propose(subject.first()), place, "asked for", 3600)
        saved = saved_plan.load(place)
        plan = review(subject.journal(), saved)
        assert isinstance(plan, Plan)
        approval = replace(APPROVAL, plan_digest=saved.digest, planned_by=saved.by)
        made = subject.journal().apply(plan, approval)
        again = review(subject.journal(), saved)
        assert isinstance(again, Entry)
        assert (again.id, again.plan_digest) == (made.id, saved.digest)

    def _change(self, subject: Subject) -> Entry:
        journal = subject.journal()
        return journal.apply(journal.propose(subject.first()), APPROVAL)
