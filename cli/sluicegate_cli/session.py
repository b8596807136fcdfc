"""One run of one command: its sink, its configuration, and how it may change things."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluicegate.config import DEFAULT_HOME, Config, load_config
from sluicegate.errors import ChangeForbidden, Locked, NotConfirmed, UsageError
from sluicegate.resolve import only_target, resolve
from sluicegate.target import Change, Kind, Options, Target, TargetKind, expect
from sluicegate.units import command
from sluicegate_cli.output import Mode, Sink

if TYPE_CHECKING:
    import typer

    from sluicegate.journal import Approval, Entry
    from sluicegate.plan import Plan

HOME_VARIABLE = "SG_HOME"
CONFIG_VARIABLE = "SG_CONFIG"


@dataclass(frozen=True)
class Session:
    """What every command gets through its context."""

    sink: Sink
    home_option: str | None = None
    config_option: str | None = None
    dry_run: bool = False
    yes: bool = False
    reason: str | None = None
    plan_out: str | None = None
    expires: str | None = None
    makes_config: bool = False

    @staticmethod
    def of(ctx: typer.Context) -> Session:
        """The session that a command's context carries."""
        session = ctx.obj
        assert isinstance(session, Session)
        return session

    @property
    def config_path(self) -> Path | None:
        """The configured path of the configuration; None: the default path."""
        named = self.config_option or os.environ.get(CONFIG_VARIABLE)
        return Path(named) if named else None

    @cached_property
    def config(self) -> Config:
        """The configuration, read at the first access."""
        path = self.config_path
        if self.makes_config and path is not None and not os.path.lexists(path):
            return Config()
        return load_config(path)

    @property
    def home(self) -> str:
        """The home: by option, environment, configuration, or the default, in this order."""
        named = self.home_option or os.environ.get(HOME_VARIABLE)
        return named or self.config.home or DEFAULT_HOME

    def target(self, word: str | None, kind: TargetKind | None = None, **options: Any) -> Target:
        """The target that a word means, or the only one there is, with the command's options."""
        name = word if word is not None else only_target(self.config, self.home)
        chosen = Options(**options, read_only=self.only_plans, progress=self.sink.progress)
        return resolve(name, self.config, self.home, kind, chosen)

    def open(
        self, adapter: type[Kind], word: str | None, kind: TargetKind | None = None, **options: Any
    ) -> Kind:
        """A target of the one kind that a command works on."""
        return expect(self.target(word, kind, **options), adapter)

    @property
    def only_plans(self) -> bool:
        """Whether this run changes no target, so that storage can be opened read-only."""
        return self.dry_run or self.plan_out is not None

    def carry_out(self, change: Change) -> None:
        """Change a target by a plan of its journal, unless a running writer prevents it."""
        plan = change.plan
        try:
            warning = change.journal.preflight(plan) if plan.actions else None
        except Locked as e:
            if not self.only_plans:
                raise
            warning = e.message
        if warning:
            self.sink.note(f"note: {warning}")
        self.change(plan, change.apply)
        for line in change.afterwards if not self.only_plans else ():
            self.sink.note(line)

    def change(self, plan: Plan, apply: Callable[[Approval], Entry | None]) -> None:
        """Show a plan, have it confirmed, apply it: the one way commands change anything."""
        from sluicegate_cli.output.plan import plan_view

        if self.plan_out is not None and plan.actions:
            self._save(plan)
            return
        if self.dry_run or not plan.actions:
            self.sink.show(plan_view(plan))
            return
        self._check_policy()
        self._confirm(plan)
        entry = self._apply(plan, apply)
        undo = undo_command(plan, entry) if entry and entry.undo == "yes" else None
        if self.sink.mode is not Mode.JSON:
            # Before the result, and not on stdout: a lost result must not hide the change.
            done = f"Done: {entry.id}." if entry else "Done."
            self.sink.note(done + (f" Undo it with: {undo}" if undo else ""))
        if self.sink.mode is not Mode.TABLE:
            self.sink.show(plan_view(plan, applied=True, entry=entry, undo=undo))

    def _confirm(self, plan: Plan) -> None:
        """Show the plan where the question is asked, and ask, unless `--yes` is set."""
        from sluicegate_cli.output.plan import plan_view

        if self.sink.mode is Mode.TABLE:
            self.sink.show(plan_view(plan))
        elif not self.yes and self.sink.can_ask:
            # The result goes elsewhere, but the plan must be visible where the question is asked.
            for action in plan.actions:
                self.sink.note(f"{action.verb} {action.place}: {action.detail}")
            for consequence in plan.consequences:
                self.sink.note(consequence)
        if not self.yes and not self._confirmed():
            raise NotConfirmed("not confirmed; nothing was changed")

    def _apply(self, plan: Plan, apply: Callable[[Approval], Entry | None]) -> Entry | None:
        from sluicegate.journal import Approval, recorded
        from sluicegate.process import myself

        return recorded(self.audit_log, plan, Approval(myself(), self.reason), apply)

    @property
    def audit_log(self) -> Path | None:
        """The file that gets a line per change, if one is configured."""
        return Path(self.config.audit_log) if self.config.audit_log else None

    def _save(self, plan: Plan) -> None:
        from sluicegate.saved_plan import DEFAULT_LIFETIME, save
        from sluicegate.units import parse_duration

        assert self.plan_out is not None
        from sluicegate_cli.output.plan import saved_lines, saved_view

        self._check_reason(self.reason)
        lifetime = DEFAULT_LIFETIME if self.expires is None else parse_duration(self.expires)
        saved = save(plan, self.plan_out, self.reason, lifetime)
        if self.sink.mode is Mode.TSV:
            for line in saved_lines(saved):
                self.sink.note(line)
        self.sink.show(saved_view(saved))

    def _check_policy(self) -> None:
        if self.config.read_only:
            where = self.config.path
            raise ChangeForbidden(f"{where} sets read_only = true, so nothing may be changed")
        self._check_reason(self.reason)

    def _check_reason(self, reason: str | None) -> None:
        if self.config.require_reason and not (reason and reason.strip()):
            raise ChangeForbidden(
                f"{self.config.path} sets require_reason = true",
                hint='add --reason "why you do this"',
            )

    def _confirmed(self) -> bool:
        if not self.sink.can_ask:
            raise NotConfirmed("there is no terminal to confirm on; nothing was changed")
        return self.sink.ask("Proceed?")


def undo_command(plan: Plan, entry: Entry) -> str:
    """The command that reverts a change."""
    assert plan.subject
    target = plan.subject.name or plan.subject.uri
    return command("undo", target, "--op", entry.id)


_ONLY_FOR = {
    "--snapshot": "gated streams",
    "--read-data-subset": "gated streams",
    "--max-duration": "gated streams",
    "--consumer": "offset stores",
    "--batch": "Spark checkpoints and gated streams",
    "--sink": "Spark checkpoints and gated streams",
    "--withdraw": "gated streams",
    "--adopt": "gated streams",
    "--unchecked": "gated streams",
    "--into": "Spark checkpoints",
    "--offsets": "Spark checkpoints",
    "--query-id": "Spark checkpoints",
}


def refuse_options(target: Target, **given: object) -> None:
    """Refuse options that have no meaning for this kind of target."""
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is not None and option not in target.accepts:
            raise UsageError(f"{option} applies to {_ONLY_FOR[option]} only")
