"""Steps, one after the other: each looks or changes by a plan, and none stops the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluicegate.config import Maintain
from sluicegate.errors import Corrupt, Drifted, Locked, SluicegateError
from sluicegate.findings import Finding, has_errors
from sluicegate.journal import Approval, Entry, Journal, recorded
from sluicegate.maintenance import rules
from sluicegate.maintenance.report import Outcome, Step
from sluicegate.plan import Action, Plan, Subject
from sluicegate.storage import Storage, leftovers

REASON = "maintain"
_GRACE = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Change:
    """A plan, and what applies it."""

    plan: Plan
    apply: Callable[[Approval], Entry | None]

    @classmethod
    def through(cls, journal: Journal, plan: Plan) -> Change:
        """By the journal of the target, so that its history tells of it."""
        return cls(plan, lambda approval: journal.apply(plan, approval))

    @classmethod
    def by(cls, plan: Plan, work: Callable[[], object]) -> Change:
        """By work that needs no journal, since it takes away what nobody can see."""

        def apply(_: Approval) -> None:
            work()

        return cls(plan, apply)


def collecting(storage: Storage, key: str, subject: Subject) -> Change | None:
    """The removal of what writers that died a day ago left unfinished in a directory."""
    limit_ns = (time.time() - _GRACE) * 1e9
    found = list(leftovers.old_temporaries(storage, [key], limit_ns))
    if not found:
        return None

    def remove() -> None:
        for path in found:
            path.unlink(missing_ok=True)

    action = Action("remove", "leftovers", f"{len(found):,} unfinished files")
    return Change.by(Plan("Collect what nobody needs", (action,), subject=subject), remove)


class Budget:
    """The time for reading contents, which all targets of a run share."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    @contextmanager
    def spending(self) -> Iterator[float]:
        """While contents are read: for how many seconds that may be."""
        began = time.monotonic()
        try:
            yield self.left
        finally:
            self.left = max(0.0, self.left - (time.monotonic() - began))


@dataclass(frozen=True, slots=True)
class Terms:
    """What a run may do, in whose name, and how much time it has."""

    policy: Maintain
    approval: Approval
    budget: Budget
    dry_run: bool = False
    read_only: bool = False
    audit_log: Path | None = None

    @property
    def only_looks(self) -> bool:
        """Whether nothing may be changed."""
        return self.dry_run or self.read_only


class Steps:
    """The steps of one target so far, and what they found."""

    def __init__(self, uri: str, terms: Terms) -> None:
        self.done: list[Step] = []
        self.findings: list[Finding] = []
        self._uri = uri
        self._terms = terms
        self._met_damage = False

    def look(self, name: str, work: Callable[[], str]) -> None:
        """A step that changes nothing; it gives its result in a few words."""
        if not self._is_damaged(name):
            self._run(name, lambda: (Outcome.DONE, work(), None))

    def change(self, name: str, prepare: Callable[[], Change | None]) -> None:
        """A step that changes the target by a plan, if there is anything to do.

        Not on a target that is damaged: what would be removed may be needed to mend it.
        """
        if self._is_damaged(name):
            return
        if self._terms.read_only:
            self.done.append(Step(name, Outcome.SKIPPED, "read_only = true"))
        else:
            self._run(name, lambda: self._carry_out(prepare()))

    def _is_damaged(self, name: str) -> bool:
        """Whether a step is to be left out: looking failed, or something is damaged."""
        found = [each for each in self.findings if each.rule is not rules.FAILED]
        unseen = bool(self.done) and self.done[0].outcome is Outcome.FAILED
        if damaged := unseen or self._met_damage or has_errors(found):
            self.done.append(Step(name, Outcome.SKIPPED, "not as long as something is wrong"))
        return damaged

    def _carry_out(self, change: Change | None) -> tuple[Outcome, str, Plan | None]:
        if change is None or not change.plan.actions:
            return Outcome.NOTHING, "", None
        told = "; ".join(f"{a.verb} {a.place}: {a.detail}" for a in change.plan.actions)
        if self._terms.dry_run:
            return Outcome.PLANNED, told, change.plan
        recorded(self._terms.audit_log, change.plan, self._terms.approval, change.apply)
        return Outcome.DONE, told, change.plan

    def _run(self, name: str, work: Callable[[], tuple[Outcome, str, Plan | None]]) -> None:
        began = time.monotonic()
        plan = None
        try:
            outcome, detail, plan = work()
        except (Locked, Drifted) as e:
            # Somebody else is at work, who must not be kept waiting; the next run does it.
            outcome, detail = Outcome.SKIPPED, e.message
        except (SluicegateError, OSError) as e:
            outcome, detail = Outcome.FAILED, str(e)
            self._met_damage |= isinstance(e, Corrupt)
            place = getattr(e, "place", None) or self._uri
            self.findings.append(rules.FAILED.at(place, f"{name}: {detail}"))
        self.done.append(Step(name, outcome, detail, time.monotonic() - began, plan))
