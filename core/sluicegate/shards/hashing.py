"""FNV-1a over columns of texts: all keys of a block take each step at once.

The keys of a block are sorted by length, so that those that still have bytes left are always the
first ones. Eight bytes of every key are fetched at a time. When only a few long keys are left they
are finished one by one, so that an outlier costs only its own bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from sluicegate.errors import UsageError
from sluicegate.shards.routing import BASIS, PRIME, Column, fnv1a64

Texts: TypeAlias = "pa.Array | pa.ChunkedArray"

_BLOCK = 1 << 15
_WORD = 8
_FEW = 24
_STEP = np.uint64(PRIME)


def hashes_of(texts: Texts) -> Column:
    """The FNV-1a 64 hash of the UTF-8 bytes of every text; a missing one is refused."""
    if isinstance(texts, pa.ChunkedArray):
        parts = [hashes_of(chunk) for chunk in texts.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)
    if texts.null_count:
        raise UsageError(
            f"{texts.null_count:,} of {len(texts):,} keys are missing, so they belong to no shard",
            hint="drop such events first, or set a key for them",
        )
    if pa.types.is_dictionary(texts.type):
        return _of_dictionary(texts)
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        raise UsageError(f"keys are texts, not {texts.type}", hint="cast the column to string")
    hashes = np.empty(len(texts), np.uint64)
    for start, (offsets, data) in _blocks(texts):
        hashes[start : start + len(offsets) - 1] = _of_block(offsets, data)
    return hashes


def remainders(hashes: Column, divisor: int) -> Column:
    """`hashes % divisor`, by a division that numpy does many at a time."""
    by = np.uint64(divisor)
    found: Column = hashes - hashes // by * by
    return found.view(np.int64)


def _of_dictionary(texts: Texts) -> Column:
    """Hash every text of the dictionary once; a missing one that is not used is allowed."""
    known = texts.dictionary
    if known.null_count:
        return hashes_of(known.take(texts.indices))
    found: Column = hashes_of(known)[np.asarray(texts.indices)]
    return found


def _blocks(texts: Texts) -> Iterator[tuple[int, tuple[Column, Column]]]:
    """The start of each block, its offsets from 0, and its bytes padded by a word."""
    if not len(texts):
        return
    _, raw, content = texts.buffers()
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    every = np.frombuffer(raw, kind, len(texts) + 1, texts.offset * np.dtype(kind).itemsize)
    data = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
    for start in range(0, len(texts), _BLOCK):
        offsets = every[start : start + _BLOCK + 1].astype(np.int64)
        first, last = offsets[0], offsets[-1]
        # Padded, because the last word of the last text reaches past its end.
        padded = np.zeros(last - first + _WORD, np.uint8)
        padded[: last - first] = data[first:last]
        yield start, (offsets - first, padded)


def _of_block(offsets: Column, data: Column) -> Column:
    lengths = np.diff(offsets)
    if int(lengths.min()) == int(lengths.max()):
        return _stepped(offsets[:-1], lengths, data, stride=int(lengths[0]))
    order = _longest_first(lengths)
    hashes = np.empty(len(lengths), np.uint64)
    hashes[order] = _stepped(offsets[:-1][order], lengths[order], data, stride=0)
    return hashes


def _stepped(starts: Column, lengths: Column, data: Column, *, stride: int) -> Column:
    """The hashes of texts, longest first; with a stride, all are equally long and contiguous."""
    longest = int(lengths[0])
    # How many texts have more bytes than this, by the number of bytes.
    shorter = np.searchsorted(lengths[::-1], np.arange(longest), side="right")
    left = (len(lengths) - shorter).tolist()
    values, byte = np.full(len(lengths), BASIS, np.uint64), np.empty(len(lengths), np.uint64)
    for at, count in enumerate(left):
        if at % _WORD == 0:
            if count < _FEW:
                _finish(values, at, starts[:count], lengths, data)
                break
            word = _words(data, starts[:count], at, stride)
        some, step = values[:count], byte[:count]
        np.copyto(step, word[:count, at % _WORD])
        np.bitwise_xor(some, step, out=some)
        np.multiply(some, _STEP, out=some)
    return values


def _words(data: Column, starts: Column, at: int, stride: int) -> Column:
    """Eight bytes from a position in each text; bytes past its end are ignored."""
    if stride:
        # A copy in steps is much faster than looking up each start.
        found = np.ndarray((len(starts),), np.uint64, data, offset=at, strides=(stride,)).copy()
    else:
        found = np.ndarray((len(data) - _WORD + 1,), np.uint64, data, strides=(1,))[starts + at]
    return found.view(np.uint8).reshape(len(starts), _WORD)


def _finish(values: Column, at: int, starts: Column, lengths: Column, data: Column) -> None:
    """Finish the few texts that are longer than all others, one by one."""
    for row, start in enumerate(starts.tolist()):
        rest = data[start + at : start + int(lengths[row])].tobytes()
        values[row] = fnv1a64(rest, int(values[row]))


def _longest_first(lengths: Column) -> Column:
    longest = int(lengths.max())
    if longest < 1 << 16:
        # Sixteen bits are sorted without comparing.
        lengths = lengths.astype(np.uint16)
    return np.argsort(lengths, kind="stable")[::-1]


def shards_of(keys: Texts, n_shards: int) -> Column:
    """The shards of a column of keys, as integers; equal to `shard_of` of each.

    Takes Arrow strings, large strings and dictionaries of them. A missing key is refused.
    """

    if n_shards < 1:
        raise UsageError(f"there cannot be {n_shards} shards")
    return remainders(hashes_of(keys), n_shards)
