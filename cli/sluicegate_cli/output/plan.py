"""Plans on the screen, before and after they are applied."""

from __future__ import annotations

from typing import TypedDict

from sluicegate.journal import Entry, EntryFields
from sluicegate.plan import Plan, Subject
from sluicegate.report import Report, Table, document
from sluicegate.saved_plan import SavedPlan
from sluicegate.units import command


class SubjectDocument(TypedDict):
    """The target that a plan changes."""

    kind: str
    uri: str
    name: str | None  # in sluicegate.toml
    identity: str | None


class PreconditionDocument(TypedDict):
    """What must hold for the plan to be applied."""

    what: str
    expected: int | str | None


class ActionDocument(TypedDict):
    """One step of a plan."""

    action: str
    place: str
    old: int | str | None
    new: int | str | None
    delta: int | None  # how far a number moves
    detail: str


class ChoiceDocument(TypedDict):
    """An option that only the operator can choose."""

    about: str
    what: str
    command: str
    cost: str


class PlanFields(TypedDict):
    """A plan as plain values."""

    title: str
    target: SubjectDocument | None
    preconditions: list[PreconditionDocument]
    actions: list[ActionDocument]  # empty: nothing to do
    consequences: list[str]
    choices: list[ChoiceDocument]


class PlanFileDocument(TypedDict):
    """Where a plan was saved."""

    file: str
    digest: str
    expires: str


@document("sluicegate.plan", version=1)
class PlanDocument(PlanFields):
    """A plan, and whether it was applied."""

    applied: bool
    operation: EntryFields | None  # null: not applied, or the target has no history
    undo: str | None  # the command that reverts it; null: not applied, or it cannot be reverted


@document("sluicegate.plan", version=1)
class SavedPlanDocument(PlanFields):
    """With `--plan-out`, a plan that was saved instead."""

    applied: bool
    operation: None
    saved: PlanFileDocument


def plan_view(
    plan: Plan, *, applied: bool = False, entry: Entry | None = None, undo: str | None = None
) -> Report:
    """A plan; once it is applied, with its operation and the command that undoes it."""
    document: PlanDocument = {
        **plan_document(plan),
        "applied": applied,
        "operation": entry.fields() if entry else None,
        "undo": undo,
    }
    return Report(
        schema="sluicegate.plan",
        document=document,
        tables=_tables(plan),
        lines=[] if plan.actions or plan.choices else ["Nothing to do."],
    )


def saved_lines(saved: SavedPlan) -> list[str]:
    """Where a plan was saved, and the command that applies it."""
    return [
        f"Saved as {saved.place}, valid until {saved.expires}. Nothing was changed.",
        f"Apply it with: {command('apply', saved.place, '--expect', saved.digest)}",
    ]


def saved_view(saved: SavedPlan) -> Report:
    """A plan that was saved instead of applied."""
    document: SavedPlanDocument = {
        **plan_document(saved.plan),
        "applied": False,
        "operation": None,
        "saved": {"file": saved.place, "digest": saved.digest, "expires": saved.expires},
    }
    return Report(
        schema="sluicegate.plan",
        document=document,
        tables=_tables(saved.plan),
        lines=saved_lines(saved),
    )


def plan_document(plan: Plan) -> PlanFields:
    """A plan as plain values."""
    return {
        "title": plan.title,
        "target": _subject_document(plan.subject) if plan.subject else None,
        "preconditions": [{"what": p.what, "expected": p.expected} for p in plan.preconditions],
        "actions": [
            {
                "action": action.verb,
                "place": action.place,
                "old": action.old,
                "new": action.new,
                "delta": action.delta,
                "detail": action.detail,
            }
            for action in plan.actions
        ],
        "consequences": list(plan.consequences),
        "choices": [
            {"about": c.about, "what": c.what, "command": c.command, "cost": c.cost}
            for c in plan.choices
        ],
    }


def _subject_document(subject: Subject) -> SubjectDocument:
    return {
        "kind": subject.kind,
        "uri": subject.uri,
        "name": subject.name,
        "identity": subject.identity,
    }


def _tables(plan: Plan) -> list[Table]:
    moves = any(action.old is not None or action.new is not None for action in plan.actions)
    columns = ("action", "place", *(("old", "new", "delta") if moves else ()), "detail")
    rows = [
        (a.verb, a.place, *((a.old, a.new, a.delta) if moves else ()), a.detail)
        for a in plan.actions
    ]
    where = f" in {plan.subject.uri}" if plan.subject else ""
    consequences = [(text,) for text in plan.consequences] if rows else []
    return [
        Table(columns, rows, title=f"{plan.title}{where}"),
        Table(("consequence",), consequences, header=False),
        _choices(plan),
    ]


def _choices(plan: Plan) -> Table:
    rows = [(c.about, c.what, c.command, c.cost) for c in plan.choices]
    return Table(("finding", "option", "command", "cost"), rows)
