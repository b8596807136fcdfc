"""Every document that a test sees has the shape that docs/reference/schemas.md tells of.

`SG_SCHEMAS=write pytest …` adds what these tests see; `python docs/generate` then makes the page.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from generate import schemas

from sluicegate_cli import table
from sluicegate_cli.output.console import ERROR_SCHEMA

WRITES = os.environ.get("SG_SCHEMAS") == "write"
_BEGINS = re.compile(r"^\{", re.MULTILINE)
_seen: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)


def heed(arguments: Sequence[str], printed: str) -> None:
    """Check, or write down, the documents among what a command printed."""
    for document in documents(printed):
        if WRITES:
            _write(arguments, document)
        else:
            check(document)


def check(document: dict[str, Any]) -> None:
    """Fail if a document is not what its schema says."""
    name = document["schema"]
    known = schemas.read().get(name)
    assert known, f"{name} is not in docs/generate/schemas.json; run this with SG_SCHEMAS=write"
    assert document["version"] == known["version"]
    found = list(schemas.differences(known["fields"], schemas.shape([document])))
    assert not found, f"{name}: {'; '.join(found)}: if so it should be, see tests/docs/documents.py"


def documents(printed: str) -> Iterator[dict[str, Any]]:
    """The documents in what was printed, each of which begins a line."""
    decoder, at = json.JSONDecoder(), 0
    while (begins := _BEGINS.search(printed, at)) is not None:
        at = begins.end()
        with suppress(ValueError):
            found, at = decoder.raw_decode(printed, begins.start())
            if str(found.get("schema")).startswith("sluicegate."):
                yield found


def command_of(arguments: Sequence[str]) -> str | None:
    """The command that a command line names."""
    lines = (" ".join(arguments[at : at + count]) for at in range(3) for count in (2, 1))
    return next((line for line in lines if line in table.COMMANDS), None)


def _write(arguments: Sequence[str], document: dict[str, Any]) -> None:
    known, name = schemas.read(), document["schema"]
    _seen[name].append(document)
    before = known.get(name, {"commands": [], "fields": {}})
    command = command_of(arguments)
    fields = schemas.merged(before["fields"], schemas.shape(_seen[name]))
    commands = {*before["commands"], *([command] if command and name != ERROR_SCHEMA else [])}
    about = {"version": document["version"], "commands": sorted(commands)}
    known[name] = {**about, "fields": fields}
    text = json.dumps(dict(sorted(known.items())), indent=1) + "\n"
    schemas.PLACE.write_text(text, encoding="utf-8")
