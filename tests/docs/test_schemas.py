"""Every command names the documents that it prints, and they are what their types say."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pytest
from generate.schemas import fields_of, in_words

from sluicegate.legacy import v1
from sluicegate.report import document
from sluicegate_cli import table
from sluicegate_cli.output.console import ERROR_SCHEMA
from sluicegate_cli.shell import load_module, run
from tests.docs.documents import (
    check,
    check_named,
    command_of,
    differences,
    documents,
    heed,
    modules,
    type_of,
)
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


def test_every_document_has_a_type() -> None:
    pattern = re.compile(r'(?:schema=|SCHEMA = )"(sluicegate\.[\w.-]+)"')
    sources = [path for top in ("cli", "core") for path in (ROOT / top).rglob("*.py")]
    # A saved plan is a file, not what a command prints.
    used = {name for path in sources for name in pattern.findall(path.read_text())}
    assert {*modules()} == used - {"sluicegate.saved-plan"}


def test_every_command_names_its_documents() -> None:
    named = {command: load_module(command).DOCUMENTS for command in table.COMMANDS}
    assert all(named.values())
    every = {schema for schemas in named.values() for schema in schemas}
    assert every == {*modules()} - {ERROR_SCHEMA}


def test_a_document_that_a_command_does_not_name_is_noticed() -> None:
    check_named("doctor", "sluicegate.doctor")
    check_named("doctor", ERROR_SCHEMA)
    with pytest.raises(AssertionError, match=r"`doctor` prints sluicegate\.plan"):
        check_named("doctor", "sluicegate.plan")


def test_a_document_is_of_one_module() -> None:
    type_of("sluicegate.locks")
    with pytest.raises(ValueError, match="two modules"):
        document("sluicegate.locks", version=1)(World)


HOLDER = {"user": "a", "host": "b", "pid": 1, "started": "", "command": "", "since": 1, "mode": ""}
LOCK = {"lock": "a", "held": True, "problem": None, "holders": [{**HOLDER, "process": "c"}]}
LOCKS = {"schema": "sluicegate.locks", "version": 1, "locks": [LOCK]}


def without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


@pytest.mark.parametrize(
    ("locks", "message"),
    [
        (7, "locks is 7, not list of objects"),
        ([without(LOCK, "held")], r"locks\[0\].held is missing"),
        ([LOCK, {**LOCK, "new": 1}], r"locks\[1\].new is unknown"),
        ([{**LOCK, "held": 1}], r"locks\[0\].held is 1, not boolean or null"),
        ([{**LOCK, "lock": None}], r"locks\[0\].lock is null, not string"),
        ([{**LOCK, "holders": None}], r"locks\[0\].holders is null, not list of objects"),
        (
            [{**LOCK, "holders": [{**HOLDER, "process": "c", "pid": True}]}],
            r"locks\[0\].holders\[0\].pid is true, not integer",
        ),
        ([{**LOCK, "holders": [HOLDER]}], r"locks\[0\].holders\[0\].process is missing"),
    ],
)
def test_another_shape_is_noticed(locks: Any, message: str) -> None:
    check(LOCKS)
    with pytest.raises(AssertionError, match=rf"sluicegate\.locks is not a .*: {message}$"):
        check({**LOCKS, "locks": locks})


def test_a_missing_field_and_another_version_are_noticed() -> None:
    with pytest.raises(AssertionError, match=r": locks is missing$"):
        check(without(LOCKS, "locks"))
    with pytest.raises(AssertionError, match="of version 2"):
        check({**LOCKS, "version": 2})
    with pytest.raises(AssertionError, match="no type is registered"):
        check({**LOCKS, "schema": "sluicegate.nothing"})


class Inner(TypedDict):
    one: int


class Other(TypedDict):
    two: NotRequired[str]  # the second


class Outer(Other):
    some: list[Inner | Other]
    pair: tuple[str, int] | None  # both
    by_name: dict[str, list[int]]
    open: dict[str, Any]


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, []),
        ({"two": "x", "some": [{"one": 1}, {"two": "x"}, {}]}, []),
        ({"two": None}, ["two is null, not string"]),
        ({"some": [{"one": "x"}]}, ['some[0].one is "x", not integer']),
        ({"some": ["x"]}, ['some[0] is "x", not object']),
        ({"pair": ["x", 1], "open": {"x": [None]}}, []),
        ({"pair": ["x"]}, ['pair is ["x"], not list or null']),
        ({"pair": [1, 1]}, ["pair[0] is 1, not string"]),
        ({"by_name": {"x": [1, 1.5]}}, ["by_name.x[1] is 1.5, not integer"]),
    ],
)
def test_every_kind_of_type_is_checked(changed: dict[str, Any], found: list[str]) -> None:
    value = {"some": [], "pair": None, "by_name": {}, "open": {}, **changed}
    assert list(differences(Outer, value, "")) == found


def test_types_in_words() -> None:
    fields = fields_of(Outer)
    assert {name: in_words(field.type) for name, field in fields.items()} == {
        "two": "string",
        "some": "list of objects",
        "pair": "list or null",
        "by_name": "object of lists of integers",
        "open": "object",
    }
    assert [name for name, field in fields.items() if field.left_out] == ["two"]
    meanings = {name: field.meaning for name, field in fields.items() if field.meaning}
    assert meanings == {"two": "the second", "pair": "both"}
    assert in_words(list[str | None]) == "list of strings or nulls"
    assert in_words(None | int | float) == "integer or number or null"
