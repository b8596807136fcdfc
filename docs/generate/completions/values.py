"""What all shells' completions share: above all, what to offer for a value."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from enum import Enum

from generate.tree import Argument, Option

MADE_BY = "# Made by docs/generate; do not edit.\n"
_DIRECTORY_WORDS = frozenset({"DIR", "DIRECTORY"})
_FILE_WORDS = frozenset({"FILE", "LOG", "PATH", "PLAN", "TARGET"})


class Kind(Enum):
    """What can stand where a value is expected; shells offer directories among files too."""

    WORDS = "words"
    FILES = "files"
    DIRECTORIES = "directories"
    TEXT = "text"


def kind_of(value: Argument | Option) -> Kind:
    """What to offer for a value, told from its choices or the words of its metavar."""
    words = set(re.findall(r"[A-Z]+", value.metavar or ""))
    if value.choices:
        return Kind.WORDS
    if words & _DIRECTORY_WORDS:
        return Kind.DIRECTORIES
    return Kind.FILES if words & _FILE_WORDS else Kind.TEXT


def quoted(words: Iterable[str]) -> str:
    """Words of a bash or zsh array."""
    return " ".join(shlex.quote(word) for word in words)
