"""Damaging bytes at random: what every parser is fed with."""

from __future__ import annotations

import random
from collections.abc import Callable

from sluicegate.errors import SluicegateError
from tests.memory import peak_bytes

_SPLICES = (b"\n", b"{", b"}", b"-", b"\xff", b"\0", b"9" * 30, b'"', b"[" * 2000, b"v9", b"null")


def damaged(original: bytes, chance: random.Random) -> bytes:
    """The bytes with one random damage."""
    data = bytearray(original)
    at = chance.randrange(len(data) + 1)
    match chance.randrange(5):
        case 0 if data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        case 1:
            del data[at:]
        case 2:
            data[at:at] = chance.choice(_SPLICES)
        case 3:
            del data[at : at + chance.randrange(1, 40)]
        case _:
            data[at : at + chance.randrange(1, 9)] = chance.randbytes(chance.randrange(1, 9))
    return bytes(data)


def feed(originals: list[bytes], parse: Callable[[bytes], object], count: int = 10_000) -> int:
    """Parse `count` damaged inputs; only our errors may come out. How many did."""
    chance = random.Random(11)
    refused = 0
    before = peak_bytes()
    for turn in range(count):
        try:
            parse(damaged(originals[turn % len(originals)], chance))
        except SluicegateError:
            refused += 1
    grown = peak_bytes() - before
    assert grown < 200 << 20, "memory must stay bounded"
    assert refused > count // 20, "the damage must be felt"
    return refused
