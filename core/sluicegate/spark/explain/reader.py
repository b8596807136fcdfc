"""Finds the chains of exceptions in a log and tallies their causes, in bounded memory.

In a chain the innermost line with a cause decides. Wrappers (StreamingQueryException, py4j,
foreachBatch) have no cause, so they do not hide it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module

from sluicegate.checkpoint.rules import AREAS
from sluicegate.errors import NotFound
from sluicegate.findings import LogPattern, Rule, Site, rules, rules_in
from sluicegate.spark.explain import environment, kafka
from sluicegate.spark.explain.fields import Facts, facts_of, named, started
from sluicegate.spark.explain.text import clean, unfold
from sluicegate.units import command, counted

# The limit of a chain. Real ones have a dozen exceptions; further lines replace the last.
_MOST = 64


@dataclass(frozen=True, slots=True)
class Cause:
    """A rule, and one of the ways in which it shows in a log."""

    rule: Rule
    pattern: LogPattern


Matches = list[tuple[Cause, re.Match[str]]]


@cache
def causes() -> tuple[Cause, ...]:
    """All known causes, in order: if several match one line, the first is taken.

    The rules of checkpoints include their checks, which take time to import. So this is called
    when a log is read, and not before.
    """
    modules = [import_module(area) for area in AREAS]
    own = [Cause(rule, p) for m in modules for rule in rules_in(m) for p in rule.log_patterns]
    own.sort(key=lambda cause: cause.pattern.wraps)
    other = [Cause(r, p) for m in (kafka, environment) for r in rules_in(m) for p in r.log_patterns]
    return (*own, *other)


@dataclass(frozen=True, slots=True)
class CauseLine:
    """A line that shows a cause: which, how certain, and the other fields of the line."""

    cause: Cause
    certain: bool
    line: int
    text: str
    at: int
    facts: Facts

    @property
    def rank(self) -> int:
        """Certain causes before weak ones before last resorts."""
        return 2 if self.certain else 0 if self.cause.pattern.is_last_resort else 1


_FRAMES = re.compile("|".join(f"(?P<{site.name}>{site.value})" for site in Site))


def site_of(frame: str) -> Site | None:
    """The site that a line of a stack trace belongs to."""
    found = _FRAMES.search(frame)
    return Site[found.lastgroup] if found and found.lastgroup else None


@dataclass(slots=True)
class _Line:
    number: int
    text: str
    matches: Matches
    exception: int


@dataclass(slots=True)
class Chain:
    """Collects the lines of one chain; `head` is the log record that holds it."""

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
        """A line of a stack trace. The first one at a known site is where it was thrown."""
        self.has_thrown = True
        if self.sites[-1] in (None, Site.ELSEWHERE):
            self.sites[-1] = site_of(text) or Site.ELSEWHERE

    def add(self, number: int, text: str, matches: Matches) -> None:
        """A line that matches some causes; the frames after it show which of them."""
        if len(self.lines) == _MOST:
            self.lines.pop()
        self.lines.append(_Line(number, text, matches, len(self.sites) - 1))

    def cause(self) -> CauseLine | None:
        """The innermost line with a certain cause, else the innermost with a possible one."""
        best: CauseLine | None = None
        for line in reversed(self.lines):
            found = self._cause_in(line)
            if found and (best is None or found.rank > best.rank):
                best = found
        if best is None:
            return None
        return replace(best, facts=self._facts(best))

    def _facts(self, best: CauseLine) -> Facts:
        """The fields of the entire chain; those of the line with the cause win."""
        facts = facts_of(self.head)
        for line in self.lines:
            found = self._cause_in(line)
            same = found and found.cause.rule is best.cause.rule
            facts |= found.facts if found and same else facts_of(line.text)
        return facts | best.facts

    def _cause_in(self, line: _Line) -> CauseLine | None:
        site = self._site(line.exception)
        for cause, match in line.matches:
            certain = cause.pattern.is_certain(site)
            if certain is not None:
                facts = facts_of(line.text) | named(match)
                return CauseLine(cause, certain, line.number, line.text, match.start(), facts)
        return None

    def _site(self, exception: int) -> Site | None:
        """Where an exception was thrown. Java cuts off the frames that it shares with the outer."""
        known = [site for site in self.sites[: exception + 1] if site]
        inner_first = [site for site in reversed(known) if site is not Site.ELSEWHERE]
        return inner_first[0] if inner_first else known[-1] if known else None


_LONGEST = 400
_PLACES = ("checkpoint", "sink")


@dataclass(frozen=True, slots=True)
class Explanation:
    """A cause that a log shows: its meaning, the advice, the command, and its place in the log.

    `evidence` is in line `line`; `count` exceptions in lines `first_line` to `last_line` have the
    same cause. `certain` is false where the words alone do not distinguish it from `also`.
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
    """How often and where a log shows one cause of one checkpoint, and its best evidence."""

    best: CauseLine
    first_line: int
    last_line: int
    count: int = 1

    def add(self, other: Tally) -> None:
        """Count further mentions of the same."""
        self.count += other.count
        self.first_line = min(self.first_line, other.first_line)
        self.last_line = max(self.last_line, other.last_line)
        first, second = self.best, other.best
        if second.rank > first.rank:
            first, second = second, first
        self.best = replace(first, facts=second.facts | first.facts)

    def spell_out(self, queries: Iterable[str]) -> None:
        """Name the query by its full id; some lines have only the first digits of it."""
        short = self.best.facts.get("query")
        full = [query for query in queries if short and query.startswith(short)]
        if len(full) == 1:
            self.best = replace(self.best, facts=self.best.facts | {"query": full[0]})

    @property
    def order(self) -> tuple[bool, bool, int]:
        """Causes to fix before all others, then certain ones, then the latest."""
        return not self.best.cause.pattern.first, not self.best.certain, -self.last_line

    def explanation(self, checkpoint: str, innermost: str) -> Explanation:
        """The explanation; `checkpoint` and the `innermost` error are empty if not known."""
        best, pattern = self.best, self.best.cause.pattern
        facts = dict(best.facts)
        if checkpoint:
            facts["checkpoint"] = checkpoint
        if pattern.is_last_resort and innermost:
            facts["error"] = shortened(innermost)
        return Explanation(
            rule=best.cause.rule,
            advice=pattern.advice,
            command=_command(pattern, facts),
            evidence=shortened(best.text, best.at),
            line=best.line,
            first_line=self.first_line,
            last_line=self.last_line,
            count=self.count,
            certain=best.certain,
            facts=facts,
            also=() if best.certain and pattern.sites else _rules_of(pattern.also),
        )


