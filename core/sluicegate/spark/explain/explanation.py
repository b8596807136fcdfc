"""What an operator is told about a cause, made from all that a log says of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sluicegate.findings import Rule
from sluicegate.spark.explain.cause import Cause
from sluicegate.spark.explain.chain import Told

_LONGEST = 400
_PLACES = ("checkpoint", "sink")


@dataclass(frozen=True, slots=True)
class Explanation:
    """A cause that a log tells: what it means, what to do, the command, and where it stands.

    `evidence` stands in line `line`; `count` exceptions in lines `first_line` to `last_line` tell
    the same. `certain` is false where the words alone do not tell it apart from `also`.
    """

    rule: Rule
    advice: str
    command: str
    evidence: str
    line: int
    first_line: int
    last_line: int
    count: int
    certain: bool
    facts: Mapping[str, str]
    also: tuple[Rule, ...]

    @property
    def code(self) -> str:
        return self.rule.code

    @property
    def title(self) -> str:
        return self.rule.title


@dataclass(slots=True)
class Tally:
    """How often and where a log tells one cause of one checkpoint, and its best evidence."""

    told: Told
    first_line: int
    last_line: int
    count: int = 1

    def add(self, other: Tally) -> None:
        """Count further mentions of the same."""
        self.count += other.count
        self.first_line = min(self.first_line, other.first_line)
        self.last_line = max(self.last_line, other.last_line)
        first, second = self.told, other.told
        if second.rank > first.rank:
            first, second = second, first
        self.told = replace(first, facts=second.facts | first.facts)

    def spell_out(self, queries: Iterable[str]) -> None:
        """Name the query by its whole id; some lines have the first digits of it only."""
        short = self.told.facts.get("query")
        whole = [query for query in queries if short and query.startswith(short)]
        if len(whole) == 1:
            self.told = replace(self.told, facts=self.told.facts | {"query": whole[0]})

    @property
    def order(self) -> tuple[bool, bool, int]:
        """What must be mended before anything else, then what is certain, then what came last."""
        return not self.told.cause.first, not self.told.certain, -self.last_line

    def explanation(self, checkpoint: str, innermost: str) -> Explanation:
        """The explanation; `checkpoint` and the `innermost` error are empty if not known."""
        told, cause = self.told, self.told.cause
        facts = dict(told.facts)
        if checkpoint:
            facts["checkpoint"] = checkpoint
        if cause.is_last_resort and innermost:
            facts["error"] = shortened(innermost)
        return Explanation(
            rule=cause.rule,
            advice=cause.advice,
            command=_command(cause, facts),
            evidence=shortened(told.text, told.at),
            line=told.line,
            first_line=self.first_line,
            last_line=self.last_line,
            count=self.count,
            certain=told.certain,
            facts=facts,
            also=() if told.certain and cause.sites else cause.also,
        )


def shortened(text: str, at: int = 0) -> str:
    """A line short enough to be read, around what matters in it."""
    if len(text) <= _LONGEST:
        return text.strip()
    start = max(0, min(at - _LONGEST // 4, len(text) - _LONGEST))
    cut = text[start : start + _LONGEST].strip()
    return f"{'…' if start else ''}{cut}{'…' if start + _LONGEST < len(text) else ''}"


def _command(cause: Cause, facts: Mapping[str, str]) -> str:
    """The command with what the log names filled in, safe to be pasted into a shell."""
    places = {name: shlex.quote(facts[name]) if name in facts else name.upper() for name in _PLACES}
    return "sluicegate " + cause.command.format_map(places)
