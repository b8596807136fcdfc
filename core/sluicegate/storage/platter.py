"""The platter of a simulated disk: what of its files and names is durable."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


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
    """Make a directory what the platter says; `contents` replace those of some nodes, by id."""
    if node.names is None:
        path.write_bytes(contents.get(id(node), node.content))
        return
    path.mkdir(exist_ok=True)
    for name, child in node.names.items():
        write_out(path / name, child, contents)
