"""Sluicegate: operations toolkit for exactly-once streams on Apache Spark.

`__all__` is the public interface; everything else may change. docs/guide/python.md shows it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # mypy recognises the name, and --version need not import typing
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.2.0"

# Imported on first use, so that PySpark is imported only for the names that need it.
_HOMES = {
    "Finding": "findings.Finding",
    "SluicegateError": "errors.SluicegateError",
    "open": "resolve.open_target",
    "Target": "target.Target",
    "Reading": "target.Reading",
    "Report": "report.Report",
    "Plan": "plan.Plan",
    "Entry": "journal.Entry",
    "Positions": "positions.Positions",
    "Position": "positions.Position",
    "Rollback": "target.Rollback",
    "Reset": "target.Reset",
    "ResetSpec": "reset.ResetSpec",
    "Scenario": "reset.Scenario",
    "Scope": "reset.Scope",
    "Repair": "target.Repair",
    "Prune": "stream.operations.prune.Prune",
    "CompactState": "stream.operations.compact.CompactState",
    "CompactDedup": "stream.operations.compact_dedup.CompactDedup",
    "OffsetStore": "offsets.LockFileOffsetStore",
    "MemoryOffsetStore": "offsets.MemoryOffsetStore",
    "HookedOffsetStore": "offsets.HookedOffsetStore",
    "CommitHook": "offsets.CommitHook",
    "CommitInfo": "offsets.CommitInfo",
    "CollectingHook": "offsets.CollectingHook",
    "LoggingHook": "offsets.LoggingHook",
    "JsonLinesHook": "offsets.JsonLinesHook",
    "Fence": "offsets.Fence",
    "Log": "sources.log.log.Log",
    "Producer": "producer.log_producer.LogProducer",
    "Stamp": "dedup.stamp.Stamp",
    "StreamJob": "job.StreamJob",
    "starting_offsets": "job.starting_offsets",
    "commit_offsets": "job.commit_offsets",
}
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - all of them are texts


def __getattr__(name: str) -> Any:
    """A public name, from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _HOMES[name].rpartition(".")
    return getattr(import_module(f"{__name__}.{module}"), attribute)
