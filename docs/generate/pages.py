"""Reference pages in Markdown: commands, findings, exit codes and the configuration."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from generate import man
from generate.tree import Argument, Command, Option
from sluicegate import config
from sluicegate.errors import SluicegateError, error_classes, exit_codes
from sluicegate.findings import Rule, rules

_MADE_BY = "<!-- Made by docs/generate; do not edit. -->\n"
_COMMANDS = """
# Commands

The program is installed as `sluicegate` and as `sg`. `sluicegate COMMAND --help` shows the same
text. Every command has a man page: `man sluicegate-checkpoint-verify`.

A TARGET is a name from `sluicegate.toml` or a path. A command that changes something shows its plan
and asks; without a terminal it needs `--dry-run` or `--yes`.
"""
_FINDINGS = f"""
# Findings

{man.ABOUT_FINDINGS.strip()}
"""
_EXIT_CODES = """
# Exit codes

Any code that is not listed means failure.
"""
_ERRORS = """
## Errors

With `--json` an error is one JSON document on standard error, and its `error` field is one of these
names.
"""


def commands(root: Command) -> str:
    """Every command: what it does, its arguments, options, examples and findings."""
    common = "".join(map(_option, root.options))
    groups = [group for group in root.walk() if group.is_group]
    sections = [_overview(groups), f"## Common options\n\nEvery command takes them.\n\n{common}"]
    for group in groups:
        leaves = [command for command in group.below if not command.is_group]
        sections += [_command(command, root.options) for command in leaves]
    return "\n".join([_MADE_BY + _COMMANDS, *sections])


def _overview(groups: Iterable[Command]) -> str:
    leaves = (command for group in groups for command in group.below if not command.is_group)
    rows = [(_linked(" ".join(command.path)), command.summary) for command in leaves]
    return _table(("command", "does"), rows)


def _linked(command: str) -> str:
    return f"[`{command}`](#sluicegate-{command.replace(' ', '-')})"


def _command(command: Command, common: tuple[Option, ...]) -> str:
    own = [option for option in command.options if option not in common]
    words = " ".join(("sluicegate", *command.path))
    usage = " ".join([words, *(["[OPTIONS]"] if own else []), *map(_usage, command.arguments)])
    parts = [f"## {words}\n", f"```text\n{usage}\n```\n", f"{command.help}\n"]
    if command.arguments or own:
        entries = (f"- `{a.metavar}`: {a.help}\n" for a in command.arguments)
        parts.append("".join([*entries, *map(_option, own)]))
    if command.examples:
        lines = [f"sluicegate {each.line}  # {each.what}\n" for each in command.examples]
        parts.append(f"```sh\n{''.join(lines)}```\n")
    if command.rules:
        codes = (f"[{rule.code}](findings.md#{rule.code.lower()})" for rule in command.rules)
        parts.append(f"Findings: {', '.join(codes)}.\n")
    return "\n".join(parts)


def _usage(argument: Argument) -> str:
    shown = argument.metavar + ("…" if argument.repeats else "")
    return shown if argument.required else f"[{shown}]"


def _option(option: Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    value = f" `{option.metavar}`" if option.metavar else ""
    again = " (may be given more than once)" if option.repeats else ""
    return f"- {names}{value}: {option.help}{again}\n"


def configuration() -> str:
    """Every key of the configuration: its type, an example and what it does."""
    parts = [f"{_MADE_BY}\n# {config.FILE_NAME}\n{man.ABOUT_FILE}"]
    for title, _, text, keys in man.TABLES:
        rows = [(f"`{key.name}`", f"`{key.example}`", _meaning(key)) for key in keys]
        parts.append(f"## {title}\n\n{text}\n\n" + _table(("key", "example", "meaning"), rows))
    parts.append(f"## Example\n\n```toml\n{man.example_file()}```\n")
    return "\n".join(parts)


def _meaning(key: config.Key) -> str:
    allowed = f" (one of: {', '.join(key.choices)})" if key.choices else ""
    return key.doc + allowed


def findings(root: Command) -> str:
    """Every finding code: how bad it is, what it means and which commands report it."""
    reporters = {
        rule.code: [command for command in root.leaves() if rule in command.rules]
        for rule in rules()
    }
    overview = _table(
        ("code", "severity", "title"),
        [(f"[{r.code}](#{r.code.lower()})", r.severity.value, r.title) for r in rules()],
    )
    sections = [_finding(rule, reporters[rule.code]) for rule in rules()]
    return "\n".join([_MADE_BY + _FINDINGS, overview, *sections])


def _finding(rule: Rule, commands: list[Command]) -> str:
    names = ", ".join(f"`sluicegate {' '.join(command.path)}`" for command in commands)
    reported = f"\nReported by {names}.\n" if names else ""
    title = rule.title[0].upper() + rule.title[1:]
    return f"## {rule.code}\n\n{title} ({rule.severity.value}).\n\n{rule.explanation}\n{reported}"


def exit_codes_page() -> str:
    """Every exit code, and every error behind it with what to do about it."""
    by_code = sorted(error_classes(), key=lambda cls: (cls.exit_code, cls.__name__))
    errors = _table(("error", "code", "what happened", "what to do"), map(_error_row, by_code))
    return "\n".join([_MADE_BY + _EXIT_CODES, exit_code_table() + _ERRORS, errors])


def _error_row(cls: type[SluicegateError]) -> tuple[str, ...]:
    said = (inspect.getdoc(cls) or "").partition("\n\n")[0]
    return f"`{cls.__name__}`", str(cls.exit_code), said, cls.default_hint


def exit_code_table() -> str:
    """The exit codes as a Markdown table."""
    return _table(("code", "meaning"), [(str(code), text) for code, text in exit_codes().items()])


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
