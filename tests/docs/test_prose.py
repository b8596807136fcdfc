"""What pages say in their own words: plain words, imports that work, configurations that are valid.

Blocks of `console` quote the product and are compared by the tour.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate.config import parse_config
from tests.docs.tour import PAGES
from tests.docs.tour_world import ROOT

BY_HAND = [
    page
    for page in (*PAGES, "ARCHITECTURE.md", "CONTRIBUTING.md")
    if not page.startswith("docs/reference/")
]
# Words that hide who does what; CONTRIBUTING.md says how to write instead.
AVOIDED = re.compile(
    r"\b(?:told|anew|whoever|given up|gone back|at work|mends?|mended|somebody|night shift)\b",
    re.IGNORECASE,
)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> Iterator[str]:
    return (text for name, text in _BLOCK.findall(text_of(page)) if name == language)


@pytest.mark.parametrize("page", BY_HAND)
def test_words(page: str) -> None:
    prose = _CODE.sub("", _BLOCK.sub("", text_of(page)))
    assert not AVOIDED.findall(prose)


@pytest.mark.parametrize("page", BY_HAND)
def test_imports_of_examples(page: str) -> None:
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("sluicegate"):
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, alias.name) for alias in node.names), node.module


@pytest.mark.parametrize("page", BY_HAND)
def test_configurations_of_examples(page: str) -> None:
    for block in blocks(page, "toml"):
        parse_config(block.encode(), Path("sluicegate.toml"))
