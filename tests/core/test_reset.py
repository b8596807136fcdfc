"""Planning a reset is pure: positions, what is known and a wish in; moves or a refusal out."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sluicegate.errors import NotFound
from sluicegate.positions import MAX_OFFSET, Position, Positions
from sluicegate.reset import (
    Known,
    Move,
    Partition,
    Point,
    Range,
    ResetRefused,
    ResetSpec,
    Scenario,
    Scope,
    Timeline,
    TimeNotKnown,
    check_scope,
    plan_reset,
)

NOW = Positions({"orders": {0: 50, 1: 60}, "payments": {0: 70}})
RANGES = {
    ("orders", 0): Range(10, 100),
    ("orders", 1): Range(20, 200),
    ("payments", 0): Range(0, 70),
}
UNKNOWN = Known()
BROKER = Known(ranges=RANGES)
PAST = Known(
    past=[
        Point(1000, Positions({"orders": {0: 20, 1: 25}, "payments": {0: 21}}), "batch 1"),
        Point(2000, Positions({"orders": {0: 30, 1: 35}, "payments": {0: 31}}), "batch 2"),
        Point(3000, Positions({"orders": {0: 40, 1: 45}, "payments": {0: 41}}), "batch 3"),
    ]
)


def news(moves: Iterable[Move]) -> dict[Partition, int]:
    return {(move.topic, move.partition): move.new for move in moves}


def plan(known: Known, scenario: Scenario, **wish: object) -> dict[Partition, int]:
    return news(plan_reset(NOW, known, ResetSpec(scenario, **wish)))  # type: ignore[arg-type]


def all_at(first: int, second: int, third: int) -> dict[Partition, int]:
    return {("orders", 0): first, ("orders", 1): second, ("payments", 0): third}


CURRENT = all_at(50, 60, 70)


class TestEdges:
    def test_to_earliest(self) -> None:
        assert plan(BROKER, Scenario.EARLIEST) == all_at(10, 20, 0)

    def test_to_latest(self) -> None:
        assert plan(BROKER, Scenario.LATEST) == all_at(100, 200, 70)

    @pytest.mark.parametrize("clamp", [False, True])
    @pytest.mark.parametrize(
        ("scenario", "needed"), [(Scenario.EARLIEST, "oldest offset"), (Scenario.LATEST, "end")]
    )
    def test_what_only_the_broker_knows_is_refused_and_the_broker_is_named(
        self, scenario: Scenario, needed: str, clamp: bool
    ) -> None:
        known = Known(ranges_from="Kafka at k1:9092")
        text = rf"--{scenario.value} needs the {needed} of orders\[0\], which only Kafka at k1:9092"
        with pytest.raises(ResetRefused, match=text) as caught:
            plan(known, scenario, clamp=clamp)
        assert caught.value.exit_code == 2
        assert "--from-file" in caught.value.hint

    def test_ranges_are_only_needed_in_scope(self) -> None:
        known = Known(ranges={("payments", 0): Range(5, 90)})
        scope = Scope({"payments": None})
        assert plan(known, Scenario.EARLIEST, scope=scope) == {("payments", 0): 5}
        with pytest.raises(ResetRefused, match=r"orders\[0\]"):
            plan(known, Scenario.EARLIEST)

    def test_an_empty_partition_has_both_edges_in_one_place(self) -> None:
        known = Known(ranges={("t", 0): Range(7, 7)})
        now = Positions({"t": {0: 7}})
        for scenario in (Scenario.EARLIEST, Scenario.LATEST):
            (move,) = plan_reset(now, known, ResetSpec(scenario))
            assert (move.new, move.delta, move.clamped) == (7, 0, False)


class TestCurrent:
    @pytest.mark.parametrize("known", [UNKNOWN, BROKER], ids=["unknown", "known"])
    @pytest.mark.parametrize("clamp", [False, True])
    def test_it_moves_nothing(self, known: Known, clamp: bool) -> None:
        moves = plan_reset(NOW, known, ResetSpec(Scenario.CURRENT, clamp=clamp))
        assert news(moves) == CURRENT
        assert {(move.delta, move.clamped) for move in moves} == {(0, False)}

    def test_what_is_out_of_range_by_now_is_refused_or_clamped(self) -> None:
        """Retention has removed the position: staying there is no longer possible."""
        known = Known(ranges={("payments", 0): Range(80, 90)})
        with pytest.raises(ResetRefused, match=r"payments\[0\] cannot go to 70: it holds 80 to 90"):
            plan(known, Scenario.CURRENT)
        assert plan(known, Scenario.CURRENT, clamp=True) == all_at(50, 60, 80)


class TestOffset:
    def test_unknown_ranges_allow_every_position(self) -> None:
        for number in (0, 55, MAX_OFFSET):
            assert plan(UNKNOWN, Scenario.OFFSET, number=number) == all_at(*[number] * 3)

    @pytest.mark.parametrize("number", [-1, MAX_OFFSET + 1, -(10**30), 10**30])
    def test_what_is_no_position_is_refused_or_clamped(self, number: int) -> None:
        with pytest.raises(ResetRefused, match=r"offsets are from 0 to 2\^63-1") as caught:
            plan(UNKNOWN, Scenario.OFFSET, number=number)
        assert "--clamp" in caught.value.hint
        edge = 0 if number < 0 else MAX_OFFSET
        assert plan(UNKNOWN, Scenario.OFFSET, number=number, clamp=True) == all_at(*[edge] * 3)

    def test_known_ranges_include_both_edges(self) -> None:
        for number in (20, 70):
            assert plan(BROKER, Scenario.OFFSET, number=number) == all_at(*[number] * 3)

    def test_known_ranges_refuse_what_is_beyond(self) -> None:
        with pytest.raises(ResetRefused, match=r"orders\[0\] cannot go to 5: it holds 10 to 100"):
            plan(BROKER, Scenario.OFFSET, number=5)
        with pytest.raises(ResetRefused, match=r"payments\[0\] cannot go to 90: it holds 0 to 70"):
            plan(BROKER, Scenario.OFFSET, number=90)

    def test_clamping_ends_at_the_edge_of_each_and_says_so(self) -> None:
        assert plan(BROKER, Scenario.OFFSET, number=5, clamp=True) == all_at(10, 20, 5)
        moves = plan_reset(NOW, BROKER, ResetSpec(Scenario.OFFSET, number=150, clamp=True))
        assert news(moves) == all_at(100, 150, 70)
        assert [move.clamped for move in moves] == [True, False, True]


class TestShift:
    def test_both_ways(self) -> None:
        assert plan(UNKNOWN, Scenario.SHIFT, number=5) == all_at(55, 65, 75)
        assert plan(BROKER, Scenario.SHIFT, number=-40) == all_at(10, 20, 30)
        assert plan(BROKER, Scenario.SHIFT, number=0) == CURRENT

    def test_beyond_the_edge_it_is_refused_or_clamped(self) -> None:
        with pytest.raises(ResetRefused, match=r"orders\[0\] cannot go to -5: offsets are from 0"):
            plan(UNKNOWN, Scenario.SHIFT, number=-55)
        assert plan(UNKNOWN, Scenario.SHIFT, number=-55, clamp=True) == all_at(0, 5, 15)
        with pytest.raises(ResetRefused, match=r"payments\[0\] cannot go to 71"):
            plan(BROKER, Scenario.SHIFT, number=1)
        assert plan(BROKER, Scenario.SHIFT, number=1, clamp=True) == all_at(51, 61, 70)
        with pytest.raises(ResetRefused):
            plan(UNKNOWN, Scenario.SHIFT, number=MAX_OFFSET)


class TestFile:
    def test_only_what_the_file_has_moves(self) -> None:
        wish = Positions({"orders": {1: 99}})
        assert plan(UNKNOWN, Scenario.FILE, positions=wish) == {("orders", 1): 99}
        assert plan(UNKNOWN, Scenario.FILE, positions=Positions({})) == {}

    def test_only_what_is_in_scope_moves(self) -> None:
        wish = Positions({"orders": {0: 1, 1: 99}, "payments": {0: 3}})
        scope = Scope({"orders": frozenset({1})})
        assert plan(UNKNOWN, Scenario.FILE, positions=wish, scope=scope) == {("orders", 1): 99}

    @pytest.mark.parametrize("place", [("orders", 9), ("refunds", 0)])
    def test_what_the_target_does_not_have_is_not_found(self, place: Partition) -> None:
        wish = Positions.of([Position(*place, 1)])
        with pytest.raises(
            NotFound, match=rf"{place[0]}\[{place[1]}\], which the target"
        ) as caught:
            plan(UNKNOWN, Scenario.FILE, positions=wish)
        assert "offsets import" in caught.value.hint

    def test_ranges_count_here_too(self) -> None:
        wish = Positions({"orders": {0: 5}})
        assert plan(UNKNOWN, Scenario.FILE, positions=wish) == {("orders", 0): 5}
        with pytest.raises(ResetRefused, match="it holds 10 to 100"):
            plan(BROKER, Scenario.FILE, positions=wish)
        assert plan(BROKER, Scenario.FILE, positions=wish, clamp=True) == {("orders", 0): 10}


class TestMoment:
    @pytest.mark.parametrize("clamp", [False, True])
    @pytest.mark.parametrize(
        ("moment", "offset"),
        [(1000, 20), (1001, 20), (1999, 20), (2000, 30), (2999, 30), (3000, 40)],
    )
    def test_the_newest_that_is_not_after_it(self, moment: int, offset: int, clamp: bool) -> None:
        found = plan(PAST, Scenario.MOMENT, moment_ms=moment, clamp=clamp)
        assert found == all_at(offset, offset + 5, offset + 1)

    def test_after_the_newest(self) -> None:
        with pytest.raises(ResetRefused, match="after the newest known point: batch 3, 1970"):
            plan(PAST, Scenario.MOMENT, moment_ms=3001)
        assert plan(PAST, Scenario.MOMENT, moment_ms=3001, clamp=True) == all_at(40, 45, 41)

    @pytest.mark.parametrize("moment", [999, 0, -1, -(10**17)])
    def test_before_the_oldest(self, moment: int) -> None:
        with pytest.raises(ResetRefused, match="before the oldest known point: batch 1"):
            plan(PAST, Scenario.MOMENT, moment_ms=moment)
        assert plan(PAST, Scenario.MOMENT, moment_ms=moment, clamp=True) == all_at(20, 25, 21)

    @pytest.mark.parametrize("clamp", [False, True])
    def test_without_a_past_it_is_refused(self, clamp: bool) -> None:
        known = Known(past_from="commit kept")
        with pytest.raises(ResetRefused, match="there is no commit kept"):
            plan(known, Scenario.MOMENT, moment_ms=2000, clamp=clamp)

    def test_a_partition_that_was_not_there_yet_is_refused_unless_out_of_scope(self) -> None:
        known = Known(past=[Point(1000, Positions({"orders": {0: 20}}), "batch 1")])
        with pytest.raises(ResetRefused, match=r"orders\[1\] had no position yet at batch 1"):
            plan(known, Scenario.MOMENT, moment_ms=1000)
        scope = Scope({"orders": frozenset({0})})
        assert plan(known, Scenario.MOMENT, moment_ms=1000, scope=scope) == {("orders", 0): 20}

    def test_ranges_count_here_too(self) -> None:
        known = Known(ranges={("orders", 0): Range(33, 99)}, past=PAST.past)
        with pytest.raises(ResetRefused, match="it holds 33 to 99"):
            plan(known, Scenario.MOMENT, moment_ms=2000)
        assert plan(known, Scenario.MOMENT, moment_ms=2000, clamp=True) == all_at(33, 35, 31)

    def test_of_two_at_the_same_time_the_later_one_counts(self) -> None:
        points = [Point(1000, Positions({"t": {0: offset}}), "commit") for offset in (1, 2)]
        spec = ResetSpec(Scenario.MOMENT, moment_ms=1000)
        assert news(plan_reset(Positions({"t": {0: 9}}), Known(past=points), spec)) == {("t", 0): 2}

    def test_between_a_point_and_a_gap_nothing_is_known(self) -> None:
        """Commits that are no longer kept may have come right after the point."""
        gap = [Point(p.at_ms, p.value, p.what, gap_after=p.at_ms == 1000) for p in PAST.past]
        known = Known(past=gap)
        assert plan(known, Scenario.MOMENT, moment_ms=1000) == all_at(20, 25, 21)
        with pytest.raises(ResetRefused, match="no record is kept between batch 1") as caught:
            plan(known, Scenario.MOMENT, moment_ms=1999)
        assert "--clamp to use batch 1" in caught.value.hint
        assert plan(known, Scenario.MOMENT, moment_ms=1999, clamp=True) == all_at(20, 25, 21)
        assert plan(known, Scenario.MOMENT, moment_ms=2001) == all_at(30, 35, 31)


class TestScope:
    def test_everything_unless_said(self) -> None:
        assert Scope().has("orders", 7)
        assert plan(UNKNOWN, Scenario.OFFSET, number=1).keys() == CURRENT.keys()

    def test_a_topic_with_all_its_partitions(self) -> None:
        scope = Scope({"orders": None})
        assert plan(UNKNOWN, Scenario.OFFSET, number=1, scope=scope) == {
            ("orders", 0): 1,
            ("orders", 1): 1,
        }

    def test_some_partitions_of_several_topics(self) -> None:
        scope = Scope({"orders": frozenset({1}), "payments": None})
        assert plan(UNKNOWN, Scenario.OFFSET, number=1, scope=scope).keys() == {
            ("orders", 1),
            ("payments", 0),
        }

    def test_no_topics_are_not_all_topics(self) -> None:
        assert plan(UNKNOWN, Scenario.OFFSET, number=1, scope=Scope({})) == {}
        assert not Scope({}).has("orders", 0)
        assert not Scope({"orders": frozenset()}).has("orders", 0)

    @pytest.mark.parametrize("scenario", [s for s in Scenario if s is not Scenario.FILE])
    def test_what_is_not_there_is_a_typing_error_and_not_an_empty_reset(
        self, scenario: Scenario
    ) -> None:
        with pytest.raises(NotFound, match="no topic 'order'; known topics: orders, payments"):
            plan(BROKER, scenario, scope=Scope({"order": None}))
        with pytest.raises(NotFound, match="topic 'orders' has no partition 5"):
            plan(BROKER, scenario, scope=Scope({"orders": frozenset({0, 5, 9})}))

    def test_no_positions_at_all(self) -> None:
        with pytest.raises(NotFound, match="known topics: none"):
            check_scope(Positions({}), Scope({"orders": None}))
        assert plan_reset(Positions({}), UNKNOWN, ResetSpec(Scenario.CURRENT)) == []


class TestWords:
    @pytest.mark.parametrize("new", [0, 49, 50, 51, 1050])
    def test_forward_is_positive(self, new: int) -> None:
        now = Positions({"t": {0: 50}})
        moves = plan_reset(now, UNKNOWN, ResetSpec(Scenario.OFFSET, number=new))
        assert moves == [Move("t", 0, 50, new)]
        assert moves[0].delta == new - 50

    @pytest.mark.parametrize(
        ("spec", "text"),
        [
            (ResetSpec(Scenario.EARLIEST), "to-earliest"),
            (ResetSpec(Scenario.OFFSET, number=12), "to-offset 12"),
            (ResetSpec(Scenario.SHIFT, number=12), "shift-by +12"),
            (ResetSpec(Scenario.SHIFT, number=-12), "shift-by -12"),
            (ResetSpec(Scenario.MOMENT, moment_ms=0), "to-datetime 1970-01-01T00:00:00Z"),
            (ResetSpec(Scenario.FILE), "from-file"),
        ],
    )
    def test_a_wish_in_the_operators_words(self, spec: ResetSpec, text: str) -> None:
        assert str(spec) == text


# With --clamp, that is: they need to know nothing.
NEVER_REFUSED = (Scenario.CURRENT, Scenario.OFFSET, Scenario.SHIFT)
topics = some.sampled_from(["orders", "payments", "refunds"])
offsets = some.sampled_from([0, 1, 49, 50, 51, 100, MAX_OFFSET - 1, MAX_OFFSET])
positions = some.dictionaries(
    topics,
    some.dictionaries(some.integers(0, 3), offsets, min_size=1, max_size=3),
    min_size=1,
    max_size=2,
).map(Positions)
shifts = some.integers(-(2**64), 2**64) | some.integers(-100, 100)


@some.composite
def ranges_of(draw: some.DrawFn, now: Positions) -> dict[Partition, Range]:
    """The ranges of some of the partitions, which need not hold the positions."""
    known = {}
    for each in now:
        if draw(some.booleans()):
            low, high = sorted((draw(offsets), draw(offsets)))
            known[each.topic, each.partition] = Range(low, high)
    return known


@some.composite
def scopes_of(draw: some.DrawFn, now: Positions) -> Scope:
    if draw(some.booleans()):
        return Scope()
    chosen = draw(some.sets(some.sampled_from(sorted(now.by_topic))))
    return Scope(
        {
            topic: draw(
                some.none() | some.frozensets(some.sampled_from(sorted(now.by_topic[topic])))
            )
            for topic in sorted(chosen)
        }
    )


@some.composite
def wishes(draw: some.DrawFn) -> tuple[Positions, Known, ResetSpec]:
    """Anything that can be asked for, refused or not."""
    now = draw(positions)
    points = some.builds(
        Point, some.integers(0, 9), positions | some.just(now), some.just("batch"), some.booleans()
    )
    past = some.lists(points, max_size=3).map(lambda found: sorted(found, key=lambda p: p.at_ms))
    known = Known(draw(ranges_of(now)), draw(past))
    spec = ResetSpec(
        draw(some.sampled_from(Scenario)),
        draw(scopes_of(now)),
        number=draw(shifts),
        moment_ms=draw(some.integers(-1, 10)),
        positions=draw(positions | some.just(now)),
        clamp=draw(some.booleans()),
    )
    return now, known, spec


@given(wishes())
def test_new_positions_are_in_range_and_in_scope_and_moves_are_consistent(
    wish: tuple[Positions, Known, ResetSpec],
) -> None:
    now, known, spec = wish
    before = repr(wish)
    try:
        moves = plan_reset(now, known, spec)
    except (ResetRefused, NotFound):
        assert not spec.clamp or spec.scenario not in NEVER_REFUSED
        return
    assert moves == plan_reset(now, known, spec)
    assert repr(wish) == before, "it is pure"
    places = [(move.topic, move.partition) for move in moves]
    assert places == sorted(set(places))
    for move in moves:
        limits = known.ranges.get((move.topic, move.partition), Range(0, MAX_OFFSET))
        assert limits.earliest <= move.new <= limits.latest
        assert spec.scope.has(move.topic, move.partition)
        assert move.old == now.get(move.topic, move.partition)
        assert move.delta == move.new - move.old
        assert not move.clamped or (spec.clamp and move.new in (limits.earliest, limits.latest))
    inside = {(p.topic, p.partition) for p in now if spec.scope.has(p.topic, p.partition)}
    if spec.scenario is not Scenario.FILE:
        assert set(places) == inside


@given(some.data(), positions)
def test_to_current_moves_nothing(data: some.DataObject, now: Positions) -> None:
    spec = ResetSpec(Scenario.CURRENT, data.draw(scopes_of(now)), clamp=data.draw(some.booleans()))
    assert not any(move.delta for move in plan_reset(now, UNKNOWN, spec))


@given(positions, shifts)
def test_shifting_there_and_back_is_where_it_was(now: Positions, by: int) -> None:
    try:
        there = plan_reset(now, UNKNOWN, ResetSpec(Scenario.SHIFT, number=by))
    except ResetRefused:
        return
    assert {move.delta for move in there} == {by}
    shifted = Positions.of(Position(move.topic, move.partition, move.new) for move in there)
    back = plan_reset(shifted, UNKNOWN, ResetSpec(Scenario.SHIFT, number=-by))
    assert news(back) == {(p.topic, p.partition): p.offset for p in now}


@given(some.data(), positions)
def test_a_file_of_the_current_positions_moves_nothing(
    data: some.DataObject, now: Positions
) -> None:
    spec = ResetSpec(Scenario.FILE, data.draw(scopes_of(now)), positions=now)
    moves = plan_reset(now, UNKNOWN, spec)
    assert not any(move.delta for move in moves)
    assert len(moves) == sum(spec.scope.has(p.topic, p.partition) for p in now)


class TestTimeline:
    """Newest first: 30 (c), 20 (b; what came after it is lost), 10 (a)."""

    POINTS = (
        Point(30, "c", "batch 3"),
        Point(20, "b", "batch 2", gap_after=True),
        Point(10, "a", "batch 1"),
    )

    @pytest.mark.parametrize(
        ("moment", "found"), [(10, "a"), (11, "a"), (19, "a"), (20, "b"), (30, "c")]
    )
    def test_the_newest_that_is_not_after_it(self, moment: int, found: str) -> None:
        assert Timeline(self.POINTS).at(moment).value == found

    @pytest.mark.parametrize(
        ("moment", "text", "nearest"),
        [
            (31, "after the newest known point: batch 3", "c"),
            (9, "before the oldest known point: batch 1", "a"),
            (25, "no record is kept between batch 2", "b"),
        ],
    )
    def test_a_time_outside_is_refused_or_taken_for_the_nearest(
        self, moment: int, text: str, nearest: str
    ) -> None:
        for clamp, hinted in ((None, False), (False, True)):
            with pytest.raises(TimeNotKnown, match=text) as caught:
                Timeline(self.POINTS).at(moment, clamp=clamp)
            assert ("--clamp" in caught.value.hint) is hinted
        assert Timeline(self.POINTS).at(moment, clamp=True).value == nearest

    def test_the_next_command_shows_the_times(self) -> None:
        with pytest.raises(TimeNotKnown) as caught:
            Timeline(self.POINTS, "/data/my orders").at(31)
        assert caught.value.hint.endswith("sluicegate checkpoint list '/data/my orders'")
        assert caught.value.place == "/data/my orders"

    def test_where_nothing_is_kept(self) -> None:
        with pytest.raises(TimeNotKnown, match="no record is kept"):
            Timeline[str](()).at(1, clamp=True)

    def test_no_more_is_read_than_needed(self) -> None:
        points = iter(self.POINTS)
        assert Timeline(points).at(30).value == "c"
        assert next(points).value == "b"
