"""Everything that can happen to the files of a checkpoint, enumerated mechanically.

`damages` yields, for one base, each file in each way of being damaged, each field of JSON in each
way of being wrong, every set of logs out of step, and what partial copies and old backups leave.
A cell is (kind, class of file, class of damage); several damages may lie in one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from tests.oracle import fields
from tests.oracle.bases import Base
from tests.oracle.files import File, files, log_of, plain, version_of
from tests.tree import Entry, Tree, sum_name

# Variants of a damage whose place in the file is random.
_DRAWS = 3
_ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
_OTHER_ID = "5d6ac8b1-7a0e-4c3f-9e52-0b1c4f6a7d88"
_STEPS = (1, 3)
FIFO = "FIFO in its place"


@dataclass(frozen=True, slots=True)
class Damage:
    """One way to damage a base: its cell, what exactly is done, and the files afterwards."""

    kind: str
    role: str
    damage: str
    detail: str
    tree: Callable[[], Tree]

    @property
    def cell(self) -> tuple[str, str, str]:
        """What it is counted by."""
        return self.kind, self.role, self.damage

    @property
    def name(self) -> str:
        """A text that tells it from all others, the same in every run."""
        return f"{self.kind} | {self.role} | {self.damage} | {self.detail}"


Change = tuple[str, str, Callable[[], Tree]]
"""Class of damage, detail, and the files afterwards."""


def damages(base: Base) -> Iterator[Damage]:
    """Yield all damages of a base, none at all first; some leave the same files as others."""
    yield Damage(base.kind.name, "none", "healthy", "", lambda: base.now)
    everything = files(base.now)
    by_name = {file.name: file for file in everything}
    for file in everything:
        for damage, how, tree in _of_file(base, file, by_name):
            detail = f"{file.shown}{': ' if how else ''}{how}"
            yield Damage(base.kind.name, file.role, damage, detail, tree)
    for damage, detail, tree in _out_of_step(base):
        yield Damage(base.kind.name, "logs", damage, detail, tree)
    for damage, detail, tree in _copies(base):
        yield Damage(base.kind.name, "copy", damage, detail, tree)


def _of_file(base: Base, file: File, by_name: dict[str, File]) -> Iterator[Change]:
    yield "missing", "", lambda: _without(base.now, file.name)
    yield from _contents(base, file)
    if file.role.startswith("hidden-sum"):
        return
    yield "missing with its sum", "", lambda: _without(base.now, file.name, sum_name(file.name))
    yield from _replaced(base, file, by_name)
    yield from _shapes(base, file)
    if file.number is not None:
        yield from _names(base, file)
    if file.is_text:
        yield from _lines(base, file)
        for change, how, data in fields.changes(base.now[file.name].data):
            yield f"field {change}", how, _putting(base, file, data)


def _contents(base: Base, file: File) -> Iterator[Change]:
    """Bytes that are gone, wrong or too many."""
    data = base.now[file.name].data
    yield "empty", "", _putting(base, file, b"")
    for draw in range(_DRAWS):
        dice = random.Random(f"{file.shown}/{draw}")
        if len(data) > 1:
            at = dice.randrange(1, len(data))
            yield "cut at random", f"{at} of {len(data)}", _putting(base, file, data[:at])
        if data:
            bit = dice.randrange(len(data) * 8)
            yield "flipped bit", f"bit {bit}", _putting(base, file, flipped(data, bit))
    garbage = random.Random(file.shown).randbytes(40)
    yield "grown by garbage", "", _putting(base, file, data + garbage)


def _lines(base: Base, file: File) -> Iterator[Change]:
    data = base.now[file.name].data
    lines = data.split(b"\n")
    for count in range(1, len(lines)):
        kept = b"\n".join(lines[:count])
        yield "cut at a line", f"{count} lines kept", _putting(base, file, kept)
    yield "grown by a line", "", _putting(base, file, data + b"\ngarbage")
    yield "grown by a newline", "", _putting(base, file, data + b"\n")
    yield "CRLF", "", _putting(base, file, data.replace(b"\n", b"\r\n"))
    yield "other version", "v99", _putting(base, file, b"v99" + data.partition(b"v1")[2])


def _replaced(base: Base, file: File, by_name: dict[str, File]) -> Iterator[Change]:
    """The whole file, its checksum included, by another one."""
    for damage, name in (
        ("replaced by the one before", _neighbour(file, by_name, -1)),
        ("replaced by the one after", _neighbour(file, by_name, 1)),
        ("replaced by another partition's", _elsewhere(file, by_name)),
    ):
        if name is not None:
            yield damage, plain(name), _taking(base.now, base.now, name, file.name)
    twins = {plain(name): name for name in base.twin}
    if twin := twins.get(file.shown):
        yield "replaced by another checkpoint's", "", _taking(base.now, base.twin, twin, file.name)


def _shapes(base: Base, file: File) -> Iterator[Change]:
    """Something else than a readable file in its place."""
    entry = base.now[file.name]
    last = file.name.rpartition("/")[2]
    for damage, made in (
        ("directory in its place", replace(entry, data=b"", shape="directory")),
        ("dangling link", replace(entry, data=b"nowhere", shape="link")),
        ("unreadable", replace(entry, shape="unreadable")),
        (FIFO, replace(entry, data=b"", shape="fifo")),
    ):
        yield damage, "", _adding(base.now, file.name, made)
    kept = f"kept/{last}"
    up = "../" * file.name.count("/")
    link = replace(entry, data=f"{up}{kept}".encode(), shape="link")
    yield "link to the file", "", lambda: base.now | {file.name: link, kept: entry}


def _names(base: Base, file: File) -> Iterator[Change]:
    """A second file, or a directory, under a name that is nearly the same."""
    directory, _, last = file.name.rpartition("/")
    number, dot, rest = last.partition(".")
    bare, mark, identity = number.partition("_")
    entry = base.now[file.name]
    for damage, name in (
        ("sign in a name", f"+{bare}{mark}{identity}{dot}{rest}"),
        ("sign in a name", f"-{bare}{mark}{identity}{dot}{rest}"),
        ("other digits in a name", f"{bare.translate(_ARABIC)}{mark}{identity}{dot}{rest}"),
        ("other digits in a name", f"{int(bare) + 1}".translate(_ARABIC) + f"{dot}{rest}"),
        ("duplicate name", f"0{bare}{mark}{identity}{dot}{rest}"),
        ("duplicate name", f"{bare}_{_OTHER_ID}{dot}{rest}" if mark else f"{bare}.compact"),
    ):
        if f"{directory}/{name}" not in base.now:
            yield damage, plain(name), _adding(base.now, f"{directory}/{name}", entry)
    beyond = f"{directory}/{int(bare) + 1}{dot}{rest}"
    if beyond not in base.now:
        made = Entry(b"", entry.mtime_ns, "directory")
        yield "directory beside it", plain(beyond), _adding(base.now, beyond, made)


def _out_of_step(base: Base) -> Iterator[Change]:
    """Some logs behind the others, and single logs ahead."""
    logs = _logs(base)
    for steps in _STEPS:
        for size in range(1, len(logs)):
            for behind in combinations(logs, size):
                if steps == 1 or size <= 2:
                    names = "+".join(behind)
                    yield f"behind: {names}", f"by {steps}", _behind(base, behind, steps)
    for log in logs:
        yield f"ahead: {log}", "", _ahead(base, log)


def _copies(base: Base) -> Iterator[Change]:
    """What an old backup, a copy that was not finished, or one without some files leaves."""
    parts = sorted({_part(name) for name in base.now if not name.startswith("in/")})
    aged = [part for part in parts if _of_part(base.old, part) != _of_part(base.now, part)]
    for size in range(1, len(aged) + 1):
        for chosen in combinations(aged, size):
            taken = "+".join(chosen)
            yield f"from an old backup: {taken}", "", partial(_aged, base, chosen)
    yield "old backup copied over", "", lambda: base.now | base.old
    inner = [part for part in parts if part != "out"]
    for size in (1, 2, len(inner) - 1):
        for gone in combinations(inner, size):
            yield f"not copied: {'+'.join(gone)}", "", partial(_without_parts, base, gone)
    yield "copied without hidden files", "", lambda: _without_hidden(base.now)
    yield "not copied: out", "", lambda: _without_parts(base, ("out",))
    yield "another one's output", "", lambda: _twin_output(base)


def flipped(data: bytes, bit: int) -> bytes:
    """Return the data with one bit the other way round."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _without(tree: Tree, *names: str) -> Tree:
    return {name: entry for name, entry in tree.items() if name not in names}


