"""What differs between a record and what a command does now, and whether only its words do."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TEXT_FIELDS = frozenset(
    (
        "about", "action", "advice", "cause", "consequences", "detail", "explanation", "cost",
        "hint", "meaning", "message", "note", "notes", "problem", "problems", "status", "summary",
        "text", "title", "warnings", "what", "why",
    )
)  # fmt: skip
"""Fields that hold sentences for people. Codes, numbers, paths and commands are in others."""

_ABSENT = "<absent>"
_LONGEST = 160
_MOST_IN_A_CASE = 8


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where a step of a case differs; `is_text` if only its words do."""

    place: str
    was: str
    now: str
    is_text: bool = False

    def __str__(self) -> str:
        mark = " (text)" if self.is_text else ""
        if self.place == "tree":
            return f"tree{mark}: {self.was}{self.now}"
        return f"{self.place}{mark}: {self.was} → {self.now}"


@dataclass(frozen=True, slots=True)
class CaseDifference:
    """A case that differs: the command line of a step that differs, and in what.

    `others` is how many other steps differ; if that one differs in words only, they do, too.
    """

    name: str
    command: str
    found: tuple[Difference, ...]
    others: int = 0

    @property
    def is_text(self) -> bool:
        """Whether only words for people differ."""
        return all(each.is_text for each in self.found)

    def lines(self) -> Iterator[str]:
        """For a terminal."""
        yield f"{self.name}"
        yield f"  $ sluicegate {self.command}"
        for each in self.found[:_MOST_IN_A_CASE]:
            yield f"    {each}"
        if len(self.found) > _MOST_IN_A_CASE:
            yield f"    … and {len(self.found) - _MOST_IN_A_CASE} more"
        if self.others:
            yield f"  … and {self.others} other steps of this case"


def compare(record: Mapping[str, Any] | None, now: Mapping[str, Any]) -> CaseDifference | None:
    """How a case differs from its record; None if it does not."""
    name = str(now["name"])
    if record is None:
        missing = Difference("case", "not recorded", "add it with python -m tests.net.record")
        return CaseDifference(name, _command(now["steps"][0]), (missing,))
    texts = {**record["texts"], **now["texts"]}
    differing = [
        (is_now, found)
        for was, is_now in zip(record["steps"], now["steps"], strict=False)
        if (found := tuple(_step(was, is_now, texts)))
    ]
    if len(record["steps"]) != len(now["steps"]):
        counts = Difference("steps", str(len(record["steps"])), str(len(now["steps"])))
        differing.append((now["steps"][-1], (counts,)))
    if not differing:
        return None
    # Later steps may follow from an earlier one, so one is shown: the first that is not mere text.
    of_substance = (each for each in differing if not all(one.is_text for one in each[1]))
    step, found = next(of_substance, differing[0])
    return CaseDifference(name, _command(step), found, len(differing) - 1)


def _command(step: Mapping[str, Any]) -> str:
    return " ".join(step["words"])


def _step(
    was: Mapping[str, Any], now: Mapping[str, Any], texts: Mapping[str, str]
) -> Iterator[Difference]:
    if was["words"] != now["words"]:
        yield Difference("command line", _short(was["words"]), _short(now["words"]))
    if was["exit"] != now["exit"]:
        yield Difference("exit", str(was["exit"]), str(now["exit"]))
    yield from _values(was["out"], now["out"], "", is_text=False)
    yield from _values(_reported(was["err"]), _reported(now["err"]), "", is_text=False)
    yield from _trees(was["tree"], now["tree"], texts)


def _reported(printed: Any) -> Any:
    """Standard error as a document: the error, and the notes before it, which are text."""
    if not isinstance(printed, str) or not printed:
        return printed
    before, brace, error = printed.partition("{\n")
    try:
        document = json.loads(brace + error) if brace else None
    except ValueError:
        return printed
    return {"notes": before.splitlines(), "error": document}


