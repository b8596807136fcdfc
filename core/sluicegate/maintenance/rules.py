"""What maintenance finds beyond what `verify` does."""

from __future__ import annotations

from sluicegate.findings import Severity, rule

FAILED = rule(
    "SG-MAINTAIN-FAILED",
    Severity.ERROR,
    "a step of the maintenance failed",
    "The step changed nothing, or left what the next run finishes; the other steps were done all "
    "the same. The detail says what stood against it.",
)
IDLE = rule(
    "SG-MAINTAIN-IDLE",
    Severity.WARNING,
    "nothing was read for long, and nothing runs",
    "No job works on the target, and its newest batch or epoch is older than the key `idle` of "
    "`[maintain]` allows. The job may have died without anybody noticing. If it runs rarely on "
    "purpose, set `idle` to more than the time between two runs.",
)
GROWTH = rule(
    "SG-MAINTAIN-LOG-GROWTH",
    Severity.WARNING,
    "the logs of a checkpoint are not cleared away",
    "Spark keeps the last 100 batches (spark.sql.streaming.minBatchesToRetain) in `offsets/` and "
    "`commits/` and removes older ones after each batch. There are far more, or they became more "
    "since the last look. The job may not be allowed to delete, or the setting is very high; every "
    "start and every batch lists these directories.",
)
METRICS = rule(
    "SG-MAINTAIN-METRICS",
    Severity.ERROR,
    "the metrics file cannot be written",
    "Everything else was done. Until it can be written, whatever watches these metrics sees old "
    "ones, or none: let an alert ask for the age of `sluicegate_last_run_timestamp_seconds`.",
)
