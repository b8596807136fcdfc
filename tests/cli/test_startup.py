"""Start-up time is won by not importing; times themselves are measured in bench/."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.shards.routing import shard_of
from sluicegate.state import delta
from sluicegate.state.delta import Merge
from sluicegate.stream.append import Epoch
from sluicegate.stream.snapshot import Manifest
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter
from tests.stream.streams import NAME, at, make_home, opened, stamps_of

HEAVY = {"pyspark", "pyarrow", "numpy", "pandas", "pydantic"}
REPORT = """
import sys, atexit
atexit.register(lambda: print("\\n".join(sys.modules), file=sys.stderr))
sys.argv[0] = "sluicegate"
from sluicegate_cli.__main__ import main
sys.exit(main())
"""


def imported_modules(tmp_path: Path, *arguments: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", REPORT, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    return {*result.stderr.splitlines()}


def imported(tmp_path: Path, *arguments: str) -> set[str]:
    return {name.partition(".")[0] for name in imported_modules(tmp_path, *arguments)}


def test_version_imports_next_to_nothing(tmp_path: Path) -> None:
    modules = imported(tmp_path, "--version")
    assert not modules & (HEAVY | {"typer", "rich", "msgpack", "portalocker", "tomli", "re"})


@pytest.mark.parametrize("arguments", [("--help",), ("status",), ("init", "--dry-run")])
def test_light_commands_import_nothing_heavy(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "sluicegate.toml").write_text("read_only = false")
    modules = imported(tmp_path, *arguments)
    assert "typer" in modules, "otherwise this test looks at the wrong thing"
    assert not modules & (HEAVY | {"rich", "portalocker"})


def test_help_imports_no_command(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", REPORT, "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "sluicegate_cli.shell" in result.stderr
    assert "sluicegate_cli.commands." not in result.stderr


AGGREGATES = {"mean": "avg(price)", "spent": "sum(price)"}
COLUMNS = ("events", "spent", "mean.sum", "mean.count")


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream with aggregates and a dedup log: two shards, three epochs of the same keys."""
    root = tmp_path_factory.mktemp("installation")
    stream = opened(make_home(root / ".sluicegate"))
    pins = {"shards": 2, "aggregates": AGGREGATES, "types": {"price": "long"}}
    seen = Manifest(stamps_of(stream, {0: (0, 1)}, "before"))
    StreamWriter(stream).genesis(at(0, 0), pins=pins, content={"dedup": seen})
    with StreamWriter(stream).claim(app="job") as run:
        for number in (1, 2, 3):
            run.commit(epoch(stream, number))
    return root


def epoch(stream: Stream, number: int) -> Epoch:
    head = stream.chain.head()
    deltas = {}
    for shard in (0, 1):
        keys = [key for key in ("ann", "bob", "cid", "dan") if shard_of(key, 2) == shard]
        values = dict.fromkeys(COLUMNS, [1] * len(keys))
        table = delta.table(keys, values, dict.fromkeys(COLUMNS, Merge.SUM))
        deltas[shard] = stream.blobs.put(delta.encode(table))
    return Epoch(
        start=head.positions,
        end=at(2 * number, 2 * number),
        events=4,
        deltas=deltas,
        version=head.version,
        generation=head.generation,
        stamps=stamps_of(stream, {0: (2 * number - 2, 2 * number)}),
        number=number,
    )


@pytest.mark.parametrize(
    ("command", "needs_arrow"),
    [
        (f"checkpoint inspect {NAME}", False),
        (f"checkpoint list {NAME}", False),
        (f"checkpoint diff {NAME}@2 {NAME}@3", False),
        (f"checkpoint verify {NAME}", False),
        (f"checkpoint verify {NAME} --read-data", False),
        (f"checkpoint rollback {NAME} --to 2 --dry-run", False),
        (f"offsets show {NAME}", False),
        (f"state show {NAME}", True),
        (f"state query {NAME} ann", True),
        (f"dedup stats {NAME}", True),
        (f"dedup check {NAME} events/0/1", True),
        (f"dedup compact {NAME} --dry-run", True),
        (f"audit {NAME} --read-data", False),
        (f"history {NAME}", False),
        ("status", False),
        ("maintain --all --dry-run", False),
    ],
)
def test_no_command_on_a_stream_imports_pandas(
    installation: Path, command: str, needs_arrow: bool
) -> None:
    modules = imported(installation, *command.split())
    assert ("pyarrow" in modules) is needs_arrow
    assert not modules & {"pandas", "pyspark", "pydantic"}


@pytest.mark.parametrize("command", ["inspect", "list", "verify"])
def test_documents_of_other_kinds_are_not_imported(installation: Path, command: str) -> None:
    modules = imported_modules(installation, "checkpoint", command, NAME)
    assert "sluicegate.stream.report" in modules
    others = {f"sluicegate.{kind}.report" for kind in ("checkpoint", "offsets")}
    assert not modules & (others | {"sluicegate_cli.output.plan", "sluicegate_cli.output.submit"})


@pytest.mark.parametrize("command", [f"state compact {NAME}", f"dedup compact {NAME}"])
def test_no_compaction_imports_pandas(installation: Path, tmp_path: Path, command: str) -> None:
    shutil.copytree(installation, tmp_path, dirs_exist_ok=True)
    modules = imported(tmp_path, *command.split(), "--yes")
    assert "pyarrow" in modules
    assert "pandas" not in modules


CONSUMER = """
import sys
from sluicegate.dedup.stamp import Stamp
from sluicegate.stream.stream import open_stream
from sluicegate.stream.transactions import Coordinator, recover
from sluicegate.stream.writer import StreamWriter
def stage(name):
    print(name, "pandas" in sys.modules)
stream = open_stream(sys.argv[1], read_only=False)
recover(stream)
with StreamWriter(stream).claim(app="consumer") as run:
    consumer = Coordinator(run, shards=2)
    stage("opened")
    assert consumer.begin(Stamp("events", 0, 1)) is None
    one, two = consumer.begin(Stamp("events", 0, 99)), consumer.begin(Stamp("new", 0, 1))
    stage("asked")
    one.put("ann", b"1")
    two.delete("bob")
    consumer.commit_all([one, two])
    stage("committed")
    assert (consumer.get("ann"), consumer.get("bob")) == (b"1", None)
    stage("read")
"""


def test_a_consumer_never_imports_pandas(tmp_path: Path) -> None:
    stream = opened(make_home(tmp_path / "home"))
    seen = Manifest(stamps_of(stream, {0: (0, 9)}))
    StreamWriter(stream).genesis(at(0, 0), content={"dedup": seen})
    command = [sys.executable, "-c", CONSUMER, stream.uri]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    stages = [("opened", "False"), ("asked", "False"), ("committed", "False"), ("read", "False")]
    assert [tuple(line.split()) for line in result.stdout.splitlines()] == stages
