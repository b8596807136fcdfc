"""Tasks that fold: classifying, shuffling and merging give the same as dictionaries."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.config import NamedStream
from sluicegate.errors import ConfigInvalid
from sluicegate.job import aggregate
from sluicegate.job.aggregate import SumOverflow
from sluicegate.job.epoch import Results, counted
from sluicegate.job.work import Folded, Work
from sluicegate.shards.routing import shard_of
from sluicegate.sources.base import Reached, Slice
from sluicegate.state import delta, manifest
from sluicegate.state.aggregates import parse as parse_aggregates
from sluicegate.state.aggregates import rows as shown_rows
from sluicegate.state.backend import EpochIncomplete
from sluicegate.state.delta import MOST_SUMMED, Merge
from sluicegate.stream.spec import describe
from tests.job.truth import Table, aggregated, same
from tests.job.works import blobs_of, classify, folded, parsed, state_of, work_of

TABLE = Table(
    columns={"price": "long", "rate": "double", "city": "string", "paid": "boolean"},
    stamp=(),
    key="user",
    aggregates={
        "n": "count",
        "spent": "sum(price)",
        "mean": "avg(price)",
        "least": "min(price)",
        "most": "max(price)",
        "rates": "sum(rate)",
        "rate": "avg(rate)",
        "low": "min(rate)",
        "first": "min(city)",
        "last": "max(city)",
        "all_paid": "min(paid)",
        "name": "max(user)",
    },
)
rows = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["ann", "bob", "", "ü", "a/b"]),
        "price": st.none() | st.integers(-(2**40), 2**40) | st.integers(-(2**63), 2**63 - 1),
        "rate": st.none() | st.floats(-1e6, 1e6, width=32),
        "city": st.none() | st.text(max_size=3),
        "paid": st.none() | st.booleans(),
    }
)
epochs = st.lists(st.lists(st.lists(rows, min_size=1), min_size=1, max_size=3), max_size=3)


@settings(max_examples=40)
@given(epochs, st.integers(1, 5), st.integers(1, 3))
def test_as_dictionaries_say(given: list[list[list[Any]]], shards: int, tasks: int) -> None:
    """Several epochs, each of several tasks that classify and several that fold."""
    with TemporaryDirectory() as root:
        work = work_of(Path(root), TABLE, shards=shards, tasks=tasks, deduplicates=False)
        done = []
        for epoch in given:
            classified = [classify(work, parsed(work, some, at)) for at, some in enumerate(epoch)]
            results = folded(work, [batch for _, batches in classified for batch in batches])
            done.append(results)
            # Every shard reports a result, and how many events it got.
            reported = {s for each in results.values() for s in (*each.changed, *each.unchanged)}
            assert reported == set(range(shards))
            counts = {s: n for each in results.values() for s, (_, n) in each.changed.items()}
            sent: dict[int, int] = {}
            for some in epoch:
                for row in some:
                    shard = shard_of(row["user"], shards)
                    sent[shard] = sent.get(shard, 0) + 1
            assert counts == sent
        wanted = aggregated([row for epoch in given for some in epoch for row in some], TABLE)
        found = state_of(work, TABLE, *done)
        assert found.keys() == wanted.keys()
        for key, values in wanted.items():
            assert same(found[key], values), key


def test_many_events_are_folded_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "_AT_ONCE", 100)
    work = work_of(tmp_path, TABLE, deduplicates=False)
    given = [{"user": f"u{n % 7}", "price": n} for n in range(1000)]
    pieces = [parsed(work, given[at : at + 30], first=at) for at in range(0, 1000, 30)]
    classified, batches = classify(work, *pieces)
    assert sum(classified.events.values()) == classified.applied == 1000
    blank = {"rate": None, "city": None, "paid": None}
    wanted = aggregated([{**blank, **row} for row in given], TABLE)
    assert state_of(work, TABLE, folded(work, batches)) == wanted


def test_sums_do_not_wrap(tmp_path: Path) -> None:
    """Beyond 64 bits in one task, in tasks together, over epochs; and back again."""
    table = Table(
        columns={"x": "long"}, stamp=(), key="k", aggregates={"a": "sum(x)", "m": "avg(x)"}
    )
    work = work_of(tmp_path, table, deduplicates=False, shards=1)
    large = 2**63 - 1

    def epoch(*tasks: list[int]) -> Any:
        given = [[{"k": "k", "x": x} for x in task] for task in tasks]
        classified = [classify(work, parsed(work, some, at)) for at, some in enumerate(given)]
        return folded(work, [batch for _, batches in classified for batch in batches])

    done = [epoch([large, large], [1]), epoch([large], [large]), epoch([5])]
    assert state_of(work, table, *done)["k"] == {
        "events": 6,
        "a": 4 * large + 6,
        "m": float(4 * large + 6) / 6,
    }
    back = [*done, epoch([-large, -large], [-large, -large])]
    assert state_of(work, table, *back)["k"]["a"] == 6
    refs = [ref for each in back for ref, _ in each[0].changed.values()]
    kept = manifest.contents(blobs_of(work), refs)
    assert kept is not None
    assert str(kept["a"].type) == "int64"


HUGE = 1.7e308
DOUBLES = Table(
    columns={"x": "double"},
    stamp=(),
    key="k",
    aggregates={"a": "sum(x)", "m": "avg(x)", "most": "max(x)"},
)


class TestDoubles:
    """Sums of doubles never become infinite."""

    def epoch(self, work: Work, *tasks: list[tuple[str, float]]) -> dict[int, Folded]:
        given = [[{"k": key, "x": x} for key, x in task] for task in tasks]
        classified = [classify(work, parsed(work, some, at)) for at, some in enumerate(given)]
        return folded(work, [batch for _, batches in classified for batch in batches])

    @pytest.mark.parametrize(("how", "wrong"), [("sum(x)", "a of key 'k'"), ("avg(x)", "a of key")])
    def test_the_epoch_fails(self, tmp_path: Path, how: str, wrong: str) -> None:
        table = replace(DOUBLES, aggregates={"a": how})
        work = work_of(tmp_path, table, deduplicates=False)
        with pytest.raises(SumOverflow, match=wrong):
            self.epoch(work, [("j", 1.0), ("k", -HUGE), ("k", -HUGE)])

    def test_or_the_key_has_no_sum_for_good(self, tmp_path: Path) -> None:
        """In one task, in tasks together, over epochs; and not if it comes back."""
        work = work_of(tmp_path, DOUBLES, deduplicates=False, shards=1, fails_on_overflow=False)
        epochs = [
            self.epoch(work, [("j", 1.0), ("k", 2.0)]),
            self.epoch(work, [("j", 2.0), ("k", HUGE)], [("k", -HUGE), ("l", 5.0)]),
            self.epoch(work, [("j", 3.0), ("k", -HUGE)], [("k", 1.0)]),
            self.epoch(work, [("k", 7.0), ("n", -HUGE)]),
        ]
        lost = {"a": None, "m": None}
        wanted = {
            "j": {"events": 3, "a": 6.0, "m": 2.0, "most": 3.0},
            "k": {"events": 6, "most": HUGE, **lost},
            "l": {"events": 1, "a": 5.0, "m": 5.0, "most": 5.0},
            "n": {"events": 1, "most": -HUGE, **lost},
        }
        assert state_of(work, DOUBLES, *epochs) == wanted
        blobs = blobs_of(work)
        refs = [ref for each in epochs for ref, _ in each[0].changed.values()]
        for middle in range(1, len(refs)):
            grouped = [
                manifest.merge(blobs, some, complete=complete)
                for some, complete in ((refs[:middle], True), (refs[middle:], False))
            ]
            state = manifest.contents(blobs, grouped)
            assert state is not None
            assert {row.pop("key"): row for row in shown_rows(state, AGGREGATES)} == wanted
            assert all(math.isfinite(x) for name in ("a", "m.sum") for x in _numbers(state, name))

    @pytest.mark.parametrize("fails", [True, False])
    def test_the_largest_that_is_summed(self, tmp_path: Path, fails: bool) -> None:
        work = work_of(tmp_path, DOUBLES, deduplicates=False, fails_on_overflow=fails)
        epochs = [self.epoch(work, [("k", MOST_SUMMED)] * 1000, [("k", MOST_SUMMED)] * 1000)] * 2
        found = state_of(work, DOUBLES, *epochs)["k"]
        assert (found["a"], found["m"]) == (4000 * MOST_SUMMED, MOST_SUMMED)
        assert math.isfinite(MOST_SUMMED * 2**63)


AGGREGATES = parse_aggregates(DOUBLES.aggregates, DOUBLES.types)


def _numbers(state: Any, name: str) -> list[float]:
    return [number for number in state[name].to_pylist() if number is not None]


def test_what_earlier_versions_let_become_infinite_is_shown_as_null() -> None:
    values: dict[str, list[float]] = {
        "events": [2],
        "a": [math.inf],
        "m.sum": [-math.inf],
        "m.count": [2],
        "most": [1.0],
    }
    state = delta.table(["k"], values, dict.fromkeys(values, Merge.SUM))
    [row] = shown_rows(state, AGGREGATES)
    assert row == {"key": "k", "events": 2, "a": None, "m": None, "most": 1.0}


def test_names_that_others_use(tmp_path: Path) -> None:
    """A key or column may be called like what is computed, or like what goes between tasks."""
    names = {"price": "long", "price_sum": "long", "shard": "long", "events": "long", "key": "long"}
    table = Table(
        columns=names,
        stamp=(),
        key="count_all",
        aggregates={
            "a": "sum(price)",
            "b": "sum(price_sum)",
            "c": "max(shard)",
            "d": "min(events)",
            "e": "avg(key)",
            "f": "max(count_all)",
        },
    )
    work = work_of(tmp_path, table, deduplicates=False)
    given = [{"count_all": f"k{n % 3}", **dict.fromkeys(names, n)} for n in range(30)]
    _, batches = classify(work, parsed(work, given))
    assert state_of(work, table, folded(work, batches)) == aggregated(given, table)


def test_a_key_called_like_an_aggregate(tmp_path: Path) -> None:
    table = Table(columns={"x": "long"}, stamp=(), key="x_sum", aggregates={"a": "sum(x)"})
    work = work_of(tmp_path, table, deduplicates=False)
    given = [{"x_sum": "k", "x": n} for n in range(4)]
    _, batches = classify(work, parsed(work, given))
    assert state_of(work, table, folded(work, batches)) == {"k": {"events": 4, "a": 6}}


def test_without_aggregates_events_are_counted(tmp_path: Path) -> None:
    table = Table(stamp=())
    work = work_of(tmp_path, table, deduplicates=False)
    _, batches = classify(work, parsed(work, [{"user": "a"}, {"user": "b"}, {"user": "a"}]))
    assert state_of(work, table, folded(work, batches)) == {"a": {"events": 2}, "b": {"events": 1}}


def test_without_a_key_nothing_is_sent_on(tmp_path: Path) -> None:
    table = Table(stamp=(), key=None)
    work = work_of(tmp_path, table, deduplicates=False)
    classified, batches = classify(work, parsed(work, [{"price": 1}] * 3))
    assert (classified.applied, dict(classified.events), len(batches)) == (3, {}, 1)


def test_a_node_without_a_shard_reports_that(tmp_path: Path) -> None:
    work = work_of(tmp_path, TABLE, deduplicates=False, tasks=3)
    work = replace(work, targets=np.zeros(work.shards, np.int64))
    _, batches = classify(work, parsed(work, [{"user": "a"}]))
    results = folded(work, batches)
    assert [len(each.changed) + len(each.unchanged) for each in results.values()] == [4, 0, 0]


class TestDescriptions:
    def describe(self, **table: Any) -> Any:
        return describe(NamedStream("clicks", "log", **table))

    @pytest.mark.parametrize(
        ("table", "wrong"),
        [
            ({"columns": {"a": "int"}}, "streams.clicks.columns.a = 'int' must be one of: string"),
            ({"columns": {"_a": "long"}}, "'_a' begins with an underscore"),
            ({"key": "_k"}, "'_k' begins with an underscore"),
            ({"stamp": ("_p", "q", "r")}, "'_p' begins with an underscore"),
            ({"columns": {"k": "long"}, "key": "k"}, "column 'k' must be a string, not a long"),
            ({"columns": {"p": "long"}, "stamp": ("p", "q", "r")}, "column 'p' must be a string"),
            ({"columns": {"r": "string"}, "stamp": ("p", "q", "r")}, "column 'r' must be a long"),
            ({"stamp": ("p", "p", "r")}, "column 'p' must be a long"),
            ({"stamp": ("p", "q", "q")}, "streams.clicks.stamp names a column twice: p, q, q"),
            ({"columns": {"a": "long"}, "key": "A"}, "Spark treats 'a' and 'A' as the same column"),
            ({"aggregates": {"n": "count"}}, "has aggregates, but no key"),
            ({"key": "k", "aggregates": {"n": "median(k)"}}, "'median(k)' must be one of"),
            ({"key": "k", "aggregates": {"n": "sum()"}}, "'sum()' must be one of"),
            ({"key": "k", "aggregates": {"n": "sum(x)"}}, "over 'x', which is not among"),
            ({"key": "k", "aggregates": {"n": "sum(k)"}}, "there is no sum of 'k', a string"),
            ({"key": "k", "aggregates": {"n": "avg(k)"}}, "there is no avg of 'k', a string"),
            ({"key": "k", "aggregates": {"key": "count"}}, "cannot be called 'key'"),
            ({"key": "k", "aggregates": {"events": "count"}}, "cannot be called 'events'"),
            ({"key": "k", "aggregates": {"a.sum": "count"}}, "cannot be called 'a.sum'"),
        ],
    )
    def test_what_is_wrong(self, table: Any, wrong: str) -> None:
        with pytest.raises(ConfigInvalid) as error:
            self.describe(**table)
        assert wrong in str(error.value)

    def test_columns_that_are_needed_have_their_type(self) -> None:
        found = self.describe(key="user", stamp=("p", "q", "r"), columns={"price": "double"})
        assert found.columns == {
            "price": "double",
            "p": "string",
            "q": "long",
            "r": "long",
            "user": "string",
        }

    def test_what_can_never_change(self) -> None:
        found = self.describe(
            key="k",
            columns={"a": "long", "b": "double", "c": "string"},
            aggregates={"n": "count", "x": "avg( a )", "y": "max(b)"},
        )
        assert found.state_types == {"a": "long", "b": "double"}
        assert [each.name for each in found.values] == ["x.sum", "x.count", "y"]


def test_an_epoch_without_what_a_task_read_is_incomplete(tmp_path: Path) -> None:
    """All that is left adds up: only the number of records to be read shows the loss."""
    table = Table(columns={"price": "long"}, stamp=(), key="user", aggregates={"n": "count"})
    slices = tuple(Slice("events", partition, 0, 2) for partition in range(2))
    work = work_of(tmp_path, table, slices=slices, deduplicates=False)
    rows = [{"user": "ann", "price": 1}, {"user": "bob", "price": 2}]
    classified = [
        classify(work, parsed(work, rows, at), reached=[Reached("events", at, 0, 2, "")])
        for at in range(2)
    ]
    done = [
        Results([one for one, _ in some], [*folded(work, _batches(some)).values()], [])
        for some in (classified, classified[:1])
    ]
    assert counted(work, done[0])["applied"] == 4
    with pytest.raises(EpochIncomplete, match=r"events\[1\] was not read from 0 to 2"):
        counted(work, done[1])
    with pytest.raises(EpochIncomplete, match=r"events\[0\] was read twice"):
        counted(replace(work, slices=slices[1:]), done[0])
    # Where the offsets are dense, the number of records must be right, too.
    short = [(replace(one, read=1, applied=1), batches) for one, batches in classified]
    results = Results([one for one, _ in short], done[0].folded, [])
    with pytest.raises(EpochIncomplete, match="2 of 4 records were read"):
        counted(work, results)
    with pytest.raises(EpochIncomplete, match="are not those that were classified"):
        counted(replace(work, dense=False), results)


def _batches(classified: list[Any]) -> list[Any]:
    return [batch for _, batches in classified for batch in batches]
