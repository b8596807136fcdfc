"""Plain assignment files: reading, writing, and undo of changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import Corrupt, Drifted, SluicegateError, UsageError
from sluicegate.journal import Approval, NothingToUndo
from sluicegate.process import myself
from sluicegate.shards import membership, weights
from sluicegate.shards.assignment import AssignmentInvalid, from_names
from sluicegate.shards.describe import Proposal
from sluicegate.shards.files import parse
from sluicegate.shards.journal import FileJournal, Rebalance, Restore
from sluicegate.shards.planner import RebalancePlan, plan
from sluicegate.target import TargetKind, detect

KAFKA: dict[str, Any] = {
    "version": 1,
    "partitions": [
        {"topic": "orders", "partition": 0, "replicas": [1, 2], "log_dirs": ["/a", "/b"]},
        {"topic": "orders", "partition": 1, "replicas": [1, 3]},
        {"topic": "orders", "partition": 2, "replicas": [1, 2]},
        {"topic": "clicks", "partition": 0, "replicas": [1, 3], "note": "kept"},
        {"topic": "clicks", "partition": 1, "replicas": [3, 1]},
    ],
}
FORMS = {
    "map": '{"0": "a", "1": null, "2": "b"}',
    "list": '["a", null, "b"]',
    "csv": "0,a\n1,\n2,b\n",
    "header": "shard,node\r\n2,b\r\n1,\r\n0,a\r\n",
    "document": '{"nodes": {"a": 1, "b": 1}, "owners": ["a", null, "b"]}',
    "mark": '\ufeff{"0": "a", "1": null, "2": "b"}',
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_every_form_says_the_same(text: str, tmp_path: Path) -> None:
    found = parse(text, "it")
    assert found.assignment == from_names(["a", None, "b"])
    path = tmp_path / "map"
    path.write_text(text)
    assert detect(str(path))[0] is TargetKind.ASSIGNMENT_FILE


@pytest.mark.parametrize("form", FORMS)
def test_a_file_is_written_back_in_its_form(form: str) -> None:
    found = parse(FORMS[form], "it")
    after = from_names(["a", "c", "b"], {"a": 1, "b": 1, "c": 1})
    text = found.with_assignment(after)
    again = parse(text, "it")
    assert again.assignment == after
    assert again.form == found.form
    assert again.with_assignment(after) == text
    if form == "header":
        assert text == "shard,node\n0,a\n1,c\n2,b\n"


names = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=5)
names = names.filter(lambda name: name[0] not in ".-" and not {"/", "\\"} & set(name))


@given(
    st.lists(
        st.none() | names.filter(lambda n: n[0] not in ".-" and "/" not in n and "\\" not in n),
        min_size=1,
        max_size=20,
    )
)
def test_names_of_all_kinds_come_back(owners: list[str | None]) -> None:
    made = from_names(owners)
    for text in FORMS.values():
        form = parse(text, "it")
        assert parse(form.with_assignment(made), "it").assignment == made


def test_a_document_keeps_capacities_versions_and_what_else_it_says() -> None:
    text = '{"cluster": "x", "assignment_version": 4, "nodes": {"a": 2}, "owners": {"0": "a"}}'
    found = parse(text, "it")
    assert (found.version, found.assignment.nodes, found.keeps_capacities) == (4, {"a": 2}, True)
    after = json.loads(found.with_assignment(from_names(["b"], {"b": 3})))
    assert after == {
        "cluster": "x",
        "assignment_version": 5,
        "nodes": {"b": 3},
        "owners": {"0": "b"},
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no shards"),
        ("{}", "no shards"),
        ('{"0": "a"', "delimiter"),
        ('{"0": "a", "0": "b"}', "twice"),
        ('{"0": "a", "2": "b"}', "shard 1 is missing"),
        ('{"x": "a"}', "not the number of a shard"),
        ('{"-1": "a"}', "not the number of a shard"),
        ('{"0": 5}', "not a name"),
        ('{"0": "a/b"}', "path separator"),
        ("0,a\n0,b\n", "not shard,node"),
        ("0,a,b\n", "not shard,node"),
        ('{"nodes": {"a": 0}, "owners": ["a"]}', "capacity"),
        ('{"nodes": {"a": 1}, "owners": ["b"]}', "not a node"),
        ('{"nodes": {"a": 1}, "owners": ["a"], "assignment_version": -1}', "assignment_version"),
        ('{"version": 2, "partitions": []}', "version 2"),
        ('{"version": 1, "partitions": []}', "no partitions"),
        ('{"version": 1, "partitions": [{}]}', "not a partition"),
        ("[" * 100_000, "it is not an assignment"),
    ],
)
def test_what_is_no_assignment(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse(text, "it")


def kafka(**changes: Any) -> str:
    first = {**KAFKA["partitions"][0], **changes}
    return json.dumps({**KAFKA, "partitions": [first, *KAFKA["partitions"][1:]]})


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": []},
        {"replicas": [1, 1]},
        {"replicas": [1, -2]},
        {"replicas": [1, True]},
        {"replicas": [1, "2"]},
        {"log_dirs": ["any"]},
        {"partition": 1},
        {"partition": "0"},
    ],
)
def test_what_is_no_reassignment(change: dict[str, Any]) -> None:
    with pytest.raises(AssignmentInvalid):
        parse(kafka(**change), "it")


class TestKafka:
    def reassigned(self, made: RebalancePlan) -> list[dict[str, Any]]:
        found = parse(json.dumps(KAFKA), "it")
        text = found.with_assignment(made.after)
        assert text.count("\n") == len(KAFKA["partitions"]) + 2, "a line per partition"
        document = json.loads(text)
        assert document["version"] == 1
        before = {(p["topic"], p["partition"]): p for p in KAFKA["partitions"]}
        for each in document["partitions"]:
            old = before.pop((each["topic"], each["partition"]))
            assert len(each["replicas"]) == len(set(each["replicas"])) == len(old["replicas"])
            assert {str(b) for b in each["replicas"]} <= made.after.nodes.keys()
            assert len(each.get("log_dirs", each["replicas"])) == len(each["replicas"])
        assert before == {}
        partitions = document["partitions"]
        assert isinstance(partitions, list)
        return partitions

    def test_the_first_replica_owns_a_partition(self) -> None:
        found = parse(json.dumps(KAFKA), "it")
        assert found.assignment == from_names(["1", "1", "1", "1", "3"], {"1": 1, "2": 1, "3": 1})
        assert found.label(3) == "clicks[0]"

    def test_leaders_that_are_replicas_come_to_the_front_and_are_preferred(self) -> None:
        found = parse(json.dumps(KAFKA), "it")
        made = plan(found.assignment, found.assignment.nodes)
        refined = found.refined(made)
        assert refined.after.loads().tolist() == made.after.loads().tolist()
        assert len(refined.moved) == len(made.moved) == made.minimum
        partitions = self.reassigned(refined)
        assert [p["replicas"] for p in partitions] == [[2, 1], [1, 3], [2, 1], [1, 3], [3, 1]]
        costs = {found.cost(refined.after, shard) for shard in refined.moved.tolist()}
        assert costs == {"only the leader changes; it is already a replica"}

    @given(st.data())
    def test_preferring_replicas_changes_neither_loads_nor_moves(self, data: st.DataObject) -> None:
        brokers = st.integers(1, 5)
        replicas = st.lists(brokers, min_size=1, max_size=3, unique=True)
        lists = data.draw(st.lists(replicas, min_size=1, max_size=12))
        parts = [{"topic": "t", "partition": i, "replicas": r} for i, r in enumerate(lists)]
        found = parse(json.dumps({"version": 1, "partitions": parts}), "it")
        nodes = data.draw(st.sets(brokers, min_size=1))
        made = plan(found.assignment, {str(broker): 1 for broker in nodes})
        refined = found.refined(made)
        assert refined.after.loads().tolist() == made.after.loads().tolist()
        assert len(refined.moved) == len(made.moved)
        copies = [
            sum(found.cost(each.after, s).startswith("copies") for s in each.moved.tolist())
            for each in (made, refined)
        ]
        assert copies[1] <= copies[0]

    def test_log_directories_go_with_their_replicas(self) -> None:
        found = parse(json.dumps(KAFKA), "it")
        after = from_names(["2", "1", "1", "1", "3"], found.assignment.nodes)
        swapped = json.loads(found.with_assignment(after))["partitions"][0]
        assert (swapped["replicas"], swapped["log_dirs"]) == ([2, 1], ["/b", "/a"])
        after = from_names(["3", "1", "1", "1", "3"], found.assignment.nodes)
        moved = json.loads(found.with_assignment(after))["partitions"][0]
        assert (moved["replicas"], moved["log_dirs"]) == ([3, 2], ["any", "/b"])
        assert found.cost(after, 0) == "copies the partition to 3"

    def test_a_broker_that_leaves_is_no_follower_either(self) -> None:
        found = parse(json.dumps(KAFKA), "it")
        joined = membership.join(found.assignment, {"4": 1}).after
        partitions = self.reassigned(membership.leave(joined, ["1"]))
        assert not any(1 in each["replicas"] for each in partitions)

    def test_what_is_copied_is_shown(self) -> None:
        found = parse(json.dumps(KAFKA), "it")
        left = found.refined(membership.leave(found.assignment, ["2"]))
        assert found.consequences(left) == [
            "0 partitions are copied to a new leader; 1 gets a leader that is already a replica.",
            "2 followers on brokers that leave are replaced, and copied.",
        ]
        joined = found.refined(membership.join(found.assignment, {"4": 1}))
        assert found.consequences(joined)[0].startswith("1 partition is copied")

    def test_too_few_brokers_are_refused(self) -> None:
        found = parse(json.dumps(KAFKA), "it")
        made = membership.leave(found.assignment, ["2", "3"])
        with pytest.raises(AssignmentInvalid, match="only 1 broker would be left"):
            found.with_assignment(made.after)

    def test_names_that_are_no_ids_are_refused(self) -> None:
        found = parse(json.dumps(KAFKA), "it")
        with pytest.raises(AssignmentInvalid, match="'x' is not"):
            found.with_assignment(membership.join(found.assignment, {"x": 1}).after)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "map.csv"
    made.write_text("0,a\n1,a\n2,a\n3,b\n")
    return made


def journal(path: Path) -> FileJournal:
    return FileJournal(str(path), read_only=False)


def change(path: Path, *, output: str | None = None, note: str = "") -> Any:
    current = journal(path).read().assignment
    data = Proposal.of(plan(current, current.nodes), "rebalance").to_text()
    return journal(path).propose(Rebalance(data=data, note=note, output=output))


def applied(path: Path, made: Any) -> Any:
    return journal(path).apply(made, Approval(myself(), "a test"))


def test_a_change_and_its_undo(path: Path) -> None:
    before = path.read_text()
    path.chmod(0o640)
    entry = applied(path, change(path, note="as asked"))
    assert path.read_text() == "0,a\n1,a\n2,b\n3,b\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert (entry.id, entry.undo, entry.reason) == ("map.csv@1", "yes", "a test")
    assert entry.summary == "as asked: 1 of 4 shards moved"
    undo = journal(path).plan_undo(None)
    applied(path, undo)
    assert path.read_text() == before
    assert [e.undo for e in journal(path).history()] == ["yes", "no: undo the later changes first"]
    applied(path, journal(path).plan_undo("map.csv@2"))
    assert path.read_text() == "0,a\n1,a\n2,b\n3,b\n"


def test_a_record_that_was_removed_by_hand_is_not_in_the_way(path: Path) -> None:
    first = path.read_text()
    applied(path, change(path))
    applied(path, journal(path).plan_undo(None))
    next((path.parent / "map.csv.sluicegate").glob("*1.json")).unlink()
    entry = applied(path, change(path))
    assert entry.id == "map.csv@3"
    applied(path, journal(path).plan_undo(None))
    assert path.read_text() == first


def test_undo_does_not_throw_away_what_others_wrote(path: Path) -> None:
    applied(path, change(path))
    path.write_text("0,x\n1,a\n2,b\n3,b\n")
    assert journal(path).history()[0].undo == "no: the file was changed since"
    with pytest.raises(NothingToUndo, match="changed since"):
        journal(path).plan_undo(None)


def test_a_plan_holds_only_for_the_file_it_was_made_for(path: Path) -> None:
    made = change(path)
    path.write_text("0,a\n1,a\n2,a\n3,c\n")
    with pytest.raises(Drifted, match="the file"):
        applied(path, made)
    assert path.read_text() == "0,a\n1,a\n2,a\n3,c\n"


def test_killed_between_the_record_and_the_file(path: Path) -> None:
    made = change(path)
    one = journal(path)
    one._storage = _Dying(one._storage)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        one.apply(made, Approval(myself()))
    assert journal(path).history()[0].undo == "no: it was never finished"
    with pytest.raises(NothingToUndo, match="never finished"):
        journal(path).plan_undo(None)
    entry = applied(path, made)
    assert (entry.id, path.read_text()) == ("map.csv@2", "0,a\n1,a\n2,b\n3,b\n")
    assert [e.undo for e in journal(path).history()] == ["yes", "no: it was never finished"]


class _Dying:
    """Storage whose process dies when it is to replace a file."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def replace(self, *_arguments: object) -> None:
        raise KeyboardInterrupt


