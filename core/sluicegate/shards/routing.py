"""The shard of a key: FNV-1a 64 of its UTF-8 bytes, modulo the number of shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from typing import Any

    import numpy as np


Column: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


BASIS, PRIME = 0xCBF29CE484222325, 0x100000001B3
_MASK = 2**64 - 1


def fnv1a64(data: bytes, value: int = BASIS) -> int:
    """The 64-bit FNV-1a hash of bytes; `value` is the hash of preceding bytes."""
    for byte in data:
        value = (value ^ byte) * PRIME & _MASK
    return value


def shard_of(key: str, n_shards: int) -> int:
    """The shard of a key."""
    return fnv1a64(key.encode()) % n_shards
