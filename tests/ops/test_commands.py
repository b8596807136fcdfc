"""`sluicegate maintain` as cron, a person and Prometheus see it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sluicegate import codec
from sluicegate.locks import FileLock
from sluicegate.maintenance import RunReport, Sample, TargetReport
from sluicegate.ops.metrics import METRICS, exposition
from tests.cli.terminal import Terminal
from tests.conftest import Sg
from tests.ops.places import installation
from tests.sources.logs import filled


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    return installation(tmp_path)


def families(path: Path) -> dict[str, list[tuple[dict[str, str], float]]]:
    found = text_string_to_metric_families(path.read_text())
    return {f.name: [(s.labels, s.value) for s in f.samples] for f in found}


def test_silent_when_all_is_well(sg: Sg, stream: Path, tmp_path: Path) -> None:
    result = sg("maintain", "--all", "--metrics-file", "m.prom")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    measured = families(tmp_path / "m.prom")
    assert ({"target": "clicks"}, 12.0) in measured["sluicegate_epochs"]
    assert ({"target": "clicks", "outcome": "applied"}, 72.0) in measured["sluicegate_events"]
    for target, offset in (("clicks", 36.0), ("orders", 20.0), ("billing/invoices", 42.0)):
        found = {
            (labels["consumergroup"], value)
            for labels, value in measured["kafka_consumergroup_current_offset"]
        }
        assert (target, offset) in found
    errors = [v for labels, v in measured["sluicegate_findings"] if labels["severity"] == "error"]
    assert errors == [0.0] * 3
    assert (tmp_path / "m.prom").stat().st_mode & 0o777 == 0o644
    history = json.loads(sg("history", "clicks", "--json").stdout)["entries"]
    assert [e["kind"] for e in history if e["reason"] == "maintain"] == [
        "prune",
        "compact",
        "compact",
    ]


LOG = """
[streams.events]
source = "log"
columns = { n = "string" }
key = "n"
shards = 8
"""


@pytest.fixture
def measured(sg: Sg, tmp_path: Path) -> Path:
    """What is written of a stream that reads a log, beside everything else."""
    installation(tmp_path)
    with (tmp_path / "sluicegate.toml").open("a") as config:
        config.write(LOG)
    filled(tmp_path / "log", 7)
    assert sg("init", "--stream", "events", "--yes").returncode == 0
    assert sg("shards", "join", "events", "a", "b", "--yes").returncode == 0
    assert sg("maintain", "--all", "--metrics-file", "m.prom").returncode == 0
    return tmp_path / "m.prom"


def test_lag_as_the_exporters_of_kafka_call_it(sg: Sg, measured: Path, tmp_path: Path) -> None:
    found = families(measured)
    labels = {"consumergroup": "events", "topic": "log", "partition": "0"}
    assert found["kafka_consumergroup_lag"] == [(labels, 7.0)]
    assert (labels, 0.0) in found["kafka_consumergroup_current_offset"]
    assert found["sluicegate_shard_imbalance"] == [({"target": "events"}, 0.0)]
    # Another log in the place of the one that the stream reads.
    shutil.rmtree(tmp_path / "log")
    filled(tmp_path / "log", 7)
    result = sg("maintain", "events")
    assert result.returncode == 3
    assert "was replaced" in result.stdout


@pytest.mark.skipif(not shutil.which("promtool"), reason="Debian's package prometheus has it")
def test_promtool_has_nothing_to_say() -> None:
    """Of any metric there is, also with labels that need quoting."""
    labels = dict.fromkeys(("target", "consumergroup", "topic"), 'it\'s "a"\\b\n')
    labels |= {"partition": "0", "outcome": "duplicate", "log": "offsets"}
    target = TargetReport("clicks", "/x", "stream")
    always = exposition(RunReport((target,), 1.0, 2.0))
    more = [Sample(m.name, 1.5, labels) for m in METRICS if m.name.encode() not in always]
    text = exposition(RunReport((replace(target, samples=tuple(more)),), 1.0, 2.0))
    assert all(metric.name.encode() in text for metric in METRICS)
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_metrics_that_cannot_be_written(sg: Sg, stream: Path, tmp_path: Path) -> None:
    """Completed steps are reported all the same."""
    (tmp_path / "m.prom").mkdir()
    result = sg("maintain", "clicks", "--metrics-file", "m.prom", "--json")
    assert result.returncode == 3
    document = json.loads(result.stdout)
    clicks, written = document["targets"]
    assert next(step["name"] for step in clicks["steps"]) == "verify"
    assert [each["code"] for each in written["findings"]] == ["SG-MAINTAIN-METRICS"]
    text = sg("maintain", "clicks", "--metrics-file", "nowhere/m.prom").stdout
    assert f"there is no directory {tmp_path}/nowhere" in text


def test_what_a_newer_release_remembers_stops_no_other_target(
    sg: Sg, stream: Path, tmp_path: Path
) -> None:
    (stream / "verify.cursor").write_bytes(codec.encode(codec.Format("cursor", 2, 1024), {}))
    document = json.loads(sg("maintain", "--all", "--json").stdout)
    found = {each["target"]: each["findings"] for each in document["targets"]}
    assert set(found) == {"clicks", "orders", "billing"}
    assert [each["code"] for each in found["clicks"]] == ["SG-MAINTAIN-FAILED"]
    assert "this release reads up to 1" in found["clicks"][0]["detail"]
    assert not found["billing"]


def test_what_needs_a_person(sg: Sg, stream: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "store")
    os.truncate(tmp_path / "checkpoint" / "commits" / "2", 0)
    result = sg("maintain", "--all", "--metrics-file", "m.prom")
    assert result.returncode == 3
    lines = [line.split("\t")[:2] for line in result.stdout.splitlines()]
    assert ["SG-TARGET-MISSING", "error"] in lines
    assert ["SG-COMMIT-EMPTY", "error"] in lines
    assert not [severity for _, severity in lines if severity == "note"]
    errors = {
        labels["target"]: value
        for labels, value in families(tmp_path / "m.prom")["sluicegate_findings"]
        if labels["severity"] == "error"
    }
    assert errors == {"billing": 1.0, "orders": 1.0, "clicks": 0.0}
    document = json.loads(sg("maintain", "orders", "--json").stdout)
    [target] = document["targets"]
    assert [f["code"] for f in target["findings"]] == ["SG-COMMIT-EMPTY"]
    assert target["steps"][-1]["outcome"] == "skipped", "what is damaged is not changed"


def test_which_targets(sg: Sg, stream: Path) -> None:
    nothing = sg("maintain")
    assert nothing.returncode == 2
    assert "billing" in nothing.stderr
    assert "--all" in nothing.stderr
    assert sg("maintain", "nope").returncode == 10
    assert sg("maintain", "clicks", "--all").returncode == 2
    one = json.loads(sg("maintain", str(stream), "billing", "--json").stdout)
    assert {t["kind"] for t in one["targets"]} == {"stream", "offset-store"}
    assert (one["schema"], one["version"]) == ("sluicegate.maintain", 1)


def test_a_home_that_is_not_mounted(sg: Sg, stream: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / "sluicegate.home").unlink()
    result = sg("maintain", "--all")
    assert result.returncode == 3
    assert "SG-HOME-UNMARKED" in result.stdout


def test_a_second_run_leaves_quietly(sg: Sg, stream: Path) -> None:
    head = max((stream / "chain").iterdir())
    with FileLock(stream / "locks" / "maintain.lock").hold():
        result = sg("maintain", "clicks")
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        [target] = json.loads(sg("maintain", "clicks", "--json").stdout)["targets"]
    [step] = target["steps"]
    assert (step["outcome"], target["findings"]) == ("skipped", [])
    assert "another run is active" in step["detail"]
    assert max((stream / "chain").iterdir()) == head


def test_what_would_be_done(sg: Sg, stream: Path) -> None:
    before = sorted(stream.rglob("*"))
    result = sg("maintain", "--all", "--dry-run")
    assert result.returncode == 0
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert rows[0] == ["target", "step", "action", "place", "detail"]
    assert ["clicks", "prune", "prune", "snapshots"] in [row[:4] for row in rows]
    assert sorted(stream.rglob("*")) == before


def test_policies_of_the_configuration(sg: Sg, tmp_path: Path) -> None:
    stream = installation(tmp_path, 'read_only = true\naudit_log = "changes.jsonl"\n')
    snapshots = sorted((stream / "chain").iterdir())
    assert sg("maintain", "--all").returncode == 0
    assert sorted((stream / "chain").iterdir()) == snapshots
    assert not (tmp_path / "checkpoint" / "_sluicegate").exists()
    config = (tmp_path / "sluicegate.toml").read_text()
    (tmp_path / "sluicegate.toml").write_text(config.replace("read_only", "require_reason"))
    assert sg("maintain", "--all", "--reason", "before the audit").returncode == 0
    lines = [json.loads(line) for line in (tmp_path / "changes.jsonl").read_text().splitlines()]
    assert {line["reason"] for line in lines} == {"maintain: before the audit"}
    assert [line["event"] for line in lines] == ["applying", "applied"] * 3


def test_on_a_terminal(stream: Path, tmp_path: Path) -> None:
    code, text = Terminal("maintain", "--all", cwd=tmp_path, columns=160).finish_plain()
    assert code == 0
    assert f"orders (spark-checkpoint), {tmp_path}/checkpoint" in text
    assert "prune snapshots: 0 to" in text
    assert text.splitlines()[-1].endswith("all is well.")


def test_every_metric_says_what_it_is() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.text
        assert metric.name.endswith("_total") is (metric.kind == "counter")
