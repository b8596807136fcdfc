"""Reference pages in Markdown: finding codes and exit codes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

from generate.tree import Command
from sluicegate.errors import SluicegateError, error_classes, exit_codes
from sluicegate.findings import Rule, rules

BEGIN = "<!-- exit-codes:begin -->"
END = "<!-- exit-codes:end -->"
_MADE_BY = "<!-- Made by docs/generate; do not edit. -->\n"
_FINDINGS = """
# Findings

What a check reports has a stable code, which is never re-used for another meaning. Errors need a
person and give exit code 3, warnings should be read, notes inform.
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


def with_exit_codes(text: str) -> str:
    """A text with the exit codes between its markers; one without markers stays as it is."""
    between = re.compile(f"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", re.DOTALL)
    return between.sub(lambda _: exit_code_table(), text)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
