"""What a check reports: findings with stable codes, and the registry that explains every code.

A `Rule` is registered once, at import of the module that can report it. Documentation, `--help`
and the JSON output take code, severity and explanation from the registry, so a code cannot be
reported without being documented.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

_CODE = re.compile(r"SG(-[A-Z0-9]+){2,}")
_RULES: dict[str, Rule] = {}


class Severity(Enum):
    """Errors need a person and give exit code 3; warnings should be read; notes inform."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that can be wrong: its stable code, how bad it is, and what it means."""

    code: str
    severity: Severity
    title: str
    explanation: str

    def at(self, place: str, detail: str = "", *, repair: str = "") -> Finding:
        """A finding of this rule; `repair` is the exact command to type, if there is one."""
        return Finding(self, place, detail or self.title, repair)


@dataclass(frozen=True, slots=True)
class Finding:
    """One occurrence of a rule: where, what exactly, and the command that repairs it."""

    rule: Rule
    place: str
    detail: str
    repair: str

    @property
    def code(self) -> str:
        return self.rule.code

    @property
    def severity(self) -> Severity:
        return self.rule.severity


def rule(code: str, severity: Severity, title: str, explanation: str) -> Rule:
    """Register a rule; codes are unique, upper-case and never re-used for another meaning."""
    if not _CODE.fullmatch(code) or code in _RULES:
        raise ValueError(f"finding code {code!r} is malformed or registered twice")
    _RULES[code] = Rule(code, severity, title, explanation)
    return _RULES[code]


def rules(prefix: str = "SG-") -> list[Rule]:
    """The registered rules whose code starts with `prefix`, by code."""
    return [_RULES[code] for code in sorted(_RULES) if code.startswith(prefix)]


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """Findings by severity, then code and place."""
    order = list(Severity)
    return sorted(found, key=lambda f: (order.index(f.severity), f.code, f.place))


def has_errors(found: Iterable[Finding]) -> bool:
    """Whether a person is needed."""
    return any(f.severity is Severity.ERROR for f in found)
