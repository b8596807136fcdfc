"""The fields of a log line: the checkpoint's directory, batch, state file, query ids."""

from __future__ import annotations

import re
import shlex

Facts = dict[str, str]

_LONGEST_PATH = 1024
_WORD = "_word"
_PLACE = re.compile(
    r"/(?:(?:offsets|commits)/\.?(?P<batch>\d{1,19})"
    r"|sources/[^/\s]{1,200}/\.?(?P<entry>\d{1,19})"
    r"|state/(?P<operator>\d{1,9})/(?P<partition>\d{1,9})\b(?:/(?:[A-Za-z][\w-]{0,99}/)?"
    r"(?P<version>\d{1,19})(?:_[\w-]{36})?\.(?:delta|snapshot|changelog|zip)\b)?)"
)
_SINK = re.compile(r"/_spark_metadata/(?P<batch>\d{1,19})")
_BEFORE_PATH = re.compile(r"[\s'\"<>|,;(){}\[\]]")
_ROOT = re.compile(r"(?:[\w-]{1,40}=)?(?P<root>(?:[A-Za-z][A-Za-z0-9+.-]{0,20}:/|/).*)")
_QUERY = re.compile(r"\[id = (?P<query>[0-9a-f-]{36}), runId = (?P<run>[0-9a-f-]{36})\]")
_SHORT_QUERY = re.compile(r"\[queryId = (?P<query>[0-9a-f-]{1,36})\]")
_BATCH = re.compile(r"\[batchId = (?P<batch>\d{1,19})\]")
_LOCATION = re.compile(
    r"[Cc]heckpoint [Ll]ocation:? '?(?P<checkpoint>(?:[a-z][a-z0-9+.-]{0,20}:)?/[^\s']{1,1024})"
)
_STARTED = re.compile(r"Use (?P<checkpoint>\S.{0,1023}?) to store the query checkpoint")
_RESOLVED = re.compile(r"Checkpoint root .{1,1024}? resolved to (?P<checkpoint>.{1,1024})\.$")


def facts_of(text: str) -> Facts:
    """The facts in one line, by name."""
    facts: Facts = {}
    for pattern in (_QUERY, _SHORT_QUERY, _BATCH, _LOCATION):
        if found := pattern.search(text):
            facts |= {k: v for k, v in found.groupdict().items() if k not in facts}
    for pattern, name in ((_PLACE, "checkpoint"), (_SINK, "sink")):
        found = pattern.search(text)
        if found and (root := _root_before(text, found.start())):
            inside = {k: v for k, v in found.groupdict().items() if v}
            facts |= {name: root, "path": root + found.group()} | inside
    return {name: plain(value) for name, value in facts.items()}


def started(text: str) -> tuple[str | None, str] | None:
    """The query and checkpoint that are being started according to a line, if any."""
    found = _STARTED.search(text) or _RESOLVED.search(text)
    if not found:
        return None
    return facts_of(text).get("query"), plain(found["checkpoint"])


def named(found: re.Match[str]) -> Facts:
    """The named groups of a match; a digit at the end only makes a name unique in its pattern.

    Groups that end with `_word` are quoted as for a shell.
    """
    facts: Facts = {}
    for name, value in found.groupdict().items():
        if value and name.endswith(_WORD):
            facts[name.removesuffix(_WORD)] = plain("".join(shlex.split(value)))
        elif value:
            facts[name.rstrip("2")] = plain(value)
    return facts


def plain(uri: str) -> str:
    """A path without the scheme of local files, as one would type it."""
    return re.sub(r"^file:/+", "/", uri)


def _root_before(text: str, end: int) -> str | None:
    """The part of a path before `end`; None if its beginning is not clear."""
    token = _BEFORE_PATH.split(text[max(0, end - _LONGEST_PATH) : end])[-1]
    found = _ROOT.fullmatch(token)
    return found["root"] if found else None
