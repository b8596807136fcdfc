"""One exception with its `Caused by` lines and their stack traces, read line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from sluicegate.spark.explain.cause import Cause, Site, site_of
from sluicegate.spark.explain.facts import Facts, facts_of, named

# What a chain may hold. Real ones have a dozen exceptions; what comes on top replaces the last.
_MOST = 64

Matches = list[tuple[Cause, re.Match[str]]]


@dataclass(frozen=True, slots=True)
class Told:
    """A line that tells a cause: which, how sure, and what else the line says."""

    cause: Cause
    certain: bool
    line: int
    text: str
    at: int
    facts: Facts

    @property
    def rank(self) -> int:
        """Certain causes before weak ones before last resorts."""
        return 2 if self.certain else 0 if self.cause.is_last_resort else 1


@dataclass(slots=True)
class _Line:
    number: int
    text: str
    matches: Matches
    exception: int


@dataclass(slots=True)
class Chain:
    """Collects the lines of one chain; `head` is the log record it stands in."""

    head: str = ""
    lines: list[_Line] = field(default_factory=list)
    sites: list[Site | None] = field(default_factory=lambda: [None])
    has_thrown: bool = False

    @property
    def is_blank(self) -> bool:
        """Whether nothing has been put into it."""
        return not (self.head or self.lines or self.has_thrown)

    def throw(self) -> None:
        """A line names an exception: the frames that follow are its own."""
        if self.has_thrown and len(self.sites) < _MOST:
            self.sites.append(None)
        self.has_thrown = True

    def frame(self, text: str) -> None:
        """A line of a stack trace. The first one at a known site says where it was thrown."""
        self.has_thrown = True
        if self.sites[-1] in (None, Site.ELSEWHERE):
            self.sites[-1] = site_of(text) or Site.ELSEWHERE

    def tell(self, number: int, text: str, matches: Matches) -> None:
        """A line that fits some causes; which of them, the frames after it will show."""
        if len(self.lines) == _MOST:
            self.lines.pop()
        self.lines.append(_Line(number, text, matches, len(self.sites) - 1))

    def cause(self) -> Told | None:
        """The innermost line that tells a cause for certain, else the innermost that may."""
        best: Told | None = None
        for line in reversed(self.lines):
            told = self._told(line)
            if told and (best is None or told.rank > best.rank):
                best = told
        if best is None:
            return None
        return replace(best, facts=self._facts(best))

    def _facts(self, best: Told) -> Facts:
        """What the whole chain says; the line that tells the cause knows best."""
        facts = facts_of(self.head)
        for line in self.lines:
            told = self._told(line)
            same = told and told.cause.rule is best.cause.rule
            facts |= told.facts if told and same else facts_of(line.text)
        return facts | best.facts

    def _told(self, line: _Line) -> Told | None:
        site = self._site(line.exception)
        for cause, match in line.matches:
            certain = cause.is_certain(site)
            if certain is not None:
                facts = facts_of(line.text) | named(match)
                return Told(cause, certain, line.number, line.text, match.start(), facts)
        return None

    def _site(self, exception: int) -> Site | None:
        """Where an exception was thrown. Java cuts off the frames that it shares with the outer."""
        known = [site for site in self.sites[: exception + 1] if site]
        inner_first = [site for site in reversed(known) if site is not Site.ELSEWHERE]
        return inner_first[0] if inner_first else known[-1] if known else None
