"""The logs of a checkpoint, read from texts as Spark writes them (SPARK.md has the grammar)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.checkpoint.format.log import (
    LogListing,
    LogSize,
    OffsetKind,
    list_log,
    measure,
    missing_numbers,
    needed_files,
    read_commit,
    read_offsets,
    read_sink_files,
    read_source_files,
)
from sluicegate.checkpoint.format.operators import read_operator
from sluicegate.checkpoint.view import operator_ids, read_query_id
from sluicegate.errors import Corrupt, NotFound, UnsupportedFormat
from sluicegate.positions import Positions
from sluicegate.storage import LocalStorage
from tests.checkpoint.fuzz import feed

CONF = '"conf":{"spark.sql.shuffle.partitions":"2"}'
V1 = 'v1\n{"batchWatermarkMs":7,"batchTimestampMs":8,' + CONF + '}\n{"orders":{"0":5,"1":6}}\n-'
V2 = (
    'v2\n{"batchWatermarkMs":0,"batchTimestampMs":1,' + CONF + ',"sourceMetadataInfo":{}}\n'
    'source_1:{"logOffset":3}\nsource_0:12'
)
COMMIT_V2 = 'v2\n{"nextBatchWatermarkMs":5,"stateUniqueIds":{"0":[["a","b"],["c","d"]]}}'
COMMIT_V3 = 'v3\n{"nextBatchWatermarkMs":0,"sinkMetadataMap":{"x":{}}}'
SOURCE_LOG = (
    'v1\n{"path":"file:///in/a.json","timestamp":1,"batchId":0}'
    '\n{"path":"file:///in/b.json","timestamp":2,"batchId":1}'
)
SINK_LOG = (
    'v1\n{"path":"file:///out/p.parquet","size":10,"isDir":false,"modificationTime":3,'
    '"blockReplication":1,"blockSize":1,"action":"add"}'
)
OPERATOR = (
    'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"dedupe"},"stateStoreInfo":'
    '[{"storeName":"default","numColsPrefixKey":0,"numPartitions":2}]}'
)

Put = Callable[[str, "str | bytes"], LocalStorage]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def write(key: str, text: str | bytes) -> LocalStorage:
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return LocalStorage(tmp_path)

    return write


class TestListing:
    def test_names_are_distinguished(self, put: Put) -> None:
        for name in ("0", "10", "9", "9.compact", ".9.crc", ".11.ab-cd.tmp", "x", "007", "1.5"):
            storage = put(f"log/{name}", "v1")
        listing = list_log(storage, "log")
        assert listing == LogListing((0, 9, 10), (9,), (".11.ab-cd.tmp",))
        assert (listing.last, listing.last_compact) == (10, 9)

    def test_a_missing_directory(self, put: Put) -> None:
        listing = list_log(put("x", ""), "log")
        assert (listing.exists, listing.last) == (False, None)

    def test_a_hundred_thousand_batches_are_listed_in_little_memory(self, tmp_path: Path) -> None:
        directory = tmp_path / "offsets"
        directory.mkdir()
        for number in range(20_000):
            (directory / str(number)).touch()
        tracemalloc.start()
        assert list_log(LocalStorage(tmp_path), "offsets").last == 19_999
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak / 20_000 * 200_000 < 150 << 20


class TestOffsets:
    def test_version_1(self, put: Put) -> None:
        entry = read_offsets(put("offsets/4", V1), 4)
        assert (entry.batch, entry.version) == (4, 1)
        assert (entry.watermark_ms, entry.timestamp_ms, entry.partitions) == (7, 8, 2)
        kafka, none = entry.offsets
        assert (kafka.source, kafka.kind) == ("0", OffsetKind.KAFKA)
        assert kafka.positions == Positions({"orders": {0: 5, 1: 6}})
        assert (none.kind, none.text) == (OffsetKind.NONE, None)

    def test_version_2(self, put: Put) -> None:
        entry = read_offsets(put("offsets/4", V2), 4)
        assert [(o.source, o.kind, o.number) for o in entry.offsets] == [
            ("source_0", OffsetKind.NUMBER, 12),
            ("source_1", OffsetKind.FILE, 3),
        ]
        assert entry.extra == {"sourceMetadataInfo": {}}

    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ('{"next": 72}', OffsetKind.OTHER),
            ('{"offset":12,"timestamp":17}', OffsetKind.OTHER),
            ('{"t":{"0":-1}}', OffsetKind.OTHER),
            ("{}", OffsetKind.OTHER),
            ("[1]", OffsetKind.OTHER),
            ("true", OffsetKind.OTHER),
            ("17", OffsetKind.NUMBER),
            ("2024-01-01 00:00:00", OffsetKind.OTHER),
        ],
    )
    def test_other_sources(self, put: Put, text: str, kind: OffsetKind) -> None:
        (offset,) = read_offsets(put("offsets/0", f"v1\n{{}}\n{text}"), 0).offsets
        assert (offset.kind, offset.text) == (kind, text)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "the file is empty"),
            ("v1", "batch metadata is missing"),
            ("v1\n", "batch metadata is missing"),
            ("x1\n{}", "not a version line"),
            ("v1\n{}", "there are no sources"),
            ("v1\n{}\n{", "not valid JSON"),
            ('v1\n{}\n{"a":', "not valid JSON"),
            ("v1\n[]\n5", "expected a JSON object"),
            ('v1\n{"batchWatermarkMs":"x"}\n5', "batchWatermarkMs is 'x'"),
            ('v1\n{"conf":{"a":1}}\n5', "conf is not an object of texts"),
            ('v1\n{"batchTimestampMs":99999999999999999999}\n5', "not an integer"),
            ("v2\n{}\n5", "not a source and its offset"),
            ("v2\n{}\na:1\na:2", "not a source and its offset"),
            ("v2\n{}\na:", "empty offset"),
        ],
    )
    def test_damage(self, put: Put, text: str, message: str) -> None:
        with pytest.raises(Corrupt, match=message) as caught:
            read_offsets(put("offsets/3", text), 3)
        assert caught.value.place
        assert caught.value.place.endswith("offsets/3")

    def test_every_cut_is_noticed(self, put: Put) -> None:
        """Except before the last line, where what is left is a shorter valid file."""
        for length in range(len(V1) - 2):
            with pytest.raises(Corrupt):
                read_offsets(put("offsets/3", V1[:length]), 3)

    def test_an_empty_line_of_metadata_is_what_old_releases_wrote(self, put: Put) -> None:
        entry = read_offsets(put("offsets/3", 'v1\n\n{"t":{"0":1}}'), 3)
        assert (entry.timestamp_ms, entry.offsets[0].kind) == (0, OffsetKind.KAFKA)

    def test_absurd_partition_counts(self, put: Put) -> None:
        conf = CONF.replace('"2"', '"' + "9" * 5000 + '"')
        assert read_offsets(put("offsets/3", f"v1\n{{{conf}}}\n5"), 3).partitions is None

    def test_a_newer_version(self, put: Put) -> None:
        with pytest.raises(UnsupportedFormat, match="log version 3; this release reads up to 2"):
            read_offsets(put("offsets/3", "v3\n{}\n5"), 3)

    def test_missing(self, put: Put) -> None:
        with pytest.raises(NotFound):
            read_offsets(put("x", ""), 3)


class TestCommits:
    def test_versions(self, put: Put) -> None:
        assert read_commit(put("commits/1", "v1"), 1).next_watermark_ms == 0
        assert read_commit(put("commits/1", 'v1\n{"nextBatchWatermarkMs":9}'), 1) == read_commit(
            put("commits/1", 'v1\n{"nextBatchWatermarkMs":9}\n'), 1
        )
        entry = read_commit(put("commits/1", COMMIT_V2), 1)
        assert entry.state_ids == {0: (("a", "b"), ("c", "d"))}
        assert read_commit(put("commits/1", COMMIT_V3), 1).extra == {"sinkMetadataMap": {"x": {}}}

    @pytest.mark.parametrize(
        "text",
        ["", "v0", "hello", "v1\n{", "v1\n5", 'v2\n{"stateUniqueIds":{"x":[]}}',
         'v2\n{"stateUniqueIds":{"0":5}}', 'v2\n{"stateUniqueIds":[1]}'],
    )  # fmt: skip
    def test_damage(self, put: Put, text: str) -> None:
        with pytest.raises(Corrupt):
            read_commit(put("commits/1", text), 1)


class TestFileLogs:
    def test_source(self, put: Put) -> None:
        files = list(read_source_files(put("sources/0/1", SOURCE_LOG), "sources/0/1"))
        assert [(f.path, f.batch) for f in files] == [
            ("file:///in/a.json", 0),
            ("file:///in/b.json", 1),
        ]

    def test_sink(self, put: Put) -> None:
        (file,) = read_sink_files(put("_spark_metadata/0", SINK_LOG), "_spark_metadata/0")
        assert (file.path, file.size, file.action) == ("file:///out/p.parquet", 10, "add")

    def test_an_empty_batch_is_a_bare_version(self, put: Put) -> None:
        assert list(read_sink_files(put("_spark_metadata/0", "v1"), "_spark_metadata/0")) == []

    def test_a_cut_line_names_its_number(self, put: Put) -> None:
        storage = put("sources/0/1", SOURCE_LOG[:-3])
        with pytest.raises(Corrupt, match="sources/0/1, line 3: not valid JSON"):
            list(read_source_files(storage, "sources/0/1"))

    def test_which_files_are_needed_and_which_are_missing(self) -> None:
        complete = LogListing((0, 1, 2, 3, 5, 6), (4,))
        assert needed_files(complete) == ("4.compact", "5", "6")
        assert missing_numbers(complete) == []
        assert missing_numbers(LogListing((0, 2))) == [range(1, 2)]
        assert missing_numbers(LogListing((0, 1, 6), (4,))) == [range(5, 6)]
        assert missing_numbers(LogListing()) == []

    def test_a_huge_compact_file_is_streamed(self, put: Put, tmp_path: Path) -> None:
        line = b'\n{"path":"file:///in/a.json","timestamp":1,"batchId":0}'
        storage = put("sources/0/9.compact", b"v1" + line * 100_000)
        tracemalloc.start()
        assert sum(1 for _ in read_source_files(storage, "sources/0/9.compact")) == 100_000
        size = measure(storage, "sources/0", list_log(storage, "sources/0"))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert size == LogSize(100_000, 2 + len(line) * 100_000)
        assert peak < 16 << 20

    def test_a_line_without_end_is_refused(self, put: Put) -> None:
        storage = put("sources/0/0", b"v1\n" + b"x" * (20 << 20))
        with pytest.raises(Corrupt, match="a line is longer"):
            list(read_source_files(storage, "sources/0/0"))


class TestOperators:
    def test_by_metadata(self, put: Put) -> None:
        storage = put("state/0/_metadata/metadata", OPERATOR)
        put("state/_x/ignored", "")
        assert operator_ids(storage) == [0]
        operator = read_operator(storage, 0)
        assert (operator.name, operator.stores[0].partitions) == ("dedupe", 2)

    def test_without_metadata(self, put: Put) -> None:
        storage = put("state/3/0/1.delta", b"")
        assert operator_ids(storage) == [3]
        assert read_operator(storage, 3).name is None

    def test_version_2_wins(self, put: Put) -> None:
        put("state/0/_metadata/metadata", OPERATOR)
        put("state/0/_metadata/v2/0", OPERATOR)
        newest = OPERATOR.replace("v1", "v2").replace(
            '"numPartitions":2', '"numPartitions":3,"stateSchemaFilePaths":["file:/x"]'
        )
        (store,) = read_operator(put("state/0/_metadata/v2/12", newest), 0).stores
        assert (store.partitions, store.schema_paths) == (3, ("file:/x",))


def _read_offsets(storage: LocalStorage) -> object:
    return read_offsets(storage, 0)


def _read_metadata(storage: LocalStorage) -> object:
    return read_query_id(storage)


def _read_commit(storage: LocalStorage) -> object:
    return read_commit(storage, 0)


def _read_source(storage: LocalStorage) -> object:
    return list(read_source_files(storage, "sources/0/0"))


def _read_sink(storage: LocalStorage) -> object:
    return list(read_sink_files(storage, "_spark_metadata/0"))


def _read_operator(storage: LocalStorage) -> object:
    return read_operator(storage, 0)


@pytest.mark.parametrize(
    ("key", "originals", "read"),
    [
        ("offsets/0", [V1, V2], _read_offsets),
        ("commits/0", [COMMIT_V2, COMMIT_V3], _read_commit),
        ("metadata", ['{"id":"1c450517-6386-4903-b137-0cce41d8af30"}'], _read_metadata),
        ("sources/0/0", [SOURCE_LOG], _read_source),
        ("_spark_metadata/0", [SINK_LOG], _read_sink),
        ("state/0/_metadata/metadata", [OPERATOR], _read_operator),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_ten_thousand_damaged_files(
    put: Put, key: str, originals: list[str], read: Callable[[LocalStorage], object]
) -> None:
    feed([text.encode() for text in originals], lambda data: read(put(key, data)))
