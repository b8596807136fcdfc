"""Every damage and trap of SPARK.md, done to a copy of a real checkpoint."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Made:
    """A copy of one recipe's checkpoint, and what damages need to know of it."""

    root: Path

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def sink(self) -> Path | None:
        return self.root / "out" if (self.root / "out").is_dir() else None

    def log(self, name: str) -> list[int]:
        """The batches of a log, ascending."""
        found = (self.checkpoint / name).iterdir()
        return sorted(int(p.name) for p in found if p.name.isdigit())

    @property
    def last(self) -> int:
        return self.log("commits")[-1]

    def offsets(self, batch: int) -> Path:
        return self.checkpoint / "offsets" / str(batch)

    def commit(self, batch: int) -> Path:
        return self.checkpoint / "commits" / str(batch)

    def newest_state(self, suffix: str, version: int | None = None) -> Path:
        """The state file of a version (the newest committed one), in partition 0 if it can be.

        Not a delta beside a snapshot, which Spark writes from time to time and reads instead.
        """
        wanted = self.last + 1 if version is None else version
        pattern = re.compile(rf"{wanted}(_[0-9a-f-]+)?\.{suffix}")
        found = (p for p in (self.checkpoint / "state/0").rglob("*") if pattern.fullmatch(p.name))
        return min(p for p in found if suffix != "delta" or not _beside(p, "snapshot").exists())

    @property
    def source_log(self) -> Path:
        return min((self.checkpoint / "sources").iterdir())


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name.partition('.')[0]}.{suffix}")


class Inapplicable(Exception):
    """This checkpoint does not have what was to be damaged."""


Change = Callable[[Made], None]


@dataclass(frozen=True, slots=True)
class Damage:
    """What is done, on which recipes, and what verify must say of it.

    `codes` must all be found; with `exact`, no other error may be. No codes: it is harmless, and
    there must be no error at all.
    """

    name: str
    change: Change
    recipes: tuple[str, ...]
    codes: tuple[str, ...]
    read_data: bool = False
    exact: bool = True
    also: tuple[str, ...] = field(default=())


