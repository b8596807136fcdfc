"""Names of state files, and which versions load: against Spark's own procedure, written again."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.checkpoint.format.state_data import LineageItem, StateKind
from sluicegate.checkpoint.format.state_store import (
    Chain,
    Missing,
    Provider,
    StateFile,
    StateListing,
    chain,
    chain_by_lineage,
    lineage_reader,
    list_state,
    parse_name,
    sort_names,
    state_versions,
)
from sluicegate.errors import Corrupt
from sluicegate.storage import LocalStorage
from tests.checkpoint import state_encoder as enc

A, B = "aaaaaaaa-0000-4000-8000-000000000000", "bbbbbbbb-0000-4000-8000-000000000000"
DELTA, SNAPSHOT, CHANGELOG, ZIP = (
    StateKind.DELTA,
    StateKind.SNAPSHOT,
    StateKind.CHANGELOG,
    StateKind.ZIP,
)


def listing(names: str) -> StateListing:
    return sort_names(names.split())


def missing(found: Chain) -> list[str]:
    return [str(each) for each in found.missing]


def names(found: Chain) -> list[str]:
    return [file.name for file in found.files]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("1.delta", StateFile(1, DELTA)),
        ("10.snapshot", StateFile(10, SNAPSHOT)),
        ("7.zip", StateFile(7, ZIP)),
        ("7.changelog", StateFile(7, CHANGELOG)),
        (f"7_{A}.zip", StateFile(7, ZIP, A)),
        (f"12_{B}.changelog", StateFile(12, CHANGELOG, B)),
        ("0.zip", StateFile(0, ZIP)),
    ],
)
def test_names(name: str, file: StateFile) -> None:
    assert parse_name(name) == file
    assert file.name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "01.delta",
        "-1.delta",
        "1.delta.crc",
        ".1.delta",
        "1",
        "1.deltas",
        f"1_{A}.delta",
        "1_.zip",
        "1_a_b.zip",
        "1_a/b.zip",
        "١.delta",
        "9" * 20 + ".delta",
        "1.delta\n",
        "schema",
    ],
)
def test_names_of_something_else(name: str) -> None:
    assert parse_name(name) is None


def test_listing() -> None:
    found = listing(
        f"2.delta 10.delta 1.delta 10.snapshot .1.delta.crc .3_{A}.zip.crc.crc 9.changelog.crc "
        f".10.delta.{A}.tmp ..10.delta.{A}.tmp.crc readme 1.zip.old"
    )
    assert [file.name for file in found.files] == ["1.delta", "2.delta", "10.delta", "10.snapshot"]
    assert found.hidden == {"1.delta", f"3_{A}.zip.crc"}
    assert found.visible == {"9.changelog"}
    assert found.orphan_sums == ("9.changelog.crc",)
    assert found.temporary == (f"..10.delta.{A}.tmp.crc", f".10.delta.{A}.tmp")
    assert found.other == ("1.zip.old", "readme")
    assert (found.provider, found.format, found.newest_file) == (Provider.HDFS, 1, 10)
    assert not found.mixed


def test_listing_of_nothing() -> None:
    found = listing("")
    assert (found.provider, found.format, found.newest_file, found.mixed) == (None, 1, None, False)
    assert state_versions(found).newest is None
    assert missing(chain(found, 4)) == ["all files of versions 1 to 4"]


def test_two_providers() -> None:
    found = listing("1.delta 2.delta 3.zip 4.changelog")
    assert (found.mixed, found.provider) == (True, Provider.ROCKSDB)
    assert state_versions(found).loadable == (3, 4)


def test_hdfs_from_the_beginning() -> None:
    found = listing("1.delta 2.delta 3.delta")
    assert state_versions(found).loadable == (1, 2, 3)
    assert names(chain(found, 3)) == ["1.delta", "2.delta", "3.delta"]
    assert chain(found, 0) == Chain(0, None, (), ())


def test_hdfs_purged() -> None:
    found = listing("7.delta 8.delta 8.snapshot 9.delta 10.delta")
    assert state_versions(found).loadable == (8, 9, 10)
    assert (state_versions(found).oldest, state_versions(found).newest) == (8, 10)
    assert names(chain(found, 10)) == ["8.snapshot", "9.delta", "10.delta"]
    assert missing(chain(found, 7)) == ["1.delta to 6.delta"]


def test_a_gap_that_a_newer_snapshot_covers_is_harmless() -> None:
    found = listing("1.delta 3.delta 4.delta 5.snapshot 6.delta")
    assert state_versions(found).loadable == (1, 5, 6)
    assert missing(chain(found, 4)) == ["2.delta"]
    assert missing(chain(found, 8)) == ["7.delta to 8.delta"]


def test_version_0_is_empty_and_not_counted() -> None:
    assert state_versions(listing("0.zip 1.changelog")).loadable == (1,)
    assert names(chain(listing("0.zip 1.changelog"), 1)) == ["0.zip", "1.changelog"]


def test_rocksdb_without_changelog() -> None:
    found = listing("3.zip 4.zip 6.zip")
    assert state_versions(found).loadable == (3, 4, 6)
    assert missing(chain(found, 5)) == ["5.zip"]
    assert names(chain(found, 6)) == ["6.zip"]


def test_rocksdb_with_changelog() -> None:
    found = listing("2.changelog 3.changelog 3.zip 4.changelog 5.changelog")
    assert state_versions(found).loadable == (3, 4, 5)
    assert names(chain(found, 5)) == ["3.zip", "4.changelog", "5.changelog"]
    assert missing(chain(found, 6)) == ["6.changelog"]


def test_format_2_follows_the_ids_of_the_commit_log() -> None:
    found = listing(f"1_{A}.changelog 2_{A}.changelog 2_{B}.changelog 2_{B}.zip 3_{A}.changelog")
    assert found.format == 2
    ids = {1: A, 2: A, 3: A}
    assert names(chain(found, 3, ids)) == [f"{v}_{A}.changelog" for v in (1, 2, 3)]
    assert names(chain(found, 3, ids | {2: B})) == [f"2_{B}.zip", f"3_{A}.changelog"]
    assert missing(chain(found, 3, ids | {3: B})) == [f"3_{B}.changelog"]
    assert state_versions(found, ids | {1: B}).loadable == ()
    assert state_versions(found, ids | {3: B}).loadable == (1, 2)


def test_format_2_without_ids_gives_the_benefit_of_the_doubt() -> None:
    found = listing(f"1_{A}.changelog 2_{A}.changelog 2_{B}.changelog 4_{A}.changelog")
    assert state_versions(found).loadable == (1, 2)
    assert missing(chain(found, 4)) == ["3_*.changelog"]
    assert missing(chain(found, 7)) == ["3_*.changelog", "5_*.changelog to 7_*.changelog"]


def lineage(*items: tuple[int, str]) -> dict[str, tuple[LineageItem, ...]]:
    """Of a changelog `<last + 1>_A`."""
    return {f"{items[-1][0] + 1}_{A}.changelog": tuple(LineageItem(*item) for item in items)}


def by_lineage(files: str, version: int, known: dict[str, tuple[LineageItem, ...]]) -> Chain:
    return chain_by_lineage(listing(files), version, A, lambda file: known[file.name])


def test_lineage_from_the_beginning() -> None:
    files = f"1_{B}.changelog 1_{A}.changelog 2_{A}.changelog"
    found = by_lineage(files, 2, lineage((1, B)))
    assert names(found) == [f"1_{B}.changelog", f"2_{A}.changelog"]
    assert found.loadable


def test_lineage_from_a_zip() -> None:
    files = f"4_{B}.zip 5_{B}.changelog 6_{A}.changelog 6_{B}.zip 5_{A}.zip"
    found = by_lineage(files, 6, lineage((4, B), (5, B)))
    assert names(found) == [f"4_{B}.zip", f"5_{B}.changelog", f"6_{A}.changelog"]
    assert found.loadable


def test_lineage_that_does_not_end_before_its_version() -> None:
    files = f"1_{B}.changelog 2_{A}.changelog 3_{B}.zip 2_{B}.zip"
    known = {f"2_{A}.changelog": tuple(LineageItem(v, B) for v in (-1, 0, 1, 2, 3))}
    assert names(by_lineage(files, 2, known)) == [f"1_{B}.changelog", f"2_{A}.changelog"]
    known = lineage((-1, B), (4, B), (5, B))
    assert missing(by_lineage(f"6_{A}.changelog", 6, known)) == [f"4_{B}.zip"]


def test_a_zip_of_its_own_needs_no_lineage() -> None:
    assert names(by_lineage(f"6_{A}.zip 6_{A}.changelog", 6, {})) == [f"6_{A}.zip"]


def test_lineage_without_its_files() -> None:
    assert missing(by_lineage("", 6, {})) == [f"6_{A}.changelog"]
    own = f"6_{A}.changelog"
    assert missing(by_lineage(own, 6, lineage((4, B), (5, B)))) == [f"4_{B}.zip"]
    assert missing(by_lineage(f"{own} 4_{B}.zip", 6, lineage((4, B), (5, B)))) == [
        f"5_{B}.changelog"
    ]
    assert missing(by_lineage(f"{own} 3_{B}.zip", 6, lineage((3, B), (5, B)))) == [
        "4_*.changelog to 5_*.changelog"
    ]


def test_lineage_is_read_from_the_file(tmp_path: Path) -> None:
    store = tmp_path / "state/0/0"
    store.mkdir(parents=True)
    for version, before in ((1, []), (2, [(1, A)]), (3, [(1, A), (2, B)])):
        data = enc.lz4(enc.changelog(3, [], before))
        for uid in (A, B):
            (store / f"{version}_{uid}.changelog").write_bytes(data)
    (store / f"9_{A}.changelog").write_bytes(b"torn")
    (store / "1.delta").mkdir()
    storage = LocalStorage(tmp_path)
    found = list_state(storage, "state/0/0")
    assert len(found.files) == 7
    read = lineage_reader(storage, "state/0/0")
    loaded = names(chain_by_lineage(found, 3, A, read))
    assert loaded == [f"1_{A}.changelog", f"2_{B}.changelog", f"3_{A}.changelog"]
    with pytest.raises(Corrupt, match=f"state/0/0/9_{A}.changelog, byte 4: ends"):
        chain_by_lineage(found, 9, A, read)


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    assert list_state(LocalStorage(tmp_path), "state/0/0") == StateListing()


def spark_loads(there: set[str], version: int, base: str, change: str) -> bool:
    """Whether Spark loads a version of format 1: look back for a base, then apply each change."""
    start = version
    while start > 0 and f"{start}.{base}" not in there:
        start -= 1
    return all(f"{v}.{change}" in there for v in range(start + 1, version + 1))


@given(
    st.sampled_from((("snapshot", "delta"), ("zip", "changelog"))),
    st.sets(st.integers(1, 9)),
    st.sets(st.integers(1, 9)),
)
def test_versions_load_as_in_spark(
    kinds: tuple[str, str], bases: set[int], changes: set[int]
) -> None:
    base, change = kinds
    there = {f"{v}.{base}" for v in bases} | {f"{v}.{change}" for v in changes}
    found = sort_names(there)
    expected = tuple(v for v in range(1, 11) if spark_loads(there, v, base, change))
    assert state_versions(found).loadable == expected
    for version in range(1, 11):
        loaded = chain(found, version)
        assert loaded.loadable == (version in expected)
        assert set(names(loaded)) <= there


@given(st.data())
def test_lineage_and_names_agree(data: st.DataObject) -> None:
    """A history of attempts, of which one of each version counts; the ids tell the same."""
    ids: dict[int, str] = {}
    files: set[str] = set()
    lineages: dict[str, list[LineageItem]] = {}
    since: list[LineageItem] = []
    for version in range(1, data.draw(st.integers(2, 8))):
        attempts = data.draw(st.lists(st.uuids().map(str), min_size=1, max_size=3, unique=True))
        for uid in attempts:
            files.add(f"{version}_{uid}.changelog")
            lineages[f"{version}_{uid}.changelog"] = list(since)
            if data.draw(st.booleans()):
                files.add(f"{version}_{uid}.zip")
        ids[version] = uid = attempts[0]
        if f"{version}_{uid}.zip" in files:
            since = []
        since = [*since, LineageItem(version, uid)]
    found = sort_names(files)
    for version, uid in ids.items():
        exact = chain_by_lineage(found, version, uid, lambda file: lineages[file.name])
        assert exact == chain(found, version, ids)
        assert exact.loadable


def test_a_stray_huge_number_costs_nothing() -> None:
    found = sort_names(["1.delta", "9999999999999999999.delta"])
    assert missing(chain(found, 9999999999999999999)) == ["2.delta to 9999999999999999998.delta"]
    assert state_versions(found).loadable == (1,)


def test_many_files_take_linear_time() -> None:
    found = sort_names(f"{v}.delta" for v in range(1, 50_001))
    before = time.perf_counter()
    assert state_versions(found).newest == 50_000
    assert chain(found, 50_000).loadable
    assert time.perf_counter() - before < 5


def test_missing_files_are_named() -> None:
    assert str(Missing(ZIP, 3, 3)) == "3.zip"
    assert str(Missing(CHANGELOG, 3, 3, A)) == f"3_{A}.changelog"


def test_the_state_of_the_last_commit_loads_in_all_of_the_lab(lab: Path) -> None:
    seen = 0
    for root in sorted(path.parent for path in lab.rglob("commits")):
        commits = {int(p.name): p for p in (root / "commits").iterdir() if p.name.isdigit()}
        storage = LocalStorage(root)
        last = max(commits, default=None)
        stores = {
            p.parent for p in (root / "state").rglob("*") if p.is_file() and parse_name(p.name)
        }
        for store in stores if last is not None else ():
            assert last is not None
            key = str(store.relative_to(root))
            found = list_state(storage, key)
            ids = _ids(found, commits, key)
            assert found.other == ()
            assert last + 1 in state_versions(found, ids).loadable, store
            for version in state_versions(found, ids).loadable:
                loaded = chain(found, version, ids)
                assert loaded.loadable
                if version in ids:
                    read = lineage_reader(storage, key)
                    assert chain_by_lineage(found, version, ids[version], read) == loaded
            seen += 1
    assert seen


def _ids(found: StateListing, commits: dict[int, Path], key: str) -> dict[int, str]:
    """The ids of the store's versions, by the commit log; a join's partition has one per store."""
    _, operator, partition, *_ = key.split("/")
    there = {(file.version, file.uid) for file in found.files}
    ids = {}
    for batch, path in commits.items():
        known = json.loads(path.read_text().partition("\n")[2] or "{}").get("stateUniqueIds", {})
        for uid in known.get(operator, [[]] * 99)[int(partition)]:
            if (batch + 1, uid) in there:
                ids[batch + 1] = uid
    return ids
