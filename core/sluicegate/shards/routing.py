"""Which shard a key belongs to: FNV-1a 64 of its UTF-8 bytes, modulo the number of shards."""

from __future__ import annotations

_BASIS, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1


def fnv1a64(data: bytes) -> int:
    """The FNV-1a hash of bytes in 64 bits."""
    value = _BASIS
    for byte in data:
        value = (value ^ byte) * _PRIME & _MASK
    return value


def shard_of(key: str, n_shards: int) -> int:
    """The shard of a key."""
    return fnv1a64(key.encode()) % n_shards
