"""What a command did to the files of a case, compared with how the case began."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.net.contents import digest, meaning
from tests.net.masks import Masks

_HUGE = 1 << 22
_KINDS = {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l"}


@dataclass(frozen=True, slots=True)
class Before:
    """A file as it was: what tells that nothing touched it, and its bytes."""

    mark: tuple[int, ...]
    kind: str
    data: bytes


@dataclass(slots=True)
class Tree:
    """All files below a root, as they were when the case began."""

    root: Path
    before: Mapping[str, Before] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> Tree:
        """The tree as it is now."""
        found = {
            name: Before(_mark(info), _kind(info), _data(path, info))
            for name, path, info in _walk(root)
        }
        return cls(root, found)

    def changes(self, masks: Masks, texts: dict[str, str]) -> dict[str, list[list[str]]]:
        """Files that were added, changed or removed; empty if there are none.

        An entry is the masked name, the kind with its permissions, and the digest of the masked
        content, which goes into `texts`.
        """
        added: list[list[str]] = []
        changed: list[list[str]] = []
        left = set()
        for name, path, info in _walk(self.root):
            left.add(name)
            old = self.before.get(name)
            if old and (old.mark == _mark(info) or _is_same(old, path, info)):
                continue
            told = self._told(name, path, info, masks, texts)
            (changed if old else added).append(told)
        removed = [[masks.text(name)] for name in self.before if name not in left]
        parts = {"added": added, "changed": changed, "removed": removed}
        return {part: entries for part, entries in parts.items() if entries}

    def _told(
        self, name: str, path: str, info: os.stat_result, masks: Masks, texts: dict[str, str]
    ) -> list[str]:
        kind = f"{_kind(info)}{info.st_mode & 0o777:o}"
        shown = masks.text(name)
        if kind[0] not in "fl":
            return [shown, kind]
        data = _data(path, info)
        text = masks.text(data.decode()) if kind[0] == "l" else meaning(Path(path), data, masks)
        short = digest(text)
        texts[short] = text
        return [shown, kind, short]


def _walk(root: Path) -> Iterator[tuple[str, str, os.stat_result]]:
    """Name, path and status of everything below a root. Texts, since it runs for every step."""
    begin = len(str(root)) + 1
    waiting = [str(root)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry.path[begin:], entry.path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _mark(info: os.stat_result) -> tuple[int, ...]:
    # The time of a directory changes with its entries, which are looked at themselves.
    if stat.S_ISDIR(info.st_mode):
        return (info.st_ino, info.st_mode)
    return (info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _is_same(old: Before, path: str, info: os.stat_result) -> bool:
    """Whether a file that was written again says the same as before, byte for byte."""
    same_mode = old.mark[1] == info.st_mode
    return same_mode and (old.kind == "d" or old.data == _data(path, info))


def _kind(info: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(info.st_mode), "other")


def _data(path: str, info: os.stat_result) -> bytes:
    """The bytes of a file, or where a symbolic link leads; of a huge one, as many as tell it."""
    if stat.S_ISLNK(info.st_mode):
        return os.readlink(path).encode()
    if not stat.S_ISREG(info.st_mode):
        return b""
    with open(path, "rb") as stream:
        if info.st_size <= _HUGE:
            return stream.read()
        head = stream.read(_HUGE // 2)
        stream.seek(-_HUGE // 2, os.SEEK_END)
        return b"%d %b" % (info.st_size, head + stream.read())
