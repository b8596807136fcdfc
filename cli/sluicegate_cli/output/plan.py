"""Plans on the screen, before and after they are applied."""

from __future__ import annotations

from dataclasses import asdict

from sluicegate.journal import Entry
from sluicegate.plan import Action, Plan
from sluicegate.report import Cell, Report, Table
from sluicegate.saved_plan import SavedPlan
from sluicegate.units import command


def plan_view(
    plan: Plan, *, applied: bool = False, entry: Entry | None = None, undo: str | None = None
) -> Report:
    """A plan; once it is applied, with its operation and the command that undoes it."""
    return Report(
        schema="sluicegate.plan",
        document=plan_document(plan)
        | {"applied": applied, "operation": entry.fields() if entry else None, "undo": undo},
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
    return Report(
        schema="sluicegate.plan",
        document=plan_document(saved.plan)
        | {
            "applied": False,
            "operation": None,
            "saved": {"file": saved.place, "digest": saved.digest, "expires": saved.expires},
        },
        tables=_tables(saved.plan),
        lines=saved_lines(saved),
    )


def plan_document(plan: Plan) -> dict[str, object]:
    """A plan as plain values."""
    return {
        "title": plan.title,
        "target": asdict(plan.subject) if plan.subject else None,
        "preconditions": [asdict(each) for each in plan.preconditions],
        "actions": [_action_fields(each) for each in plan.actions],
        "consequences": list(plan.consequences),
        "choices": [asdict(each) for each in plan.choices],
    }


def _tables(plan: Plan) -> list[Table]:
    moves = any(action.old is not None or action.new is not None for action in plan.actions)
    columns = ("action", "place", *(("old", "new", "delta") if moves else ()), "detail")
    rows = [[_action_fields(action)[column] for column in columns] for action in plan.actions]
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


def _action_fields(action: Action) -> dict[str, Cell]:
    return {
        "action": action.verb,
        "place": action.place,
        "old": action.old,
        "new": action.new,
        "delta": action.delta,
        "detail": action.detail,
    }
