"""Assignments: what is valid, what their bytes are, who owns what."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sluicegate
from sluicegate import codec
from sluicegate.errors import Corrupt, InvalidName, NotFound, UnsupportedFormat
from sluicegate.shards.assignment import (
    FORMAT,
    Assignment,
    AssignmentInvalid,
    NoNodes,
    decode,
    encode,
    from_names,
)
from sluicegate.shards.routing import shard_of

node_names = st.text("abcxyz-09é", min_size=1, max_size=6).filter(lambda n: n[0] != "-")


@st.composite
def assignments(draw: st.DrawFn) -> Assignment:
    nodes = draw(st.dictionaries(node_names, st.integers(1, 9), max_size=5))
    owners = st.lists(st.integers(-1, len(nodes) - 1), min_size=1, max_size=40)
    column = np.array(draw(owners))
    return Assignment(len(column), nodes, column, draw(st.integers(0, 2**40)))


@given(assignments())
def test_bytes_and_back(made: Assignment) -> None:
    data = encode(made)
    assert decode(data, "it", made.version) == made
    assert encode(made.at_version(made.version + 1)) == data, "the version is the snapshot's"


@given(assignments())
def test_it_survives_the_way_to_another_process(made: Assignment) -> None:
    assert pickle.loads(pickle.dumps(made)) == made


@given(assignments(), st.data())
def test_damage_is_reported(made: Assignment, data: st.DataObject) -> None:
    complete = encode(made)
    cut = data.draw(st.integers(0, len(complete) - 1))
    with pytest.raises(Corrupt):
        decode(complete[:cut], "it")
    flipped = bytearray(complete)
    flipped[cut] ^= data.draw(st.integers(1, 255))
    with pytest.raises((Corrupt, UnsupportedFormat)):
        decode(bytes(flipped), "it")


GOOD = {"n_shards": 2, "nodes": [["a", 1], ["b", 2]], "owners": b"\0\0\0\0\1\0\0\0"}


@pytest.mark.parametrize(
    "change",
    [
        {"n_shards": 3},
        {"n_shards": 0},
        {"n_shards": None},
        {"owners": b"\0\0\0\0\2\0\0\0"},
        {"owners": b"\0\0\0\0\xfe\xff\xff\xff"},
        {"owners": b"\0\0\0\0\1\0\0"},
        {"owners": 5},
        {"nodes": [["b", 1], ["a", 2]]},
        {"nodes": [["a", 1], ["a", 2]]},
        {"nodes": [["a", 1], ["b", 0]]},
        {"nodes": [["a", 1], ["b", True]]},
        {"nodes": [["a", 1], ["../b", 1]]},
        {"nodes": [["a", 1], ["b"]]},
        {"nodes": 1},
        {"version": 4},
    ],
)
def test_a_frame_that_holds_no_assignment(change: dict[str, object]) -> None:
    assert decode(codec.encode(FORMAT, GOOD), "it").nodes == {"a": 1, "b": 2}
    with pytest.raises(Corrupt, match="it is not an assignment"):
        decode(codec.encode(FORMAT, GOOD | change), "it")


def test_order_does_not_depend_on_who_joined_when() -> None:
    one = from_names(["b", "a"], {"b": 1, "a": 1})
    other = from_names(["b", "a"], {"a": 1, "b": 1})
    assert one == other
    assert (one.names, one.owners.tolist()) == (("a", "b"), [1, 0])


def test_owners_of_keys_and_shards() -> None:
    made = from_names(["a", "b", None, "a"])
    by_shard = {shard_of(key, 4): key for key in map(str, range(100))}
    assert made.owner(by_shard[1]) == "b"
    assert [made.node_of(shard) for shard in range(4)] == ["a", "b", None, "a"]
    with pytest.raises(NoNodes):
        made.owner(by_shard[2])
    for shard in (-1, 4):
        with pytest.raises(NotFound, match="they are 0 to 3"):
            made.node_of(shard)


def test_routing_without_nodes_is_an_error() -> None:
    with pytest.raises(NoNodes):
        Assignment.unowned(8).owner("x")


def test_complete_and_loads() -> None:
    made = from_names(["a", "b", None, "a"], {"a": 1, "b": 1, "c": 1})
    assert made.loads().tolist() == [2, 1, 0]
    assert made.loads(np.array([1.5, 2, 100, 4])).tolist() == [5.5, 2, 0]
    assert not made.is_complete
    assert from_names(["a", "a"]).is_complete
    assert Assignment.unowned(3).is_complete


def test_owners_cannot_be_changed_by_a_caller() -> None:
    column = np.array([0, 0], np.int32)
    made = Assignment(2, {"a": 1}, column)
    with pytest.raises(ValueError, match="read-only"):
        made.owners[0] = -1
    column[0] = -1
    assert made.owners.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("shards", "nodes", "owners", "error"),
    [
        (0, {}, [], AssignmentInvalid),
        (2, {"a": 1}, [0], AssignmentInvalid),
        (1, {"a": 1}, [1], AssignmentInvalid),
        (1, {"a": 1}, [-2], AssignmentInvalid),
        (1, {"a": 1.5}, [0], AssignmentInvalid),
        (1, {"": 1}, [0], InvalidName),
        (1, {"a/b": 1}, [0], InvalidName),
    ],
)
def test_what_is_none(
    shards: int, nodes: dict[str, int], owners: list[int], error: type[Exception]
) -> None:
    with pytest.raises(error):
        Assignment(shards, nodes, np.array(owners, np.int64))


def test_a_name_that_is_no_node() -> None:
    with pytest.raises(AssignmentInvalid, match="'z', which is not a node"):
        from_names(["z"], {"a": 1})


def test_the_example_of_the_format() -> None:
    text = (Path(sluicegate.__file__).parent / "FORMAT.md").read_text()
    (example,) = re.findall(r"an assignment of five shards.*?```hex\n(.*?)```", text, re.DOTALL)
    data = bytes.fromhex("".join(line[10:57] for line in example.splitlines()))
    found = decode(data, "FORMAT.md")
    assert found.nodes == {"node-1": 1, "node-2": 2}
    assert [shard for shard in range(5) if found.node_of(shard) == "node-2"] == [1, 3, 4]
    assert encode(found) == data
