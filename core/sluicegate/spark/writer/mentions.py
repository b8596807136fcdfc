"""Whether the words of a command line name a directory, however they write its path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path, PurePath

from sluicegate.errors import SluicegateError
from sluicegate.storage import local_root

_PARTS = re.compile(r"[=,;]")
_MOST = 5000
# Nearer to the root there are directories that many unrelated commands name.
_LEAST_DEPTH = 3


class Mention(Enum):
    """How near words come to naming a directory, the nearest first."""

    ITSELF = "it, or something in it"
    ABOVE = "the directory that holds it"
    NOT = "not at all"


def mention(words: Iterable[str], root: Path, directory: Path | None) -> Mention:
    """How words name the directory `root`; relative paths that exist are those in `directory`.

    Links are followed, on both sides: one directory may have many names.
    """
    real = os.path.realpath(root)
    best = Mention.NOT
    for count, path in enumerate(_paths(words, directory)):
        found = os.path.realpath(path)
        if found == real or found.startswith(real.rstrip("/") + "/"):
            return Mention.ITSELF
        if real.startswith(found + "/") and len(PurePath(found).parts) >= _LEAST_DEPTH:
            best = Mention.ABOVE
        if count >= _MOST:
            break
    return best


def _paths(words: Iterable[str], directory: Path | None) -> Iterator[Path]:
    for word in words:
        for text in {word, *_PARTS.split(word)}:
            path = _path(text.strip("\"' "))
            if path and path.is_absolute():
                yield path
            # Not `Path.exists`, which fails on what is too long for a name, such as a program.
            elif path and directory and os.path.exists(directory / path):  # noqa: PTH110
                yield directory / path


def _path(text: str) -> Path | None:
    try:
        return local_root(text) if text else None
    except SluicegateError:
        # Another scheme, or nothing that could be a path.
        return None