def test_an_output_leaves_the_file_alone(path: Path, tmp_path: Path) -> None:
    before, new = path.read_text(), tmp_path / "new.csv"
    made = change(path, output=str(new))
    applied(path, made)
    assert (path.read_text(), new.read_text()) == (before, "0,a\n1,a\n2,b\n3,b\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["map.csv", "new.csv"]
    with pytest.raises(SluicegateError, match="never overwrites"):
        applied(path, made)


def test_nothing_to_do_writes_nothing(tmp_path: Path) -> None:
    made = tmp_path / "m.json"
    made.write_text('{"1":"b","0":"a"}')
    assert change(made).actions == ()
    assert list(tmp_path.iterdir()) == [made]


def test_a_link_is_followed(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.csv"
    link.symlink_to(path)
    applied(link, change(link))
    assert link.is_symlink()
    assert path.read_text() == "0,a\n1,a\n2,b\n3,b\n"


@pytest.mark.parametrize(
    "work",
    [
        {},
        {"operation": "delete"},
        Rebalance(data="x").to_work(),
        Rebalance(data=Proposal(from_names(["a"])).to_text()).to_work(),
        Restore(undoes="map.csv@7").to_work(),
    ],
)
def test_work_that_is_none(path: Path, work: dict[str, Any]) -> None:
    with pytest.raises((Corrupt, NothingToUndo)):
        journal(path).plan(work)


def test_a_damaged_record_is_reported(path: Path) -> None:
    applied(path, change(path))
    record = next((path.parent / "map.csv.sluicegate").glob("*.json"))
    for damage in ("", "{}", "[]", '{"id": 1}'):
        record.write_text(damage)
        with pytest.raises(Corrupt, match="is not a change"):
            journal(path).history()


def test_weights_from_files() -> None:
    for text in ('{"0": 3, "2": 1.5}', "[3, 0, 1.5]", "shard,weight\n0,3\n2,1.5\n", "2,1.5\n0,3"):
        assert weights.parse(text, 3).tolist() == [3, 0, 1.5]


@pytest.mark.parametrize(
    "text",
    [
        "0,1\n0,2\n",
        "0\n",
        "x,1\n",
        "0,x\n",
        "3,1\n",
        "0,-1\n",
        "0,nan\n",
        "{",
        '{"0": true}',
        '{"0": "1"}',
        '{"0": 1, "0": 2}',
        '{"0": NaN}',
        '{"0": 1' + "0" * 400 + "}",
    ],
)
def test_weights_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        weights.parse(text, 3)
