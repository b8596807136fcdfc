"""The rules for Spark checkpoints: one module per area.

A module holds the rules of its area (code, severity, title, explanation, log patterns), `check`,
which reports them, and their fixes. To add a finding, add it there: nothing else lists them. Rules
of another area are used as `area.RULE`, so that the names of a module are its own rules.
"""

from __future__ import annotations

from sluicegate.findings import register_later

# If several log patterns match one line, the first is taken: this order matters.
AREAS = tuple(
    f"{__name__}.{name}"
    for name in (
        "layout",
        "sink_log",
        "source_log",
        "commits",
        "offsets",
        "state_data",
        "state",
    )
)
# Verifying a checkpoint does not import all of them; listing the rules does.
register_later(AREAS)
