"""Every command has a schema in docs/reference/schemas.md, and prints documents that keep to it."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from generate import schemas

from sluicegate.legacy import v1
from sluicegate_cli import table
from sluicegate_cli.shell import run
from tests.docs.documents import check, command_of, documents, heed
from tests.docs.tour_world import ROOT, World, world

# In order: some use what those before have made.
LINES = """
init --dry-run
status
status clicks
explain driver.log
checkpoint inspect orders
checkpoint inspect clicks
checkpoint list orders
checkpoint list clicks
checkpoint verify orders
checkpoint verify clicks --read-data
checkpoint diff orders@11 orders@12
checkpoint diff clicks@3 clicks@4
checkpoint repair orders --dry-run
checkpoint rollback orders --to 11 --dry-run
checkpoint rollback clicks --to 5 --dry-run
checkpoint prune clicks --keep 2 --dry-run
checkpoint inspect old.bin
checkpoint import old.bin other --yes
checkpoint export other again.bin --yes
checkpoint seed fresh --offsets start.csv --yes
checkpoint relocate orders elsewhere --dry-run
offsets show orders
offsets show billing
offsets show clicks
offsets reset billing --shift-by -10 --plan-out reset.json
offsets reset clicks --shift-by -10 --skip-seen --dry-run
offsets lag clicks
offsets export billing
offsets import billing start.csv --consumer other --dry-run
offsets delete billing --all-topics --dry-run
dedup stats clicks
dedup check clicks web-0/0/42 web-0/0/100000
dedup compact clicks --dry-run
state show clicks
state query clicks alice nobody
state compact clicks --dry-run
shards join clicks node-1 node-2 --yes
shards show clicks --weights keys
shards locate clicks alice
shards leave clicks node-2 --dry-run
shards weights clicks
shards rebalance clicks --weights keys --dry-run
audit orders
audit clicks
submit --app job.py --checkpoint orders --dry-run
apply reset.json --yes
history billing
history clicks
history orders
undo billing --dry-run
maintain --all --dry-run
locks list
locks break clicks --dry-run
doctor
checkpoint inspect nowhere
""".strip().splitlines()
V1 = v1.V1Checkpoint(42, 1_794_800_000_000_000_000, 1000, {"agg": b"state"}, {"in": 7})
# It runs Spark; tests/cli has it.
ELSEWHERE = {"demo"}


@pytest.fixture(scope="module")
def here(lab: Path) -> Iterator[World]:
    with world("2026-11-16T14:40:00Z", lab) as made:
        made.orders("agg-hdfs", "2026-11-16T12:21:07Z")
        made.billing("2026-11-16T13:40:00Z")
        made.clicks("2026-11-16T13:30:05Z").end()
        shutil.copy(ROOT / "tests/spark/logs/offsets_empty-4.3.0.log", made.work / "driver.log")
        (made.work / "job.py").touch()
        (made.work / "old.bin").write_bytes(v1.encode(V1))
        (made.work / "start.csv").write_text("orders,0,12340\norders,1,9875\n")
        yield made


@pytest.fixture
def _signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_signals")
def test_documents(
    here: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(here.work)
    for line in LINES:
        words = shlex.split(line)
        code = run(["sluicegate", *words, "--json"])
        printed, errors = capfd.readouterr()
        assert code in (0, 3) or "nowhere" in line, f"{line}: {errors}"
        assert list(documents(printed + errors)), line
        heed(words, printed + errors)


def test_every_command_is_tried() -> None:
    tried = {command_of(shlex.split(line)) for line in LINES}
    assert {*tried, *ELSEWHERE} == {*table.COMMANDS}


def test_every_command_has_a_schema() -> None:
    printed = {command for each in schemas.read().values() for command in each["commands"]}
    assert printed == {*table.COMMANDS}


def test_every_schema_is_documented() -> None:
    pattern = re.compile(r'(?:schema=|SCHEMA = )"(sluicegate\.[\w.-]+)"')
    sources = [path for top in ("cli", "core") for path in (ROOT / top).rglob("*.py")]
    # A saved plan is a file, not what a command prints.
    used = {name for path in sources for name in pattern.findall(path.read_text())}
    assert {*schemas.read()} == used - {"sluicegate.saved-plan"}


def test_another_shape_is_noticed() -> None:
    known = schemas.read()["sluicegate.locks"]
    lock = {"lock": "a", "held": True, "holders": [], "problem": None}
    document = {"schema": "sluicegate.locks", "version": known["version"], "locks": [lock]}
    check(document)
    for locks in ([{**lock, "held": "yes"}], [{"lock": "a"}], [{**lock, "new": 1}], 7):
        with pytest.raises(AssertionError, match=r"sluicegate\.locks: locks"):
            check({**document, "locks": locks})
    with pytest.raises(AssertionError, match="locks is absent"):
        check({"schema": "sluicegate.locks", "version": known["version"]})
