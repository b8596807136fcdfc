"""What a case is: members of the corpus, and command lines that run on a copy of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

_EARLIER = re.compile(r"@\{(\d+):([^}]+)\}")


@dataclass(frozen=True, slots=True)
class Step:
    """One command line, without `--json`, which is added unless it is `plain`.

    `@{N:a.b.0}` in a word is that field of the document of step N. `stdin` is its standard input.
    """

    words: tuple[str, ...]
    stdin: str = ""
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """Commands on a copy of members; they run in the directory of the first one.

    `hold` is a lock file, relative to that directory, which another process holds meanwhile.
    """

    name: str
    members: tuple[str, ...]
    steps: tuple[Step, ...]
    hold: str = ""

    @property
    def area(self) -> str:
        """The part of the records that it belongs to."""
        return self.name.partition("/")[0]

    def as_json(self) -> str:
        """One line, for the driver."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Case:
        fields = json.loads(line)
        steps = tuple(
            Step(tuple(step["words"]), step["stdin"], step["plain"]) for step in fields["steps"]
        )
        return cls(fields["name"], tuple(fields["members"]), steps, fields["hold"])


def filled(words: Sequence[str], documents: Sequence[Any]) -> list[str]:
    """The words of a step, with what earlier steps printed put in."""

    def look_up(found: re.Match[str]) -> str:
        value: Any = documents[int(found[1])]
        for key in found[2].split("."):
            if isinstance(value, Mapping):
                value = value.get(key)
            elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
                value = value[int(key)]
            else:
                value = None
        return "missing" if value is None else str(value)

    return [_EARLIER.sub(look_up, word) for word in words]


def command_of(words: Sequence[str], commands: Sequence[str]) -> str | None:
    """The command that a command line names: its first two words, or its first."""
    for count in (2, 1):
        if " ".join(words[:count]) in commands:
            return " ".join(words[:count])
    return None
