"""Positions taken out of a checkpoint, for other tools."""

from __future__ import annotations

from sluicegate.errors import UnsupportedFormat
from sluicegate.positions import Positions
from sluicegate.spark.diff import Point


def exported_positions(point: Point) -> Positions:
    """The positions of all sources at a point; an error if a source has none, or two share one."""
    merged = []
    for offset in point.entry.offsets:
        if offset.positions is None:
            raise UnsupportedFormat(
                f"source {offset.source} of {point.uri} has a {offset.kind.value} offset, "
                "which is not a position of a topic",
                hint=f"see it with: sluicegate offsets show {point.uri}",
                place=point.uri,
            )
        merged += list(offset.positions)
    return Positions.of(merged)