def _values(was: Any, now: Any, place: str, *, is_text: bool) -> Iterator[Difference]:
    """Where two documents differ, by the path to it."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*was, *now)):
            inner = f"{place}.{key}" if place else key
            is_wording = is_text or key in TEXT_FIELDS
            if key not in was or key not in now:
                # A field that comes or goes is substance, whatever it holds.
                yield Difference(
                    inner, _short(was.get(key, _ABSENT)), _short(now.get(key, _ABSENT))
                )
            else:
                yield from _values(was[key], now[key], inner, is_text=is_wording)
    elif isinstance(was, list) and isinstance(now, list):
        if len(was) != len(now):
            yield Difference(f"{place}.length", str(len(was)), str(len(now)), is_text)
        for number, (one, other) in enumerate(zip(was, now, strict=False)):
            yield from _values(one, other, f"{place}[{number}]", is_text=is_text)
    elif was != now or type(was) is not type(now):
        words = isinstance(was, str) and isinstance(now, str)
        # What is printed as it is, such as a help page, is text; data formats are not.
        plain = not place and words and "\n" in was and "Usage: " in was
        yield Difference(place or "printed", *_shorts(was, now), (is_text and words) or plain)


def _trees(
    was: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]], texts: Mapping[str, str]
) -> Iterator[Difference]:
    """Files: `+` now there, `-` no longer there, `~` another content."""
    before = {part: _by_name(entries) for part, entries in was.items()}
    after = {part: _by_name(entries) for part, entries in now.items()}
    for part in ("added", "changed", "removed"):
        one, other = before.get(part, {}), after.get(part, {})
        for name in sorted({*one, *other}):
            if name not in one:
                yield Difference("tree", "", f"+ {name} ({part})")
            elif name not in other:
                yield Difference("tree", "", f"- {name} ({part})")
            elif one[name] != other[name]:
                yield from _contents(f"{name} ({part})", one[name], other[name], texts)


def _by_name(entries: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in entries:
        name, _, rest = entry.partition(" ")
        found.setdefault(name, []).append(rest)
    return found


def _contents(
    name: str, was: list[str], now: list[str], texts: Mapping[str, str]
) -> Iterator[Difference]:
    if len(was) != len(now):
        yield Difference("tree", f"~ {name}: ", f"{len(was)} → {len(now)} files of this name")
        return
    for one, other in zip(sorted(was), sorted(now), strict=True):
        if one == other:
            continue
        old, new = (texts.get(each.rpartition(" ")[2]) for each in (one, other))
        if old is None or new is None:
            yield Difference("tree", f"~ {name}: ", f"{one} → {other}")
            continue
        inner = tuple(_opened(old, new))
        shown = "; ".join(str(each) for each in inner[:3]) or f"{one} → {other}"
        is_text = bool(inner) and all(each.is_text for each in inner)
        yield Difference("tree", f"~ {name}: ", shown, is_text)


def _opened(was: str, now: str) -> Iterator[Difference]:
    """Where the contents of two files differ: by field if they can be read so."""
    one, other = (_parsed(text) for text in (was, now))
    if one is not None and other is not None and one[0] == other[0]:
        yield from _values(one[1], other[1], one[0], is_text=False)
        return
    changed = [
        line
        for line in difflib.unified_diff(was.splitlines(), now.splitlines(), lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    for line in changed:
        yield Difference("line", "", _short(line))


def _parsed(text: str) -> tuple[str, Any] | None:
    """The kind of a content and its value, if it is a document."""
    start = min((at for at in (text.find("{"), text.find("[")) if at > 0), default=0)
    if not start or text.startswith("text "):
        return None
    try:
        return text[:start].strip(), json.loads(text[start:])
    except ValueError:
        return None


def _shorts(was: Any, now: Any) -> tuple[str, str]:
    """Two values cut to where they begin to differ."""
    one, other = _plain(was), _plain(now)
    if max(len(one), len(other)) <= _LONGEST:
        return one, other
    pairs = enumerate(zip(one, other, strict=False))
    at = next((number for number, (a, b) in pairs if a != b), min(len(one), len(other)))
    begin = max(0, at - 40)
    lead = "…" if begin else ""
    return lead + _cut(one[begin:]), lead + _cut(other[begin:])


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _short(value: Any) -> str:
    return _cut(value if isinstance(value, str) else _plain(value))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
