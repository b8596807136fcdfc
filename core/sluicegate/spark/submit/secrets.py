"""Which settings and arguments are secret, and how text is shown without them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sluicegate.spark.submit.keys import Setting

HIDDEN = "***"
_WORDS = r"secret|password|passwd|token|credential|access.?key"
_NAME = re.compile(_WORDS, re.IGNORECASE)
# A secret inside a longer value: java options, JAAS configuration, queries of URLs. Bounded, since
# values can be long.
_INSIDE = re.compile(
    rf"""((?:{_WORDS})[\w.\-]{{0,100}}["']?\s{{0,9}}[=:]\s{{0,9}})("[^"]*"|'[^']*'|[^\s,;&"']+)""",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"(://[^/\s:@]{0,200}:)([^/\s@]{1,200})(?=@)")
# Shorter ones would also hide what merely looks alike.
_LEAST = 4


def is_private(setting: Setting) -> bool:
    """Whether a setting holds a secret, by its name or inside its value."""
    key, value = setting
    return bool(_NAME.search(key)) or _masked(value) != value


def shown_setting(setting: Setting) -> str:
    """A setting as `key=value`, without its secrets."""
    key, value = setting
    return f"{key}={HIDDEN if _NAME.search(key) and value else _masked(value)}"


def shown_arguments(arguments: Sequence[str]) -> list[str]:
    """Arguments of an application without the values of options that are named like secrets."""
    return [
        HIDDEN if secret and text else _masked(text) for text, secret in _with_verdict(arguments)
    ]


@dataclass(frozen=True, slots=True)
class Secrets:
    """The values that must not be shown, wherever they turn up."""

    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Iterable[Setting], arguments: Sequence[str]) -> Secrets:
        """The secrets among settings and arguments."""
        found = {text for text, secret in _with_verdict(arguments) if secret}
        for text in arguments:
            found.update(_inside(text))
        for key, value in settings:
            found.update([value] if _NAME.search(key) else _inside(value))
        # The longest first, or the rest of one that contains another would stay.
        return cls(tuple(sorted((v for v in found if len(v) >= _LEAST), key=len, reverse=True)))

    def hide(self, text: str) -> str:
        """The text without the secrets, and without what looks like one."""
        for value in self.values:
            text = text.replace(value, HIDDEN)
        return _masked(text)


def _with_verdict(arguments: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Each argument, and whether it is the value of an option before it that names a secret."""
    follows = False
    for text in arguments:
        yield text, follows and not text.startswith("--")
        follows = text.startswith("-") and "=" not in text and bool(_NAME.search(text))


def _masked(text: str) -> str:
    return _IN_URL.sub(rf"\1{HIDDEN}", _INSIDE.sub(rf"\1{HIDDEN}", text))


def _inside(text: str) -> list[str]:
    found = [match[2].strip("\"'") for match in _INSIDE.finditer(text)]
    return found + [match[2] for match in _IN_URL.finditer(text)]
