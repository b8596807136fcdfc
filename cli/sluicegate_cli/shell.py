"""The command tree on top of typer: lazy loading, common options, errors to exit codes."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Sequence
from itertools import takewhile
from pathlib import PurePath
from types import ModuleType
from typing import Any, NoReturn, cast

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from sluicegate import __version__
from sluicegate.errors import (
    EXIT_DONE,
    Interrupted,
    SluicegateError,
    Terminated,
    UsageError,
    exit_codes,
)
from sluicegate.findings import Rule, rules
from sluicegate_cli import table
from sluicegate_cli.output import Sink, ensure_streams, write_error
from sluicegate_cli.session import CONFIG_VARIABLE, HOME_VARIABLE, Session

NAMES = ("sluicegate", "sg")
DEBUG_VARIABLE = "SG_DEBUG"
_SUMMARY = "Operations toolkit for exactly-once streams on Apache Spark."
_HELP = "show this help"
_REASON_BYTES = 4096
_SETTINGS = {"help_option_names": ["--help", "-h"]}


def run(argv: Sequence[str]) -> int:
    """Run a command line and return its exit code; prints every error itself."""
    name = PurePath(argv[0]).name
    program = name if name in NAMES else NAMES[0]
    arguments = list(argv[1:])
    # Before parsing, because a parse error must still be reported in the requested mode.
    ensure_streams()
    own = list(takewhile(lambda word: word != "--", arguments))
    sink = Sink(program, json="--json" in own, no_color="--no-color" in own)
    signal.signal(signal.SIGTERM, _on_sigterm)
    try:
        code = _dispatch(program, arguments, sink.notes)
        sink.close()
    except SluicegateError as e:
        return _report(sink, e)
    except KeyboardInterrupt:
        return _report(sink, Interrupted("interrupted"))
    except _SigTerm:
        return _report(sink, Terminated("terminated"))
    except BrokenPipeError:
        # The reader of the help closed the pipe; that is no error.
        sink.close()
        return EXIT_DONE
    except Exception as e:  # noqa: BLE001 - the last resort: operators get no traceback
        return _report(sink, SluicegateError(f"unexpected {type(e).__name__}: {e}"))
    return code


def root_command() -> TyperGroup:
    """The complete command tree; commands are imported when they are needed."""
    return _LazyGroup("")


def load_module(command: str) -> ModuleType:
    """The module of a command."""
    return importlib.import_module(table.module_name(command))


def _dispatch(program: str, arguments: list[str], notes: list[str]) -> int:
    root = root_command()
    try:
        with root.make_context(program, arguments, obj=notes) as ctx:
            return root.invoke(ctx) or 0
    except typer.Exit as e:
        return e.exit_code
    except typer.TyperException as e:
        raise _as_usage_error(e, program) from e


def _as_usage_error(error: typer.TyperException, program: str) -> UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else program
    message = error.format_message().rstrip(".") or "no command"
    return UsageError(message, hint=f"{path} --help")


def _report(sink: Sink, error: SluicegateError) -> int:
    if os.environ.get(DEBUG_VARIABLE):
        import traceback

        traceback.print_exc()
    sink.error(error)
    return error.exit_code


class _SigTerm(BaseException):
    """SIGTERM; like KeyboardInterrupt no `Exception`, so that no check reports it as a finding."""


def _on_sigterm(_number: int, _frame: object) -> NoReturn:
    raise _SigTerm


class _Command(TyperCommand):
    """A command with the common options; runs its function inside a `Session`."""

    path: str
    module: ModuleType

    def get_params(self, ctx: Any) -> list[Any]:
        *own, help_option = super().get_params(ctx)
        cast("TyperOption", help_option).help = _HELP
        changing = _change_options() if _changes(self.module) else []
        changing += _plan_options() if getattr(self.module, "SAVES_PLAN", False) else []
        return [*own, *changing, *_common_options(), help_option]

    def invoke(self, ctx: Any) -> int:
        ctx.obj = _make_session(ctx)
        for option in (*_common_options(), *_change_options(), *_plan_options()):
            ctx.params.pop(option.name, None)
        return super().invoke(ctx) or 0

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        program = ctx.find_root().info_name
        with formatter.section("Examples"):
            for command, what in self.module.EXAMPLES:
                formatter.write(f"  # {what}\n  {program} {command}\n")
        if reported := reported_rules(self.module):
            with formatter.section("Findings"):
                formatter.write_dl([(r.code, f"{r.severity.value}: {r.title}") for r in reported])


class _LazyGroup(TyperGroup):
    """A group whose commands come from the table."""

    def __init__(self, path: str) -> None:
        words = path.split()
        summary = table.GROUPS[path] if path else _SUMMARY
        super().__init__(
            name=words[-1] if words else None,
            help=summary if not path else summary[0].upper() + summary[1:] + ".",
            no_args_is_help=False,
            rich_markup_mode=None,
            context_settings=dict(_SETTINGS),
            params=[*_common_options(), *([] if path else [_version_option()])],
        )
        self._prefix = f"{path} " if path else ""
        # The names are needed for "did you mean"; the commands behind them are not.
        self.commands = dict.fromkeys(table.below(self._prefix))  # type: ignore[assignment]

    def get_params(self, ctx: Any) -> list[Any]:
        *own, help_option = super().get_params(ctx)
        cast("TyperOption", help_option).help = _HELP
        return [*own, help_option]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            write_error(ctx.get_help() + "\n")
            raise typer.Exit(UsageError.exit_code)
        return super().parse_args(ctx, args)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            return None
        path = self._prefix + cmd_name
        return _LazyGroup(path) if table.is_group(path) else load_command(path)

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(table.below(self._prefix).items()))
        if not self._prefix:
            with formatter.section("Exit codes"):
                formatter.write_dl([(str(code), text) for code, text in exit_codes().items()])


def load_command(path: str) -> TyperCommand:
    """The command that a path of words names, imported now."""
    module = load_module(path)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(path.rpartition(" ")[2], cls=_Command, context_settings=dict(_SETTINGS))(module.run)
    command = typer.main.get_command(app)
    assert isinstance(command, _Command)
    command.path, command.module = path, module
    return command


def reported_rules(module: ModuleType) -> list[Rule]:
    """The finding codes that a command can report."""
    return [rule for prefix in getattr(module, "FINDINGS", ()) for rule in rules(prefix)]


def _changes(module: ModuleType) -> bool:
    return getattr(module, "CHANGES", False)


def _common_options() -> list[TyperOption]:
    return [
        _option("--home", f"home that holds the gated streams [env: {HOME_VARIABLE}]", "DIR"),
        _option("--config", f"configuration to use [env: {CONFIG_VARIABLE}]", "FILE"),
        _option("--json", "print one JSON document"),
        _option("--no-color", "print without colour [env: NO_COLOR]"),
    ]


def _change_options() -> list[TyperOption]:
    return [
        _option("--dry-run", "only show what would be done", short="-n"),
        _option("--yes", "do not ask", short="-y"),
        _option("--reason", "why, for the audit record", "TEXT"),
    ]


def _plan_options() -> list[TyperOption]:
    return [
        _option("--plan-out", "save the plan to a new file instead of applying it", "FILE"),
        _option("--expires", "how long the saved plan is valid; default 24h", "DURATION"),
    ]


def _version_option() -> TyperOption:
    def show(ctx: Any, _option: object, wanted: bool) -> None:
        if wanted:
            typer.echo(f"sluicegate {__version__}")
            ctx.exit()

    option = _option("--version", "show the version")
    option.callback, option.is_eager, option.expose_value = show, True, False
    return option


def _option(name: str, text: str, metavar: str | None = None, short: str = "") -> TyperOption:
    names = [name, short] if short else [name]
    if metavar is None:
        return TyperOption(param_decls=names, is_flag=True, default=False, help=text)
    return TyperOption(param_decls=names, type=str, metavar=metavar, help=text)


def _make_session(ctx: Any) -> Session:
    """Common options may be anywhere on the line; the innermost one wins."""
    values: dict[str, Any] = {}
    at = ctx
    while at is not None:
        for name, value in at.params.items():
            if values.get(name) in (None, False):
                values[name] = value
        at = at.parent
    for name in ("home", "config", "plan_out"):
        if values.get(name) == "":
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is empty", hint=f"name a path, or remove --{option}")
    if values.get("expires") and not values.get("plan_out"):
        raise UsageError("--expires applies to saved plans only", hint="add --plan-out FILE")
    if values.get("plan_out") and values.get("dry_run"):
        raise UsageError("--plan-out and --dry-run exclude each other", hint="use one of them")
    return Session(
        sink=Sink(
            ctx.find_root().info_name,
            json=values["json"],
            no_color=values["no_color"],
            notes=ctx.find_root().obj,
        ),
        home_option=values["home"],
        config_option=values["config"],
        makes_config=getattr(ctx.command.module, "MAKES_CONFIG", False),
        dry_run=values.get("dry_run", False),
        yes=values.get("yes", False),
        reason=_reason(values.get("reason")),
        plan_out=values.get("plan_out"),
        expires=values.get("expires"),
    )


def _reason(text: str | None) -> str | None:
    """A reason that can be recorded: short, valid text."""
    if text is None:
        return None
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UsageError("--reason is not valid text", hint="write it in UTF-8") from None
    if size > _REASON_BYTES:
        raise UsageError(
            f"--reason is longer than {_REASON_BYTES} bytes", hint="write one sentence"
        )
    return text