def _putting(base: Base, file: File, data: bytes) -> Callable[[], Tree]:
    """Return a change of the content; the hidden checksum stays, as an editor leaves it."""
    entry = base.now[file.name]
    return lambda: base.now | {file.name: replace(entry, data=data)}


def _adding(tree: Tree, name: str, entry: Entry) -> Callable[[], Tree]:
    return lambda: tree | {name: entry}


def _taking(tree: Tree, other: Tree, source: str, target: str) -> Callable[[], Tree]:
    def take() -> Tree:
        taken = tree | {target: replace(tree[target], data=other[source].data)}
        if sum_name(source) in other and sum_name(target) in tree:
            taken[sum_name(target)] = replace(
                tree[sum_name(target)], data=other[sum_name(source)].data
            )
        return taken

    return take


def _neighbour(file: File, by_name: dict[str, File], step: int) -> str | None:
    """Return the file of the same row whose number is next, a whole row's kind of file."""
    if file.number is None:
        return None
    directory = file.name.rpartition("/")[0]
    suffix = plain(file.name).rpartition(".")[2] if "." in file.name else ""
    row = [
        other.name
        for other in by_name.values()
        if other.number == file.number + step
        and other.name.rpartition("/")[0] == directory
        and not other.role.startswith("hidden-sum")
        and (log_of(file.name) or plain(other.name).rpartition(".")[2] == suffix)
    ]
    return min(row, default=None)


