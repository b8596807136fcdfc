"""The shards of a gated stream: rebalances as snapshots, their undo, jobs that run beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.errors import Corrupt, Drifted, StaleVersion, UsageError
from sluicegate.journal import Approval, Entry, NothingToUndo
from sluicegate.process import myself
from sluicegate.shards import membership
from sluicegate.shards.assignment import Assignment, encode, from_names
from sluicegate.shards.describe import HOW, Proposal
from sluicegate.shards.planner import RebalancePlan, between, plan
from sluicegate.storage import ReadOnlyStorage
from sluicegate.stream.append import RebalanceDraft, Signature
from sluicegate.stream.history import changes
from sluicegate.stream.journal import StreamJournal
from sluicegate.stream.operations.rebalance import assignment_at, counts, weights_at
from sluicegate.stream.snapshot import Kind, Snapshot
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter
from tests.stream.streams import (
    PARTITIONS,
    apply,
    at,
    commit,
    errors_of,
    in_memory,
    make_home,
    opened,
    operation_of,
    state_at,
    work,
)

SHARDS = 12


def begun(root: Path, *, epochs: int = 0, shards: object = SHARDS) -> Stream:
    stream = opened(make_home(root))
    pins = {} if shards is None else {"shards": shards}
    StreamWriter(stream).genesis(at(*[0] * PARTITIONS), pins=pins)
    work(stream, epochs)
    return stream


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return begun(tmp_path / "home", epochs=2)


def now(stream: Stream) -> Assignment:
    return assignment_at(stream, stream.chain.head())


def rebalance(stream: Stream, made: RebalancePlan, how: str = "rebalance", note: str = "") -> Entry:
    return apply(stream, "rebalance", data=Proposal.of(made, how).to_text(), note=note)


def join(stream: Stream, *names: str, **options: object) -> Entry:
    made = membership.join(now(stream), dict.fromkeys(names, 1), **options)  # type: ignore[arg-type]
    return rebalance(stream, made, "join", f"join {', '.join(names)}")


def leave(stream: Stream, *names: str, **options: object) -> Entry:
    made = membership.leave(now(stream), names, **options)  # type: ignore[arg-type]
    return rebalance(stream, made, "leave", f"leave {', '.join(names)}")


def undo(stream: Stream, operation: str | None = None) -> Entry:
    journal = StreamJournal(stream)
    return journal.apply(journal.plan_undo(operation), Approval(myself(), "back"))


def test_a_stream_begins_without_nodes(stream: Stream) -> None:
    found = now(stream)
    assert (found.version, dict(found.nodes), found.n_shards) == (0, {}, SHARDS)
    assert (found.owners == -1).all()


def test_every_rebalance_is_a_snapshot_with_the_next_version(stream: Stream) -> None:
    before = stream.chain.head()
    join(stream, "b", "a")
    join(stream, "c")
    head = stream.chain.head()
    assert (head.kind, head.version, head.number) == (Kind.REBALANCE, 2, before.number + 2)
    assert (head.positions, head.state, head.epoch) == (before.positions, before.state, 2)
    found = now(stream)
    assert (found.version, found.names) == (2, ("a", "b", "c"))
    assert found.loads().tolist() == [4, 4, 4]
    assert head.details["summary"] == "join c: 4 of 12 shards moved"
    assert (head.details["joined"], head.details["moves"]) == (["c"], 4)
    assert errors_of(stream) == []
    assert state_at(stream, head) == state_at(stream, before)


def test_undo_is_the_old_map_at_a_new_version(stream: Stream) -> None:
    join(stream, "a", "b")
    before = now(stream)
    leave(stream, "a")
    undo(stream)
    after = now(stream)
    assert after.is_same_map(before)
    assert after.version == before.version + 2
    assert stream.chain.head().generation == 1, "nothing was rolled back"
    undone = undo(stream, StreamJournal(stream).history()[0].id)
    assert now(stream).names == ("b",)
    assert undone.kind == "rebalance"


def test_undo_of_the_first_one_leaves_no_nodes(stream: Stream) -> None:
    join(stream, "a")
    undo(stream)
    assert (dict(now(stream).nodes), now(stream).version) == ({}, 2)


def test_undo_of_an_older_one_states_that_it_reverts_later_ones(stream: Stream) -> None:
    first = join(stream, "a")
    join(stream, "b")
    work(stream, 1)
    made = StreamJournal(stream).plan_undo(first.id)
    assert "Also reverts 1 later rebalance." in made.consequences
    undo(stream, first.id)
    assert dict(now(stream).nodes) == {}
    assert stream.chain.head().epoch == 3, "epochs stay"


def test_undo_of_what_is_pruned(stream: Stream) -> None:
    done = join(stream, "a")
    apply(stream, "prune", to=stream.chain.head().number)
    with pytest.raises(NothingToUndo, match="the snapshot before it is pruned"):
        StreamJournal(stream).plan_undo(done.id)


def test_a_rollback_keeps_the_newest_assignment(stream: Stream) -> None:
    back = stream.chain.head().number - 1
    join(stream, "a", "b")
    before = now(stream)
    apply(stream, "rollback", to=back)
    assert now(stream) == before, "the version never goes back"


def test_a_plan_depends_on_version_and_generation_and_nothing_else(stream: Stream) -> None:
    join(stream, "a")
    journal = StreamJournal(stream)
    change = operation_of("rebalance", data=_joining(stream, "b"))
    made = journal.plan(change.to_work())
    assert [each.what for each in made.preconditions] == [
        "the stream",
        "the generation",
        "the version of the assignment",
    ]
    work(stream, 2)
    assert journal.plan(change.to_work()) == made, "a running job does not matter"
    join(stream, "c")
    with pytest.raises(Drifted, match="version of the assignment was 1, is 2"):
        journal.apply(made, Approval(myself()))
    fresh = journal.propose(operation_of("rebalance", data=_joining(stream, "b")))
    apply(stream, "rollback", to=1)
    with pytest.raises(Drifted, match="generation was 1, is 2"):
        journal.apply(fresh, Approval(myself()))


def test_a_job_beside_it_notices_and_routes_again(stream: Stream) -> None:
    with StreamWriter(stream).claim(app="job") as run:
        commit(run)
        join(stream, "a", "b")
        with pytest.raises(StaleVersion, match="version 0 of the assignment, which is at 1"):
            commit(run)
        run.refresh()
        assert commit(run).version == 1


def test_nothing_to_do_appends_nothing(stream: Stream) -> None:
    join(stream, "a", "b")
    journal = StreamJournal(stream)
    for made in (
        plan(now(stream), now(stream).nodes),
        membership.join(now(stream), {"a": 5}, idempotent=True),
        membership.leave(now(stream), ["z"], idempotent=True),
    ):
        assert made.after.is_same_map(now(stream)), "not an empty one"
        work_ = operation_of("rebalance", data=Proposal.of(made, "join").to_text()).to_work()
        assert journal.plan(work_).actions == ()


def test_members() -> None:
    current = from_names(["a", "b"], version=3)
    with pytest.raises(membership.NodeExists, match="a has already joined"):
        membership.join(current, {"a": 1})
    with pytest.raises(membership.NodeUnknown, match="no node z"):
        membership.leave(current, ["z"])
    with pytest.raises(membership.LastNode):
        membership.leave(current, ["a", "b"])
    gone = membership.leave(current, ["a", "b"], force=True).after
    assert (dict(gone.nodes), gone.version, gone.owners.tolist()) == ({}, 4, [-1, -1])
    assert between(current, gone).moved.tolist() == [0, 1]
    again = membership.join(current, {"a": 9, "c": 1}, idempotent=True).after
    assert again.nodes == {"a": 1, "b": 1, "c": 1}
    assert membership.resize(current, {"b": 3}) == {"a": 1, "b": 3}
    with pytest.raises(membership.NodeUnknown):
        membership.resize(current, {"z": 3})


def test_installs_are_checked_and_versioned() -> None:
    current = from_names(["a", "b"], version=3)
    made = membership.install(current, from_names(["c", "c"]), version=4)
    assert (made.after.version, made.after.names) == (4, ("c",))
    for version in (0, 3):
        with pytest.raises(membership.StaleAssignment, match=f"it has version {version}"):
            membership.install(current, from_names(["c", "c"]), version=version)
    for other in (from_names(["c"]), from_names(["c", None]), Assignment.unowned(2)):
        with pytest.raises(UsageError):
            membership.install(current, other)


def test_what_happened_is_counted_from_the_history(stream: Stream) -> None:
    join(stream, "a", "b")
    leave(stream, "a")
    made = membership.install(now(stream), from_names(["b", "z"] * 6))
    rebalance(stream, made, "install")
    snapshots = list(changes(stream, stream.chain.head()))
    assert counts(snapshots) == {"joins": 3, "leaves": 1, "installs": 1}


def test_weights_come_from_the_state(stream: Stream) -> None:
    head = stream.chain.head()
    keys = weights_at(stream, head, "keys")
    assert keys.sum() == len(state_at(stream, head))
    assert (keys[2:] == 0).all(), "the job of these tests uses the first two shards"
    sizes = weights_at(stream, head, "bytes")
    assert sizes[0] > 100
    assert (sizes > 0).tolist() == (keys > 0).tolist()


def test_streams_that_do_not_say_how_many_shards(tmp_path: Path) -> None:
    for number, shards in enumerate((None, 0, "8", True)):
        bad = begun(tmp_path / str(number), shards=shards)
        with pytest.raises(UsageError, match="a number of shards"):
            assignment_at(bad, bad.chain.head())


@pytest.mark.parametrize(
    "blob", [b"nothing", encode(from_names(["a"])), encode(from_names([None] * 11 + ["a"]))]
)
def test_an_assignment_that_is_not_one_of_this_stream(stream: Stream, blob: bytes) -> None:
    writer, head = StreamWriter(stream), stream.chain.head()
    ref = stream.blobs.put(blob)
    writer.append(RebalanceDraft(head.version, head.generation, ref, Signature(), {}), head)
    with pytest.raises(Corrupt):
        now(stream)


def test_a_proposal_as_text() -> None:
    made = plan(from_names(["a", "a", "b"]), {"a": 1, "c": 2}, np.array([1.0, 2.5, 0.0]))
    proposal = Proposal.of(made, "leave", bound=0.1, measure="keys")
    again = Proposal.from_text(proposal.to_text())
    assert again.after == proposal.after.at_version(0)
    assert again.weights is not None
    assert again.weights.tolist() == [1.0, 2.5, 0.0]
    assert again.to_text() == proposal.to_text()


good = Proposal.of(plan(from_names(["a", "a"]), {"a": 1}, np.array([1.0, 2.0])), "join").to_text()


@settings(max_examples=200)
@given(st.integers(0, len(good) - 1), st.characters(codec="ascii"))
def test_a_damaged_proposal_is_reported(where: int, other: str) -> None:
    damaged = good[:where] + other + good[where + 1 :]
    try:
        found = Proposal.from_text(damaged)
    except Corrupt:
        return
    assert found.how in HOW
    assert found.after.n_shards == 2


def test_weights_of_other_shards_are_no_proposal() -> None:
    for weights in ([1.0], [1.0, 2.0, 3.0], [1.0, -1.0]):
        other = Proposal(from_names(["a", "a"]), weights=np.array(weights)).to_text()
        with pytest.raises(Corrupt, match="does not hold an assignment"):
            Proposal.from_text(other)


@pytest.mark.parametrize("text", [None, "", "[]", "{}", good[:-1], good.replace('"join"', '"x"')])
def test_what_is_no_proposal(text: str | None) -> None:
    with pytest.raises(Corrupt, match="does not hold an assignment"):
        Proposal.from_text(text)


def test_a_plan_for_another_number_of_shards_is_refused(stream: Stream) -> None:
    text = Proposal(from_names(["a"])).to_text()
    with pytest.raises(Corrupt, match="assigns 1 shards"):
        StreamJournal(stream).propose(operation_of("rebalance", data=text))


def test_planning_writes_nothing(tmp_path: Path) -> None:
    made = begun(tmp_path / "home", epochs=1)
    looking = Stream(ReadOnlyStorage(made.storage), None, made.name)
    change = operation_of("rebalance", data=_joining(made, "a"))
    assert StreamJournal(looking).plan(change.to_work()).actions


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["join", "leave", "undo", "work"]), st.sampled_from("abcd")),
        max_size=8,
    )
)
def test_any_sequence_of_changes(steps: list[tuple[str, str]]) -> None:
    """After each of them all shards have an owner that is there, and undo restores the map."""
    with in_memory() as root:
        stream = begun(root / "home")
        maps: list[Assignment] = []
        for step, name in steps:
            before = now(stream)
            match step:
                case "join" if name not in before.nodes:
                    join(stream, name)
                case "leave" if name in before.nodes:
                    leave(stream, name, force=True)
                case "undo" if maps:
                    undo(stream, stream_id(stream.chain.head()))
                    assert now(stream).is_same_map(maps.pop())
                    continue
                case "work":
                    work(stream, 1)
                    maps = []
                    continue
                case _:
                    continue
            maps = [before]
            after = now(stream)
            assert after.is_complete
            assert after.version == before.version + 1
            loads = after.loads()
            assert not after.nodes or loads.max() - loads.min() <= 1
        assert errors_of(stream) == []


def stream_id(snapshot: Snapshot) -> str:
    return f"{snapshot.stream}@{snapshot.number}"


def _joining(stream: Stream, name: str) -> str:
    made = membership.join(now(stream), {name: 1})
    return Proposal.of(made, "join").to_text()
