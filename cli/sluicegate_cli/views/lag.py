"""Lag on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from sluicegate import units
from sluicegate.findings import Finding
from sluicegate.lag import Lag, total
from sluicegate_cli.output import Table, View


def lag_view(uri: str, found: Sequence[Lag], wrong: Sequence[Finding]) -> View:
    """Every partition with its position, its end and what lies between."""
    lines = [f"{units.events(total(found))} behind in all."]
    if unknown := [each.place for each in found if each.latest is None]:
        lines.append(f"Not counted, because its end was not given: {', '.join(unknown)}.")
    if new := [each.place for each in found if each.position is None]:
        lines.append(f"Without a position yet, so all of it counts: {', '.join(new)}.")
    return View(
        schema="sluicegate.lag",
        document={
            "target": uri,
            "total": total(found),
            "partitions": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "position": each.position,
                    "earliest": each.earliest,
                    "latest": each.latest,
                    "lag": each.behind,
                }
                for each in found
            ],
        },
        tables=[
            Table(
                ("topic", "partition", "position", "end", "lag"),
                [(e.topic, e.partition, e.position, e.latest, e.behind) for e in found],
            )
        ],
        findings=wrong,
        lines=lines,
    )
