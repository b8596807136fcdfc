"""The table of moves in the documentation is correct."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from sluicegate.shards.describe import percent
from tests.shards.placement import CASES, Moves, modulo, ours, rendezvous

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "shards.md"
LARGE = 100_000


def rows() -> dict[int, list[str]]:
    lines = re.findall(r"^\| ([\d,]+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return {int(shards.replace(",", "")): rest.split(" | ") for shards, rest in lines}


def shown(found: Moves) -> str:
    return f"{found.moves:,} ({percent(found.above)})"


@pytest.mark.parametrize(("shards", "before", "after"), CASES)
def test_the_table_of_moves(shards: int, before: int, after: int) -> None:
    mine, minimum = ours(shards, before)
    nodes, least, sluicegate, by_modulo, by_rendezvous = rows()[shards]
    assert nodes == f"{before:,} → {after:,}"
    assert mine.moves == minimum
    assert (least, sluicegate) == (f"{minimum:,}", shown(mine))
    assert by_modulo == shown(modulo(shards, before))
    if shards < LARGE or os.environ.get("SG_LAB") == "all":
        assert by_rendezvous == shown(rendezvous(shards, before))


def test_every_case_is_in_it() -> None:
    assert sorted(rows()) == [shards for shards, _, _ in CASES]