def _remove(path: Path) -> None:
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _cut(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(bytes(data))


def _set_partitions(path: Path, count: int) -> None:
    text = path.read_text()
    pattern = r'"spark.sql.shuffle.partitions":"\d+"'
    path.write_text(re.sub(pattern, f'"spark.sql.shuffle.partitions":"{count}"', text))


def offsets_empty(made: Made) -> None:
    made.offsets(made.log("offsets")[-1]).write_bytes(b"")


def offsets_cut(made: Made) -> None:
    _cut(made.offsets(made.log("offsets")[-1]), 60)


def offsets_without_sources(made: Made) -> None:
    path = made.offsets(made.log("offsets")[-1])
    path.write_text("\n".join(path.read_text().split("\n")[:2]))


def offsets_lose_one_source(made: Made) -> None:
    path = made.offsets(made.log("offsets")[-1])
    path.write_text("\n".join(path.read_text().split("\n")[:-1]))


def offsets_before_newest_empty(made: Made) -> None:
    made.offsets(made.log("offsets")[-2]).write_bytes(b"")


def offsets_newer_version(made: Made) -> None:
    path = made.offsets(made.log("offsets")[-1])
    path.write_text("v9" + path.read_text()[2:])


def offsets_deleted_but_committed(made: Made) -> None:
    _remove(made.offsets(made.last))


def offsets_gap(made: Made) -> None:
    _remove(made.offsets(made.log("offsets")[-2]))


def offsets_old_gap(made: Made) -> None:
    for log in ("offsets", "commits"):
        _remove(made.checkpoint / log / str(made.log(log)[-4]))


def offsets_all_missing(made: Made) -> None:
    for batch in made.log("offsets"):
        _remove(made.offsets(batch))


def offsets_directory_missing(made: Made) -> None:
    shutil.rmtree(made.checkpoint / "offsets")


def commit_missing(made: Made) -> None:
    _remove(made.commit(made.last))


def commits_missing(made: Made) -> None:
    for batch in made.log("commits")[-3:]:
        _remove(made.commit(batch))


def commit_empty(made: Made) -> None:
    made.commit(made.last).write_bytes(b"")


def commit_cut(made: Made) -> None:
    _cut(made.commit(made.last), 12)


def metadata_missing(made: Made) -> None:
    _remove(made.checkpoint / "metadata")


def metadata_empty(made: Made) -> None:
    (made.checkpoint / "metadata").write_bytes(b"")


def state_delta_missing(made: Made) -> None:
    _remove(made.newest_state("delta"))


def state_changelog_missing(made: Made) -> None:
    for suffix in ("changelog", "zip"):
        try:
            _remove(made.newest_state(suffix))
        except ValueError:
            continue


def state_zip_missing(made: Made) -> None:
    _remove(made.newest_state("zip"))


def state_sst_missing(made: Made) -> None:
    for sst in (made.checkpoint / "state/0/0").rglob("*.sst"):
        _remove(sst)


def state_directory_missing(made: Made) -> None:
    shutil.rmtree(made.checkpoint / "state/0/1")


def state_covered_by_snapshot(made: Made) -> None:
    """An old delta, below a snapshot that the newest version is loaded from."""
    snapshots = (made.checkpoint / "state/0/0").glob("*.snapshot")
    newest = max(int(p.name.split(".")[0]) for p in snapshots)
    _remove(made.checkpoint / f"state/0/0/{newest - 1}.delta")


def state_delta_empty(made: Made) -> None:
    made.newest_state("delta").write_bytes(b"")


def state_delta_cut(made: Made) -> None:
    path = made.newest_state("delta")
    _cut(path, path.stat().st_size // 2)


def state_delta_flipped(made: Made) -> None:
    _flip(made.newest_state("delta"))


def state_zip_flipped(made: Made) -> None:
    _flip(made.newest_state("zip"))


def state_changelog_cut(made: Made) -> None:
    path = made.newest_state("changelog")
    # A snapshot of the same version would make the changelog needless.
    for snapshot in path.parent.glob(f"{made.last + 1}.zip"):
        _remove(snapshot)
    _cut(path, path.stat().st_size // 2)


def state_crc_stale(made: Made) -> None:
    crc = next(p for p in (made.checkpoint / "state/0/0").glob("[0-9]*.crc"))
    fields = json.loads(crc.read_text())
    crc.write_text(json.dumps(fields | {"value": fields["value"] ^ 1}))


def state_tail_cut(made: Made) -> None:
    path = made.newest_state("delta")
    _cut(path, path.stat().st_size - 5)


def source_entry_missing(made: Made) -> None:
    _remove(made.source_log / str(max(int(p.name) for p in made.source_log.iterdir()
                                      if p.name.isdigit())))  # fmt: skip


def source_entry_cut(made: Made) -> None:
    numbers = [int(p.name) for p in made.source_log.iterdir() if p.name.isdigit()]
    _cut(made.source_log / str(max(numbers)), 20)


def source_compact_missing(made: Made) -> None:
    for path in made.source_log.glob("*.compact"):
        _remove(path)


def source_compact_cut(made: Made) -> None:
    path = max(made.source_log.glob("*.compact"), key=lambda p: int(p.name.split(".")[0]))
    _cut(path, path.stat().st_size - 7)


def sink_compact_cut(made: Made) -> None:
    assert made.sink
    compacts = (made.sink / "_spark_metadata").glob("*.compact")
    path = max(compacts, key=lambda p: int(p.name.split(".")[0]))
    _cut(path, path.stat().st_size - 7)


def source_log_missing(made: Made) -> None:
    shutil.rmtree(made.source_log)


def trap_a_delete_two(made: Made) -> None:
    for batch in made.log("offsets")[-2:]:
        _remove(made.offsets(batch))
        _remove(made.commit(batch))


def trap_a_delete_one_by_hand(made: Made) -> None:
    """As people do it: without the hidden checksum."""
    made.offsets(made.last).unlink()
    made.commit(made.last).unlink()


def trap_b_rollback_by_hand(made: Made) -> None:
    for batch in made.log("offsets")[-3:]:
        _remove(made.offsets(batch))
        made.commit(batch).unlink(missing_ok=True)
    for path in made.source_log.iterdir() if (made.checkpoint / "sources").is_dir() else ():
        number = path.name.strip(".").split(".")[0]
        if number.isdigit() and int(number) > 8:
            path.unlink()


def trap_e_fresh_checkpoint(made: Made) -> None:
    for batch in made.log("offsets")[1:]:
        _remove(made.offsets(batch))
        _remove(made.commit(batch))
    for path in made.source_log.iterdir():
        if path.name.strip(".").split(".")[0] != "0":
            path.unlink()


def sink_entry_missing(made: Made) -> None:
    assert made.sink
    numbers = [int(p.name) for p in (made.sink / "_spark_metadata").iterdir() if p.name.isdigit()]
    _remove(made.sink / "_spark_metadata" / str(max(numbers)))


def sink_entry_cut(made: Made) -> None:
    assert made.sink
    numbers = [int(p.name) for p in (made.sink / "_spark_metadata").iterdir() if p.name.isdigit()]
    _cut(made.sink / "_spark_metadata" / str(max(numbers)), 30)


def sink_middle_entry_missing(made: Made) -> None:
    assert made.sink
    _remove(made.sink / "_spark_metadata" / "10")


def sink_file_missing(made: Made) -> None:
    assert made.sink
    min(p for p in made.sink.iterdir() if p.name.startswith("part-")).unlink()


def sink_stray_file(made: Made) -> None:
    assert made.sink
    (made.sink / "part-99999-stray.parquet").write_bytes(b"x")


def partitions_more(made: Made) -> None:
    _set_partitions(made.offsets(made.log("offsets")[-1]), 3)


def partitions_fewer(made: Made) -> None:
    _set_partitions(made.offsets(made.log("offsets")[-1]), 1)


def repartition_half_done(made: Made) -> None:
    last = made.log("offsets")[-1]
    shutil.copy(made.offsets(last), made.offsets(last + 1))
    _set_partitions(made.offsets(last + 1), 3)


def without_hidden_files(made: Made) -> None:
    for path in made.root.rglob(".*"):
        if path.is_file():
            path.unlink()


def temporary_file(made: Made) -> None:
    (made.checkpoint / "offsets" / ".99.1b2c.tmp").write_text("v1")


def temporary_state_file(made: Made) -> None:
    (made.checkpoint / "state/0/0/.99.delta.1b2c.TID7.tmp").write_bytes(b"")


def source_compact_huge(made: Made) -> None:
    """Mostly a hole, with its true last line at the end."""
    path = max(made.source_log.glob("*.compact"), key=lambda p: int(p.name.split(".")[0]))
    last = path.read_bytes().rsplit(b"\n", 1)[1]
    with path.open("r+b") as stream:
        stream.seek(65 << 20)
        stream.write(b"\n" + last)


def state_store_missing(made: Made) -> None:
    shutil.rmtree(made.checkpoint / "state/0/0/left-keyToNumValues")


def state_operator_missing(made: Made) -> None:
    shutil.rmtree(made.checkpoint / "state/0")


def state_all_missing(made: Made) -> None:
    shutil.rmtree(made.checkpoint / "state")


def state_of_replay_missing(made: Made) -> None:
    """Only the newest batch is run again, so its predecessor's state counts, committed or not."""
    for batch in made.log("commits")[-3:]:
        _remove(made.commit(batch))
    version = made.log("offsets")[-1]
    for path in (made.checkpoint / "state/0").rglob(f"{version}.delta"):
        path.unlink()
    for path in (made.checkpoint / "state/0").rglob("*.snapshot"):
        path.unlink()


def operator_metadata_empty(made: Made) -> None:
    path = made.checkpoint / "state/0/_metadata/metadata"
    if not path.exists():
        raise Inapplicable("Spark 3.5 does not describe its operators")
    path.write_bytes(b"")


def schema_missing(made: Made) -> None:
    shutil.rmtree(made.checkpoint / "state/0/_stateSchema")


def offsets_alone(made: Made) -> None:
    for log in ("offsets", "commits"):
        for batch in made.log(log)[:-1]:
            _remove(made.checkpoint / log / str(batch))


def offsets_range_deleted_by_hand(made: Made) -> None:
    """In both logs, as asynchronous progress would leave it, but for the checksums."""
    for log in ("offsets", "commits"):
        for batch in made.log(log)[-4:-1]:
            (made.checkpoint / log / str(batch)).unlink()


def offsets_stray_number(made: Made) -> None:
    """A name like a date must not make us count up to it."""
    newest = made.offsets(made.log("offsets")[-1])
    shutil.copy(newest, newest.with_name("9999999999999999999"))
    huge = re.sub(r'"spark.sql.shuffle.partitions":"[0-9]+"',
                  '"spark.sql.shuffle.partitions":"9999999999"', newest.read_text())  # fmt: skip
    newest.with_name("9999999999999999999").write_text(
        huge.replace('"logOffset":11', '"logOffset":99999999999')
    )


def offsets_is_a_file(made: Made) -> None:
    shutil.rmtree(made.checkpoint / "commits")
    (made.checkpoint / "commits").write_text("not a directory")


def source_compact_newer_version(made: Made) -> None:
    path = max(made.source_log.glob("*.compact"), key=lambda p: int(p.name.split(".")[0]))
    path.write_bytes(b"v7" + path.read_bytes()[2:])


def sink_log_missing(made: Made) -> None:
    assert made.sink
    shutil.rmtree(made.sink / "_spark_metadata")


def sink_file_empty(made: Made) -> None:
    assert made.sink
    min(p for p in made.sink.iterdir() if p.name.startswith("part-")).write_bytes(b"")


DAMAGES = (
    Damage(
        "a store's state missing",
        state_store_missing,
        ("join-hdfs", "join-changelog-f2"),
        ("SG-STATE-MISSING",),
    ),
    Damage(
        "an operator's state missing",
        state_operator_missing,
        ("dedup-agg-hdfs", "join-changelog-f2"),
        ("SG-STATE-MISSING",),
    ),
    Damage(
        "all state missing, format 2",
        state_all_missing,
        ("agg-changelog-f2", "agg-rocksdb-f2"),
        ("SG-STATE-MISSING",),
    ),
    Damage(
        "state of a batch to replay missing",
        state_of_replay_missing,
        ("agg-hdfs", "session-hdfs"),
        ("SG-STATE-MISSING",),
    ),
    Damage(
        "operator metadata empty",
        operator_metadata_empty,
        ("agg-hdfs", "dedup-changelog"),
        (),
        also=("SG-STATE-METADATA",),
    ),
    Damage(
        "state schema missing",
        schema_missing,
        ("tws-rocksdb", "join-v3-changelog"),
        (),
        also=("SG-STATE-METADATA",),
    ),
    Damage(
        "one offsets file left",
        offsets_alone,
        ("stateless-python", "agg-hdfs"),
        ("SG-OFFSETS-GAP",),
    ),
    Damage(
        "several batches deleted by hand",
        offsets_range_deleted_by_hand,
        ("stateless-python", "dedup-hdfs"),
        ("SG-OFFSETS-GAP",),
    ),
    Damage(
        "a stray huge number",
        offsets_stray_number,
        ("agg-hdfs", "stateless-parquet"),
        (),
        exact=False,
        also=("SG-OFFSETS-GAP-OLD",),
    ),
    Damage(
        "a file where a log belongs",
        offsets_is_a_file,
        ("agg-hdfs", "stateless-parquet"),
        ("SG-CHECKPOINT-UNREADABLE",),
    ),
    Damage(
        "source compact file of a newer version",
        source_compact_newer_version,
        ("stateless-parquet", "agg-hdfs"),
        (),
        also=("SG-UNKNOWN-VERSION",),
    ),
    Damage(
        "sink log missing",
        sink_log_missing,
        ("stateless-parquet", "agg-hdfs"),
        (),
        also=("SG-SINK-NO-LOG",),
    ),
    Damage(
        "sink file empty",
        sink_file_empty,
        ("stateless-parquet", "dedup-changelog"),
        ("SG-SINK-MISSING-FILE",),
    ),
    Damage(
        "temporary state file left",
        temporary_state_file,
        ("agg-hdfs", "dedup-hdfs"),
        (),
        also=("SG-TEMPORARY-FILES",),
    ),
    Damage(
        "huge compact file",
        source_compact_huge,
        ("stateless-parquet", "agg-hdfs"),
        (),
        also=("SG-COMPACT-GROWTH",),
    ),
    Damage(
        "offsets empty",
        offsets_empty,
        ("stateless-parquet", "agg-rocksdb-f2"),
        ("SG-OFFSETS-EMPTY",),
    ),
    Damage("offsets cut", offsets_cut, ("agg-hdfs", "stateless-named"), ("SG-OFFSETS-EMPTY",)),
    Damage(
        "offsets without sources",
        offsets_without_sources,
        ("dedup-hdfs", "agg-changelog-f2"),
        ("SG-OFFSETS-EMPTY",),
    ),
    Damage(
        "offsets lose a source",
        offsets_lose_one_source,
        ("join-hdfs", "join-rocksdb"),
        ("SG-OFFSETS-EMPTY",),
    ),
    Damage(
        "offsets before newest empty",
        offsets_before_newest_empty,
        ("agg-hdfs", "stateless-python"),
        ("SG-OFFSETS-EMPTY",),
    ),
    Damage(
        "offsets of a newer version",
        offsets_newer_version,
        ("stateless-python", "agg-hdfs"),
        (),
        also=("SG-UNKNOWN-VERSION",),
    ),
    Damage(
        "offsets deleted but committed",
        offsets_deleted_but_committed,
        ("stateless-python", "dedup-hdfs"),
        ("SG-OFFSETS-BEHIND-COMMIT",),
        exact=False,
    ),
    Damage(
        "offsets gap",
        offsets_gap,
        ("stateless-parquet", "agg-changelog-purged"),
        ("SG-OFFSETS-GAP",),
    ),
    Damage(
        "offsets gap further back",
        offsets_old_gap,
        ("stateless-python", "dedup-hdfs"),
        (),
        also=("SG-OFFSETS-GAP-OLD",),
    ),
    Damage(
        "all offsets missing",
        offsets_all_missing,
        ("stateless-parquet", "agg-rocksdb"),
        ("SG-OFFSETS-MISSING",),
    ),
    Damage(
        "offsets directory missing",
        offsets_directory_missing,
        ("stateless-python", "dedup-changelog"),
        ("SG-OFFSETS-MISSING",),
    ),
    Damage("newest commit missing", commit_missing, ("stateless-parquet", "agg-hdfs"), ()),
    Damage(
        "several commits missing",
        commits_missing,
        ("stateless-python", "agg-rocksdb"),
        (),
        also=("SG-COMMITS-BEHIND",),
    ),
    Damage(
        "newest commit empty",
        commit_empty,
        ("stateless-parquet", "agg-rocksdb-f2"),
        ("SG-COMMIT-EMPTY",),
    ),
    Damage(
        "newest commit cut", commit_cut, ("agg-hdfs", "join-changelog-f2"), ("SG-COMMIT-EMPTY",)
    ),
    Damage(
        "metadata missing",
        metadata_missing,
        ("stateless-parquet", "tws-rocksdb"),
        ("SG-METADATA-MISSING",),
    ),
    Damage(
        "metadata empty", metadata_empty, ("stateless-python", "agg-hdfs"), ("SG-METADATA-DAMAGED",)
    ),
    Damage(
        "newest delta missing",
        state_delta_missing,
        ("agg-hdfs", "join-hdfs"),
        ("SG-STATE-MISSING",),
    ),
    Damage(
        "newest changelog missing",
        state_changelog_missing,
        ("dedup-changelog", "agg-changelog-f2"),
        ("SG-STATE-MISSING",),
    ),
    Damage(
        "newest zip missing",
        state_zip_missing,
        ("agg-rocksdb", "agg-rocksdb-f2"),
        ("SG-STATE-MISSING",),
    ),
    Damage(
        "SST files missing",
        state_sst_missing,
        ("agg-rocksdb", "tws-rocksdb"),
        ("SG-STATE-MISSING",),
    ),
    Damage(
        "a partition's state missing",
        state_directory_missing,
        ("agg-hdfs", "agg-rocksdb"),
        ("SG-PARTITIONS-CHANGED",),
    ),
    Damage(
        "delta below a snapshot missing",
        state_covered_by_snapshot,
        ("agg-hdfs", "session-hdfs"),
        (),
    ),
    Damage(
        "newest delta empty", state_delta_empty, ("agg-hdfs", "join-hdfs"), ("SG-STATE-CORRUPT",)
    ),
    Damage(
        "newest delta cut",
        state_delta_cut,
        ("agg-hdfs", "join-hdfs"),
        ("SG-STATE-CORRUPT",),
        read_data=True,
    ),
    Damage(
        "delta cut behind its records",
        state_tail_cut,
        ("agg-hdfs", "join-hdfs"),
        (),
        read_data=True,
        also=("SG-STATE-TAIL",),
    ),
    Damage(
        "newest delta flipped",
        state_delta_flipped,
        ("agg-hdfs", "join-hdfs"),
        ("SG-STATE-CORRUPT",),
        read_data=True,
    ),
    Damage(
        "newest zip flipped",
        state_zip_flipped,
        ("agg-rocksdb", "agg-rocksdb-f2"),
        ("SG-STATE-CORRUPT",),
        read_data=True,
        exact=False,
    ),
    Damage(
        "newest changelog cut",
        state_changelog_cut,
        ("agg-changelog-failed", "agg-changelog-purged"),
        ("SG-STATE-CORRUPT",),
        read_data=True,
    ),
    Damage(
        "visible checksum stale",
        state_crc_stale,
        ("agg-changelog-f2", "agg-rocksdb-f2"),
        ("SG-CRC-STALE",),
        read_data=True,
    ),
    Damage(
        "source entry missing",
        source_entry_missing,
        ("stateless-parquet", "agg-hdfs"),
        ("SG-SOURCE-LOG-GAP",),
    ),
    Damage(
        "source entry cut",
        source_entry_cut,
        ("stateless-parquet", "join-hdfs"),
        ("SG-SOURCE-LOG-GAP",),
    ),
    Damage(
        "source compact file missing",
        source_compact_missing,
        ("stateless-parquet", "agg-rocksdb-f2"),
        ("SG-SOURCE-LOG-GAP",),
    ),
    Damage(
        "source compact file cut",
        source_compact_cut,
        ("stateless-compact3", "agg-hdfs"),
        ("SG-SOURCE-LOG-GAP",),
    ),
    Damage(
        "source log missing",
        source_log_missing,
        ("stateless-parquet", "stateless-named"),
        ("SG-SOURCE-LOG-GAP",),
    ),
    Damage(
        "trap A, two batches deleted",
        trap_a_delete_two,
        ("stateless-compact3", "dedup-changelog"),
        ("SG-SINK-AHEAD",),
        exact=False,
        also=("SG-SOURCE-LOG-UNPLANNED",),
    ),
    Damage(
        "trap A, one deleted by hand",
        trap_a_delete_one_by_hand,
        ("stateless-compact3", "stateless-parquet"),
        ("SG-SOURCE-LOG-AHEAD",),
        exact=False,
    ),
    Damage(
        "trap B, rollback by hand",
        trap_b_rollback_by_hand,
        ("agg-rocksdb", "dedup-hdfs"),
        ("SG-STATE-AHEAD",),
        exact=False,
    ),
    Damage(
        "trap E, fresh checkpoint into an old sink",
        trap_e_fresh_checkpoint,
        ("stateless-parquet", "stateless-compact3"),
        ("SG-SINK-AHEAD",),
        exact=False,
    ),
    Damage(
        "sink entry missing",
        sink_entry_missing,
        ("stateless-parquet", "agg-hdfs"),
        ("SG-SINK-LOG-GAP",),
        also=("SG-SINK-UNLISTED",),
    ),
    Damage(
        "sink entry cut",
        sink_entry_cut,
        ("stateless-parquet", "tws-changelog-f2"),
        ("SG-SINK-LOG-GAP",),
    ),
    Damage(
        "sink compact file cut",
        sink_compact_cut,
        ("stateless-compact3",),
        ("SG-SINK-LOG-GAP",),
    ),
    Damage(
        "middle sink entry missing",
        sink_middle_entry_missing,
        ("stateless-parquet", "dedup-changelog"),
        ("SG-SINK-LOG-GAP",),
    ),
    Damage(
        "sink file missing",
        sink_file_missing,
        ("stateless-parquet", "agg-hdfs"),
        ("SG-SINK-MISSING-FILE",),
    ),
    Damage(
        "sink has a stray file",
        sink_stray_file,
        ("stateless-parquet", "stateless-named"),
        (),
        also=("SG-SINK-UNLISTED",),
    ),
    Damage(
        "more partitions by hand",
        partitions_more,
        ("agg-hdfs", "agg-rocksdb"),
        ("SG-PARTITIONS-CHANGED",),
    ),
    Damage(
        "fewer partitions by hand",
        partitions_fewer,
        ("agg-hdfs", "dedup-changelog"),
        ("SG-PARTITIONS-CHANGED",),
    ),
    Damage(
        "repartition half done",
        repartition_half_done,
        ("agg-hdfs", "agg-rocksdb"),
        ("SG-REPARTITION-HALF-DONE",),
    ),
    Damage(
        "copied without hidden files",
        without_hidden_files,
        ("stateless-parquet", "agg-changelog-f2"),
        (),
    ),
    Damage(
        "temporary file left",
        temporary_file,
        ("stateless-parquet", "agg-hdfs"),
        (),
        also=("SG-TEMPORARY-FILES",),
    ),
)
