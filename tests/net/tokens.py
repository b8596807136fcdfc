"""Random ids, and digests of what holds them, become `<id 1>`, `<id 2>` in order of appearance.

Which of the long hexadecimal values and UUIDs are random is known from the recording: every case
ran twice, in different directories, with different clocks and on hosts of different names. What
both runs had in common is not random and stays as it is: the id of a query, the digest of a link
in the corpus. Numbers begin at 1 in every document and every file, so that the same id is seen to
be the same, and a difference in one document does not show in others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator
from typing import Any

from tests.net.contents import digest

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_HEX = rf"(?:{_UUID}|[0-9a-f]{{8,}}|[0-9a-f]{{4,}}…)"
_TOKEN = re.compile(rf"(?<![0-9a-zA-Z])(?<!\d\.){_HEX}(?![0-9a-zA-Z])")
_KEPT_CHARACTERS = 3000

Result = dict[str, Any]

ANY_OF_MANY = {
    "streams/damaged-all-blobs-missing: checkpoint prune clicks --keep 3 --yes": (
        re.compile(r"blobs/[0-9a-f]{2}/[0-9a-f]{64}: it is missing"),
        "all blobs are missing, and the message names one of them, by the order of a set",
    ),
}
"""What a command chooses at random: the case, the text of which any will do, and the reason."""


def key_of(token: str) -> str:
    """A short name of a token, enough to look it up among the stable ones."""
    return hashlib.sha256(token.encode()).hexdigest()[:12]


def seen(result: Result) -> set[str]:
    """The keys of every token in a result."""
    return {key_of(token) for text in _texts(result) for token in _tokens(text)}


def settled(result: Result, stable: Collection[str]) -> Result:
    """A result as it is recorded: random ids numbered, contents by their digests.

    `texts` keeps short contents, so that a difference can be explained.
    """
    texts = {raw: _numbered(text, stable) for raw, text in result["texts"].items()}
    digests = {raw: digest(text) for raw, text in texts.items()}
    steps = [
        {
            "words": _document(step["words"], stable),
            "exit": step["exit"],
            "out": _document(step["out"], stable),
            "err": _document(_any(result["name"], step["err"]), stable),
            "tree": {
                part: sorted(_entry(entry, digests, stable) for entry in entries)
                for part, entries in step["tree"].items()
            },
        }
        for step in result["steps"]
    ]
    kept = {digest(text): text for text in texts.values() if len(text) <= _KEPT_CHARACTERS}
    return {"name": result["name"], "steps": steps, "texts": kept}


def _any(name: str, value: Any) -> Any:
    """A document in which a random choice is masked, in the cases that are known for it."""
    if name not in ANY_OF_MANY:
        return value
    pattern, _ = ANY_OF_MANY[name]
    return json.loads(pattern.sub("<any>", json.dumps(value, ensure_ascii=False)))


def _entry(entry: list[str], digests: dict[str, str], stable: Collection[str]) -> str:
    """One file: its name, kind and content. Names are sorted, so their ids have no numbers."""
    name, *rest = entry
    shown = re.sub(r"<id \d+>", "<id>", _numbered(name, stable))
    return " ".join([shown, *(digests.get(part, part) for part in rest)])


def _document(value: Any, stable: Collection[str]) -> Any:
    return json.loads(_numbered(json.dumps(value, ensure_ascii=False), stable))


def _numbered(text: str, stable: Collection[str]) -> str:
    numbers: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        token = found[0]
        if _is_number(found) or key_of(token) in stable:
            return token
        return f"<id {numbers.setdefault(token, len(numbers) + 1)}>"

    return _TOKEN.sub(number, text)


def _tokens(text: str) -> Iterator[str]:
    return (found[0] for found in _TOKEN.finditer(text) if not _is_number(found))


def _is_number(found: re.Match[str]) -> bool:
    """Whether it is a number; in the name of a run, after its time, digits are random, too."""
    return found[0].isdigit() and not found.string.endswith("<time>-", 0, found.start())


def _texts(result: Result) -> Iterator[str]:
    yield from result["texts"].values()
    for step in result["steps"]:
        yield json.dumps([step["words"], step["out"], step["err"]], ensure_ascii=False)
        yield from (entry[0] for entries in step["tree"].values() for entry in entries)
