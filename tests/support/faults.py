"""Faults on purpose: kill a writer at any system call, and forget what it had not fsynced.

`Disk` watches one directory and knows what of it would survive a power loss. `Process` is what a
`LocalStorage` on that disk makes its system calls through; it can be killed at any of them. The
crash labs are built on `cut_points`, which runs a piece of work once per call it makes:

    for cut in cut_points(tmp_path, prepare, act):
        check(LocalStorage(cut.root), acknowledged=cut.acknowledged)

The model is pessimistic in the ways real file systems are. File content survives only if the file
was fsynced, a name only if its directory was. `Aftermath` decides which of the rest happens to
survive.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import stat as st
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from sluicegate.storage.local import Calls, LocalStorage


@dataclass(slots=True)
class Node:
    """A file or directory as the platter has it."""

    content: bytes = b""
    names: dict[str, Node] | None = None


Change: TypeAlias = "dict[str, Node | None]"
"""One change to a directory since its last fsync; several names when it is a rename."""


def apply(change: Change, names: dict[str, Node]) -> None:
    """Let a change to a directory have arrived."""
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def torn(durable: bytes, live: bytes, chance: random.Random) -> bytes:
    """What may be left of a file that was fsynced once and changed since."""
    both = zip(durable, live, strict=False)
    least = min(len(durable), len(live))
    # What was fsynced and is still the same is safe: most files only grow.
    safe = next((n for n, (one, other) in enumerate(both) if one != other), least)
    if safe < len(durable) and chance.random() < 0.5:
        # It was cut or written over, and nothing of that has arrived.
        return durable
    return live[: chance.randint(safe, len(live))]


def write_out(path: Path, node: Node, contents: dict[int, bytes]) -> None:
    """Make a directory match the platter; `contents` replace those of some nodes, by id."""
    if node.names is None:
        path.write_bytes(contents.get(id(node), node.content))
        return
    path.mkdir(exist_ok=True)
    for name, child in node.names.items():
        write_out(path / name, child, contents)


_SEEDS = 4


class Killed(BaseException):
    """The simulated process is dead. Not an `Exception`: nothing may catch and survive it."""


class Aftermath(Enum):
    """What is left of calls that were made but not fsynced."""

    KILL = "everything: only the process died, the kernel lives"
    POWER_LOSS = "nothing that was not fsynced"
    TORN = "a random part: any subset of the names, any prefix of the contents"


class Disk:
    """What of the directory `root` is durable, and what is only in the kernel's memory.

    Everything that is there at the start counts as durable. Files made behind the disk's back
    (lock files, Spark's output) are noticed when their directory is fsynced.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._nodes: dict[int, Node] = {}
        self._pending: dict[int, list[Change]] = {}
        self._halves: dict[int, tuple[int, Change]] = {}
        self._platter = self._survey(root)

    def process(self, on_call: Callable[[int, str], None] | None = None) -> Process:
        """A new process on this disk; `on_call(number, call)` may raise `Killed` or `OSError`."""
        return Process(self, on_call)

    def crash(self, aftermath: Aftermath, seed: int = 0) -> None:
        """Let every process die and put on disk what a reader finds afterwards."""
        if aftermath is Aftermath.KILL:
            return
        chance = random.Random(seed) if aftermath is Aftermath.TORN else None
        contents = self._surviving_contents(chance)
        if chance:
            self._keep_some_names(chance)
        for child in self.root.iterdir():
            is_tree = child.is_dir() and not child.is_symlink()
            shutil.rmtree(child) if is_tree else child.unlink()
        write_out(self.root, self._platter, contents)

    def created(self, fd: int) -> None:
        """A file or directory was made; forget whatever had this inode number before."""
        found = os.fstat(fd)
        self._nodes[found.st_ino] = Node(names={} if st.S_ISDIR(found.st_mode) else None)

    def changed(self, directory: int, change: dict[str, int | None]) -> None:
        """Names in a directory now lead to these inodes (None: to nothing)."""
        nodes = {name: ino and self._nodes.setdefault(ino, Node()) for name, ino in change.items()}
        self._pending.setdefault(os.fstat(directory).st_ino, []).append(
            {name: node or None for name, node in nodes.items()}
        )

    def moved(self, source: str, origin: int, name: str, directory: int) -> None:
        """A name went to another directory, in one step: both halves arrive, or neither does."""
        ino = _inode(name, directory)
        here, there = (os.fstat(each).st_ino for each in (directory, origin))
        if here == there:
            self.changed(directory, {source: None, name: ino})
            return
        came: Change = {name: self._known(name, directory)}
        gone: Change = {source: None}
        for place, half, other in ((here, came, (there, gone)), (there, gone, (here, came))):
            self._pending.setdefault(place, []).append(half)
            self._halves[id(half)] = other

    def synced(self, fd: int) -> None:
        """A file's content, or a directory's names, have reached the platter."""
        found = os.fstat(fd)
        if not st.S_ISDIR(found.st_mode):
            self._nodes.setdefault(found.st_ino, Node()).content = _read_all(fd)
            return
        node = self._nodes.setdefault(found.st_ino, Node(names={}))
        node.names = {name: self._known(name, fd) for name in os.listdir(fd)}
        for change in self._pending.pop(found.st_ino, ()):
            self._other_half_arrives(change)

    def _known(self, name: str, directory: int) -> Node:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        fresh = Node(names={} if st.S_ISDIR(found.st_mode) else None)
        return self._nodes.setdefault(found.st_ino, fresh)

    def _other_half_arrives(self, change: Change) -> None:
        """With one half of a move the other is durable, and all that was done there before it."""
        place, half = self._halves.pop(id(change), (0, change))
        waiting = self._pending.get(place, [])
        while any(each is half for each in waiting):
            first = waiting.pop(0)
            node = self._nodes.get(place)
            if node and node.names is not None:
                apply(first, node.names)
            if first is not half:
                self._other_half_arrives(first)

    def _survey(self, path: Path) -> Node:
        node = self._nodes[path.stat().st_ino] = Node()
        if path.is_dir():
            node.names = {child.name: self._survey(child) for child in path.iterdir()}
        else:
            node.content = path.read_bytes()
        return node

    def _surviving_contents(self, chance: random.Random | None) -> dict[int, bytes]:
        """By identity of the node: the contents that differ from what was fsynced."""
        if chance is None:
            return {}
        contents = {}
        for path in sorted(p for p in self.root.rglob("*") if p.is_file()):
            node = self._nodes.get(path.stat().st_ino)
            live = path.read_bytes()
            if node and node.content != live:
                contents[id(node)] = torn(node.content, live, chance)
        return contents

    def _keep_some_names(self, chance: random.Random) -> None:
        kept: dict[int, bool] = {}
        for ino, changes in self._pending.items():
            node = self._nodes.get(ino)
            names = node.names if node else None
            for change in changes:
                if names is not None and kept.setdefault(id(change), chance.random() < 0.5):
                    apply(change, names)
                if id(change) in self._halves:
                    kept.setdefault(id(self._halves[id(change)][1]), kept.get(id(change), False))


class Process(Calls):
    """The system calls of one process on a `Disk`, numbered from 0; dead once it is killed."""

    def __init__(self, disk: Disk, on_call: Callable[[int, str], None] | None) -> None:
        self.made: list[str] = []
        self._disk = disk
        self._on_call = on_call
        self._dead = False

    def about_to(self, call: str, name: str) -> None:
        # The dead make no calls, so clean-up code that a kill would skip has no effect either.
        if self._dead:
            raise Killed
        number = len(self.made)
        self.made.append(f"{call} {name}".rstrip())
        if self._on_call is None:
            return
        try:
            self._on_call(number, self.made[-1])
        except Killed:
            self._dead = True
            raise

    def create(self, name: str, directory: int) -> int:
        self.about_to("create", "temporary")
        fd = super().create(name, directory)
        self._disk.created(fd)
        self._disk.changed(directory, {name: os.fstat(fd).st_ino})
        return fd

    def write(self, fd: int, data: bytes) -> None:
        self.about_to("write", "first half")
        half = len(data) // 2
        super().write(fd, data[:half])
        self.about_to("write", "second half")
        super().write(fd, data[half:])

    def truncate(self, fd: int, size: int) -> None:
        self.about_to("truncate", "file")
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self.about_to("fsync", "directory" if st.S_ISDIR(os.fstat(fd).st_mode) else "file")
        super().sync(fd)
        self._disk.synced(fd)

    def link(self, source: str, name: str, directory: int, origin: int | None = None) -> None:
        self.about_to("link", "temporary" if name.startswith(".sg-") else name)
        super().link(source, name, directory, origin)
        self._disk.changed(directory, {name: _inode(name, directory)})

    def rename(self, source: str, name: str, directory: int) -> None:
        self.about_to("rename", name)
        super().rename(source, name, directory)
        self._disk.changed(directory, {source: None, name: _inode(name, directory)})

    def move(self, source: Path, origin: int, place: Path, directory: int) -> None:
        self.about_to("move", place.name)
        super().move(source, origin, place, directory)
        self._disk.moved(source.name, origin, place.name, directory)

    def unlink(self, name: str, directory: int) -> None:
        self.about_to("unlink", "temporary" if name.startswith(".sg-") else name)
        super().unlink(name, directory)
        self._disk.changed(directory, {name: None})

    def make_directory(self, name: str, directory: int | None) -> None:
        self.about_to("mkdir", name)
        super().make_directory(name, directory)
        if directory is not None:
            made = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)
            self._disk.created(made)
            os.close(made)
            self._disk.changed(directory, {name: _inode(name, directory)})


