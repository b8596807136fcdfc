"""State: what deltas are, how they merge, and when an epoch of them may be committed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from operator import methodcaller
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sluicegate.errors import SluicegateError, SplitBrainCommit, StaleVersion, UsageError
from sluicegate.positions import Positions
from sluicegate.state import delta, manifest
from sluicegate.state.backend import (
    DeltaConflict,
    EpochIncomplete,
    MemoryStateBackend,
    StateBackend,
)
from sluicegate.state.delta import DeltaInvalid, Merge
from sluicegate.storage import LocalStorage
from sluicegate.storage.blobs import BlobDamaged, Blobs, Ref
from sluicegate.stream import gc
from sluicegate.stream.append import Epoch, RebalanceDraft, Signature
from sluicegate.stream.operations.compact import compact
from sluicegate.stream.snapshot import MAX_DELTAS, Manifest
from sluicegate.stream.state import CommittedEpochs, shard_state, shards_of, state_backend
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Run, StreamWriter
from tests.stream.streams import (
    STEP,
    TOPIC,
    apply,
    check,
    check_counted,
    commit,
    epoch_after,
    in_memory,
    made,
    opened,
    work,
)
from tests.support.faults import Disk

MERGES = {"sum": Merge.SUM, "min": Merge.MIN, "max": Merge.MAX, "last": Merge.LAST}
TYPES = dict.fromkeys(MERGES, pa.int64())
Values = dict[str, int | None]
State = dict[str, Values]
# (replaces, values or None for a delete), by key: what one delta does.
Change = dict[str, tuple[bool, Values | None]]


@pytest.fixture
def root() -> Iterator[Path]:
    with in_memory() as path:
        yield path


@pytest.fixture
def blobs(root: Path) -> Blobs:
    return Blobs(LocalStorage(root))


numbers = st.integers(-1000, 1000) | st.none()
values = st.fixed_dictionaries(dict.fromkeys(MERGES, numbers))
changes = st.dictionaries(
    st.sampled_from(["a", "b", "c", "ß", ""]),
    st.tuples(st.booleans(), values) | st.just((True, None)),
    max_size=5,
)


def as_table(change: Change) -> Any:
    keys = sorted(change)
    columns = {
        name: pa.array([(change[key][1] or {}).get(name) for key in keys], TYPES[name])
        for name in MERGES
    }
    return delta.table(
        keys,
        columns,
        MERGES,
        replaces=[change[key][0] for key in keys],
        present=[change[key][1] is not None for key in keys],
    )


def as_state(table: Any) -> State:
    rows = table.to_pylist() if table else []
    return {row["key"]: {name: row[name] for name in MERGES} for row in rows}


def combined(one: int | None, other: int | None, how: Merge) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    known: dict[Merge, Callable[[int, int], int]] = {
        Merge.SUM: lambda a, b: a + b,
        Merge.MIN: min,
        Merge.MAX: max,
        Merge.LAST: lambda _a, b: b,
    }
    return known[how](one, other)


def done_to(state: State, change: Change) -> State:
    """The model: a dictionary to which each delta is applied."""
    state = dict(state)
    for key, (replaces, added) in change.items():
        before = {} if replaces else state.pop(key, {})
        state.pop(key, None)
        if added is not None:
            state[key] = {
                name: combined(before.get(name), added[name], how) for name, how in MERGES.items()
            }
    return state


def modelled(history: list[Change]) -> State:
    state: State = {}
    for change in history:
        state = done_to(state, change)
    return state


class TestPartial:
    @given(st.lists(changes, min_size=1, max_size=6))
    @settings(max_examples=80)
    def test_merging_does_what_the_deltas_do_one_after_the_other(
        self, history: list[Change]
    ) -> None:
        merged = delta.merge([as_table(change) for change in history], complete=True)
        assert as_state(merged) == modelled(history)

    @given(st.lists(changes, min_size=2, max_size=6), st.data())
    @settings(max_examples=80)
    def test_any_grouping_gives_the_same(self, history: list[Change], data: Any) -> None:
        tables = [as_table(change) for change in history]
        while len(tables) > 1:
            start = data.draw(st.integers(0, len(tables) - 2))
            end = data.draw(st.integers(start + 2, len(tables)))
            # Only what begins at the beginning may forget what it deletes.
            whole = start == 0 and data.draw(st.booleans())
            together = delta.merge(tables[start:end], complete=whole)
            tables[start:end] = [delta.decode(delta.encode(together), "a test")]
        assert as_state(delta.merge(tables, complete=True)) == modelled(history)

    @given(changes)
    @settings(max_examples=30)
    def test_equal_deltas_have_equal_bytes_and_come_back(self, change: Change) -> None:
        data = delta.encode(as_table(change))
        assert data == delta.encode(as_table(dict(reversed(change.items()))))
        assert delta.decode(data, "a test").equals(as_table(change))

    @given(changes, st.data())
    @settings(max_examples=60)
    def test_damage_is_reported_or_does_no_harm(self, change: Change, data: Any) -> None:
        whole = delta.encode(as_table(change))
        at = data.draw(st.integers(0, len(whole) - 1))
        cut = data.draw(st.booleans())
        bad = whole[:at] if cut else whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :]
        try:
            delta.decode(bad, "a test")
        except DeltaInvalid as e:
            assert "a test" in e.message
        else:
            assert not cut, "a part was taken for the whole"

    def test_columns_say_how_they_merge(self) -> None:
        plain = pa.table({"key": ["a"], "replaces": [False], "present": [True], "n": [1]})
        with pytest.raises(DeltaInvalid, match="how it merges"):
            delta.decode(delta.encode(plain), "a test")

    def test_deltas_of_other_columns_are_not_mixed(self) -> None:
        one = delta.table(["a"], {"n": [1]}, {"n": Merge.SUM})
        for other in (
            delta.table(["a"], {"n": [1]}, {"n": Merge.MAX}),
            delta.table(["a"], {"m": [1]}, {"m": Merge.SUM}),
            delta.table(["a"], {"n": [1.5]}, {"n": Merge.SUM}),
        ):
            with pytest.raises(DeltaInvalid, match="different columns"):
                delta.merge([one, other])

    def test_names_of_its_own_are_refused(self) -> None:
        with pytest.raises(UsageError, match="present"):
            delta.table(["a"], {"present": [1]}, {"present": Merge.SUM})


class TestManifest:
    def put(self, blobs: Blobs, history: list[dict[int, Change]]) -> list[Ref]:
        return [
            blobs.put(
                manifest.encode(
                    {s: (blobs.put(delta.encode(as_table(c))),) for s, c in each.items()}
                )
            )
            for each in history
        ]

    def state(self, blobs: Blobs, refs: tuple[Ref, ...]) -> dict[int, State]:
        shards = manifest.joined(manifest.read(blobs, ref) for ref in refs)
        found = {s: as_state(manifest.contents(blobs, each)) for s, each in shards.items()}
        return {shard: state for shard, state in found.items() if state}

    @given(
        st.lists(st.dictionaries(st.integers(0, 2), changes, max_size=3), max_size=24),
        st.integers(1, 5),
    )
    @settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_folding_and_compacting_keep_the_state(
        self, blobs: Blobs, history: list[dict[int, Change]], every: int
    ) -> None:
        expected = {s: modelled([e[s] for e in history if s in e]) for s in range(3)}
        expected = {shard: state for shard, state in expected.items() if state}
        base: Ref | None = None
        deltas: list[Ref] = []
        for ref in self.put(blobs, history):
            deltas.append(ref)
            if len(deltas) == every:
                base, deltas = manifest.fold(blobs, base, deltas), []
        refs = Manifest(base, tuple(deltas)).refs
        assert self.state(blobs, refs) == expected
        shards = manifest.joined(manifest.read(blobs, ref) for ref in refs)
        assert all(len(each) <= manifest.MAX_DELTAS + every for each in shards.values())
        whole = manifest.compacted(blobs, shards)
        assert self.state(blobs, (whole,)) == expected
        assert all(len(each) == 1 for each in manifest.read(blobs, whole).values())

    def test_folding_keeps_a_delete_as_long_as_something_came_before(self, blobs: Blobs) -> None:
        """Deltas that are merged by themselves must not forget what they delete in the base."""
        here: Values = {"sum": 1, "min": 1, "max": 1, "last": 1}
        history: list[dict[int, Change]] = [
            {0: {"a": (False, here), "b": (False, here)}},
            {0: {"a": (True, None)}},
            {0: {"c": (False, here)}},
        ]
        first, *later = self.put(blobs, history)
        base = manifest.fold(blobs, None, [first])
        folded = manifest.fold(blobs, base, later)
        assert self.state(blobs, (folded,)) == {0: {"b": here, "c": here}}

    def test_a_bad_delta_is_reported(self, blobs: Blobs) -> None:
        bad = blobs.put(b"not a delta")
        with pytest.raises(BlobDamaged, match="not a delta"):
            manifest.contents(blobs, [bad])


class TestCommitting:
    @pytest.fixture
    def stream(self, root: Path) -> Stream:
        return made(root / "home", epochs=2)

    @pytest.fixture
    def run(self, stream: Stream) -> Iterator[Run]:
        with StreamWriter(stream).claim() as run:
            yield run

    def test_folds_when_there_are_too_many_deltas(self, stream: Stream) -> None:
        with StreamWriter(stream).claim() as run:
            snapshots = [commit(run) for _ in range(2 * MAX_DELTAS + 2)]
        sizes = [len(snapshot.state.deltas) for snapshot in snapshots]
        assert max(sizes) == MAX_DELTAS
        assert sizes.count(0) == 2, "it folded twice"
        for snapshot in snapshots[:: MAX_DELTAS // 2]:
            check_counted(stream, snapshot)
        check(stream)
        compact(StreamWriter(stream))
        check(stream)
        assert all(len(refs) == 1 for refs in shards_of(stream, stream.chain.head()).values())

    def test_a_backend_looks_once_per_delta_and_forgets_what_is_committed(
        self, stream: Stream
    ) -> None:
        home = Path(stream.uri).parent
        process = Disk(home).process()
        backend = state_backend(StreamWriter(opened(home, process)))
        epochs = range(stream.chain.head().epoch + 1, stream.chain.head().epoch + 6)
        with StreamWriter(stream).claim() as run:
            for epoch in epochs:
                process.made.clear()
                backend.write_delta(0, epoch, 0, b"of a shard")
                assert process.made.count("read HEAD") == 1
                backend.leave_unchanged(1, epoch, 0)
                commit(run)
        assert backend.epoch_complete(epochs[-1], [0, 1])
        with pytest.raises(EpochIncomplete):
            backend.epoch_complete(epochs[0], [0, 1])

    @pytest.mark.parametrize("how", ["gone", "empty", "cut", "flipped"])
    def test_a_damaged_delta_does_not_commit(self, stream: Stream, run: Run, how: str) -> None:
        backend, snapshot = state_backend(run._writer), run.snapshot
        ref = backend.write_delta(0, 3, 0, b"some delta")
        backend.leave_unchanged(1, 3, 0)
        path = Path(stream.uri) / ref.key
        match how:
            case "gone":
                path.unlink()
            case "empty":
                path.write_bytes(b"")
            case "cut":
                path.write_bytes(b"some")
            case _:
                path.write_bytes(b"same delta")
        with pytest.raises(EpochIncomplete, match="shard 0 is not intact"):
            backend.epoch_complete(3, [0, 1])
        assert stream.chain.head().digest == snapshot.digest
        # Writing it again repairs it, whatever is there.
        assert backend.write_delta(0, 3, 0, b"some delta") == ref
        assert backend.epoch_complete(3, [0, 1]) == {0: ref}

    @pytest.mark.parametrize("how", ["gone", "cut"])
    def test_nor_one_that_is_damaged_after_the_look(
        self, stream: Stream, run: Run, how: str
    ) -> None:
        epoch = epoch_after(run._writer, run.snapshot)
        path = Path(stream.uri) / epoch.deltas[0].key
        path.unlink() if how == "gone" else os.truncate(path, 9)
        with pytest.raises(BlobDamaged):
            run.commit(epoch)
        commit(run)
        check(stream)

    def test_orphans_of_a_crashed_attempt_are_no_conflict(self, stream: Stream, run: Run) -> None:
        crashed = state_backend(run._writer)
        crashed.write_delta(0, 3, 0, b"what the crashed attempt computed")
        crashed.leave_unchanged(1, 3, 0)
        commit(run)
        check(stream)

    def test_a_conflict_with_a_committed_epoch_is_an_error(self, stream: Stream) -> None:
        backend = state_backend(StreamWriter(stream))
        committed = backend.read_delta(0, 1)
        assert committed
        assert backend.write_delta(0, 1, 0, committed).size == len(committed)
        with pytest.raises(DeltaConflict, match="epoch 1 is committed"):
            backend.write_delta(0, 1, 0, b"something else")
        with pytest.raises(DeltaConflict, match="epoch 1 is committed"):
            backend.leave_unchanged(1, 1, 0)
        assert backend.read_delta(0, 1) == committed

    def test_an_epoch_that_is_pruned_or_discarded_is_not_known(self, stream: Stream) -> None:
        """Its number is taken all the same, so that nothing else is taken for it."""
        writer = StreamWriter(stream)
        work(stream, 0)
        compact(writer)
        gc.prune(writer, 4)
        backend = state_backend(writer)
        assert backend.read_delta(0, 2) is None
        assert CommittedEpochs(writer).status(2).deltas is None, "not known, which is not nothing"
        assert writer.head().epoch == 2

    def test_the_fence_is_read_from_the_chain(self, stream: Stream) -> None:
        writer = StreamWriter(stream)
        backend = state_backend(writer)
        assert backend.version == 0
        backend.write_delta(0, 3, 0, b"no fence yet")
        head = writer.head()
        blob = stream.blobs.put(b"assignment")
        writer.append(RebalanceDraft(0, head.generation, blob, Signature(), {}), head)
        assert backend.version == 1
        with pytest.raises(StaleVersion, match=r"version 0 .* at 1"):
            backend.write_delta(1, 3, 0, b"too old")
        backend.write_delta(1, 3, 1, b"as routed")

    def test_prune_keeps_the_newest_committed_epoch(self, stream: Stream) -> None:
        work(stream, 3)
        backend = state_backend(StreamWriter(stream))
        newest = backend.read_delta(0, 5)
        backend.prune_before(4)
        assert [backend.read_delta(0, e) is None for e in (1, 2, 3, 4, 5)] == [
            *(True, True, True),
            *(False, False),
        ]
        backend.prune_before(99)
        assert backend.read_delta(0, 4) is None
        assert backend.read_delta(0, 5) == newest
        check(stream)
        work(stream, 1)
        check(stream)

    def test_state_goes_back_with_a_rollback(self, stream: Stream) -> None:
        before = shard_state(stream, stream.chain.read(2), 0)
        apply(stream, "rollback", to=2)
        after = shard_state(stream, stream.chain.head(), 0)
        assert before
        assert after
        assert after.equals(before)


class Backends(RuleBasedStateMachine):
    """The backend on blobs and a chain does what the one in memory does."""

    SHARDS = (0, 1)

    def __init__(self) -> None:
        super().__init__()
        self._memory = in_memory()
        self.stream = made(self._memory.__enter__() / "home")
        self.writer = StreamWriter(self.stream)
        self._claim = self.writer.claim(run="run")
        self.run = self._claim.__enter__()
        self.real: StateBackend = state_backend(self.writer)
        self.model = MemoryStateBackend()

    def teardown(self) -> None:
        self._claim.__exit__(None, None, None)
        self._memory.__exit__(None, None, None)

    @property
    def next(self) -> int:
        return self.run.snapshot.epoch + 1

    def both(self, do: Callable[[StateBackend], Any]) -> Any:
        """Do it to both; they give the same, or raise the same."""
        results = []
        for backend in (self.real, self.model):
            try:
                results.append(do(backend))
            except SluicegateError as e:
                results.append((type(e), e.message))
        assert results[0] == results[1]
        return results[0]

    @rule(shard=st.integers(0, 2), back=st.integers(0, 3), old=st.booleans(), n=st.integers(0, 2))
    def write(self, shard: int, back: int, old: bool, n: int) -> None:
        epoch = max(1, self.next - back)
        version = self.model.version - old if self.model.version else 0
        data = b"" if n == 0 else delta_bytes(n)
        self.both(lambda backend: backend.write_delta(shard, epoch, version, data))

    @rule(shard=st.integers(0, 2), back=st.integers(0, 3))
    def leave(self, shard: int, back: int) -> None:
        epoch, version = max(1, self.next - back), self.model.version
        self.both(lambda backend: backend.leave_unchanged(shard, epoch, version))

    @rule(shards=st.sets(st.integers(0, 2)))
    def complete(self, shards: set[int]) -> None:
        self.both(lambda backend: backend.epoch_complete(self.next, shards))

    @rule()
    def commit(self) -> None:
        """If both report that it is complete; otherwise the attempt begins again."""
        found = self.both(lambda backend: dict(backend.epoch_complete(self.next, self.SHARDS)))
        if not isinstance(found, dict):
            self.crash()
            return
        start = self.run.snapshot.positions
        end = Positions({TOPIC: {p.partition: p.offset + STEP for p in start}})
        snapshot = self.run.snapshot
        epoch = Epoch(start, end, 2 * STEP, found, snapshot.version, snapshot.generation)
        self.model.commit(self.next, self.SHARDS, "run")
        self.run.commit(epoch)

    @rule()
    def crash(self) -> None:
        """What was written and not committed is forgotten; the blobs stay as orphans."""
        self.real = state_backend(self.writer)
        self.model._attempt = type(self.model._attempt)()

    @rule()
    def rebalance(self) -> None:
        head = self.writer.head()
        blob = self.stream.blobs.put(b"assignment")
        self.writer.append(
            RebalanceDraft(head.version, head.generation, blob, Signature(), {}), head
        )
        self.run.refresh()
        self.model.advance(self.run.snapshot.version)

    @precondition(lambda self: self.run.snapshot.epoch > 0)
    @rule(back=st.integers(-1, 4))
    def prune(self, back: int) -> None:
        epoch = self.next - back
        for backend in (self.real, self.model):
            backend.prune_before(epoch)
        self.run.refresh()

    @invariant()
    def reads_are_the_same(self) -> None:
        for shard in range(3):
            for epoch in range(max(1, self.next - 3), self.next + 1):
                self.both(methodcaller("read_delta", shard, epoch))
        assert self.real.version == self.model.version


def delta_bytes(n: int) -> bytes:
    return delta.encode(delta.table(["key"], {"n": [n]}, {"n": Merge.SUM}))


TestBackends = Backends.TestCase
TestBackends.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


class TestMemory:
    def test_the_loser_learns_the_winner(self) -> None:
        backend = MemoryStateBackend()
        backend.write_delta(0, 1, 0, b"a")
        backend.commit(1, [0], "first")
        backend.commit(1, [0], "first")
        with pytest.raises(SplitBrainCommit, match="first"):
            backend.commit(1, [0], "second")

    @pytest.mark.parametrize(
        ("results", "shards", "problem"),
        [
            ({}, [], "no shards"),
            ({0: b"a"}, [0, 1], "no result was reported for shards"),
            ({0: b"a", 1: b"b"}, [0], "do not belong"),
            ({0: b""}, [0], "are empty"),
        ],
    )
    def test_what_is_not_complete(
        self, results: Mapping[int, bytes], shards: list[int], problem: str
    ) -> None:
        backend = MemoryStateBackend()
        for shard, data in results.items():
            backend.write_delta(shard, 1, 0, data)
        with pytest.raises(EpochIncomplete, match=problem):
            backend.epoch_complete(1, shards)

    def test_the_version_never_goes_back(self) -> None:
        backend = MemoryStateBackend()
        backend.write_delta(0, 1, 0, b"a")
        backend.advance(3)
        with pytest.raises(StaleVersion, match=r"version 2 .* at 3"):
            backend.advance(2)
        with pytest.raises(StaleVersion, match=r"version 2 .* at 3"):
            backend.write_delta(0, 1, 2, b"a")
        backend.write_delta(0, 1, 3, b"a")
