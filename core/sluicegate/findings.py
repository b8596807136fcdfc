"""The results of checks: findings with stable codes, and the registry that explains every code.

A `Rule` is registered once, at import of the module that can report it. Documentation, `--help`
and the JSON output take code, severity and explanation from the registry, so a code cannot be
reported without being documented. A rule also holds its patterns in a driver's log (`LogPattern`)
and, with `fixes`, the function that fixes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

LAST_RESORT = "*"
VERIFY = "checkpoint verify {checkpoint}"
VERIFY_DATA = "checkpoint verify {checkpoint} --read-data"

_CODE = re.compile(r"SG(-[A-Z0-9]+){2,}")
_RULES: dict[str, Rule] = {}
_FIXES: dict[str, Callable[[Any, Finding], Any]] = {}
_LATER: set[str] = set()
_Fix = TypeVar("_Fix", bound=Callable[..., Any])


class Severity(Enum):
    """Errors need operator action and set exit code 3; warnings should be read; notes inform."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Site(Enum):
    """Where in Spark an exception was thrown, by the lines of its stack trace."""

    OFFSETS = r"\.OffsetSeq(?:Log|Metadata)?[.$]|SourceOffset\$?\."
    COMMITS = r"\.Commit(?:Log|Metadata)[.$]"
    METADATA = r"\.StreamMetadata\$"
    SOURCE = r"\.FileStreamSource(?:Log)?[.$]"
    SINK = r"\.(?:FileStreamSink(?:Log)?|ManifestFileCommitProtocol)[.$]"
    SCHEMA = r"\.StateSchemaCompatibilityChecker[.$]"
    STATE = (
        r"\.(?:HDFSBackedStateStoreProvider|StateStoreChangelogReader|StateStore"
        r"|RocksDB(?:FileManager|StateStoreProvider|CheckpointMetadata)?)[.$]"
    )
    START = r"MicroBatchExecution\.\S{0,40}(?:populateStartOffsets|initializeExecution|PrevOffset)"
    # Listed, so that exceptions from there are not attributed to a site above.
    SHUFFLE = r"\.(?:ShuffleBlockFetcherIterator|BlockStoreShuffleReader)[.$]"
    INPUT = r"\.FileScanRDD[.$]"
    ELSEWHERE = r"(?!)"


@dataclass(frozen=True)
class LogPattern:
    """How a rule appears in a driver's log, what to do then, and the next command.

    Classes are Spark's own names of errors; texts are expressions for versions that have no name
    for it, and their named groups become facts. With `sites`, a match is valid only if the stack
    trace comes from there; with `bare` also, weakly, if there is no trace. A weak match is
    dropped if the log has a certain cause of the same family. `also` are codes of other rules
    that the same text can mean. `first` puts a cause before others, because it must be repaired
    first. `wraps` means that the text comes with that of other patterns, which are preferred.
    """

    advice: str
    command: str = VERIFY
    classes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    sites: tuple[Site, ...] = ()
    bare: bool = False
    weak: bool = False
    family: str = ""
    also: tuple[str, ...] = ()
    first: bool = False
    wraps: bool = False

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """All classes and texts, as one expression."""
        names = "|".join(re.escape(name) for name in self.classes)
        named = [rf"(?<![A-Z_])(?:{names})(?![A-Z_])"] if names else []
        return re.compile("|".join((*named, *self.texts)))

    @property
    def is_last_resort(self) -> bool:
        """Whether it is only reported if the log has no other cause."""
        return self.family == LAST_RESORT

    def is_certain(self, site: Site | None) -> bool | None:
        """Whether a match whose trace comes from `site` is certain; None if it is no match."""
        if not self.sites:
            return not self.weak
        if site is None:
            return False if self.bare else None
        return True if site in self.sites else None


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of problem: its stable code, its severity, and what it means.

    `follows` are codes of other rules: while one of those is found, this one is not fixed, because
    the fix of the other also resolves it.
    """

    code: str
    severity: Severity
    title: str
    explanation: str
    log_patterns: tuple[LogPattern, ...] = ()
    follows: tuple[str, ...] = ()

    @property
    def fix(self) -> Callable[[Any, Finding], Any] | None:
        """The function that fixes a finding, if there is one."""
        return _FIXES.get(self.code)

    def at(self, place: str, detail: str = "", *, repair: str = "") -> Finding:
        """A finding of this rule; `repair` is the exact command to type, if there is one."""
        return Finding(self, place, detail or self.title, repair)


@dataclass(frozen=True, slots=True)
class Finding:
    """One occurrence of a rule: its place, its detail, and the command that repairs it."""

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


def rule(
    code: str,
    severity: Severity,
    title: str,
    explanation: str,
    *log_patterns: LogPattern,
    follows: tuple[str, ...] = (),
) -> Rule:
    """Register a rule; codes are unique, upper-case and never re-used for another meaning."""
    if not _CODE.fullmatch(code) or code in _RULES:
        raise ValueError(f"finding code {code!r} is malformed or registered twice")
    _RULES[code] = Rule(code, severity, title, explanation, log_patterns, follows)
    return _RULES[code]


def fixes(*fixed: Rule) -> Callable[[_Fix], _Fix]:
    """Register a function as the fix of rules of its own module."""

    def register(function: _Fix) -> _Fix:
        for each in fixed:
            if each.code in _FIXES:
                raise ValueError(f"{each.code} already has a fix")
            _FIXES[each.code] = function
        return function

    return register


def register_later(modules: Iterable[str]) -> None:
    """Name modules that register rules, to be imported when all rules are needed."""
    _LATER.update(modules)


def rules(prefix: str = "SG-") -> list[Rule]:
    """The registered rules whose code starts with `prefix`, by code."""
    while _LATER:
        import_module(_LATER.pop())
    return [_RULES[code] for code in sorted(_RULES) if code.startswith(prefix)]


def rules_in(module: ModuleType) -> list[Rule]:
    """The rules that a module defines, in their order.

    A name in the module is enough, because modules use the rules of others as `module.RULE`.
    """
    return [each for each in vars(module).values() if isinstance(each, Rule)]


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """Findings by severity, then code and place."""
    order = list(Severity)
    return sorted(found, key=lambda f: (order.index(f.severity), f.code, f.place))


def has_errors(found: Iterable[Finding]) -> bool:
    """Whether operator action is needed."""
    return any(f.severity is Severity.ERROR for f in found)


def count_findings(found: Sequence[Finding]) -> str:
    """The number of findings per severity, as text; empty if there are none."""
    counts = {severity: sum(f.severity is severity for f in found) for severity in Severity}
    return ", ".join(f"{n} {s.value}{'s' * (n != 1)}" for s, n in counts.items() if n)