@dataclass(frozen=True, slots=True)
class Cut:
    """One run of the work: where it was cut, and the directory as it was found afterwards."""

    root: Path
    number: int
    call: str
    aftermath: Aftermath
    acknowledged: bool
    calls: tuple[str, ...] = field(repr=False)


def cut_points(
    scratch: Path,
    prepare: Callable[[LocalStorage], object],
    act: Callable[[LocalStorage], object],
    aftermaths: tuple[Aftermath, ...] = tuple(Aftermath),
) -> Iterator[Cut]:
    """Run `act` on a fresh directory once per system call it makes, killed at that call.

    The last run of each aftermath is not cut: its work was acknowledged, and the crash comes
    right after. `act` must make the same calls every time.
    """
    for aftermath in aftermaths:
        # What survives of torn writes is chance, so it gets several.
        for seed in range(_SEEDS if aftermath is Aftermath.TORN else 1):
            number = 0
            while True:
                root = scratch / f"{aftermath.name.lower()}-{seed}-{number}"
                cut = _run_cut(root, prepare, act, number, (aftermath, seed))
                yield cut
                shutil.rmtree(root)
                if cut.acknowledged:
                    break
                number += 1


def _run_cut(
    root: Path,
    prepare: Callable[[LocalStorage], object],
    act: Callable[[LocalStorage], object],
    number: int,
    ending: tuple[Aftermath, int],
) -> Cut:
    aftermath, seed = ending

    def kill(at: int, _call: str) -> None:
        if at == number:
            raise Killed

    root.mkdir(parents=True)
    prepare(LocalStorage(root))
    disk = Disk(root)
    process = disk.process(kill)
    acknowledged = True
    try:
        act(LocalStorage(root, calls=process))
    except Killed:
        acknowledged = False
    disk.crash(aftermath, seed=seed * 1000 + number)
    call = "after the last call" if acknowledged else process.made[-1]
    return Cut(root, number, call, aftermath, acknowledged, tuple(process.made))


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process may become larger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _inode(name: str, directory: int) -> int:
    return os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino


def _read_all(fd: int) -> bytes:
    chunks, offset = [], 0
    while chunk := os.pread(fd, 1 << 20, offset):
        chunks.append(chunk)
        offset += len(chunk)
    return b"".join(chunks)