def _elsewhere(file: File, by_name: dict[str, File]) -> str | None:
    """Return the same file of another partition or store, or the same entry of another source."""
    last = plain(file.name).rpartition("/")[2]
    if not file.name.startswith(("checkpoint/state/", "checkpoint/sources/")):
        return None
    same = [
        other.name
        for other in by_name.values()
        if other.name != file.name
        and other.role == file.role
        and (plain(other.name).rpartition("/")[2] == last or "/SSTs/" in file.name)
        and other.name.rpartition("/")[0] != file.name.rpartition("/")[0]
    ]
    return random.Random(file.shown).choice(sorted(same)) if same else None


def _logs(base: Base) -> list[str]:
    found = {_log_name(name) for name in base.now}
    return sorted(log for log in found if log)


def _log_name(name: str) -> str | None:
    """Return the log that a file belongs to, all sources and all state counted as one."""
    if version_of(name) is not None:
        return "state"
    found = log_of(name)
    if not found:
        return None
    log = found[0].removeprefix("checkpoint/")
    return "sources" if log.startswith("sources/") else log.replace("out/_spark_metadata", "sink")


def _number(name: str) -> int:
    found = log_of(name)
    return found[1] if found else (version_of(name) or 0)


def _behind(base: Base, behind: tuple[str, ...], steps: int) -> Callable[[], Tree]:
    def cut() -> Tree:
        newest = _newest(base)
        gone = {
            name
            for name in base.now
            if (log := _log_name(name)) in behind and log and _number(name) > newest[log] - steps
        }
        return _without(base.now, *gone, *(sum_name(name) for name in gone))

    return cut


def _ahead(base: Base, log: str) -> Callable[[], Tree]:
    def grow() -> Tree:
        newest = _newest(base)[log]
        grown = dict(base.now)
        for name in list(base.now):
            if _log_name(name) == log and _number(name) == newest:
                directory, _, last = name.rpartition("/")
                following = f"{directory}/{last.replace(str(newest), str(newest + 1), 1)}"
                grown[following] = base.now[name]
        return grown

    return grow


def _newest(base: Base) -> dict[str, int]:
    newest: dict[str, int] = {}
    for name in base.now:
        if log := _log_name(name):
            newest[log] = max(_number(name), newest.get(log, -1))
    return newest


def _part(name: str) -> str:
    """Return the directory that a copy has or lacks as a whole."""
    top, _, rest = name.partition("/")
    if top == "out" or not rest:
        return top
    return rest.partition("/")[0].removeprefix(".").removesuffix(".crc")


def _of_part(tree: Tree, part: str) -> set[str]:
    return {name for name in tree if not name.startswith("in/") and _part(name) == part}


def _aged(base: Base, chosen: tuple[str, ...]) -> Tree:
    kept = _without_parts(base, chosen)
    taken = {name: base.old[name] for part in chosen for name in _of_part(base.old, part)}
    return kept | taken


def _without_parts(base: Base, gone: tuple[str, ...]) -> Tree:
    names = {name for part in gone for name in _of_part(base.now, part)}
    return _without(base.now, *names)


def _without_hidden(tree: Tree) -> Tree:
    return {n: entry for n, entry in tree.items() if not n.rpartition("/")[2].startswith(".")}


def _twin_output(base: Base) -> Tree:
    taken = {name: base.twin[name] for name in _of_part(base.twin, "out")}
    return _without_parts(base, ("out",)) | taken
