"""Finds the chains of exceptions in a log and tallies their causes, in bounded memory.

In a chain the innermost line that tells a cause decides, and wrappers tell none: neither
StreamingQueryException, nor py4j, nor foreachBatch stand in its way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from sluicegate.errors import NotFound
from sluicegate.spark.explain.chain import Chain, Told
from sluicegate.spark.explain.explanation import Explanation, Tally, shortened
from sluicegate.spark.explain.facts import Facts, facts_of, started
from sluicegate.spark.explain.kafka import KAFKA_CAUSES
from sluicegate.spark.explain.logs import LOG_CAUSES
from sluicegate.spark.explain.outside import OUTSIDE_CAUSES
from sluicegate.spark.explain.state import STATE_CAUSES
from sluicegate.spark.explain.text import clean, unfold

CAUSES = (*LOG_CAUSES, *STATE_CAUSES, *KAFKA_CAUSES, *OUTSIDE_CAUSES)

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
# What Spark warns of and then does well without.
_NOISE = re.compile(
    r"Assume no metadata directory|Error reading metadata path for stateful operator"
    r"|Failed to find operator metadata"
)
# One of these is in every text of every cause; most lines have none and need no closer look.
_WORDS = (
    "Exception", "exception", "Error", "sources", "batch", "metadata", "iterator", "assertion",
    "Stream ", "state", "log ", "LogVersion", "artition", "data may", "ffset", "active", "space",
    "uota", "denied", "scheme", "RocksDB", "rocksdb", "chema", "restarts", "recovering", "Copied",
    "streaming", "node assignment", "bootstrap", "broker", "sluicegate: ",
)  # fmt: skip
_CLASS = re.compile(r"[A-Z]_[A-Z]")


def explain(lines: Iterable[str], name: str = "the log") -> list[Explanation]:
    """The causes that a log tells, the root cause first; NotFound if it tells none that we know."""
    reader = _Reader()
    for number, line in enumerate(lines, start=1):
        for inner in unfold(clean(line)):
            reader.read(number, inner)
    return reader.finish() or reader.give_up(name)


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
        matches = [(c, found) for c in CAUSES if (found := c.pattern.search(text))]
        if matches:
            self.chain.tell(number, text, matches)

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
        told = self.chain.cause() if self.chain.lines else None
        if told is None:
            return
        checkpoint = told.facts.get("checkpoint") or self._checkpoint_of(told.facts)
        if checkpoint and len(self.checkpoints) < _MOST_QUERIES:
            self.checkpoints.add(checkpoint)
        key = told.cause.rule.code, checkpoint
        if len(self.tallies) >= _MOST_QUERIES and key not in self.tallies:
            key = told.cause.rule.code, ""
        tally = Tally(told, told.line, told.line)
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
        kept = [(tally, key) for key, tally in self.tallies.items() if self._is_needed(tally.told)]
        kept.sort(key=lambda item: item[0].order)
        for tally, _ in kept:
            tally.spell_out(self.queries)
        return [tally.explanation(key[1] or only, innermost) for tally, key in kept]

    def give_up(self, name: str) -> list[Explanation]:
        """Say honestly that nothing was recognised, and what comes closest."""
        hint = "look at the checkpoint itself: sluicegate checkpoint verify CHECKPOINT"
        if self.innermost is None:
            raise NotFound(f"{name} ({self.lines} lines) holds no error", hint=hint, place=name)
        line, text = self.innermost
        raise NotFound(
            f"no known cause in {name}; its innermost error, at line {line}: {shortened(text)}",
            hint=hint,
            place=name,
        )

    def _merge_nameless(self) -> None:
        """Give mentions that name no checkpoint to the only one that their cause has."""
        for code in [code for code, checkpoint in self.tallies if not checkpoint]:
            named = [key for key in self.tallies if key[0] == code and key[1]]
            if len(named) == 1:
                self.tallies[named[0]].add(self.tallies.pop((code, "")))

    def _is_needed(self, told: Told) -> bool:
        others = [tally.told for tally in self.tallies.values() if tally.told is not told]
        if told.cause.is_last_resort:
            return all(other.cause.is_last_resort for other in others)
        family = told.cause.family
        return told.certain or not any(
            o.certain and family and o.cause.family == family for o in others
        )


def _level(text: str) -> str | None:
    """The level of a log record; None for a line that is not the beginning of one."""
    found = _LEVEL.search(text, 0, _HEAD)
    before = text[: found.start()][-1:] if found else ""
    return found.group() if found and not (before.isalnum() or before == "_") else None


def _is_frame(text: str) -> bool:
    return bool(_FRAME.match(text)) or "\tat " in text[:_HEAD]