def shortened(text: str, at: int = 0) -> str:
    """A line cut to a readable length, around the position `at`."""
    if len(text) <= _LONGEST:
        return text.strip()
    start = max(0, min(at - _LONGEST // 4, len(text) - _LONGEST))
    cut = text[start : start + _LONGEST].strip()
    return f"{'…' if start else ''}{cut}{'…' if start + _LONGEST < len(text) else ''}"


def _command(pattern: LogPattern, facts: Mapping[str, str]) -> str:
    """The command, with the places that the log names."""
    places = {name: facts.get(name, name.upper()) for name in _PLACES}
    return command(*(word.format_map(places) for word in pattern.command.split()))


def _rules_of(codes: Iterable[str]) -> tuple[Rule, ...]:
    return tuple(rule for code in codes for rule in rules(code) if rule.code == code)


_HEAD = 256
_LONGEST_TEXT = 64 * 1024
_LONGEST_RECORD = 4096
_MOST_QUERIES = 1000
_LEVEL = re.compile(r"(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)(?=[\s:\]|,])")
_QUIET = frozenset(("TRACE", "DEBUG", "INFO"))
_LOUD = frozenset(("ERROR", "FATAL"))
_THROWN = re.compile(
    r"\s*(?:: |Exception in thread \"[^\"]{0,200}\" )?"
    r"(?:(?:[A-Za-z_$][\w$]{0,99}\.){1,20}[A-Z][\w$]{0,199}(?::|$)"
    r"|[A-Z]\w{0,99}(?:Error|Exception)(?::|$))"
)
_INNER = ("Caused by: ", "Suppressed: ")
_FRAME = re.compile(r"\s*(?:at [^\s(]{1,400}\(|\.\.\. \d{1,9} )")
_WRAPPER = re.compile(
    r"StreamingQueryException|Py4J|ForeachBatchUserFuncException|TaskKilled|Interrupted"
    r"|OriginalTryStackTrace|SparkException: (?:Job aborted|Exception thrown in awaitResult)"
)
# Warnings that Spark recovers from.
_NOISE = re.compile(
    r"Assume no metadata directory|Error reading metadata path for stateful operator"
    r"|Failed to find operator metadata"
)
# Every text of every cause has one of these; most lines have none and are skipped quickly.
_WORDS = (
    "Exception", "exception", "Error", "sources", "batch", "metadata", "iterator", "assertion",
    "Stream ", "state", "log ", "LogVersion", "artition", "data may", "ffset", "active", "space",
    "uota", "denied", "scheme", "RocksDB", "rocksdb", "chema", "restarts", "recovering", "Copied",
    "streaming", "node assignment", "bootstrap", "broker", "sluicegate: ",
)  # fmt: skip
_CLASS = re.compile(r"[A-Z]_[A-Z]")


def explain(lines: Iterable[str], name: str = "the log") -> list[Explanation]:
    """The causes that a log shows, the root cause first; NotFound if it shows no known one."""
    reader = _Reader()
    for number, line in enumerate(lines, start=1):
        for inner in unfold(clean(line)):
            reader.read(number, inner)
    return reader.finish() or reader.refuse(name)


@dataclass(slots=True)
class _Reader:
    chain: Chain = field(default_factory=Chain)
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)
    checkpoints: set[str] = field(default_factory=set)
    innermost: tuple[int, str] | None = None
    is_muted: bool = False
    is_quiet: bool = False
    lines: int = 0

    def read(self, number: int, text: str) -> None:
        """One more line."""
        self.lines = number
        if _is_frame(text):
            self.chain.frame(text)
            return
        level = _level(text)
        if level:
            self._start_record(text, level)
            if level in _QUIET:
                return
        is_cause = any(word in text[:_HEAD] for word in _INNER)
        is_thrown = is_cause or bool(_THROWN.match(text))
        if self.is_quiet and not (is_thrown or "Exception" in text or "Error" in text):
            return
        self.is_quiet = False
        if "[id = " in text:
            self._meet(facts_of(text).get("query"))
        if is_thrown:
            if self.chain.has_thrown and not is_cause:
                self._close()
                self.chain = Chain()
            self.chain.throw()
            self._remember(number, text)
        elif level in _LOUD and self.innermost is None:
            self.innermost = number, text
        self._look_at(number, text)

    def _start_record(self, text: str, level: str) -> None:
        if not self.chain.is_blank:
            self._close()
            self.chain = Chain()
        self.is_muted, self.is_quiet = False, level in _QUIET
        if not self.is_quiet:
            self.chain.head = text
            self.is_muted = bool(_NOISE.search(text))
        elif "heckpoint" in text:
            self._learn(text)

    def _look_at(self, number: int, text: str) -> None:
        if self.is_muted or not (any(word in text for word in _WORDS) or _CLASS.search(text)):
            return
        text = text[:_LONGEST_TEXT]
        matches = [(c, m) for c in causes() if (m := c.pattern.expression.search(text))]
        if matches:
            self.chain.add(number, text, matches)

    def _learn(self, text: str) -> None:
        found = started(text[:_LONGEST_RECORD])
        if found and len(self.checkpoints) < _MOST_QUERIES:
            query, checkpoint = found
            self.checkpoints.add(checkpoint)
            self._meet(query, checkpoint)

    def _meet(self, query: str | None, checkpoint: str = "") -> None:
        if query and (query in self.queries or len(self.queries) < _MOST_QUERIES):
            self.queries[query] = checkpoint or self.queries.get(query, "")

    def _remember(self, number: int, text: str) -> None:
        if not self.is_muted and not _WRAPPER.search(text):
            self.innermost = number, text

    def _close(self) -> None:
        found = self.chain.cause() if self.chain.lines else None
        if found is None:
            return
        checkpoint = found.facts.get("checkpoint") or self._checkpoint_of(found.facts)
        if checkpoint and len(self.checkpoints) < _MOST_QUERIES:
            self.checkpoints.add(checkpoint)
        key = found.cause.rule.code, checkpoint
        if len(self.tallies) >= _MOST_QUERIES and key not in self.tallies:
            key = found.cause.rule.code, ""
        tally = Tally(found, found.line, found.line)
        if key in self.tallies:
            self.tallies[key].add(tally)
        else:
            self.tallies[key] = tally

    def _checkpoint_of(self, facts: Facts) -> str:
        found = [v for k, v in self.queries.items() if v and k.startswith(facts.get("query", "-"))]
        return found[0] if found else ""

    def finish(self) -> list[Explanation]:
        """All explanations, after the last line."""
        self._close()
        self._merge_nameless()
        only = next(iter(self.checkpoints)) if len(self.checkpoints) == 1 else ""
        innermost = self.innermost[1] if self.innermost else ""
        kept = [(tally, key) for key, tally in self.tallies.items() if self._is_needed(tally.best)]
        kept.sort(key=lambda item: item[0].order)
        for tally, _ in kept:
            tally.spell_out(self.queries)
        return [tally.explanation(key[1] or only, innermost) for tally, key in kept]

    def refuse(self, name: str) -> list[Explanation]:
        """Report that no cause was recognised, with the innermost error."""
        verify = command("checkpoint", "verify", "CHECKPOINT")
        hint = f"check the checkpoint itself: {verify}"
        if self.innermost is None:
            size = counted(self.lines, "line")
            raise NotFound(f"{name} ({size}) holds no error", hint=hint, place=name)
        line, text = self.innermost
        raise NotFound(
            f"no known cause in {name}; its innermost error, at line {line}: {shortened(text)}",
            hint=hint,
            place=name,
        )

    def _merge_nameless(self) -> None:
        """Assign mentions without a checkpoint to the only one that their cause has."""
        for code in [code for code, checkpoint in self.tallies if not checkpoint]:
            named = [key for key in self.tallies if key[0] == code and key[1]]
            if len(named) == 1:
                self.tallies[named[0]].add(self.tallies.pop((code, "")))

    def _is_needed(self, found: CauseLine) -> bool:
        others = [tally.best for tally in self.tallies.values() if tally.best is not found]
        pattern = found.cause.pattern
        if pattern.is_last_resort:
            return all(other.cause.pattern.is_last_resort for other in others)
        return found.certain or not any(
            o.certain and pattern.family and o.cause.pattern.family == pattern.family
            for o in others
        )


def _level(text: str) -> str | None:
    """The level of a log record; None for a line that is not the beginning of one."""
    found = _LEVEL.search(text, 0, _HEAD)
    before = text[: found.start()][-1:] if found else ""
    return found.group() if found and not (before.isalnum() or before == "_") else None


def _is_frame(text: str) -> bool:
    return bool(_FRAME.match(text)) or "\tat " in text[:_HEAD]
