"""Texts that users see contain no words of the project's former private vocabulary."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import sluicegate
from sluicegate.findings import rules
from sluicegate_cli import table
from sluicegate_cli.shell import load_command, root_command

WORDS = (
    "told", "anew", "whoever", "somebody", "anybody", "given up", "gives up", "gone back",
    "went back", "goes on", "at work", "mend", "mends", "mended", "doubled", "overtaken",
    "overtook", "depose", "taken back", "left to you", "rubbish", "leftovers",
)  # fmt: skip
_ROOT = Path(__file__).parents[2]
_SOURCES = sorted(
    path.relative_to(_ROOT) for part in ("core", "cli") for path in (_ROOT / part).rglob("*.py")
)
_CODE = re.compile(r"SG(-[A-Z0-9]+){2,}")
# Texts are folded and split, so any white space may be between two words.
_FOUND = re.compile(
    r"\b(?:" + "|".join(word.replace(" ", r"\s+") for word in WORDS) + r")\b", re.IGNORECASE
)


def words_in(text: str) -> list[str]:
    """The forbidden words in a text; codes of findings are stable, so they do not count."""
    return _FOUND.findall(_CODE.sub("", text))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What was given\nup, told anew", ["given\nup", "told", "anew"]),
        ("Mended by Somebody", ["Mended", "Somebody"]),
        ("recommended; a mending; retold", []),
        ("SG-STORE-LEFTOVERS", []),
    ],
)
def test_words_are_found(text: str, found: list[str]) -> None:
    assert words_in(text) == found


def _help_of(path: str, command: Any) -> str:
    context = typer.Context(command, info_name=path or "sg", **command.context_settings)
    return str(command.get_help(context))


@pytest.mark.parametrize("path", ["", *table.GROUPS])
def test_help_of_groups(path: str) -> None:
    root: Any = root_command()
    shown = _help_of(path, root.get_command(typer.Context(root), path) if path else root)
    assert "Commands:" in shown
    assert words_in(shown) == []


@pytest.mark.parametrize("path", table.COMMANDS)
def test_help_of_commands(path: str) -> None:
    shown = _help_of(path, load_command(path))
    # Its findings are checked below, rule by rule.
    own, _, _ = shown.partition("\nFindings:\n")
    assert "Examples:" in own
    assert words_in(own) == []


def test_rules() -> None:
    for module in pkgutil.walk_packages(sluicegate.__path__, "sluicegate."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = {
        each.code: words
        for each in rules()
        if (words := words_in(f"{each.title}\n{each.explanation}"))
    }
    assert found == {}


def _literals(tree: ast.Module) -> Iterator[ast.Constant]:
    """The literals of a module without docstrings: a text that is a statement is one."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documentation:
            yield node


@pytest.mark.parametrize("path", _SOURCES, ids=str)
def test_literals(path: Path) -> None:
    tree = ast.parse((_ROOT / path).read_text())
    found = [
        (node.lineno, words)
        for node in _literals(tree)
        if isinstance(node.value, str) and (words := words_in(node.value))
    ]
    assert found == []
