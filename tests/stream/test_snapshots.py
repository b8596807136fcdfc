"""The files of a chain: what goes in comes out, and everything else is reported as damage."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate import codec
from sluicegate.codec import digest_of
from sluicegate.errors import Corrupt, UnsupportedFormat
from sluicegate.positions import Position, Positions
from sluicegate.process import Who
from sluicegate.state import delta, manifest
from sluicegate.state.delta import DeltaInvalid, Merge
from sluicegate.storage import LocalStorage
from sluicegate.storage.blobs import BlobDamaged, Blobs, Ref
from sluicegate.stream import chain as hints
from sluicegate.stream import snapshot as snapshots
from sluicegate.stream.chain import HEAD, Hint, read_hint, write_hint
from sluicegate.stream.journal import StreamJournal
from sluicegate.stream.snapshot import HeadDamaged, Kind, Manifest, Snapshot, SnapshotDamaged
from sluicegate.stream.verify import verify
from sluicegate.stream.writer import StreamWriter
from tests.stream import streams

counts = st.integers(0, 2**64 - 1)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
refs = st.builds(Ref, digests, st.integers(0, 2**63))
manifests = st.builds(
    Manifest, st.none() | refs, st.lists(refs, max_size=snapshots.MAX_DELTAS).map(tuple)
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=10,
)
maps = st.dictionaries(st.text(max_size=9), values, max_size=4)
positions = st.builds(
    Positions.of,
    st.lists(
        st.builds(
            Position,
            st.text(min_size=1, max_size=9).filter(str.isprintable),
            st.integers(0, 2**31 - 1),
            st.integers(0, 2**63 - 1),
        ),
        max_size=6,
        unique_by=lambda each: (each.topic, each.partition),
    ),
)
people = st.builds(
    Who, st.text(), st.text(), st.integers(1, 2**31 - 1), st.text(), st.text(max_size=20)
)


nonces = st.binary(min_size=16, max_size=16).map(bytes.hex)


def ancestry_of(edges: list[int]) -> tuple[tuple[int, int], ...]:
    return tuple(zip(*[iter(sorted(edges))] * 2, strict=True))


any_snapshot = st.builds(
    Snapshot,
    stream=st.text(),
    stream_id=st.text(),
    number=counts,
    kind=st.sampled_from(Kind),
    parent=st.none() | digests,
    generation=counts,
    writer=st.none() | st.text(),
    nonce=nonces,
    by=people,
    created_at=st.floats(allow_nan=False, allow_infinity=False),
    app=st.none() | st.text(),
    reason=st.none() | st.text(),
    sequence=counts,
    epoch=counts,
    positions=positions,
    watermark_ns=st.none() | counts,
    counters=st.dictionaries(st.text(max_size=9), counts, max_size=4),
    version=counts,
    floor=counts,
    changed=st.none() | counts,
    ancestry=st.lists(counts, max_size=8).map(lambda e: ancestry_of(e[: len(e) // 2 * 2])),
    state=manifests,
    dedup=manifests,
    state_delta=st.none() | refs,
    topics=st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3),
    window=manifests,
    packs=st.lists(refs, max_size=3).map(tuple),
    hooks=maps,
    disowned=st.lists(st.tuples(counts, nonces), max_size=3).map(tuple),
    assignment=st.none() | refs,
    operators=st.none() | refs,
    pins=maps,
    details=maps,
)


def a_snapshot(**changes: Any) -> Snapshot:
    ref = Ref(digest_of(b"content"), 7)
    made = Snapshot(
        stream="clicks",
        stream_id="3f0c",
        number=7,
        kind=Kind.EPOCH,
        parent=digest_of(b"parent"),
        generation=2,
        writer="a run",
        nonce="0" * 32,
        by=Who("ada", "host", 42, "then", "python job.py"),
        created_at=1_700_000_000.5,
        positions=Positions({"events": {0: 12, 1: 9}}),
        counters={"0": 12},
        floor=2,
        ancestry=((2, 4), (6, 7)),
        state=Manifest(ref, (ref,)),
        details={"summary": "seven"},
    )
    return replace(made, **changes)


def fields_of(snapshot: Snapshot) -> dict[str, Any]:
    fields = codec.decode(snapshots.FORMAT, snapshots.encode(snapshot), "here")
    assert isinstance(fields, dict)
    return fields


@pytest.fixture(scope="module")
def storage() -> Iterator[LocalStorage]:
    with streams.in_memory() as root:
        yield LocalStorage(root)


@given(any_snapshot)
def test_what_goes_in_comes_out(snapshot: Snapshot) -> None:
    data = snapshots.encode(snapshot)
    read = snapshots.decode(data, "here")
    assert read == snapshot
    assert read.digest == snapshots.digest_of(data)
    assert snapshots.encode(read) == data


def backwards(value: Mapping[str, Any]) -> dict[str, Any]:
    return dict(list(value.items())[::-1])


@settings(max_examples=50)
@given(any_snapshot)
def test_equal_snapshots_have_equal_bytes(snapshot: Snapshot) -> None:
    turned = replace(
        snapshot,
        counters=backwards(snapshot.counters),
        pins=backwards(snapshot.pins),
        details=backwards(snapshot.details),
        positions=Positions.of(reversed(list(snapshot.positions))),
        digest="of another file",
    )
    assert turned == snapshot
    assert snapshots.encode(turned) == snapshots.encode(snapshot)


small = st.integers(0, 2**63 - 1)
any_hint = st.builds(
    Hint,
    stream_id=st.text(),
    number=small,
    generation=small,
    version=small,
    epoch=small,
    sequence=small,
    floor=st.just(0),
    created_at=st.floats(allow_nan=False, allow_infinity=False),
    digest=digests,
)


@given(any_hint)
def test_hints_come_out_as_they_went_in(storage: LocalStorage, hint: Hint) -> None:
    write_hint(storage, HEAD, hint)
    assert read_hint(storage, HEAD) == hint


# Damage.


def damaged(data: bytes) -> Iterator[bytes]:
    """Every truncation, every single byte flipped, and more bytes than there should be."""
    for size in range(len(data)):
        yield data[:size]
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
    yield data + b"\0"


def test_a_damaged_snapshot_is_reported() -> None:
    for data in damaged(snapshots.encode(a_snapshot())):
        with pytest.raises(SnapshotDamaged):
            snapshots.decode(data, "here")


def test_a_damaged_hint_is_reported(storage: LocalStorage) -> None:
    write_hint(storage, HEAD, Hint.of(replace(a_snapshot(), digest=digest_of(b"snapshot"))))
    path = storage.local_path(HEAD)
    assert path
    for data in damaged(path.read_bytes()):
        path.write_bytes(data)
        with pytest.raises(HeadDamaged) as caught:
            read_hint(storage, HEAD)
        assert caught.value.place == str(path)


def test_a_damaged_manifest_is_reported() -> None:
    ref = Ref(digest_of(b"content"), 7)
    for data in damaged(manifest.encode({0: (ref,), 3: (ref, ref)})):
        with pytest.raises(Corrupt):
            manifest.decode(data, "here")


@pytest.fixture(scope="module")
def blob() -> bytes:
    return delta.encode(delta.table(["a", "b"], {"n": [1, 2]}, {"n": Merge.SUM}))


def test_a_damaged_delta_is_reported(storage: LocalStorage, blob: bytes) -> None:
    blobs = Blobs(storage)
    ref = blobs.put(blob)
    path = storage.local_path(ref.key)
    assert path
    for data in damaged(blob):
        path.write_bytes(data)
        with pytest.raises(BlobDamaged):
            manifest.contents(blobs, [ref])


def test_bytes_that_are_no_delta_are_reported(blob: bytes) -> None:
    """Without the digest not every flip shows, but none ends in a traceback."""
    every = 1 if os.environ.get("SG_LAB") == "all" else 5
    for data in [*damaged(blob)][::every]:
        with suppress(DeltaInvalid):
            delta.merge([delta.decode(data, "here")])


# Hostile content, with checksums that are right.

DIGEST = digest_of(b"content")
REF = [DIGEST, 7]
HOSTILE: list[dict[str, Any]] = [
    {"stream": 7},
    {"stream_id": None},
    {"number": -1},
    {"number": True},
    {"number": 7.0},
    {"number": "7"},
    {"kind": "merge"},
    {"kind": None},
    {"kind": ["epoch"]},
    {"parent": "not hexadecimal"},
    {"parent": 7},
    {"generation": -(2**63)},
    {"writer": b"a run"},
    {"nonce": "0" * 31},
    {"by": None},
    {"by": {}},
    {"by": {"user": 1}},
    {"created_at": 7},
    {"created_at": math.inf},
    {"created_at": "now"},
    {"app": []},
    {"reason": {}},
    {"sequence": None},
    {"epoch": 1.5},
    {"positions": {"events": [[0, 1], [5]]}},
    {"positions": {"events": [[0], [-1]]}},
    {"positions": {"events": [["0"], [1]]}},
    {"positions": {"events": [0, 1]}},
    {"positions": {"events": [[0, 0], [1, 2]]}},
    {"watermark_ns": -1},
    {"counters": {"n": -1}},
    {"version": False},
    {"floor": "0"},
    {"changed": -1},
    {"ancestry": [[4, 2]]},
    {"ancestry": [[6, 7], [2, 4]]},
    {"ancestry": [[1, 2, 3]]},
    {"ancestry": 7},
    {"ancestry": ["ab"]},
    {"state": None},
    {"state": [None]},
    {"state": [None, [REF] * (snapshots.MAX_DELTAS + 1)]},
    {"state": [["00", 7], []]},
    {"state": [None, {"0": REF}]},
    {"dedup": [REF, [None]]},
    {"dedup": "ab"},
    {"deltas": [DIGEST.upper(), 7]},
    {"deltas": [DIGEST, -7]},
    {"deltas": {}},
    {"assignment": "none"},
    {"operators": [DIGEST]},
    {"pins": []},
    {"details": None},
    {"details": "a text"},
]


def shown(changes: dict[str, Any]) -> str:
    return f"{changes!a:.50}"


@pytest.mark.parametrize("changes", HOSTILE, ids=shown)
def test_hostile_snapshots_are_refused(changes: dict[str, Any]) -> None:
    data = codec.encode(snapshots.FORMAT, fields_of(a_snapshot()) | changes)
    with pytest.raises(SnapshotDamaged):
        snapshots.decode(data, "here")


@pytest.mark.parametrize("changes", [{"positions": None}, {"positions": []}, {"counters": []}])
def test_lists_where_maps_belong(changes: dict[str, Any]) -> None:
    test_hostile_snapshots_are_refused(changes)


@pytest.mark.parametrize("body", [None, 7, [], {}, "snapshot"], ids=repr)
def test_bodies_that_are_no_snapshot(body: Any) -> None:
    with pytest.raises(SnapshotDamaged):
        snapshots.decode(codec.encode(snapshots.FORMAT, body), "here")


@pytest.mark.parametrize("name", sorted(fields_of(a_snapshot())))
def test_a_snapshot_without_a_field(name: str) -> None:
    fields = fields_of(a_snapshot())
    del fields[name]
    for hostile in (fields, fields | {"unknown": 1}):
        with pytest.raises(SnapshotDamaged):
            snapshots.decode(codec.encode(snapshots.FORMAT, hostile), "here")


HOSTILE_HINTS: list[dict[str, Any]] = [
    {"number": -1},
    {"number": True},
    {"number": 2**63},
    {"number": 1},
    {"generation": None},
    {"version": "1"},
    {"epoch": 1.0},
    {"sequence": -1},
    {"floor": 8},
    {"created_at": 1},
    {"created_at": -math.inf},
    {"digest": "ab"},
    {"digest": 7},
    {"stream_id": 7},
    {"unknown": 7},
]


@pytest.mark.parametrize("changes", HOSTILE_HINTS, ids=shown)
def test_hostile_hints_are_refused(storage: LocalStorage, changes: dict[str, Any]) -> None:
    good = asdict(Hint.of(replace(a_snapshot(), digest=digest_of(b"snapshot"))))
    for fields in (good | changes, {k: v for k, v in good.items() if k not in changes}):
        if fields == good:
            continue
        storage.replace(HEAD, codec.encode(hints.FORMAT, fields))
        with pytest.raises(HeadDamaged):
            read_hint(storage, HEAD)


@pytest.mark.parametrize(
    "body",
    [None, [], {"0": 7}, {"0": [7]}, {"0": [["ab", 1]]}, {"shard": [REF]}, {"0": {"a": REF}}],
    ids=shown,
)
def test_hostile_manifests_are_refused(body: Any) -> None:
    with pytest.raises(Corrupt):
        manifest.decode(codec.encode(manifest.FORMAT, body), "here")


# What a newer release wrote.


def newer(fmt: codec.Format, body: Any) -> bytes:
    return codec.encode(codec.Format(fmt.kind, fmt.version + 1, fmt.max_body), body)


def test_a_newer_format_is_not_taken_for_damage(storage: LocalStorage) -> None:
    with pytest.raises(UnsupportedFormat):
        snapshots.decode(newer(snapshots.FORMAT, fields_of(a_snapshot())), "here")
    with pytest.raises(UnsupportedFormat):
        manifest.decode(newer(manifest.FORMAT, {}), "here")
    storage.replace(HEAD, newer(hints.FORMAT, {}))
    with pytest.raises(UnsupportedFormat):
        read_hint(storage, HEAD)


@pytest.mark.parametrize("which", ["newest", "older", "HEAD"])
def test_what_a_newer_release_wrote_is_left_alone(tmp_path: Path, which: str) -> None:
    stream = streams.made(tmp_path / "home", epochs=3)
    root, head = tmp_path / "home" / streams.NAME, stream.chain.head()
    key, fmt = {
        "newest": (snapshots.key_of(head.number), snapshots.FORMAT),
        "older": (snapshots.key_of(head.number - 2), snapshots.FORMAT),
        "HEAD": (HEAD, hints.FORMAT),
    }[which]
    data = newer(fmt, {})
    (root / key).write_bytes(data)
    with pytest.raises(UnsupportedFormat):
        verify(stream)
    with pytest.raises(UnsupportedFormat):
        StreamJournal(stream).propose(streams.operation_of("repair"))
    if which != "older":
        with pytest.raises(UnsupportedFormat):
            StreamWriter(stream).head()
    assert (root / key).read_bytes() == data
