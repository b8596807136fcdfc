"""A proposal: another assignment, and what was known when it was planned, as text in a plan.

It holds the map itself and the weights, not how they were found. So a saved plan says the same
about itself when it is applied, though the weights have changed by then.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from sluicegate.errors import Corrupt, SluicegateError
from sluicegate.shards.assignment import Assignment, decode, encode
from sluicegate.shards.columns import Column
from sluicegate.shards.planner import RebalancePlan, checked_weights

INSTALL, REBALANCE, JOIN, LEAVE, UNDO = HOW = ("install", "rebalance", "join", "leave", "undo")
_MAX_WEIGHTS = 1 << 27


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """The map to be, and why: `how` it came about, and what the weights measure, if there are any.

    `minimum` and `reached` are those of the plan; `bound` is the imbalance that was asked for.
    `sizes` are the bytes of state that each shard had then.
    """

    after: Assignment
    how: str = REBALANCE
    minimum: int = 0
    reached: bool = True
    bound: float | None = None
    measure: str | None = None
    weights: Column | None = None
    sizes: Column | None = None

    @classmethod
    def of(
        cls,
        plan: RebalancePlan,
        how: str,
        *,
        bound: float | None = None,
        measure: str | None = None,
        sizes: Column | None = None,
    ) -> Proposal:
        """What a plan proposes."""
        found = plan.minimum, plan.reached, bound, measure, plan.weights, sizes
        return cls(plan.after, how, *found)

    def plan_from(self, before: Assignment) -> RebalancePlan:
        """What it means for an assignment as it is now."""
        after = self.after.at_version(before.version + 1)
        return RebalancePlan(before, after, self.minimum, self.reached, self.weights)

    def to_text(self) -> str:
        """As text, for the work of a plan."""
        return json.dumps(
            {
                "map": base64.b64encode(encode(self.after)).decode("ascii"),
                "how": self.how,
                "minimum": self.minimum,
                "reached": self.reached,
                "bound": self.bound,
                "measure": self.measure,
                "weights": _packed(self.weights),
                "sizes": _packed(self.sizes),
            }
        )

    @classmethod
    def from_text(cls, text: str | None) -> Proposal:
        """From text, or `Corrupt`."""
        try:
            return _proposal(json.loads(text or ""))
        except (ValueError, TypeError, RecursionError, zlib.error, SluicegateError) as e:
            raise Corrupt(f"the plan does not hold an assignment: {e}") from e


def _proposal(fields: Any) -> Proposal:
    match fields:
        case {
            "map": str(data),
            "how": str(how),
            "minimum": int(minimum),
            "reached": bool(reached),
            "bound": None | float() | int() as bound,
            "measure": None | str() as measure,
            "weights": None | str() as weights,
            "sizes": None | str() as sizes,
            **unknown,
        } if how in HOW and not unknown:
            after = decode(base64.b64decode(data, validate=True), "its map")
            columns = [_unpacked(each, after.n_shards) for each in (weights, sizes)]
            return Proposal(after, how, minimum, reached, bound, measure, *columns)
    raise ValueError("its fields are others")


def _packed(weights: Column | None) -> str | None:
    if weights is None:
        return None
    return base64.b64encode(zlib.compress(weights.astype("<f8").tobytes())).decode("ascii")


def _unpacked(text: str | None, n_shards: int) -> Column | None:
    if text is None:
        return None
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as e:
        raise ValueError("its weights are damaged") from e
    # A few bytes may claim to be many.
    raw = zlib.decompressobj().decompress(data, min(_MAX_WEIGHTS, n_shards * 8 + 1))
    return checked_weights(np.frombuffer(raw, "<f8"), n_shards)
