"""Descriptions of rebalances: each move or, if there are very many, grouped by route."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.shards.assignment import Assignment, from_names
from sluicegate.shards.describe import (
    EACH,
    Proposal,
    actions_of,
    amount,
    consequences_of,
    joined,
    left,
    loads_of,
    ranges,
    summary_of,
)
from sluicegate.shards.planner import plan


@given(st.sets(st.integers(0, 60)), st.integers(1, 8))
def test_ranges(numbers: set[int], most: int) -> None:
    text = ranges(np.array(sorted(numbers), np.int64), most)
    shown: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        shown |= set(range(int(first), int(last or first) + 1))
    if text.endswith("…"):
        assert shown < numbers
        assert min(numbers - shown) > max(shown)
    else:
        assert shown == numbers


@pytest.mark.parametrize(
    ("value", "measure", "text"),
    [
        (1, None, "1 shard"),
        (1200, None, "1,200 shards"),
        (10.666, None, "10.67 shards"),
        (1, "keys", "1 key"),
        (2048, "bytes", "2.0 KiB"),
        (2.5, "weight", "2.50"),
    ],
)
def test_amounts(value: float, measure: str | None, text: str) -> None:
    assert amount(value, measure) == text


@pytest.mark.parametrize("count", [EACH, EACH + 1])
def test_up_to_a_number_every_move_is_shown_and_beyond_it_by_route(count: int) -> None:
    current = from_names(["a"] * count + ["c"] * 3)
    made = plan(current, {"b": 1, "c": 1}, np.arange(count + 3.0))
    moves = [a for a in actions_of(made, "keys") if a.verb == "move"]
    assert all(a.old == "a" for a in moves)
    if count <= EACH:
        assert len(moves) == len(made.moved)
        assert moves[1].detail == "1 key"
    else:
        assert [a.new for a in moves] == ["b", "c"]
        counts = [int(a.place.split()[0]) for a in moves]
        assert sum(counts) == len(made.moved)
        keys = [
            int(a.detail.split(" with ")[1].removesuffix(" keys").replace(",", "")) for a in moves
        ]
        assert sum(keys) == sum(range(count))


def test_shards_that_get_their_first_owner_are_shown_together() -> None:
    made = plan(Assignment.unowned(10), {"a": 1, "b": 1})
    moves = [(a.place, a.old, a.new, a.detail) for a in actions_of(made, None) if a.verb == "move"]
    assert moves == [("5 shards", "none", "a", "0-4"), ("5 shards", "none", "b", "5-9")]


def test_of_very_many_nodes_those_that_change_most() -> None:
    nodes = {f"n{i:03}": 1 for i in range(150)}
    current = plan(Assignment.unowned(1500), nodes).after
    made = plan(current, {name: 1 for name in nodes if name != "n007"})
    loads = [a for a in actions_of(made, None) if a.verb == "load"]
    assert len(loads) == 100
    assert (loads[0].place, loads[0].delta) == ("node n007", -10)


def test_members_and_summary() -> None:
    made = plan(from_names(["a", "b"]), {"b": 2, "c": 1})
    assert (joined(made), left(made)) == (["c"], ["a"])
    assert [a.verb for a in actions_of(made, None)][:3] == ["leave", "join", "resize"]
    assert summary_of(made, "x") == f"x: {len(made.moved)} of 2 shards moved"


def test_the_bound_is_shown_with_the_moves() -> None:
    weights = np.array([5.0, 5, 4, 3, 3, 1])
    current = from_names(["a"] * 6, {"a": 1, "b": 1})
    made = plan(current, current.nodes, weights, max_imbalance=0.05)
    proposal = Proposal.of(made, "rebalance", bound=0.05, measure="keys")
    (first, second, *_) = consequences_of(made, proposal)
    assert made.reached
    assert re.fullmatch(
        r"\d of 6 shards move to another node; (no plan with fewer moves .*|.* at least \d)\.",
        first,
    )
    assert second.endswith("now it is 100.0 %.")


def test_loads() -> None:
    found = loads_of(from_names(["b", None, "a", "b"], {"a": 1, "b": 2, "c": 1}))
    assert [(e.node, e.load, e.share, e.shards) for e in found] == [
        ("a", 1.0, 1.0, "2"),
        ("b", 2.0, 2.0, "0, 3"),
        ("c", 0.0, 1.0, ""),
    ]
