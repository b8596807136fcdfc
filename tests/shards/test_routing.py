"""Keys and their shards: published vectors, and columns against single keys."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.errors import UsageError
from sluicegate.shards import hashing
from sluicegate.shards.hashing import shards_of
from sluicegate.shards.routing import fnv1a64, shard_of

# From the reference implementation's own list, http://www.isthe.com/chongo/src/fnv/test_fnv.c
PUBLISHED = {
    "": 0xCBF29CE484222325,
    "a": 0xAF63DC4C8601EC8C,
    "b": 0xAF63DF4C8601F1A5,
    "f": 0xAF63DB4C8601EAD9,
    "fo": 0x08985907B541D342,
    "foo": 0xDCB27518FED9D577,
    "foob": 0xDD120E790C2512AF,
    "fooba": 0xCAC165AFA2FEF40A,
    "foobar": 0x85944171F73967E8,
    "chongo was here!\n": 0x46810940EFF5F915,
}
TYPES = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
keys_of_any_kind = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.parametrize(("key", "value"), PUBLISHED.items())
def test_the_published_vectors(key: str, value: int) -> None:
    assert fnv1a64(key.encode()) == value
    assert hashing.hashes_of(pa.array([key])).tolist() == [value]


def test_a_hash_can_be_continued() -> None:
    assert fnv1a64(b"bar", fnv1a64(b"foo")) == PUBLISHED["foobar"]


@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(keys=st.lists(keys_of_any_kind, max_size=60), n_shards=st.integers(1, 2**40))
def test_a_column_is_routed_as_its_keys(kind: pa.DataType, keys: list[str], n_shards: int) -> None:
    routed = shards_of(pa.array(keys, pa.string()).cast(kind), n_shards)
    assert routed.tolist() == [shard_of(key, n_shards) for key in keys]


@given(
    parts=st.lists(st.lists(keys_of_any_kind, max_size=20), max_size=4),
    skip=st.integers(0, 30),
    take=st.integers(0, 60),
)
def test_slices_and_chunks(parts: list[list[str]], skip: int, take: int) -> None:
    full = pa.chunked_array([pa.array(part, pa.string()) for part in parts], pa.string())
    column = full.slice(skip, take)
    assert shards_of(column, 97).tolist() == [shard_of(k, 97) for k in column.to_pylist()]


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 7, 8, 9, 63, 64, 65, 300]), min_size=1, max_size=200),
    block=st.integers(1, 70),
)
def test_blocks_of_any_size(lengths: list[int], block: int) -> None:
    keys = [chr(97 + i % 26) * length for i, length in enumerate(lengths)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "_BLOCK", block)
        assert shards_of(pa.array(keys), 1009).tolist() == [shard_of(k, 1009) for k in keys]


def test_many_keys_of_many_lengths() -> None:
    chance = np.random.default_rng(5)
    keys = ["é🙂k"[: i % 4] * int(n) for i, n in enumerate(chance.integers(0, 30, 40_000))]
    assert shards_of(pa.array(keys), 256).tolist() == [shard_of(k, 256) for k in keys]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 16, 36])
def test_keys_that_are_all_as_long(length: int) -> None:
    keys = [f"{i:0{length}}"[:length] for i in range(200)]
    column = pa.array(["before", *keys])[1:]
    assert shards_of(column, 2**31).tolist() == [shard_of(k, 2**31) for k in keys]


@pytest.mark.parametrize("length", [65_536, 70_001])
def test_one_long_key_costs_only_its_own_bytes(length: int) -> None:
    usual = pa.array([f"user-{i}" for i in range(100_000)])
    with_long = pa.concat_arrays([usual, pa.array(["x" * length])])
    assert shards_of(with_long, 4096)[-1] == shard_of("x" * length, 4096)
    before, after = _fastest(usual), _fastest(with_long)
    # Every step of the long key over the entire block would be many seconds.
    assert after < before * 4 + 0.2


def test_only_long_keys() -> None:
    keys = [f"{i}" * 40_000 for i in range(30)]
    assert shards_of(pa.array(keys), 11).tolist() == [shard_of(k, 11) for k in keys]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_no_keys_have_no_shards(kind: pa.DataType) -> None:
    assert shards_of(pa.array([], pa.string()).cast(kind), 8).tolist() == []
    assert shards_of(pa.chunked_array([], kind), 8).tolist() == []


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_missing_key_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(UsageError, match="1 of 3 keys are missing"):
        shards_of(pa.array(["a", None, "b"], pa.string()).cast(kind), 8)


def test_a_dictionary_may_hold_a_missing_text_that_no_key_uses() -> None:
    texts = pa.array(["a", None, "b"])
    used = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2]), texts)
    assert shards_of(used, 64).tolist() == [shard_of(k, 64) for k in "bab"]
    with pytest.raises(UsageError, match="missing"):
        shards_of(pa.DictionaryArray.from_arrays(pa.array([1, 0]), texts), 64)


def test_other_columns_and_counts_are_refused() -> None:
    with pytest.raises(UsageError, match="not int64"):
        shards_of(pa.array([1, 2]), 8)
    for count in (0, -1):
        with pytest.raises(UsageError, match="shards"):
            shards_of(pa.array(["a"]), count)


def _fastest(column: pa.Array) -> float:
    times = []
    for _ in range(3):
        started = time.perf_counter()
        shards_of(column, 4096)
        times.append(time.perf_counter() - started)
    return min(times)
