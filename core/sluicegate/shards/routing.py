"""Which shard a key belongs to: FNV-1a 64 of its UTF-8 bytes, modulo the number of shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluicegate.errors import UsageError

if TYPE_CHECKING:
    from sluicegate.shards.columns import Column
    from sluicegate.shards.hashing import Texts

BASIS, PRIME = 0xCBF29CE484222325, 0x100000001B3
_MASK = 2**64 - 1


def fnv1a64(data: bytes, value: int = BASIS) -> int:
    """The FNV-1a hash of bytes in 64 bits; of more bytes, if `value` is the hash of some before."""
    for byte in data:
        value = (value ^ byte) * PRIME & _MASK
    return value


def shard_of(key: str, n_shards: int) -> int:
    """The shard of a key."""
    return fnv1a64(key.encode()) % n_shards


def shards_of(keys: Texts, n_shards: int) -> Column:
    """The shards of a column of keys, as integers; equal to `shard_of` of each.

    Takes Arrow strings, large strings and dictionaries of them. A missing key is refused.
    """
    # Imported here: who routes a single key needs neither numpy nor Arrow.
    from sluicegate.shards.hashing import hashes_of, remainders

    if n_shards < 1:
        raise UsageError(f"there cannot be {n_shards} shards")
    return remainders(hashes_of(keys), n_shards)
