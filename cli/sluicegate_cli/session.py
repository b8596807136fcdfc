"""One run of one command: its sink, its configuration, and how it may change things."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sluicegate.config import DEFAULT_HOME, Config, load_config
from sluicegate.errors import ChangeForbidden, NotConfirmed, UnsupportedFormat
from sluicegate.storage import Storage, open_storage
from sluicegate.target import Target, TargetKind, only_target, resolve
from sluicegate_cli.output import Mode, Sink, Table, View

if TYPE_CHECKING:
    import typer

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
    makes_config: bool = False

    @staticmethod
    def of(ctx: typer.Context) -> Session:
        """The session that a command's context carries."""
        session = ctx.obj
        assert isinstance(session, Session)
        return session

    @property
    def config_path(self) -> Path | None:
        """Where the configuration was said to be; None: wherever it is by default."""
        named = self.config_option or os.environ.get(CONFIG_VARIABLE)
        return Path(named) if named else None

    @cached_property
    def config(self) -> Config:
        """The configuration, read when first asked for."""
        path = self.config_path
        if self.makes_config and path is not None and not os.path.lexists(path):
            return Config()
        return load_config(path)

    @property
    def home(self) -> str:
        """The home: by option, environment, configuration, or the default, in this order."""
        named = self.home_option or os.environ.get(HOME_VARIABLE)
        return named or self.config.home or DEFAULT_HOME

    def target(self, word: str | None, kind: TargetKind | None = None) -> Target:
        """The target that a word means, or the only one there is."""
        name = word if word is not None else only_target(self.config)
        return resolve(name, self.config, self.home, kind)

    def spark_checkpoint(self, word: str | None, kind: TargetKind | None = None) -> Storage:
        """The storage of a target that must be a Spark checkpoint, opened read-only."""
        target = self.target(word, kind)
        if target.kind is not TargetKind.SPARK_CHECKPOINT:
            raise UnsupportedFormat(
                f"{target.uri} is a {target.kind.value} ({target.why}); this command works on "
                "Spark checkpoints",
                hint="name a Spark checkpoint, or override the detection with --as",
                place=target.uri,
            )
        return open_storage(target.uri, read_only=True)

    def sink_of(self, word: str | None, option: str | None) -> Storage | None:
        """The file sink that an option or the target's configuration names, read-only."""
        name = word if word is not None else only_target(self.config)
        named = self.config.targets.get(name)
        uri = option or (named.sink if named else None)
        return open_storage(uri, read_only=True) if uri else None

    def change(self, plan: Plan, apply: Callable[[], object]) -> None:
        """Show a plan, have it confirmed, apply it: the one way commands change anything."""
        if self.dry_run or not plan.actions:
            self.sink.show(_plan_view(plan, applied=False))
            return
        self._check_policy()
        on_terminal = self.sink.mode is Mode.TABLE
        if on_terminal:
            self.sink.show(_plan_view(plan, applied=False))
        if not self.yes and not on_terminal and self.sink.can_ask:
            # The result goes elsewhere, but what is asked about must be seen where it is asked.
            for action in plan.actions:
                self.sink.note(f"{action.verb} {action.place}: {action.detail}")
            for consequence in plan.consequences:
                self.sink.note(consequence)
        if not self.yes and not self._confirmed():
            raise NotConfirmed("not confirmed; nothing was changed")
        apply()
        if on_terminal:
            self.sink.note("Done.")
        else:
            self.sink.show(_plan_view(plan, applied=True))

    def _check_policy(self) -> None:
        where = self.config.path
        if self.config.read_only:
            raise ChangeForbidden(f"{where} sets read_only = true, so nothing may be changed")
        if self.config.require_reason and not self.reason:
            raise ChangeForbidden(
                f"{where} sets require_reason = true", hint='add --reason "why you do this"'
            )

    def _confirmed(self) -> bool:
        if not self.sink.can_ask:
            raise NotConfirmed("there is no terminal to confirm on; nothing was changed")
        return self.sink.ask("Proceed?")


def _plan_view(plan: Plan, *, applied: bool) -> View:
    rows = [(action.verb, action.place, action.detail) for action in plan.actions]
    columns = ("action", "place", "detail")
    return View(
        schema="sluicegate.plan",
        document={
            "title": plan.title,
            "actions": [dict(zip(columns, row, strict=True)) for row in rows],
            "consequences": list(plan.consequences),
            "applied": applied,
        },
        tables=[
            Table(columns, rows, title=plan.title),
            Table(("consequence",), [(text,) for text in plan.consequences], header=False),
        ],
        lines=[] if rows else ["Nothing to do."],
    )
