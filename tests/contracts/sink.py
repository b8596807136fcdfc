"""The contract of every kind of sink; each kind has a subclass that tests it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sluicegate.positions import Positions
from sluicegate.sinks.base import (
    DATA,
    PENDING,
    PUBLISHED,
    REJECTS,
    Output,
    Reach,
    Settled,
    Sink,
    SinkFenced,
    SnapshotName,
)

REACH = Reach(3, Positions({"events": {0: 5}}), Positions({"events": {0: 9, 1: 2}}))


def name(number: int, letter: str = "a") -> SnapshotName:
    return SnapshotName(number, letter * 32)


class SinkContract:
    """Of an empty sink: `opened` is what a process does, `write` what its tasks do."""

    @pytest.fixture
    def opened(self) -> Callable[[], Sink]:
        """Opens the sink, as another process would."""
        raise NotImplementedError

    @pytest.fixture
    def write(self) -> Callable[[Sink, str, str], Output]:
        """Write a file of each kind for an attempt, given its nonce; the text is its content."""
        raise NotImplementedError

    @pytest.fixture
    def visible(self) -> Callable[[], list[str]]:
        """What a reader sees who knows nothing of Sluicegate: the texts of all rows, sorted."""
        raise NotImplementedError

    @pytest.fixture
    def sink(self, opened: Callable[[], Sink]) -> Sink:
        sink = opened()
        sink.fence(name(1, "1"))
        return sink

    def staged(self, sink: Sink, write: Callable[..., Output], nonce: str) -> Output:
        output = write(sink, nonce, f"rows of {nonce[0]}")
        sink.stage(nonce, output, REACH)
        return output

    def test_nothing_is_visible_before_it_is_published(
        self, sink: Sink, write: Callable[..., Output], visible: Callable[[], list[str]]
    ) -> None:
        output = self.staged(sink, write, "a" * 32)
        [file] = output.files[DATA]
        assert (visible(), sink.published()) == ([], {})
        assert sink.status(name(2), DATA, file) == PENDING
        assert sink.publish(name(2), output.kinds) == []
        assert visible() == ["rows of a"]
        assert {n: set(kinds) for n, kinds in sink.published().items()} == {
            name(2): {DATA, REJECTS}
        }
        assert sink.status(name(2), DATA, file, read=True) == PUBLISHED

    def test_publishing_again_changes_nothing(
        self, sink: Sink, write: Callable[..., Output], visible: Callable[[], list[str]]
    ) -> None:
        output = self.staged(sink, write, "a" * 32)
        for _ in range(3):
            assert sink.publish(name(2), output.kinds) == []
        assert visible() == ["rows of a"]

    def test_output_says_which_events_it_holds(
        self, sink: Sink, write: Callable[..., Output]
    ) -> None:
        output = self.staged(sink, write, "a" * 32)
        sink.publish(name(2), output.kinds)
        assert sink.reach(name(2)) == REACH
        assert sink.reach(name(2, "b")) is None

    def test_the_same_number_with_another_nonce_is_another_output(
        self, sink: Sink, write: Callable[..., Output], visible: Callable[[], list[str]]
    ) -> None:
        for letter in "ab":
            output = self.staged(sink, write, letter * 32)
            sink.publish(name(2, letter), output.kinds)
        assert set(sink.published()) == {name(2, "a"), name(2, "b")}
        sink.withdraw(name(2, "a"))
        assert visible() == ["rows of b"]

    def test_what_is_nowhere_is_named(self, sink: Sink) -> None:
        assert sink.publish(name(2), [DATA]) == [DATA]

    def test_withdrawn_output_can_be_published_again(
        self,
        opened: Callable[[], Sink],
        sink: Sink,
        write: Callable[..., Output],
        visible: Callable[[], list[str]],
    ) -> None:
        output = self.staged(sink, write, "a" * 32)
        sink.publish(name(2), output.kinds)
        sink.withdraw(name(2))
        sink.withdraw(name(2))
        assert (visible(), sink.published()) == ([], {})
        later = opened()
        later.fence(name(5, "5"))
        assert later.publish(name(2), output.kinds) == []
        assert visible() == ["rows of a"]

    def test_a_later_claim_fences_off_an_earlier_one(
        self,
        opened: Callable[[], Sink],
        sink: Sink,
        write: Callable[..., Output],
        visible: Callable[[], list[str]],
    ) -> None:
        output = self.staged(sink, write, "a" * 32)
        other = self.staged(sink, write, "b" * 32)
        sink.publish(name(2, "b"), other.kinds)
        later = opened()
        later.fence(name(3, "3"))
        for act in (
            lambda: sink.publish(name(4), output.kinds),
            lambda: sink.withdraw(name(2, "b")),
            lambda: sink.fence(name(1, "1")),
        ):
            with pytest.raises(SinkFenced):
                act()
        assert visible() == ["rows of b"]
        # What was staged belongs to the later claim now.
        assert later.publish(name(4), output.kinds) == []
        assert visible() == ["rows of a", "rows of b"]

    def test_two_claims_of_one_number_are_both_refused(
        self, opened: Callable[[], Sink], sink: Sink
    ) -> None:
        """Two copies of one home: neither of them knows of the other."""
        with pytest.raises(SinkFenced):
            opened().fence(name(1, "2"))

    def test_claims_are_remembered(self, opened: Callable[[], Sink], sink: Sink) -> None:
        assert opened().claims() == [name(1, "1")]
        opened().fence(name(7, "7"))
        assert opened().claims()[-1] == name(7, "7")

    def test_what_was_never_committed_is_cleared_away(
        self,
        opened: Callable[[], Sink],
        sink: Sink,
        write: Callable[..., Output],
        visible: Callable[[], list[str]],
    ) -> None:
        output = self.staged(sink, write, "a" * 32)
        self.staged(sink, write, "b" * 32)
        later = opened()
        later.fence(name(3, "3"))
        later.clear(name(2))
        assert visible() == []
        # The newest epoch was committed, and a rollback of it may be undone.
        assert later.publish(name(2), output.kinds) == []
        assert visible() == ["rows of a"]

    def test_dropped_is_gone(
        self, sink: Sink, write: Callable[..., Output], visible: Callable[[], list[str]]
    ) -> None:
        output = self.staged(sink, write, "a" * 32)
        sink.drop("a" * 32)
        assert sorted(sink.publish(name(2), output.kinds)) == sorted(output.kinds)
        assert visible() == []

    def test_what_was_settled(self, opened: Callable[[], Sink], sink: Sink) -> None:
        assert sink.settled() is None
        settled = Settled(name(9), ((0, 4), (7, 9)), "digest")
        sink.settle(settled)
        assert opened().settled() == settled
