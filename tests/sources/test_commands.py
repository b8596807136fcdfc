"""The commands that ask the log of a stream: init, offsets lag, offsets reset, status."""

from __future__ import annotations

import json
import shutil
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluicegate.config import load_config
from sluicegate.errors import SluicegateError
from sluicegate.positions import Positions
from sluicegate.producer.log_producer import LogProducer
from sluicegate.sources.log.log import Log
from sluicegate.sources.log.writer import LogWriter
from sluicegate.stream.snapshot import Manifest
from sluicegate.stream.spec import pins_now
from sluicegate.stream.stream import open_stream
from sluicegate.stream.writer import StreamWriter, check_pins
from tests.conftest import Sg
from tests.stream.streams import stamps_of

TABLE = """
[streams.clicks]
source = "log"
stamp = ["producer", "partition", "seq"]
columns = { price = "long" }
key = "user"
shards = 4

[streams.orders]
source = "kafka://broker:9092/orders"
"""


@pytest.fixture
def log(sg: Sg, tmp_path: Path) -> Log:
    """A home, a configuration with two streams, and a log of 30 and 20 records."""
    assert sg("init", "--yes").returncode == 0
    (tmp_path / "sluicegate.toml").write_text(TABLE)
    made = Log.create(str(tmp_path / "log"), 2, "clicks")
    for partition, count in ((0, 30), (1, 20)):
        with LogWriter(made.uri, partition, segment_bytes=50) as writer:
            for _ in range(count // 10):
                writer.append([b'{"n":1}'] * 10)
    return made


def begun(log: Log, *offsets: int) -> None:
    """The stream, with a dedup log, at these positions."""
    root = Path(log.uri).parent / ".sluicegate" / "clicks"
    root.mkdir()
    stream = open_stream(str(root), read_only=False)
    StreamWriter(stream).genesis(
        Positions({"clicks": dict(enumerate(offsets))}),
        pins={"source": log.uri, "incarnation": log.incarnation},
        content={"dedup": Manifest(stamps_of(stream, {0: (0, 1)}, "before"))},
    )


def document(sg: Sg, *arguments: str, code: int = 0) -> dict[str, Any]:
    result = sg(*arguments, "--json")
    assert result.returncode == code, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


class TestInit:
    @pytest.mark.parametrize(
        ("given", "positions"),
        [((), [10, 0]), (("--from", "earliest"), [10, 0]), (("--from", "latest"), [30, 20])],
    )
    def test_a_stream_begins_at_an_end_of_its_log(
        self, sg: Sg, log: Log, given: tuple[str, ...], positions: list[int]
    ) -> None:
        log.trim(0, 10)
        assert sg("init", "--stream", "clicks", *given, "--yes").returncode == 0
        found = document(sg, "checkpoint", "inspect", "clicks")
        assert found["positions"] == {"clicks": {"0": positions[0], "1": positions[1]}}
        assert found["pins"]["incarnation"] == log.incarnation

    def test_offsets_that_the_log_does_not_hold(self, sg: Sg, log: Log, tmp_path: Path) -> None:
        log.trim(0, 10)
        wrong = {'{"clicks":{"0":9}}': "holds 10 to 30", '{"clicks":{"2":0}}': "has no clicks[2]"}
        for text, problem in wrong.items():
            (tmp_path / "start.json").write_text(text)
            refused = sg("init", "--stream", "clicks", "--offsets", "start.json", "--yes")
            assert (refused.returncode, problem in refused.stderr) == (10, True)
        both = sg("init", "--stream", "clicks", "--offsets", "start.json", "--from", "latest", "-n")
        assert (both.returncode, "exclude each other" in both.stderr) == (2, True)
        assert not (tmp_path / ".sluicegate" / "clicks").exists()

    def test_kafka_needs_offsets(self, sg: Sg, log: Log, tmp_path: Path) -> None:
        refused = sg("init", "--stream", "orders", "--yes")
        assert refused.returncode == 2
        assert "only the broker knows" in refused.stderr
        assert "--offsets FILE" in refused.stderr
        (tmp_path / "start.json").write_text('{"orders":{"0":12}}')
        given = sg("init", "--stream", "orders", "--offsets", "start.json", "--yes")
        assert given.returncode == 0

    def test_a_log_that_is_not_there(self, sg: Sg, log: Log, tmp_path: Path) -> None:
        shutil.rmtree(log.uri)
        (tmp_path / "start.json").write_text('{"clicks":{"0":0}}')
        for given in ((), ("--offsets", "start.json")):
            refused = sg("init", "--stream", "clicks", *given, "--yes")
            assert (refused.returncode, "not an embedded log" in refused.stderr) == (10, True)

    def test_before_it_begins_the_command_for_that_is_named(self, sg: Sg, log: Log) -> None:
        refused = sg("offsets", "lag", "clicks")
        assert refused.returncode == 10
        assert "sluicegate init --stream clicks" in refused.stderr


class TestLag:
    def test_of_a_stream(self, sg: Sg, log: Log) -> None:
        begun(log, 12, 20)
        result = sg("offsets", "lag", "clicks")
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout == textwrap.dedent("""\
            topic\tpartition\tposition\tend\tlag
            clicks\t0\t12\t30\t18
            clicks\t1\t20\t20\t0
            """)
        found = document(sg, "offsets", "lag", "clicks")
        assert (found["schema"], found["total"], found["findings"]) == ("sluicegate.lag", 18, [])
        assert found["partitions"][0] == {
            "topic": "clicks",
            "partition": 0,
            "position": 12,
            "earliest": 0,
            "latest": 30,
            "lag": 18,
        }

    def test_a_partition_that_was_added_counts_from_its_beginning(self, sg: Sg, log: Log) -> None:
        begun(log, 30, 20)
        log.add_partitions(3)
        with LogProducer.open(log.uri, f"{log.uri}.p", "p") as producer:
            producer.send_many([(2, {})] * 5)
        found = document(sg, "offsets", "lag", "clicks")
        assert (found["total"], found["partitions"][2]["position"]) == (5, None)

    def test_positions_that_the_log_does_not_hold(self, sg: Sg, log: Log) -> None:
        begun(log, 5, 21)
        log.trim(0, 20)
        found = document(sg, "offsets", "lag", "clicks", code=3)
        codes = {each["place"]: each["code"] for each in found["findings"]}
        assert codes == {"clicks[0]": "SG-LAG-TRIMMED", "clicks[1]": "SG-LAG-AHEAD"}
        assert "15 events lost" in json.dumps(found["findings"])

    def test_another_log_in_its_place(self, sg: Sg, log: Log) -> None:
        begun(log, 5, 5)
        shutil.rmtree(log.uri)
        Log.create(log.uri, 2, "clicks")
        refused = sg("offsets", "lag", "clicks")
        assert (refused.returncode, "was replaced" in refused.stderr) == (13, True)

    def test_of_kafka_only_with_what_the_broker_said(
        self, sg: Sg, log: Log, tmp_path: Path
    ) -> None:
        (tmp_path / "start.json").write_text('{"orders":{"0":12,"1":3}}')
        assert sg("init", "--stream", "orders", "--offsets", "start.json", "--yes").returncode == 0
        refused = sg("offsets", "lag", "orders")
        assert refused.returncode == 2
        assert "known to the broker only" in refused.stderr
        assert "--end-offsets" in refused.stderr
        (tmp_path / "ends.csv").write_text("orders,0,20\n")
        found = document(sg, "offsets", "lag", "orders", "--end-offsets", "ends.csv")
        assert (found["total"], [p["lag"] for p in found["partitions"]]) == (8, [8, None])

    def test_of_an_offset_store(self, sg: Sg, log: Log, tmp_path: Path) -> None:
        assert sg("init", "--store", "store", "--yes").returncode == 0
        (tmp_path / "at.csv").write_text("orders,0,7\n")
        given = ("offsets", "import", "./store", "at.csv", "--consumer", "billing", "--yes")
        assert sg(*given).returncode == 0
        refused = sg("offsets", "lag", "./store")
        assert (refused.returncode, "the end of orders" in refused.stderr) == (2, True)
        result = sg("offsets", "lag", "./store", "--end-offsets", "-", input="orders 0 10\n")
        assert result.stdout.splitlines()[1] == "orders\t0\t7\t10\t3"
        ahead = sg("offsets", "lag", "./store", "--end-offsets", "-", input="orders 0 5\n")
        assert (ahead.returncode, "SG-LAG-AHEAD" in ahead.stdout + ahead.stderr) == (3, True)


class TestReset:
    @pytest.mark.parametrize(
        ("scenario", "positions"),
        [
            (("--to-earliest",), [10, 0]),
            (("--to-latest",), [30, 20]),
            (("--to-offset", "25", "--clamp"), [25, 20]),
            (("--shift-by", "-100", "--clamp"), [10, 0]),
        ],
    )
    def test_the_log_shows_where_its_ends_are(
        self, sg: Sg, log: Log, scenario: tuple[str, ...], positions: list[int]
    ) -> None:
        begun(log, 15, 15)
        log.trim(0, 10)
        result = sg("offsets", "reset", "clicks", *scenario, "--skip-seen", "--yes")
        assert result.returncode == 0, result.stderr
        found = document(sg, "offsets", "show", "clicks")["positions"]
        assert found == {"clicks": {"0": positions[0], "1": positions[1]}}

    def test_outside_of_the_log_is_refused(self, sg: Sg, log: Log) -> None:
        begun(log, 15, 15)
        log.trim(0, 10)
        for scenario in (("--to-offset", "21"), ("--shift-by", "-6")):
            result = sg("offsets", "reset", "clicks", *scenario, "--skip-seen", "-n")
            assert (result.returncode, "it holds" in result.stderr) == (2, True)

    def test_without_the_log_its_ends_are_not_known(self, sg: Sg, log: Log) -> None:
        begun(log, 15, 15)
        shutil.rmtree(log.uri)
        lost = sg("offsets", "reset", "clicks", "--to-earliest", "--skip-seen", "-n")
        assert (lost.returncode, "not an embedded log" in lost.stderr) == (10, True)
        known = sg("offsets", "reset", "clicks", "--to-offset", "3", "--skip-seen", "-n")
        assert known.returncode == 0
        Log.create(log.uri, 2, "clicks")
        other = sg("offsets", "reset", "clicks", "--to-offset", "0", "--skip-seen", "-n")
        assert (other.returncode, "was replaced" in other.stderr) == (13, True)


class TestTargets:
    def test_a_log_is_recognised(self, sg: Sg, log: Log, tmp_path: Path) -> None:
        refused = sg("status", "./log")
        assert refused.returncode == 14
        assert "an embedded log, the source of streams" in refused.stderr
        with LogProducer.open(log.uri, tmp_path / "web-1", "web-1") as producer:
            producer.send(0, {})
            refused = sg("status", "./web-1")
            assert (refused.returncode, "a producer" in refused.stderr) == (14, True)
            locks = {Path(lock["lock"]).name: lock["held"] for lock in locks_of(sg, ".")}
        assert locks["producer.lock"] is True
        assert locks["writer.lock"] is False

    def test_which_log_it_is_cannot_change(self, sg: Sg, log: Log, tmp_path: Path) -> None:
        assert sg("init", "--stream", "clicks", "--yes").returncode == 0
        named = load_config(tmp_path / "sluicegate.toml").streams["clicks"]
        head = open_stream(str(tmp_path / ".sluicegate" / "clicks"), read_only=True).chain.head()
        check_pins(head, pins_now(named, head.pins))
        shutil.rmtree(log.uri)
        Log.create(log.uri, 2, "clicks")
        with pytest.raises(SluicegateError, match="incarnation"):
            check_pins(head, pins_now(named, head.pins))

    def test_a_log_can_be_moved(self, sg: Sg, log: Log, tmp_path: Path) -> None:
        """It is known by its incarnation; the next claim keeps where it is now."""
        assert sg("init", "--stream", "clicks", "--yes").returncode == 0
        config = tmp_path / "sluicegate.toml"
        moved = tmp_path / "moved"
        Path(log.uri).rename(moved)
        named = replace(load_config(config).streams["clicks"], source=str(moved))
        stream = open_stream(str(tmp_path / ".sluicegate" / "clicks"), read_only=False)
        pins = pins_now(named, stream.chain.head().pins)
        with StreamWriter(stream).claim(pins=pins) as run:
            assert run.snapshot.pins["source"] == str(moved)
        assert sg("offsets", "lag", "clicks").returncode == 0


def locks_of(sg: Sg, place: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document(sg, "locks", "list", place)["locks"]
    return found
