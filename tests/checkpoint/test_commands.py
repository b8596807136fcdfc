"""The commands on Spark checkpoints: what they print per mode, their exit codes, their limits."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from sluicegate.offsets import LockFileOffsetStore
from tests.cli.terminal import Terminal
from tests.conftest import Sg

CONF = '{"spark.sql.shuffle.partitions":"2"}'


def write_batch(root: Path, batch: int, offset: str, *, committed: bool = True) -> None:
    """One batch of a Kafka query, as Spark writes it."""
    for log in ("offsets", "commits"):
        (root / log).mkdir(parents=True, exist_ok=True)
    stamp = 1_794_800_000_000 + batch * 60_000
    head = f'{{"batchWatermarkMs":{batch},"batchTimestampMs":{stamp},"conf":{CONF}}}'
    (root / "offsets" / str(batch)).write_text(f"v1\n{head}\n{offset}")
    if committed:
        (root / "commits" / str(batch)).write_text(f'v1\n{{"nextBatchWatermarkMs":{batch + 1}}}')


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    """A checkpoint that reads two partitions of `orders`, with batch 3 unfinished."""
    root = tmp_path / "kafka"
    for batch in range(4):
        offset = f'{{"orders":{{"0":{100 * batch},"1":{10 * batch}}}}}'
        write_batch(root, batch, offset, committed=batch < 3)
    (root / "metadata").write_text('{"id":"6fdd6a2c-0000-4000-8000-000000000000"}')
    return root


class TestInspect:
    def test_as_json(self, sg: Sg, kafka: Path) -> None:
        document = json.loads(sg("checkpoint", "inspect", str(kafka), "--json").stdout)
        assert document["schema"] == "sluicegate.checkpoint"
        assert document["query_id"].startswith("6fdd6a2c")
        assert (document["status"], document["last_batch"], document["last_commit"]) == (
            "replay",
            3,
            2,
        )
        assert document["sources"][0]["positions"] == {"orders": {"0": 300, "1": 30}}
        assert document["conf"] == {"spark.sql.shuffle.partitions": "2"}
        assert (document["watermark_ms"], document["oldest_rollback"]) == (3, 0)

    def test_on_a_terminal(self, kafka: Path) -> None:
        terminal = Terminal("checkpoint", "inspect", "kafka", cwd=kafka.parent)
        code, text = terminal.finish_plain()
        assert code == 0
        assert "status        batch 3 was not finished; the next start runs it again" in text
        assert "orders[0] 300, orders[1] 30" in text
        assert "spark.sql.shuffle.partitions = 2" in text
        assert "2026-11-16T03:36:20Z" in text

    def test_a_real_one(self, sg: Sg, lab: Path) -> None:
        path = str(lab / "agg-hdfs" / "checkpoint")
        document = json.loads(sg("checkpoint", "inspect", path, "--json").stdout)
        assert [o["name"] for o in document["operators"]] == ["stateStoreSave"]
        assert {(s["provider"], s["partition"]) for s in document["state"]} == {
            ("hdfs", 0),
            ("hdfs", 1),
        }
        assert all(s["bytes"] > 0 for s in document["state"])
        assert document["sources"][0]["log_entries"] == 12

    def test_damage_is_reported_not_raised(self, sg: Sg, kafka: Path) -> None:
        (kafka / "offsets" / "3").write_text("")
        (kafka / "metadata").unlink()
        result = sg("checkpoint", "inspect", str(kafka), "--json")
        assert result.returncode == 0
        assert len(json.loads(result.stdout)["problems"]) == 2

    @pytest.mark.parametrize("damaged", ["offsets/3", "commits/3"])
    def test_what_cannot_be_read_is_not_called_clean(
        self, sg: Sg, kafka: Path, damaged: str
    ) -> None:
        """By their names alone these files look well."""
        (kafka / "commits" / "3").write_text("v1")
        (kafka / damaged).write_text("")
        document = json.loads(sg("checkpoint", "inspect", str(kafka), "--json").stdout)
        assert document["status"] == "broken"
        (target,) = json.loads(sg("status", str(kafka), "--json").stdout)["targets"]
        assert target["summary"] == "the logs are damaged or contradict each other"

    def test_other_things_are_refused(self, sg: Sg, tmp_path: Path) -> None:
        LockFileOffsetStore.create(str(tmp_path / "x"))
        result = sg("checkpoint", "inspect", "./x")
        assert result.returncode == 14
        assert "offset-store (it has sluicegate.store)" in result.stderr
        assert sg("checkpoint", "inspect", "nowhere").returncode == 10

    def test_the_only_target_need_not_be_named(self, sg: Sg, kafka: Path) -> None:
        config = kafka.parent / "sluicegate.toml"
        config.write_text('[targets.orders]\ncheckpoint = "kafka"\n')
        assert sg("checkpoint", "inspect").returncode == 0
        config.write_text(config.read_text() + '[targets.other]\ncheckpoint = "x"\n')
        result = sg("checkpoint", "inspect")
        assert result.returncode == 2
        assert "there are several: orders, other" in result.stderr

    def test_java_and_spark_are_not_needed(self, sg: Sg, kafka: Path) -> None:
        result = sg("checkpoint", "inspect", str(kafka), PATH="/nowhere", JAVA_HOME="/nowhere")
        assert result.returncode == 0


class TestList:
    def test_events_are_counted_where_offsets_count_them(self, sg: Sg, kafka: Path) -> None:
        lines = sg("checkpoint", "list", str(kafka)).stdout.splitlines()
        assert lines[0] == "batch\tplanned\tcommitted\tevents\toffsets at its end"
        assert lines[1].split("\t")[2:4] == ["yes", "-"], "where batch 0 began is not in the log"
        assert lines[2].split("\t")[2:4] == ["yes", "110"]
        assert lines[4].split("\t")[2:4] == ["no", "110"]

    def test_the_newest_ones(self, sg: Sg, kafka: Path) -> None:
        lines = sg("checkpoint", "list", str(kafka), "--last", "2").stdout.splitlines()[1:]
        assert [line.split("\t")[0] for line in lines] == ["2", "3"]
        assert lines[0].split("\t")[3] == "110", "the batch before is read though not shown"

    def test_an_unreadable_batch(self, sg: Sg, kafka: Path) -> None:
        (kafka / "offsets" / "2").write_text("v1")
        document = json.loads(sg("checkpoint", "list", str(kafka), "--json").stdout)
        assert "batch metadata is missing" in document["batches"][2]["problem"]
        assert document["batches"][3]["events"] is None


class TestVerify:
    def test_intact(self, sg: Sg, kafka: Path) -> None:
        result = sg("checkpoint", "verify", str(kafka), "--json")
        assert result.returncode == 0
        assert json.loads(result.stdout) == {
            "schema": "sluicegate.verify",
            "version": 1,
            "checkpoint": str(kafka),
            "read_data": False,
            "intact": True,
            "findings": [],
        }

    def test_errors_give_3_and_name_the_repair(self, sg: Sg, kafka: Path) -> None:
        (kafka / "offsets" / "3").write_text("")
        result = sg("checkpoint", "verify", str(kafka))
        assert result.returncode == 3
        assert result.stdout.splitlines()[1].split("\t") == [
            "SG-OFFSETS-EMPTY",
            "error",
            f"{kafka}/offsets/3",
            f"{kafka}/offsets/3: the file is empty",
            f"sluicegate checkpoint repair {kafka}",
        ]

    def test_warnings_alone_give_0(self, sg: Sg, kafka: Path) -> None:
        (kafka / "commits" / "2").unlink()
        result = sg("checkpoint", "verify", str(kafka), "--json")
        assert result.returncode == 0
        assert [f["code"] for f in json.loads(result.stdout)["findings"]] == ["SG-COMMITS-BEHIND"]

    def test_on_a_terminal(self, kafka: Path) -> None:
        (kafka / "metadata").unlink()
        terminal = Terminal("checkpoint", "verify", "kafka", cwd=kafka.parent)
        code, text = terminal.finish_plain()
        assert code == 3
        assert text.splitlines()[0] == "error SG-METADATA-MISSING kafka/metadata"
        assert "  next: sluicegate checkpoint repair kafka\n" in text
        assert text.splitlines()[-1].startswith("kafka: 1 error.")

    def test_the_sink_comes_from_the_configuration(self, sg: Sg, lab: Path, tmp_path: Path) -> None:
        shutil.copytree(lab / "stateless-parquet", tmp_path / "x")
        os.remove(tmp_path / "x/out/_spark_metadata/11")
        (tmp_path / "sluicegate.toml").write_text(
            '[targets.orders]\ncheckpoint = "x/checkpoint"\nsink = "x/out"\n'
        )
        assert sg("checkpoint", "verify", "x/checkpoint").returncode == 0
        assert sg("checkpoint", "verify", "orders").returncode == 3
        assert sg("checkpoint", "verify", "x/checkpoint", "--sink", "x/out").returncode == 3

    def test_nothing_is_changed(self, sg: Sg, lab: Path) -> None:
        before = {p: p.stat().st_mtime_ns for p in (lab / "agg-rocksdb-f2").rglob("*")}
        sg("checkpoint", "verify", str(lab / "agg-rocksdb-f2/checkpoint"), "--read-data")
        sg("checkpoint", "inspect", str(lab / "agg-rocksdb-f2/checkpoint"))
        assert {p: p.stat().st_mtime_ns for p in (lab / "agg-rocksdb-f2").rglob("*")} == before


class TestDiff:
    def test_two_batches(self, sg: Sg, kafka: Path) -> None:
        result = sg("checkpoint", "diff", f"{kafka}@1", f"{kafka}@3")
        assert result.stdout == (
            "what\tleft\tright\n"
            "source 0 orders[0]\t100\t300\n"
            "source 0 orders[1]\t10\t30\n"
            "watermark_ms\t1\t3\n"
        )

    def test_two_checkpoints(self, sg: Sg, lab: Path) -> None:
        sides = [str(lab / name / "checkpoint") for name in ("agg-hdfs", "agg-rocksdb")]
        found = json.loads(sg("checkpoint", "diff", *sides, "--json").stdout)["differences"]
        what = {each["what"] for each in found}
        assert "query id" in what
        assert "conf spark.sql.streaming.stateStore.providerClass" in what

    def test_equal(self, sg: Sg, kafka: Path) -> None:
        assert sg("checkpoint", "diff", str(kafka), f"{kafka}@3").stdout == ""

    def test_a_batch_that_is_not_there(self, sg: Sg, kafka: Path) -> None:
        result = sg("checkpoint", "diff", f"{kafka}@1", f"{kafka}@9")
        assert result.returncode == 10
        assert "has no batch 9; it has 0 to 3" in result.stderr


class TestOffsets:
    def test_show(self, sg: Sg, kafka: Path) -> None:
        assert sg("offsets", "show", str(kafka)).stdout == (
            "source\tkind\ttopic\tpartition\tnext offset\n"
            "0\tkafka\torders\t0\t300\n"
            "0\tkafka\torders\t1\t30\n"
        )

    @pytest.mark.parametrize(
        ("form", "text"),
        [
            ("spark", '{"orders":{"0":100,"1":10}}\n'),
            ("csv", "orders,0,100\norders,1,10\n"),
            ("rpk", "orders 0 100\norders 1 10\n"),
        ],
    )
    def test_export(self, sg: Sg, kafka: Path, form: str, text: str) -> None:
        result = sg("offsets", "export", str(kafka), "--batch", "1", "--format", form)
        assert result.stdout == text

    def test_export_of_what_is_not_positions(self, sg: Sg, lab: Path) -> None:
        result = sg("offsets", "export", str(lab / "agg-hdfs" / "checkpoint"))
        assert result.returncode == 14
        assert "has a file offset" in result.stderr


class TestAudit:
    def test_a_clean_run(self, sg: Sg, lab: Path) -> None:
        root = lab / "stateless-parquet"
        result = sg("audit", str(root / "checkpoint"), "--sink", str(root / "out"), "--json")
        assert result.returncode == 0, result.stdout
        batches = json.loads(result.stdout)["batches"]
        assert [b["batch"] for b in batches] == list(range(12))
        assert all(b["contiguous"] and b["committed"] for b in batches)
        assert batches[0]["files"] == 1

    def test_a_position_that_went_backwards(self, sg: Sg, kafka: Path) -> None:
        write_batch(kafka, 4, '{"orders":{"0":5,"1":40}}')
        found = json.loads(sg("audit", str(kafka), "--json").stdout)["findings"]
        assert [(f["code"], f["detail"]) for f in found] == [
            ("SG-AUDIT-BACKWARDS", "orders[0]: 300 → 5")
        ]

    def test_a_gap(self, sg: Sg, kafka: Path) -> None:
        (kafka / "offsets" / "1").unlink()
        document = json.loads(sg("audit", str(kafka), "--json").stdout)
        assert [f["code"] for f in document["findings"]] == ["SG-AUDIT-UNKNOWN-RANGE"]
        assert [b["contiguous"] for b in document["batches"]] == [True, False, True]

    def test_a_batch_that_the_sink_skipped(self, sg: Sg, lab: Path, tmp_path: Path) -> None:
        """Trap E: the sink had this batch number from an earlier life of the query."""
        shutil.copytree(lab / "stateless-parquet", tmp_path / "x")
        offsets = tmp_path / "x/checkpoint/offsets/11"
        text = offsets.read_text()
        stamp = text.split('"batchTimestampMs":')[1].split(",")[0]
        offsets.write_text(text.replace(stamp, str(int(stamp) + 3_600_000)))
        result = sg("audit", "x/checkpoint", "--sink", "x/out", "--json")
        assert result.returncode == 3
        codes = [f["code"] for f in json.loads(result.stdout)["findings"]]
        assert codes[0] == "SG-AUDIT-SINK-SKIPPED"

    def test_rows_that_a_reader_would_not_see(self, sg: Sg, lab: Path, tmp_path: Path) -> None:
        shutil.copytree(lab / "stateless-parquet", tmp_path / "x")
        os.remove(tmp_path / "x/out/_spark_metadata/11")
        result = sg("audit", "x/checkpoint", "--sink", "x/out", "--json")
        assert result.returncode == 3
        codes = {f["code"] for f in json.loads(result.stdout)["findings"]}
        assert {"SG-AUDIT-SINK-NOT-WRITTEN", "SG-SINK-UNLISTED"} <= codes

    def test_since(self, sg: Sg, kafka: Path) -> None:
        since = "2026-11-16T03:34:30Z"
        document = json.loads(sg("audit", str(kafka), "--since", since, "--json").stdout)
        assert [b["batch"] for b in document["batches"]] == [2, 3]
        east = json.loads(
            sg("audit", str(kafka), "--since", "2026-11-16T04:34:30+01:00", "--json").stdout
        )
        assert east["batches"] == document["batches"]

    @pytest.mark.parametrize(
        ("text", "message"),
        [("2026-11-16T03:00:00", "has no time zone"), ("yesterday", "is not a time")],
    )
    def test_times_need_a_zone(self, sg: Sg, kafka: Path, text: str, message: str) -> None:
        result = sg("audit", str(kafka), "--since", text)
        assert result.returncode == 2
        assert message in result.stderr
        assert "Z" in result.stderr.split("next:")[1]


class TestStatus:
    def test_all_targets_worst_first(self, sg: Sg, kafka: Path, lab: Path) -> None:
        shutil.copytree(kafka, kafka.parent / "broken")
        (kafka.parent / "broken" / "offsets" / "3").write_text("")
        (kafka.parent / "sluicegate.toml").write_text(
            '[targets.a-fine]\ncheckpoint = "kafka"\n'
            '[targets.b-broken]\ncheckpoint = "broken"\n'
            f'[targets.c-real]\ncheckpoint = "{lab}/agg-rocksdb/checkpoint"\n'
        )
        result = sg("status", "--json")
        assert result.returncode == 3
        targets = json.loads(result.stdout)["targets"]
        assert [(t["target"], t["state"]) for t in targets] == [
            ("b-broken", "error"),
            ("a-fine", "ok"),
            ("c-real", "ok"),
        ]
        assert targets[1]["summary"] == "one batch to replay"

    def test_in_depth(self, sg: Sg, kafka: Path) -> None:
        fields = dict(
            line.split("\t") for line in sg("status", str(kafka)).stdout.splitlines() if line
        )
        assert (fields["last_batch"], fields["updated_at"]) == ("3", "2026-11-16T03:36:20Z")

    def test_one_target_that_cannot_be_read_does_not_hide_the_others(
        self, sg: Sg, kafka: Path
    ) -> None:
        shutil.copytree(kafka, kafka.parent / "odd")
        shutil.rmtree(kafka.parent / "odd" / "commits")
        (kafka.parent / "odd" / "commits").write_text("a file")
        (kafka.parent / "sluicegate.toml").write_text(
            '[targets.fine]\ncheckpoint = "kafka"\n[targets.odd]\ncheckpoint = "odd"\n'
            '[targets.far]\ncheckpoint = "kafka"\nsink = "s3://bucket/x"\n'
        )
        result = sg("status", "--json")
        assert result.returncode == 3
        states = {t["target"]: t["state"] for t in json.loads(result.stdout)["targets"]}
        assert states == {"fine": "ok", "odd": "error", "far": "error"}


class TestOddities:
    def test_a_seeded_checkpoint_has_no_time(self, kafka: Path) -> None:
        (kafka / "offsets" / "3").write_text('v1\n{"batchWatermarkMs":0}\n{"orders":{"0":5}}')
        _, text = Terminal("checkpoint", "inspect", "kafka", cwd=kafka.parent).finish_plain()
        assert "last batch    3\n" in text

    def test_times_beyond_the_calendar(self, sg: Sg, kafka: Path) -> None:
        head = f'{{"batchTimestampMs":{2**63 - 1},"conf":{{}}}}'
        (kafka / "offsets" / "3").write_text(f'v1\n{head}\n{{"orders":{{"0":5}}}}')
        for command in (("checkpoint", "inspect"), ("checkpoint", "list"), ("status",), ("audit",)):
            result = sg(*command, str(kafka))
            assert result.returncode in (0, 3), result.stderr
            assert "unexpected" not in result.stderr

    def test_events_of_a_new_partition_are_not_known(self, sg: Sg, kafka: Path) -> None:
        write_batch(kafka, 4, '{"orders":{"0":400,"1":40,"2":5000000}}')
        batches = json.loads(sg("checkpoint", "list", str(kafka), "--json").stdout)["batches"]
        assert [b["events"] for b in batches] == [None, 110, 110, 110, None]

    def test_a_date_alone_gets_a_hint_that_works(self, sg: Sg, kafka: Path) -> None:
        result = sg("audit", str(kafka), "--since", "2026-11-16")
        assert "write 2026-11-16T00:00:00Z for UTC" in result.stderr
        assert sg("audit", str(kafka), "--since", "2026-11-16T00:00:00Z").returncode == 0

    def test_an_unreadable_batch_is_no_clean_audit(self, sg: Sg, kafka: Path) -> None:
        (kafka / "offsets" / "3").write_text("")
        found = json.loads(sg("audit", str(kafka), "--json").stdout)["findings"]
        assert [f["code"] for f in found] == ["SG-AUDIT-UNKNOWN-RANGE"]
        _, text = Terminal("audit", "kafka", cwd=kafka.parent).finish_plain()
        assert "some batches could not be verified" in text.splitlines()[-1]

    def test_a_directory_that_is_no_file_sink(self, sg: Sg, kafka: Path, tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        result = sg("audit", str(kafka), "--sink", "other", "--json")
        assert result.returncode == 0
        assert [f["code"] for f in json.loads(result.stdout)["findings"]] == ["SG-SINK-NO-LOG"]


class TestPartitionedSink:
    """Output in `key=value` directories, where files of one task share their name."""

    @pytest.fixture
    def sink(self, kafka: Path, tmp_path: Path) -> Path:
        out = tmp_path / "out put"
        lines = []
        for part in ("_k=1", "k=a%3Ab", "k=ü"):
            (out / part).mkdir(parents=True)
            (out / part / "part-0.json").write_text("{}")
            uri = (out / part / "part-0.json").as_uri()
            lines.append(f'{{"path":"{uri}","size":2,"isDir":false,"modificationTime":1}}')
        (out / "_spark_metadata").mkdir()
        for batch in range(3):
            text = "\n".join(["v1", *lines]) if batch == 2 else "v1"
            (out / "_spark_metadata" / str(batch)).write_text(text)
        return out

    def codes(self, sg: Sg, kafka: Path, sink: Path) -> list[str]:
        result = sg("checkpoint", "verify", str(kafka), "--sink", str(sink), "--json")
        return [f["code"] for f in json.loads(result.stdout)["findings"]]

    def test_healthy(self, sg: Sg, kafka: Path, sink: Path) -> None:
        assert self.codes(sg, kafka, sink) == []
        link = sink.parent / "link"
        link.symlink_to(sink)
        assert self.codes(sg, kafka, link) == []

    def test_one_of_the_equally_named_files_is_gone(self, sg: Sg, kafka: Path, sink: Path) -> None:
        (sink / "k=ü" / "part-0.json").unlink()
        assert self.codes(sg, kafka, sink) == ["SG-SINK-MISSING-FILE"]

    def test_one_of_them_is_not_in_the_log(self, sg: Sg, kafka: Path, sink: Path) -> None:
        (sink / "k=new").mkdir()
        (sink / "k=new" / "part-0.json").write_text("{}")
        os.utime(sink / "k=new" / "part-0.json", (1, 1))
        assert self.codes(sg, kafka, sink) == ["SG-SINK-UNLISTED"]

    def test_moved(self, sg: Sg, kafka: Path, sink: Path) -> None:
        moved = sink.rename(sink.with_name("elsewhere"))
        assert self.codes(sg, kafka, moved) == ["SG-PATHS-MOVED"]
