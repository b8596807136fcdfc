"""The contract of every kind of source; each kind has a subclass that tests it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from sluicegate.errors import SluicegateError
from sluicegate.positions import Positions
from sluicegate.sources.base import Chunk, Reached, Slice, Source, complete, open_source


class SourceContract:
    """Of a source with two empty partitions, and a way to write to it."""

    @pytest.fixture
    def source(self) -> Source:
        raise NotImplementedError

    @pytest.fixture
    def write(self) -> Callable[[int, Sequence[bytes]], None]:
        """Write records to a partition."""
        raise NotImplementedError

    @pytest.fixture
    def replace(self) -> Callable[[], None]:
        """Another source in the same place, with the same records."""
        raise NotImplementedError

    @pytest.fixture
    def go_back(self) -> Callable[[int], None]:
        """The last records of partition 0 are lost, so many remain: a backup was restored."""
        raise NotImplementedError

    def topic(self, source: Source) -> str:
        [topic] = source.identity()
        return topic

    def read(self, source: Source, spark: Any, *spans: tuple[int, int, int]) -> list[Any]:
        """What tasks read of slices, each in a task of its own."""
        slices = [Slice(self.topic(source), *span) for span in spans]
        scan = source.scan(spark, slices)
        assert scan.slices == tuple(slices)
        return [each for batch in spark.batches(scan.frame) for each in scan.read(iter([batch]))]

    def test_positions_begin_and_end_where_records_do(
        self, source: Source, write: Callable[..., None]
    ) -> None:
        topic = self.topic(source)
        assert source.earliest() == source.latest() == Positions({topic: {0: 0, 1: 0}})
        write(0, [b"{}"] * 3)
        assert source.latest() == Positions({topic: {0: 3, 1: 0}})
        assert source.earliest() == Positions({topic: {0: 0, 1: 0}})

    def test_slices_are_read_and_reported_once(
        self, source: Source, write: Callable[..., None], tasks: Any
    ) -> None:
        write(0, [b'{"a":%d}' % n for n in range(10)])
        write(1, [b'{"b":%d}' % n for n in range(5)])
        found = self.read(source, tasks, (0, 2, 7), (1, 0, 5))
        lines = {
            p: b"".join(c.data for c in found if isinstance(c, Chunk) and c.partition == p)
            for p in (0, 1)
        }
        assert lines[0] == b"".join(b'{"a":%d}\n' % n for n in range(2, 7))
        assert lines[1] == b"".join(b'{"b":%d}\n' % n for n in range(5))
        reached = [each for each in found if isinstance(each, Reached)]
        assert [(r.partition, r.start, r.end) for r in reached] == [(0, 2, 7), (1, 0, 5)]

    def test_what_is_not_there_is_not_read_in_part(
        self, source: Source, write: Callable[..., None], tasks: Any
    ) -> None:
        write(0, [b"{}"] * 3)
        with pytest.raises(SluicegateError):
            self.read(source, tasks, (0, 1, 9))

    def test_fingerprints_are_those_of_the_last_record(
        self, source: Source, write: Callable[..., None], tasks: Any
    ) -> None:
        topic = self.topic(source)
        write(0, [b'{"a":%d}' % n for n in range(10)])
        [reached] = [r for r in self.read(source, tasks, (0, 0, 10)) if isinstance(r, Reached)]
        assert reached.fingerprint == source.fingerprint(topic, 0, 10)
        assert reached.fingerprint != source.fingerprint(topic, 0, 9)
        write(0, [b'{"a":10}'])
        assert reached.fingerprint == source.fingerprint(topic, 0, 10)
        [one] = [r for r in self.read(source, tasks, (0, 9, 10)) if isinstance(r, Reached)]
        assert one.fingerprint == reached.fingerprint

    def test_other_records_have_other_fingerprints(
        self,
        source: Source,
        write: Callable[..., None],
        go_back: Callable[[int], None],
    ) -> None:
        topic = self.topic(source)
        write(0, [b'{"a":%d}' % n for n in range(10)])
        before = source.fingerprint(topic, 0, 10)
        go_back(5)
        with suppress(SluicegateError):
            # A process that had it open may notice at once.
            source.latest()
        write(0, [b'{"b":%d}' % n for n in range(10)])
        assert source.fingerprint(topic, 0, 10) != before

    def test_another_source_in_its_place_is_refused(
        self, source: Source, replace: Callable[[], None]
    ) -> None:
        [identity] = source.identity().values()
        replace()
        with pytest.raises(SluicegateError):
            open_source(source.uri, identity)

    def test_new_partitions_start_at_their_beginning(
        self, source: Source, write: Callable[..., None]
    ) -> None:
        topic = self.topic(source)
        write(0, [b"{}"] * 3)
        assert complete(source, Positions({topic: {0: 2}})) == Positions({topic: {0: 2, 1: 0}})
        with pytest.raises(SluicegateError):
            complete(source, Positions({topic: {0: 4}}))

    def test_what_was_read_is_made_durable(
        self, source: Source, write: Callable[..., None]
    ) -> None:
        write(0, [b"{}"] * 3)
        source.sync(source.latest())
        with pytest.raises(SluicegateError):
            source.sync(Positions({self.topic(source): {0: 9}}))
