"""Every command that is shown with something filled in is built by `units.command`: it quotes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from sluicegate_cli import table

ROOT = Path(__file__).parents[2]
FIRST = "|".join(sorted({name.split()[0] for name in table.COMMANDS}))
BY_HAND = re.compile(rf"(?<!`)\bsluicegate (?:{FIRST})\b[^`;.]*$")
SOURCES = [path for top in ("core", "cli") for path in sorted((ROOT / top).rglob("*.py"))]


def beginnings(path: Path) -> Iterator[str]:
    """Texts of a module that something is put behind: in an f-string, or with a plus."""
    for node in ast.walk(ast.parse(path.read_text())):
        parts: list[ast.expr] = []
        if isinstance(node, ast.JoinedStr):
            parts = node.values
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [node.left, node.right]
        for part, after in pairwise(parts):
            value = part.value if isinstance(part, ast.Constant) else None
            if isinstance(value, str) and not isinstance(after, ast.Constant):
                yield value


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_command_is_completed_by_hand(path: Path) -> None:
    assert [text for text in beginnings(path) if BY_HAND.search(text)] == []


def test_what_it_finds(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('x = f"see: sluicegate status {target}"\ny = "sluicegate undo " + name\n')
    assert [text for text in beginnings(module) if BY_HAND.search(text)] == [
        "see: sluicegate status ",
        "sluicegate undo ",
    ]
