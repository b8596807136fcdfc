"""Plans against counting and sorting the same array; routing against a hash per key in a loop."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b

import numpy as np
import pyarrow as pa
from harness import Bar, Row, compare

from sluicegate.shards.assignment import Assignment
from sluicegate.shards.hashing import shards_of
from sluicegate.shards.planner import plan

SHARDS, NODES = 1_000_000, 1_000
KEYS, SHARDS_OF_KEYS = 10_000_000, 4_096
SOME = 500_000  # of the keys, for the loop


def rows() -> Iterator[Row]:
    yield from _plans()
    yield from _routing()


def _plans() -> Iterator[Row]:
    nodes = {f"node-{i:04}": 1 for i in range(NODES)}
    more = {**nodes, "node-new": 1}
    first = plan(Assignment.unowned(SHARDS), nodes).after
    chance = np.random.default_rng(0)
    shuffled = Assignment(SHARDS, nodes, chance.permutation(first.owners))
    uneven = Assignment(SHARDS, nodes, chance.integers(0, NODES, SHARDS))
    bar = Bar("time at most", 10)
    for name, current in (("balanced", shuffled), ("uneven", uneven)):
        owners = current.owners

        def peer(owners: np.ndarray = owners) -> None:
            np.bincount(owners)
            np.argsort(owners)

        def ours(current: Assignment = current) -> None:
            plan(current, more)

        title = f"one node joins 1 M {name} shards / count, sort"
        yield compare(title, ours, peer, bar, rounds=9)
    weights = chance.lognormal(0, 1, SHARDS)

    def peer_of_weights() -> None:
        np.bincount(uneven.owners, weights)
        np.argsort(uneven.owners)

    title = "1 M uneven shards by weight / count, sort"
    yield compare(title, lambda: plan(uneven, nodes, weights), peer_of_weights, bar, rounds=3)


def _routing() -> Iterator[Row]:
    """In seconds per byte of key; the loop over a part of them."""
    chance = np.random.default_rng(1)
    numbers = chance.integers(0, 10**9, KEYS)
    for name, keys in (
        ("user-…", [f"user-{i}" for i in numbers]),
        ("UUIDs", [f"{i:08x}-0000-4000-8000-{i * 7919:012x}" for i in numbers]),
    ):
        column = pa.array(keys)
        some = [key.encode() for key in keys[:SOME]]
        size, part = column.nbytes - column.buffers()[1].size, sum(map(len, some))
        ours, peer = [], []
        for _ in range(5):
            ours.append(_timed(partial(shards_of, column, SHARDS_OF_KEYS)) / size)
            peer.append(_timed(partial(_loop, some)) / part)
        bar = Bar("rate at least", 10)
        mine, theirs = statistics.median(ours), statistics.median(peer)
        ratio = bar.ratio(mine, theirs)
        # Per 1 GB of keys, so that the figures can be read as seconds.
        title = f"route 10 M {name}, per GB / blake2b in a loop"
        yield Row(title, mine * 1e9, theirs * 1e9, ratio, str(bar), bar.met(ratio))


def _loop(keys: list[bytes]) -> list[int]:
    found = []
    for key in keys:
        digest = blake2b(key, digest_size=8).digest()
        found.append(int.from_bytes(digest, "little") % SHARDS_OF_KEYS)
    return found


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
