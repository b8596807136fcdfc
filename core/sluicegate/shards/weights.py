"""Weights of shards: a column from a map of some of them, or from a file in CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping

import numpy as np

from sluicegate.errors import UsageError
from sluicegate.shards.planner import checked_weights
from sluicegate.shards.routing import Column

_SHARD = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


class WeightsInvalid(UsageError):
    """A file does not hold weights of shards."""

    default_hint = 'write lines of "shard,weight", or JSON such as {"0": 120, "1": 7.5}'


def column_of(weights: Mapping[int, float], n_shards: int) -> Column:
    """The weights of all shards; 0 for those that are not named."""
    beyond = [shard for shard in weights if not 0 <= shard < n_shards]
    if beyond:
        raise WeightsInvalid(f"there is no shard {min(beyond)}; they are 0 to {n_shards - 1}")
    column = np.zeros(n_shards, np.float64)
    column[np.fromiter(weights.keys(), np.int64, len(weights))] = [*weights.values()]
    return checked_weights(column, n_shards)


def parse(text: str, n_shards: int) -> Column:
    """The weights in the text of a file: JSON if it begins like that, else CSV."""
    begin = text.lstrip()[:1]
    return column_of(_from_json(text) if begin in ("{", "[") else _from_csv(text), n_shards)


def shard_number(text: str) -> int | None:
    """The number of a shard from text; None if it is not one."""
    return int(text) if _SHARD.fullmatch(text.strip()) else None


def _from_json(text: str) -> dict[int, float]:
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as e:
        raise WeightsInvalid(f"this is not JSON: {e}") from e
    pairs = enumerate(found) if isinstance(found, list) else found.items()
    weights = {}
    for name, weight in pairs:
        shard = shard_number(str(name))
        if shard is None or isinstance(weight, bool) or not isinstance(weight, int | float):
            raise WeightsInvalid(f"{name!r}: {weight!r:.40} is not the weight of a shard")
        try:
            weights[shard] = float(weight)
        except OverflowError:
            raise WeightsInvalid(f"the weight of shard {shard} is too large") from None
    return weights


def _from_csv(text: str) -> dict[int, float]:
    weights: dict[int, float] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row or (number == 1 and [cell.strip().lower() for cell in row][:1] == ["shard"]):
            continue
        shard = shard_number(row[0])
        if len(row) != 2 or shard is None or shard in weights:
            raise WeightsInvalid(f"line {number}: {','.join(row)[:60]!r} is not shard,weight")
        try:
            weights[shard] = float(row[1])
        except ValueError:
            raise WeightsInvalid(f"line {number}: {row[1][:40]!r} is not a number") from None
    return weights


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a shard occurs twice")
    return found
